//! The decoder's blocks and refusals do not depend on how the stream is split into chunks.
#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use rethread_proto::sse::{Block, Decoder, TooLong};

#[derive(arbitrary::Arbitrary, Debug)]
struct Input {
    limit: u8,
    cuts: Vec<u8>,
    stream: Vec<u8>,
}

fuzz_target!(|input: Input| {
    let limit = usize::from(input.limit) * 8;
    let whole = decode(limit, [input.stream.as_slice()]);
    let mut rest = input.stream.as_slice();
    let mut chunks = Vec::new();
    for cut in &input.cuts {
        let (chunk, tail) = rest.split_at(usize::from(*cut).min(rest.len()));
        chunks.push(chunk);
        rest = tail;
    }
    chunks.push(rest);
    assert_eq!(decode(limit, chunks), whole);
    assert_eq!(decode(limit, input.stream.chunks(1)), whole);
});

fn decode<'a>(limit: usize, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Block>, Result<(), TooLong>) {
    let mut decoder = Decoder::new(limit);
    let mut blocks = Vec::new();
    let outcome = chunks
        .into_iter()
        .try_for_each(|chunk| decoder.feed(chunk, |block| blocks.push(block)));
    (blocks, outcome)
}
