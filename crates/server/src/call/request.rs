//! Requests and notifications, as a handler gets them.

use crate::call::elicited::{self, Elicited};
use bytes::Bytes;
use http::request::Parts;
use rethread_proto::jsonrpc::{Params, Request, RequestId, RpcError};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// One request for a handler.
#[derive(Clone, Debug)]
pub struct Call {
    pub(crate) request: Request,
    /// Only a call that repeats an earlier one has any.
    pub(crate) inputs: Option<Box<Inputs>>,
    pub(crate) parts: Option<Box<Parts>>,
}

/// The input that an earlier reply asked for, and the client sends with its next request (2026-07-28).
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub(crate) responses: BTreeMap<String, Bytes>,
    pub(crate) state: Option<Bytes>,
}

impl Inputs {
    /// The client's answer to the input request `key`; `None` if there is none, -32602 if it is not what was asked for.
    pub fn response<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, RpcError> {
        let read = |raw: &Bytes| serde_json::from_slice(raw);
        let response = self.responses.get(key).map(read).transpose();
        response.map_err(|e| RpcError::invalid_params(format!("invalid input response {key}: {e}")))
    }

    /// The user's answer to the form `key`; `None` if there is none, -32602 if it is not what was asked for.
    pub fn elicited<T: DeserializeOwned>(&self, key: &str) -> Result<Option<Elicited<T>>, RpcError> {
        let read = |raw: &Bytes| elicited::read(raw, |_| Ok(()));
        let response = self.responses.get(key).map(read).transpose();
        response.map_err(|why| RpcError::invalid_params(format!("invalid input response {key}: {why}")))
    }

    /// The handler's own bytes, as it gave them to [`Reply::input_required`](crate::Reply::input_required). They were sealed in between: nobody else can
    /// have made or changed them, and they belong to this caller and these arguments.
    pub fn state(&self) -> Option<&[u8]> {
        self.state.as_deref()
    }
}

impl Call {
    pub(crate) fn new(request: Request, parts: Option<Box<Parts>>) -> Self {
        Call {
            request,
            inputs: None,
            parts,
        }
    }

    /// The head of the HTTP request that brought this call, the caller's [`Principal`](crate::Principal) among its extensions; once, and
    /// only for a handler that [wants it](crate::HandlerOptions::wants_request_head). `None` on transports without HTTP.
    pub fn take_parts(&mut self) -> Option<Parts> {
        self.parts.take().map(|parts| *parts)
    }

    /// The method that is called.
    pub fn method(&self) -> &str {
        self.request.method.as_str()
    }

    /// The id of this request.
    pub fn id(&self) -> &RequestId {
        &self.request.id
    }

    /// The raw arguments.
    pub fn raw_params(&self) -> &Params {
        &self.request.params
    }

    /// The arguments as `T`. The error is `-32602` with the reason.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        read(&self.request.params)
    }

    /// The input that came with this call, if it repeats an earlier one that asked for some.
    pub fn inputs(&self) -> &Inputs {
        static NONE: Inputs = Inputs {
            responses: BTreeMap::new(),
            state: None,
        };
        self.inputs.as_deref().unwrap_or(&NONE)
    }
}

/// One notification for a handler.
#[derive(Clone, Debug)]
pub struct Notification {
    pub(crate) note: rethread_proto::jsonrpc::Notification,
    pub(crate) parts: Option<Box<Parts>>,
}

impl Notification {
    /// The method.
    pub fn method(&self) -> &str {
        self.note.method.as_str()
    }

    /// The raw arguments.
    pub fn raw_params(&self) -> &Params {
        &self.note.params
    }

    /// The arguments as `T`.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        read(&self.note.params)
    }

    /// The head of the HTTP request that brought this notification, as [`Call::take_parts`].
    pub fn take_parts(&mut self) -> Option<Parts> {
        self.parts.take().map(|parts| *parts)
    }
}

fn read<T: DeserializeOwned>(params: &Params) -> Result<T, RpcError> {
    params
        .read()
        .map_err(|e| RpcError::invalid_params(format!("invalid params: {e}")))
}
