# The menu. Everything longer than a line lives in `cargo xtask`.

_default:
    @just --list

# The example server with every feature, on 127.0.0.1:8931
run *options:
    cargo run --release --example everything -p rethread -- {{ options }}

# The same, built only
everything:
    cargo build --release --example everything -p rethread

# Everything that must hold; what CI runs
test:
    cargo xtask test

# The same, without the official clients
fast:
    cargo xtask test --fast

# All checks of CI but the tests
check:
    cargo fmt --all --check
    cargo xtask layers --report
    cargo xtask prose
    cargo xtask typos
    cargo xtask deny
    cargo clippy --workspace --all-targets -- -D warnings
    cargo xtask external-types
    cargo xtask wasm
    cargo xtask msrv

# Tarball, npm packages and wheel with checksums
dist *options:
    cargo xtask dist {{ options }}

# Every fuzz target for a while
fuzz seconds="60":
    cargo xtask fuzz {{ seconds }}

# The import graph of the server crate by layer
layers *options:
    cargo xtask layers {{ options }}

# Which test covers which requirement
trace:
    cargo xtask trace --write docs/requirements-trace.md --check

fmt:
    cargo fmt --all
    cargo fmt --manifest-path fuzz/Cargo.toml

doc:
    cargo doc --workspace --no-deps --open

# The benches beside bare hyper, rmcp and other gateways; without options the report in docs/benchmarks
bench *options:
    cargo xtask bench {{ options }}

# Longer tests of three nodes on Redis: kills, readers or isolation
soak *options:
    cargo xtask soak {{ options }}

# Instructions of the pure core, here and at another commit
instructions *options:
    cargo xtask instructions {{ options }}
