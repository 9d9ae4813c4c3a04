//! The gate: decides whether a request is admitted, and as what.
//!
//! A request passes two halves. [`head`] needs no body and checks security first: sizes, `Host`, `Origin`, method, content
//! type, `Accept`. [`body`] gets the parsed message and settles version and era, once for all later code. There are two
//! halves because a refused caller must not cost the read of a body, while the era depends on the body: `initialize` has no
//! version header, a stateless header must equal `_meta`, and an error should have the request's id.
//!
//! | half | takes | gives |
//! |---|---|---|
//! | [`head::admit`] | method, URI, headers, [`HeadPolicy`] | [`Head`] |
//! | [`body::admit`] | [`Head`], the parsed payload | [`Admitted`] |
//! | [`body::admit_bodyless`] | [`Head`] of a GET or a DELETE | nothing more to know |
//!
//! Either half may return a [`Refusal`](crate::Refusal) instead.

mod accept;
pub mod body;
pub mod head;
mod header_index;
pub mod mirror;
pub mod origin;
mod page;

pub use body::Admitted;
pub use head::{AccessHints, Head, HeadPolicy, SessionHeader, Verb, VersionHeader};
pub use origin::{BadEntry, HostPolicy, OriginPolicy};
pub use page::is_page_request;
