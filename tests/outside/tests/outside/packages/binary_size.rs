//! The program as people build it: small enough to download and copy without a thought.

use crate::server::target;

/// Bytes of the release build.
const MAX_PROGRAM_BYTES: usize = 14_000_000;

#[test]
fn release_build_is_stripped_and_under_14_mb() {
    let path = target().join("release/rethread");
    let program = std::fs::read(&path).expect("built with: cargo build --release -p rethread-gateway");
    println!("{}: {} bytes", path.display(), program.len());
    assert!(program.len() < MAX_PROGRAM_BYTES, "{} bytes", program.len());
    let has_symbols = program.windows(8).any(|bytes| bytes == b".symtab\0");
    assert!(!has_symbols, "the program has a symbol table");
}
