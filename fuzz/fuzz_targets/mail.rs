//! Mail between nodes: the parser never panics, and a parsed message survives sealing and opening unchanged.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use rethread_proto::cluster::mail::{MailSeal, parse};

fuzz_target!(|input: (&[u8], &[u8])| {
    let (head, body) = input;
    let seal = MailSeal::new([7; 32]);
    assert_eq!(seal.open(head), None, "unsealed bytes were opened");

    // Prepend a valid length, so that the fuzzer does not have to find it.
    let length = u32::try_from(head.len()).unwrap_or(u32::MAX).to_be_bytes();
    for plain in [[&length[..], head, body].concat(), head.to_vec()] {
        let Some(mail) = parse(&Bytes::from(plain)) else {
            continue;
        };
        let Ok(sealed) = seal.seal([9; 24], &mail) else {
            continue; // a head may grow beyond its limit when it is encoded again
        };
        assert_eq!(seal.open(&sealed), Some(mail));
    }
});
