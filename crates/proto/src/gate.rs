//! The gate: decides whether a request is admitted, and as what.
//!
//! A request passes two halves. [`head`] needs no body and checks security first: sizes, `Host`, `Origin`, method, content
//! type, `Accept`. [`body`] gets the parsed message and settles version and era, once for all later code.
//! The first half exists because the body of a refused caller should not be read. The second exists because the era depends
//! on the body: `initialize` has no version header, and a stateless header must equal `_meta`. An error should also have the
//! id of the request.
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
