//! The functions that every call uses: envelope, admission, frame, event id, filter.

use bytes::Bytes;
use gungraun::{library_benchmark, library_benchmark_group, main};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use rethread_proto::event_id::{IdPrefix, Plain};
use rethread_proto::gate::mirror::{self, Stateless};
use rethread_proto::gate::{Head, HeadPolicy, body, head};
use rethread_proto::jsonrpc::{Limits, Message, Params, Payload, RequestId, parse, write_notification};
use rethread_proto::sse::{Draft, Frame};
use rethread_proto::subscription::{Change, Filter, FilterLimits};
use rethread_proto::{EventId, EventIdFormat, Revisions, Seq, SessionId};
use std::hint::black_box;

const LEGACY: &[(&str, &str)] = &[
    ("host", "127.0.0.1:8080"),
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
    ("mcp-protocol-version", "2025-11-25"),
    ("mcp-session-id", "n-R393UFTc7XCBzS7n14ygD2"),
    ("content-length", "120"),
];
const MODERN: &[(&str, &str)] = &[
    ("host", "127.0.0.1:8080"),
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
    ("mcp-protocol-version", "2026-07-28"),
    ("mcp-method", "tools/call"),
    ("mcp-name", "echo"),
    ("content-length", "360"),
];
const CALL: &str =
    r#"{"jsonrpc":"2.0","id":100001,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}"#;
const MODERN_CALL: &str = r#"{"jsonrpc":"2.0","id":100001,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}}}"#;

fn call() -> Bytes {
    Bytes::from_static(CALL.as_bytes())
}

fn modern_call() -> Bytes {
    Bytes::from_static(MODERN_CALL.as_bytes())
}

fn large_call() -> Bytes {
    Bytes::from(CALL.replace("hello", &"hello ".repeat(2700)))
}

fn nested_call() -> Bytes {
    let list: Vec<String> = (0..200)
        .map(|n| format!(r#"{{"n":{n},"s":"a \"word\"","v":[1,2,3]}}"#))
        .collect();
    Bytes::from(CALL.replace("\"hello\"", &format!("[{}]", list.join(","))))
}

#[library_benchmark]
#[bench::call(call())]
#[bench::modern(modern_call())]
#[bench::text_16_kb(large_call())]
#[bench::nested(nested_call())]
fn envelope(body: Bytes) -> Payload {
    black_box(parse(black_box(&body), &Limits::default()).expect("a message"))
}

fn headers(list: &[(&'static str, &'static str)]) -> (HeaderMap, HeadPolicy) {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    (headers, HeadPolicy::default())
}

#[library_benchmark]
#[bench::legacy(headers(LEGACY))]
#[bench::modern(headers(MODERN))]
fn admission_head(given: (HeaderMap, HeadPolicy)) -> (Head, (HeaderMap, HeadPolicy)) {
    let uri = Uri::from_static("/mcp");
    let head = head::admit(&Method::POST, &uri, black_box(&given.0), &given.1).expect("admitted");
    black_box((head, given))
}

fn head_and_payload(list: &[(&'static str, &'static str)], body: &Bytes) -> (Head, Payload) {
    let (headers, policy) = headers(list);
    let head = head::admit(&Method::POST, &Uri::from_static("/mcp"), &headers, &policy).expect("admitted");
    (head, parse(body, &Limits::default()).expect("a message"))
}

#[library_benchmark]
#[bench::legacy(head_and_payload(LEGACY, &call()))]
#[bench::modern(head_and_payload(MODERN, &modern_call()))]
fn admission_body(given: (Head, Payload)) -> (body::Admitted, Head) {
    let (head, payload) = given;
    let admitted = body::admit(black_box(&head), payload, Revisions::BOTH).expect("admitted");
    black_box((admitted, head))
}

fn mirrored() -> (HeaderMap, Params) {
    let Payload::One(Message::Request(request)) = parse(&modern_call(), &Limits::default()).expect("a message") else {
        panic!("not a request");
    };
    (headers(MODERN).0, request.params)
}

#[library_benchmark]
#[bench::modern(mirrored())]
fn admission_mirror(given: (HeaderMap, Params)) -> (HeaderMap, Params) {
    let stateless = Stateless::read(black_box(&given.1)).expect("complete metadata");
    mirror::check_method(&given.0, "tools/call").expect("the same method");
    mirror::check_name(&given.0, "tools/call", &stateless).expect("the same name");
    black_box(given)
}

fn message(bytes: usize) -> (IdPrefix, String) {
    (IdPrefix::new("12-"), "x".repeat(bytes))
}

#[library_benchmark]
#[bench::b64(message(64))]
#[bench::kb1(message(1024))]
#[bench::kb16(message(16 << 10))]
fn frame(given: (IdPrefix, String)) -> (Frame, (IdPrefix, String)) {
    let draft = Draft::new(128 + given.1.len(), |out| {
        write_notification(out, "notifications/message", &given.1).expect("valid JSON");
    });
    black_box((draft.number(&given.0, Seq(4711)), given))
}

fn session() -> SessionId {
    SessionId::from_random([7; 18])
}

#[library_benchmark]
#[bench::issued(session(), "12-4711")]
#[bench::foreign(session(), "no-such-thing")]
fn event_id_read(session: SessionId, text: &str) -> (Option<EventId>, SessionId) {
    black_box((Plain.parse(black_box(&session), black_box(text)), session))
}

#[library_benchmark]
#[bench::plain(IdPrefix::new("12-"))]
fn event_id_write(prefix: IdPrefix) -> (String, IdPrefix) {
    black_box((prefix.id(black_box(Seq(4711))), prefix))
}

fn filter(uris: usize) -> (Filter, Change) {
    let mut filter = Filter::default();
    filter.tools = true;
    filter.uris = (0..uris).map(|n| format!("file:///project/{n}").into()).collect();
    (
        filter,
        Change::Updated(format!("file:///project/{}/main.rs", uris - 1).into()),
    )
}

#[library_benchmark]
#[bench::one_uri(filter(1))]
#[bench::all_uris(filter(256))]
fn filter_matches(given: (Filter, Change)) -> (bool, (Filter, Change)) {
    black_box((given.0.matches(black_box(&given.1)), given))
}

fn listen() -> Params {
    Params::from_raw(Bytes::from_static(
        br#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a","file:///b"]}}"#,
    ))
}

const LIMITS: FilterLimits = FilterLimits::new(256, 64 << 10);

#[library_benchmark]
#[bench::listen(listen())]
fn filter_read(params: Params) -> (Filter, Params) {
    black_box((Filter::read(black_box(&params), LIMITS).expect("a filter"), params))
}

fn id() -> RequestId {
    RequestId::from_json("100001").expect("a number is an id")
}

#[library_benchmark]
#[bench::tools(id())]
fn filter_stamp(id: RequestId) -> (Draft, RequestId) {
    black_box((
        rethread_proto::subscription::notification(&Change::Tools, black_box(&id)),
        id,
    ))
}

library_benchmark_group!(name = envelopes; benchmarks = envelope);
library_benchmark_group!(name = admissions; benchmarks = admission_head, admission_body, admission_mirror);
library_benchmark_group!(name = frames; benchmarks = frame);
library_benchmark_group!(name = event_ids; benchmarks = event_id_read, event_id_write);
library_benchmark_group!(name = filters; benchmarks = filter_matches, filter_read, filter_stamp);

main!(
    library_benchmark_groups = envelopes,
    admissions,
    frames,
    event_ids,
    filters
);
