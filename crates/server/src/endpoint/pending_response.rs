//! A response that may not be ready yet.

use super::respond;
use crate::call::json_response::JsonResponse;
use crate::call::response_future::ResponseFuture;
use crate::stream::body::Body;
use http::Response;
use rethread_proto::Refusal;
use std::future::Future;
use std::pin::Pin;

/// A response, or the future of one.
#[allow(clippy::large_enum_variant)] // the largest is the rule
pub(crate) enum PendingResponse<'a> {
    /// It is ready.
    Done(Response<Body>),
    /// A call.
    Call(ResponseFuture),
    /// Anything else.
    Later(Pin<Box<dyn Future<Output = Result<Response<Body>, Refusal>> + Send + 'a>>),
}

impl<'a> PendingResponse<'a> {
    pub(crate) fn later(response: impl Future<Output = Result<Response<Body>, Refusal>> + Send + 'a) -> Self {
        PendingResponse::Later(Box::pin(response))
    }

    /// One JSON-RPC message.
    pub(crate) fn json(json: JsonResponse) -> Self {
        PendingResponse::Done(respond::json_with(json.status, json.message))
    }

    pub(crate) async fn response(self) -> Result<Response<Body>, Refusal> {
        match self {
            PendingResponse::Done(response) => Ok(response),
            PendingResponse::Call(mut response) => {
                let answer = (&mut response).await;
                Ok(respond::answer(answer, &response.call().exchange))
            }
            PendingResponse::Later(response) => response.await,
        }
    }
}
