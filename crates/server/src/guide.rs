//! The guide: short pages, one subject each, in the order in which they are best read.
//!
//! | page | answers |
//! |---|---|
//! | [concepts] | what is a stream, a session, a cursor; where does a message go? |
//! | [first_server] | how do I get something running and talk to it? |
//! | [handler] | what do I write, and what is done for me? |
//! | [context] | how do I report, log, ask, notice that nobody wants the answer? |
//! | [streams] | what does a client see when its connection breaks? |
//! | [stores] | what survives what? |
//! | [eras] | 2025 has sessions, 2026 has not: what must I know? |
//! | [limits] | what is bounded, by how much, and what happens then? |
//! | [security] | who may come in, and what can they reach? |
//! | [testing] | how do I test my server without a network? |
//! | [deployment] | how do I run it, watch it, stop it? |
//! | [nginx] | and behind nginx? |
//! | [kubernetes] | and in Kubernetes? |
//!
//! Is your server written with rmcp? It stays as it is: see [handler].
//!
//! Every piece of Rust on these pages is compiled and most of it is run as a test; the configuration files are run and checked by
//! tests too. The examples in `crates/server/examples` are programs to start and play with; a test types what their headers say.

#[allow(unused_imports)] // the pages link to what is in there
use crate::*;

#[doc = include_str!("guide/concepts.md")]
pub mod concepts {}

#[doc = include_str!("guide/first_server.md")]
pub mod first_server {}

#[doc = include_str!("guide/handler.md")]
pub mod handler {}

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

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/deployment.md")]
pub mod deployment {}

#[doc = include_str!("guide/nginx.md")]
pub mod nginx {}

#[doc = include_str!("guide/kubernetes.md")]
pub mod kubernetes {}
