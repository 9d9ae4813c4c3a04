//! Calls: a request that a handler runs, and the response to it.

pub(crate) mod active_call;
pub(crate) mod any_handler;
pub(crate) mod ask;
pub(crate) mod ask_error;
pub(crate) mod call_ended;
pub(crate) mod call_scope;
pub(crate) mod context;
pub(crate) mod decorate;
#[cfg(feature = "schemars")]
pub(crate) mod derived_schema;
pub(crate) mod direct_body;
pub(crate) mod elicited;
pub(crate) mod exchange;
#[cfg(feature = "schemars")]
pub(crate) mod form;
pub(crate) mod handler;
mod input;
pub(crate) mod json_response;
pub(crate) mod observed_call;
pub(crate) mod opening;
pub(crate) mod parked_calls;
pub(crate) mod peer;
pub(crate) mod progress_message;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod request_extensions;
pub(crate) mod request_meta;
pub(crate) mod request_state;
pub(crate) mod response_future;
pub(crate) mod response_sink;
pub(crate) mod root;
pub(crate) mod run;
pub(crate) mod sampling;
pub(crate) mod schema;
pub(crate) mod unhandled_call;
pub(crate) mod waiting_client;
