//! The decoders of the embedded store's files never panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rethread_store_embedded::decode_arbitrary(bytes));
