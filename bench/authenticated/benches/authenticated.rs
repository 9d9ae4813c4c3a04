//! Instructions of a call. callgrind hides the instructions for SHA-256 of the processor, so the digest of a token counts more
//! than it costs: see `paired.rs`.

use gungraun::{library_benchmark, library_benchmark_group, main};
use rethread_authenticated::{Setup, setup};
use std::hint::black_box;

#[library_benchmark]
#[bench::anonymous(setup(0))]
#[bench::static_token(setup(46))]
#[bench::jwt(setup(600))]
fn call(mut setup: Setup) -> (usize, Setup) {
    let bytes = setup.send();
    (black_box(bytes), setup)
}

library_benchmark_group!(name = calls, benchmarks = call);
main!(library_benchmark_groups = calls);
