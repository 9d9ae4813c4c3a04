//! The requests that wait for one response.

use crate::call::request_meta::RequestMeta;
use crate::session::Session;
use crate::stream::Stream;
use rethread_proto::jsonrpc::RequestId;
use std::sync::Arc;

/// The requests that wait. It is nearly always one, which costs no allocation.
pub(super) enum Requests {
    One(RequestMeta),
    Batch(Vec<RequestMeta>),
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        match self {
            Requests::One(_) => 1,
            Requests::Batch(requests) => requests.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> &RequestMeta {
        match self {
            Requests::One(request) => request,
            Requests::Batch(requests) => &requests[index],
        }
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut RequestMeta {
        match self {
            Requests::One(request) => request,
            Requests::Batch(requests) => &mut requests[index],
        }
    }

    pub(super) fn open_stream(&self, session: &Arc<Session>) -> Arc<Stream> {
        match self {
            Requests::One(request) => session.open_call_stream(std::slice::from_ref(&request.id)),
            Requests::Batch(requests) => {
                let ids: Vec<RequestId> = requests.iter().map(|request| request.id.clone()).collect();
                session.open_call_stream(&ids)
            }
        }
    }
}
