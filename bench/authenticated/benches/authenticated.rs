//! Instructions of a call. `paired.rs` has their time.

use gungraun::{library_benchmark, library_benchmark_group, main};
use rethread_authenticated::{Setup, TokenKind, setup};
use std::hint::black_box;

type Request = http::Request<http_body_util::Full<bytes::Bytes>>;

fn with_request(token: Option<TokenKind>) -> (Setup, Request) {
    let setup = setup(token);
    let request = setup.request();
    (setup, request)
}

#[library_benchmark]
#[bench::anonymous(with_request(None))]
#[bench::static_token(with_request(Some(TokenKind::Static)))]
#[bench::jwt(with_request(Some(TokenKind::Jwt)))]
fn call((mut setup, request): (Setup, Request)) -> (usize, Setup) {
    let bytes = setup.send(request);
    (black_box(bytes), setup)
}

library_benchmark_group!(name = calls, benchmarks = call);
main!(library_benchmark_groups = calls);
