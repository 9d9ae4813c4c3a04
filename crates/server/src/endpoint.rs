//! The endpoint: HTTP, `/sse` and lines in, responses out.

pub(crate) mod authenticate;
pub(crate) mod background;
pub(crate) mod bound_session;
pub(crate) mod builder;
mod cluster;
pub(crate) mod dispatch;
pub(crate) mod forward;
pub(crate) mod http_sse;
pub(crate) mod legacy;
pub(crate) mod modern;
pub(crate) mod open_session;
pub(crate) mod pending_response;
mod read_body;
mod reconfigure;
pub(crate) mod request_head;
pub(crate) mod respond;
pub(crate) mod restore;
pub(crate) mod route;
pub(crate) mod server;
pub(crate) mod service;
mod sessionless;
pub(crate) mod shutdown;
pub(crate) mod snapshot;
mod start;
pub(crate) mod stdio;
mod unloader;
pub(crate) mod watched_request;
