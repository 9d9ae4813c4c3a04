//! The limit: what hyper needs to read such a request and write such an answer, if nothing is thought in between. The path
//! says what to answer; the answers are made beforehand, with the heads and frames that this library sends.
//!
//! A stream is one body frame per event, as a server sends it that has one event after the other.

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
const UNCACHED: HeaderValue = HeaderValue::from_static("no-cache, no-transform");

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
    let limit = Arc::new(Limit::default());
    socket::serve(tower::service_fn(move |request| answer(Arc::clone(&limit), request))).await
}

#[derive(Default)]
struct Limit {
    /// What every open stream waits for.
    news: watch::Sender<u64>,
    /// Streams of events that were asked for, ready to be sent.
    ready: Mutex<HashMap<String, Arc<[Bytes]>>>,
}

async fn answer(limit: Arc<Limit>, mut request: Request<Incoming>) -> Result<Response<Canned>, Infallible> {
    while let Some(Ok(_)) = request.body_mut().frame().await {}
    Ok(match request.uri().path() {
        "/json" => json(&CALL),
        "/modern" => json(&MODERN),
        "/sse" => stream(Canned::events(&ONE)),
        "/push" => stream(Canned::open(&PRIMING, &MESSAGE, &limit.news)),
        "/missed" => stream(Canned::open(&MISSED, &MESSAGE, &limit.news)),
        "/listen" => stream(Canned::open(&ACCEPTED, &CHANGED, &limit.news)),
        "/news" => {
            limit.news.send_modify(|news| *news += 1);
            json(&CALL)
        }
        path => match limit.events(path) {
            Some(events) => stream(Canned::events(&events)),
            None => {
                let mut response = json(&CALL);
                *response.status_mut() = StatusCode::NOT_FOUND;
                response
            }
        },
    })
}

/// A message that was missed, as the first thing on a stream.
static MISSED: LazyLock<Bytes> = LazyLock::new(|| Bytes::from([&MESSAGE[..], b"retry: 1000\n\n"].concat()));
static ONE: LazyLock<Arc<[Bytes]>> = LazyLock::new(|| {
    let text = format!(
        "id: 1-0\ndata:\n\nretry: 1000\n\nid: 1-1\ndata: {}\n\n",
        DONE.replace("done", "hello")
    );
    Arc::from([Bytes::from(text)])
});

impl Limit {
    /// `/burst/EVENTS/BYTES`, and `/replay/…` without the priming.
    fn events(&self, path: &str) -> Option<Arc<[Bytes]>> {
        if let Some(ready) = self.ready.lock().get(path) {
            return Some(Arc::clone(ready));
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
        self.ready.lock().insert(path.to_owned(), Arc::clone(&frames));
        Some(frames)
    }
}

fn json(bytes: &Bytes) -> Response<Canned> {
    let mut response = Response::new(Canned::Whole(Some(bytes.clone())));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn stream(body: Canned) -> Response<Canned> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, EVENTS);
    response.headers_mut().insert(CACHE_CONTROL, UNCACHED);
    response
}

/// A body that is there already.
enum Canned {
    Whole(Option<Bytes>),
    Events(Arc<[Bytes]>, usize),
    Open(
        Pin<Box<dyn Future<Output = watch::Receiver<u64>> + Send>>,
        Option<Bytes>,
        Bytes,
    ),
}

impl Canned {
    fn events(events: &Arc<[Bytes]>) -> Self {
        Canned::Events(Arc::clone(events), 0)
    }

    fn open(first: &Bytes, each: &Bytes, news: &watch::Sender<u64>) -> Self {
        Canned::Open(Box::pin(next(news.subscribe())), Some(first.clone()), each.clone())
    }
}

async fn next(mut news: watch::Receiver<u64>) -> watch::Receiver<u64> {
    let _ = news.changed().await; // the sender lives as long as the server
    news
}

impl Body for Canned {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.get_mut() {
            Canned::Whole(bytes) => bytes.take(),
            Canned::Events(events, at) => {
                *at += 1;
                events.get(*at - 1).cloned()
            }
            Canned::Open(waiting, first, each) => match first.take() {
                Some(first) => Some(first),
                None => match waiting.as_mut().poll(cx) {
                    Poll::Ready(news) => {
                        *waiting = Box::pin(next(news));
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
            Canned::Whole(bytes) => bytes.is_none(),
            Canned::Events(events, at) => *at >= events.len(),
            Canned::Open(..) => false,
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Canned::Whole(Some(bytes)) => http_body::SizeHint::with_exact(bytes.len() as u64),
            _ => http_body::SizeHint::default(),
        }
    }
}
