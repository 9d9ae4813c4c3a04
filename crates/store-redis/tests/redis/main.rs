//! Tests of the store on a real Redis server.

mod faults;
mod groups;
mod lossy_proxy;
mod members;
mod restart;
mod settings;
mod support;
#[cfg(feature = "tls")]
mod tls;

/// The conformance suite.
mod suite {
    rethread_testkit::store_suite!(crate::support::RedisHarness::start());
}
