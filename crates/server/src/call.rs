//! Calls: a request that a handler runs, and the response to it.

pub(crate) mod active_call;
pub(crate) mod answering;
pub(crate) mod ask;
pub(crate) mod ask_error;
pub(crate) mod call_ended;
pub(crate) mod calling;
pub(crate) mod context;
pub(crate) mod decorate;
pub(crate) mod handler;
mod kept;
pub(crate) mod opening;
pub(crate) mod outcome;
pub(crate) mod outlet;
pub(crate) mod parked_calls;
pub(crate) mod peer;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod request_meta;
pub(crate) mod request_state;
pub(crate) mod run;
pub(crate) mod serving;
pub(crate) mod stateless_request;
