//! Mail between nodes: any bytes are a message or none, and a message that was read is sealed and opened without a change.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use rethread_proto::cluster::mail::{MailSeal, parse};

fuzz_target!(|input: (&[u8], &[u8])| {
    let (head, body) = input;
    let seal = MailSeal::new([7; 32]);
    assert_eq!(seal.open(head), None, "nobody has sealed this");

    // The fuzzer need not find the length of the head.
    let length = u32::try_from(head.len()).unwrap_or(u32::MAX).to_be_bytes();
    for plain in [[&length[..], head, body].concat(), head.to_vec()] {
        let Some(mail) = parse(&Bytes::from(plain)) else {
            continue;
        };
        let Ok(sealed) = seal.seal([9; 24], &mail) else {
            continue; // a head may grow when it is written again
        };
        assert_eq!(seal.open(&sealed), Some(mail));
    }
});
