//! The guide: short pages, one subject each, in reading order.
//!
//! | page | answers |
//! |---|---|
//! | [concepts] | what is a stream, a session, a cursor; where does a message go? |
//! | [first_server] | how do I run a server and call it? |
//! | [handler] | what do I write, and what does the transport do? |
//! | [comparison] | how does the same server look with rmcp and the TypeScript SDK? |
//! | [context] | how do I report progress, log, ask, and notice a cancellation? |
//! | [streams] | what does a client see when its connection breaks? |
//! | [stores] | what survives a crash or a restart? |
//! | [eras] | how do sessions and stateless requests differ? |
//! | [limits] | what is bounded, by how much, and what happens then? |
//! | [security] | who may call, and what can a caller reach? |
//! | [authentication] | how do callers prove who they are? |
//! | [testing] | how do I test my server without a network? |
//! | [deployment] | how do I run, monitor and stop a server? |
//! | [nginx] | how do I configure nginx in front of it? |
//! | [kubernetes] | how do I run the gateway in Kubernetes? |
//!
//! For a server that is written with rmcp, see [handler].
//!
//! All Rust code on these pages is compiled, and most of it runs as a test. Tests also run and check the configuration files. The examples
//! in `crates/server/examples` are programs to try. A test runs the commands in their headers.

#[allow(unused_imports)] // the pages link to these items
use crate::*;

#[doc = include_str!("guide/concepts.md")]
pub mod concepts {}

#[doc = include_str!("guide/first_server.md")]
pub mod first_server {}

#[doc = include_str!("guide/handler.md")]
pub mod handler {}

#[doc = include_str!("guide/comparison.md")]
pub mod comparison {}

#[doc = include_str!("guide/context.md")]
pub mod context {}

#[doc = include_str!("guide/streams.md")]
pub mod streams {}

#[doc = include_str!("guide/stores.md")]
pub mod stores {}

#[doc = include_str!("guide/eras.md")]
pub mod eras {}

#[doc = include_str!("guide/limits.md")]
pub mod limits {}

#[doc = include_str!("guide/security.md")]
pub mod security {}

#[doc = include_str!("guide/authentication.md")]
pub mod authentication {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/deployment.md")]
pub mod deployment {}

#[doc = include_str!("guide/nginx.md")]
pub mod nginx {}

#[doc = include_str!("guide/kubernetes.md")]
pub mod kubernetes {}
