//! Bare hyper: the cost of reading the request and writing the response, without any work in between. The path selects a
//! canned response with the same headers and frames as those of this library.
//!
//! A stream has one body frame per event, like a server that emits events one at a time.

use super::socket;
use anyhow::Result;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use tokio::sync::watch;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, no-transform");

static CALL: Bytes =
    Bytes::from_static(br#"{"jsonrpc":"2.0","id":100000,"result":{"content":[{"type":"text","text":"hello"}]}}"#);
static MODERN: Bytes = Bytes::from_static(
    br#"{"jsonrpc":"2.0","id":100000,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1"}},"content":[{"type":"text","text":"hello"}]}}"#,
);
static ACCEPTED: Bytes = Bytes::from_static(
    b"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":100000},\"notifications\":{\"toolsListChanged\":true}}}\n\n",
);
static CHANGED: Bytes = Bytes::from_static(
    b"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":100000}}}\n\n",
);
static PRIMING: Bytes = Bytes::from_static(b"id: 2-0\ndata:\n\nretry: 1000\n\n");
static MESSAGE: Bytes = Bytes::from_static(
    b"id: 2-1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"hello\"}}\n\n",
);
static DONE: &str = r#"{"jsonrpc":"2.0","id":100000,"result":{"content":[{"type":"text","text":"done"}]}}"#;

pub(super) async fn serve() -> Result<()> {
    let state = Arc::new(BareHyper::default());
    socket::serve(tower::service_fn(move |request| respond(Arc::clone(&state), request))).await
}

#[derive(Default)]
struct BareHyper {
    /// Number of broadcasts. Every open stream watches it.
    broadcasts: watch::Sender<u64>,
    /// Frames of requested streams, by path.
    frames: Mutex<HashMap<String, Arc<[Bytes]>>>,
}

async fn respond(state: Arc<BareHyper>, mut request: Request<Incoming>) -> Result<Response<CannedBody>, Infallible> {
    while let Some(Ok(_)) = request.body_mut().frame().await {}
    Ok(match request.uri().path() {
        "/json" => json(&CALL),
        "/modern" => json(&MODERN),
        "/sse" => stream(CannedBody::events(&ONE_EVENT)),
        "/push" => stream(CannedBody::open(&PRIMING, &MESSAGE, &state.broadcasts)),
        "/missed" => stream(CannedBody::open(&MISSED_MESSAGE, &MESSAGE, &state.broadcasts)),
        "/listen" => stream(CannedBody::open(&ACCEPTED, &CHANGED, &state.broadcasts)),
        "/broadcast" => {
            state.broadcasts.send_modify(|broadcasts| *broadcasts += 1);
            json(&CALL)
        }
        path => match state.events(path) {
            Some(events) => stream(CannedBody::events(&events)),
            None => {
                let mut response = json(&CALL);
                *response.status_mut() = StatusCode::NOT_FOUND;
                response
            }
        },
    })
}

/// A missed message, sent first on a resumed stream.
static MISSED_MESSAGE: LazyLock<Bytes> = LazyLock::new(|| Bytes::from([&MESSAGE[..], b"retry: 1000\n\n"].concat()));
static ONE_EVENT: LazyLock<Arc<[Bytes]>> = LazyLock::new(|| {
    let text = format!(
        "id: 1-0\ndata:\n\nretry: 1000\n\nid: 1-1\ndata: {}\n\n",
        DONE.replace("done", "hello")
    );
    Arc::from([Bytes::from(text)])
});

impl BareHyper {
    /// `/burst/EVENTS/BYTES`, and `/replay/EVENTS/BYTES` without a priming event.
    fn events(&self, path: &str) -> Option<Arc<[Bytes]>> {
        if let Some(frames) = self.frames.lock().get(path) {
            return Some(Arc::clone(frames));
        }
        let mut parts = path.split('/').skip(1);
        let first = match parts.next()? {
            "burst" => "id: 1-0\ndata:\n\nretry: 1000\n\n",
            "replay" => "",
            _ => return None,
        };
        let (events, bytes): (u32, usize) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let message = "x".repeat(bytes);
        let mut frames = Vec::new();
        for n in 1..=events {
            let mut frame = String::from(if n == 1 { first } else { "" });
            let _ = write!(
                frame,
                "id: 1-{n}\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":\"p\",\"progress\":{n},\"total\":{events},\"message\":\"{message}\"}}}}\n\n"
            );
            frames.push(Bytes::from(frame));
        }
        frames.push(Bytes::from(format!("id: 1-{}\ndata: {DONE}\n\n", events + 1)));
        let frames: Arc<[Bytes]> = frames.into();
        self.frames.lock().insert(path.to_owned(), Arc::clone(&frames));
        Some(frames)
    }
}

fn json(bytes: &Bytes) -> Response<CannedBody> {
    let mut response = Response::new(CannedBody::Whole(Some(bytes.clone())));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn stream(body: CannedBody) -> Response<CannedBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, EVENTS);
    response.headers_mut().insert(CACHE_CONTROL, NO_CACHE);
    response
}

/// A canned body.
enum CannedBody {
    Whole(Option<Bytes>),
    Events(Arc<[Bytes]>, usize),
    Open(
        Pin<Box<dyn Future<Output = watch::Receiver<u64>> + Send>>,
        Option<Bytes>,
        Bytes,
    ),
}

impl CannedBody {
    fn events(events: &Arc<[Bytes]>) -> Self {
        CannedBody::Events(Arc::clone(events), 0)
    }

    fn open(first: &Bytes, each: &Bytes, broadcasts: &watch::Sender<u64>) -> Self {
        CannedBody::Open(
            Box::pin(next(broadcasts.subscribe())),
            Some(first.clone()),
            each.clone(),
        )
    }
}

async fn next(mut broadcasts: watch::Receiver<u64>) -> watch::Receiver<u64> {
    let _ = broadcasts.changed().await; // the server owns the sender
    broadcasts
}

impl Body for CannedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.get_mut() {
            CannedBody::Whole(bytes) => bytes.take(),
            CannedBody::Events(events, at) => {
                *at += 1;
                events.get(*at - 1).cloned()
            }
            CannedBody::Open(waiting, first, each) => match first.take() {
                Some(first) => Some(first),
                None => match waiting.as_mut().poll(cx) {
                    Poll::Ready(broadcasts) => {
                        *waiting = Box::pin(next(broadcasts));
                        Some(each.clone())
                    }
                    Poll::Pending => return Poll::Pending,
                },
            },
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            CannedBody::Whole(bytes) => bytes.is_none(),
            CannedBody::Events(events, at) => *at >= events.len(),
            CannedBody::Open(..) => false,
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            CannedBody::Whole(Some(bytes)) => http_body::SizeHint::with_exact(bytes.len() as u64),
            _ => http_body::SizeHint::default(),
        }
    }
}
