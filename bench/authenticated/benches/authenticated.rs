//! Instructions of a call. `paired.rs` has their time.

use gungraun::{library_benchmark, library_benchmark_group, main};
use rethread_authenticated::{Setup, TokenKind, setup};
use std::hint::black_box;

#[library_benchmark]
#[bench::anonymous(setup(None))]
#[bench::static_token(setup(Some(TokenKind::Static)))]
#[bench::jwt(setup(Some(TokenKind::Jwt)))]
fn call(mut setup: Setup) -> (usize, Setup) {
    let bytes = setup.send();
    (black_box(bytes), setup)
}

library_benchmark_group!(name = calls, benchmarks = call);
main!(library_benchmark_groups = calls);
