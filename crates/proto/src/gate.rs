//! The gate: may this request come in, and as what.
//!
//! A request passes in two halves. [`head`] needs no body and puts security first: sizes, `Host`, `Origin`, method,
//! content type, `Accept`. [`body`] sees the parsed message and settles version and era, once; nothing after it decides
//! them again. Two halves, because a stranger should be turned away before a byte of body is read, while the era needs
//! the body: `initialize` comes without a version header, a stateless header must equal `_meta`, and an error wants
//! the request's id.
//!
//! | half | takes | gives |
//! |---|---|---|
//! | [`head::admit`] | method, URI, headers, [`HeadPolicy`] | [`Head`] |
//! | [`body::admit`] | [`Head`], the parsed payload | [`Admitted`] |
//! | [`body::admit_bodyless`] | [`Head`] of a GET or a DELETE | nothing more to know |
//!
//! Either half may answer with a [`Refusal`](crate::Refusal) instead.

mod accept;
pub mod body;
pub mod head;
mod header_index;
pub mod mirror;
pub mod origin;

pub use body::Admitted;
pub use head::{AccessHints, Head, HeadPolicy, SessionHeader, Verb, VersionHeader};
pub use origin::{BadEntry, HostPolicy, OriginPolicy};
