//! The raw client: sessions whose connections break because of kills or by choice, and which record every event.

use super::calls::{CALLERS_PER_SESSION, Tally};
use super::lifetimes::ServerLifetimes;
use super::push::Batch;
use super::received::{ReceivedEvents, StreamEventId, field};
use rethread_testkit::balancer::BACKEND;
use rethread_testkit::proxy::SplitMix64;
use rethread_testkit::raw::{RawConnection, request};
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Longer than any step takes, with a kill in between on a busy machine.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// A call that ended this long before a kill must have been stored.
pub(super) const SETTLE_TIME: Duration = Duration::from_millis(800);
/// Pause between two attempts while the server is down.
pub(super) const RECONNECT_INTERVAL: Duration = Duration::from_millis(20);

/// Calls and batches of each actor after the last kill.
pub(super) const FINAL_ROUNDS: usize = 5;

/// A session of the raw client.
pub(super) struct Session {
    pub(super) server: Arc<ServerLifetimes>,
    pub(super) number: usize,
    id: String,
    seed: u64,
    received: Mutex<ReceivedEvents>,
    batches: Mutex<Vec<Batch>>,
    pub(super) tally: Tally,
}

/// A response whose body has not been read.
pub(super) struct OpenResponse {
    pub(super) status: u16,
    pub(super) is_stream: bool,
    gap: Option<String>,
    /// The node that has answered, or the server.
    pub(super) node: SocketAddr,
    pub(super) connection: RawConnection,
}

/// Why reading stopped.
pub(super) enum ReadOutcome {
    /// The answer arrived.
    Answered(String),
    /// The connection broke, or the reader stopped.
    Disconnected,
}

impl Session {
    /// Opens a session. The server must be up.
    pub(super) async fn open(server: &Arc<ServerLifetimes>, number: usize, seed: u64) -> Arc<Self> {
        let mut session = Session {
            server: Arc::clone(server),
            number,
            id: String::new(),
            seed: SplitMix64::new(seed ^ (number as u64) << 32).next(),
            received: Mutex::default(),
            batches: Mutex::default(),
            tally: Tally::default(),
        };
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#
            .to_owned()
            + r#""capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}"#;
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        let hello = request("POST", "/mcp", &headers, hello.as_bytes());
        let answer = rethread_testkit::raw::exchange(server.addr, &hello).await;
        let (status, headers, _) = answer.expect("the server is up");
        assert_eq!(status, 200, "initialize");
        let id = headers.get("mcp-session-id").and_then(|id| id.to_str().ok());
        id.expect("a session id").clone_into(&mut session.id);
        let answer = session
            .post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
        assert_eq!(answer.expect("the server is up").status, 202);
        Arc::new(session)
    }

    /// Starts the callers, the listener, the replays and the pushes.
    pub(super) fn start(self: &Arc<Self>, work: &mut JoinSet<()>) {
        for caller in 0..CALLERS_PER_SESSION {
            let session = Arc::clone(self);
            work.spawn(async move { session.call_until_end(caller as u64).await });
        }
        let session = Arc::clone(self);
        work.spawn(async move { session.listen_until_end().await });
        let session = Arc::clone(self);
        work.spawn(async move { session.replay_until_end().await });
        let session = Arc::clone(self);
        work.spawn(async move { session.push_until_end().await });
    }

    pub(super) fn random(&self, whose: u64) -> SplitMix64 {
        SplitMix64::new(self.seed ^ whose)
    }

    /// Reads the priming event of a new stream. `None` if the server is killed first.
    pub(super) async fn read_priming_event(&self, connection: &mut RawConnection) -> Option<u64> {
        let Some(block) = connection.next_block(STEP_TIMEOUT).await else {
            assert!(connection.ended(), "a stream without a first event");
            return None;
        };
        assert_eq!(block.data.as_deref(), Some(""), "a priming event first: {block:?}");
        let place: StreamEventId = block.id.unwrap_or_default().parse().expect("an event id");
        self.received().start_stream(place.ordinal);
        Some(place.ordinal)
    }

    /// Reads up to `most` events after `cursor` and advances it. Asserts that ids are consecutive.
    pub(super) async fn read(
        &self,
        connection: &mut RawConnection,
        cursor: &mut StreamEventId,
        most: u64,
        started: Instant,
    ) -> ReadOutcome {
        let mut read = 0;
        while read < most {
            let Some(block) = connection.next_block(STEP_TIMEOUT).await else {
                assert!(
                    connection.ended(),
                    "no event for {STEP_TIMEOUT:?} at {cursor}, {:?} after the start",
                    started.elapsed()
                );
                return ReadOutcome::Disconnected;
            };
            let Some(data) = block.data else { continue };
            let place: StreamEventId = block.id.clone().unwrap_or_default().parse().expect("an event id");
            if data.is_empty() {
                assert_eq!(place, *cursor, "an event without data repeats the cursor"); // RES-09
                continue;
            }
            assert_eq!(place, cursor.next(), "the next event after {cursor}: {data}");
            self.received().add(place, &data);
            *cursor = place;
            read += 1;
            if !data.contains("\"method\":") {
                while let Some(block) = connection.next_block(STEP_TIMEOUT).await {
                    let says = (block.id, block.data);
                    assert_eq!(says, (None, None), "nothing follows the answer at {place}");
                }
                assert!(
                    connection.ended(),
                    "the connection stays open after the answer at {place}"
                );
                return ReadOutcome::Answered(data);
            }
            if let Some(progress) = field(&data, "progress") {
                assert_eq!(progress, place.seq.to_string(), "progress at {place}");
            }
        }
        ReadOutcome::Disconnected
    }

    /// POSTs a tool call. Its progress token is its id.
    pub(super) async fn tool(&self, id: usize, tool: &str, arguments: &str) -> Option<OpenResponse> {
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":{id}}}}}"#);
        self.post(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#
        ))
        .await
    }

    /// Like `tool`, for a tool without events. `None` if the server is killed first.
    pub(super) async fn json(&self, id: usize, tool: &str, arguments: &str) -> Option<String> {
        let mut answer = self.tool(id, tool, arguments).await?;
        assert_eq!(answer.status, 200, "call {id} of {tool}");
        if answer.is_stream {
            return self.only_event(&mut answer.connection).await; // a busy machine answers with a stream
        }
        let body = timeout(STEP_TIMEOUT, answer.connection.read_body_to_end()).await;
        let body = body.expect("the end of the body").ok()?;
        Some(String::from_utf8(body).expect("JSON is UTF-8"))
    }

    /// The only event after the priming event. `None` if the server is killed first.
    async fn only_event(&self, connection: &mut RawConnection) -> Option<String> {
        let mut cursor = StreamEventId::first_of(self.read_priming_event(connection).await?);
        match self.read(connection, &mut cursor, 1, Instant::now()).await {
            ReadOutcome::Answered(answer) => Some(answer),
            ReadOutcome::Disconnected => {
                assert_eq!(cursor.seq, 0, "only an answer");
                None
            }
        }
    }

    /// A new request id.
    pub(super) fn new_id(&self) -> usize {
        self.tally.ids.fetch_add(1, Relaxed) + 1
    }

    async fn post(&self, body: &str) -> Option<OpenResponse> {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        self.send("POST", &headers, body).await
    }

    pub(super) async fn get(&self, cursor: Option<StreamEventId>) -> Option<OpenResponse> {
        let cursor = cursor.map(|cursor| cursor.to_string());
        let cursor = cursor.as_deref().map(|cursor| ("last-event-id", cursor));
        let headers: Vec<_> = [("accept", "text/event-stream")].into_iter().chain(cursor).collect();
        self.send("GET", &headers, "").await
    }

    /// Resumes a stream and asserts success. `None` after a pause if the server is down.
    pub(super) async fn resume(&self, cursor: StreamEventId) -> Option<OpenResponse> {
        let Some(answer) = self.get(Some(cursor)).await else {
            sleep(RECONNECT_INTERVAL).await;
            return None;
        };
        let result = (answer.status, answer.gap.as_deref());
        assert_eq!(result, (200, None), "resume after {cursor} without a gap");
        self.tally.resumed.fetch_add(1, Relaxed);
        Some(answer)
    }

    /// Sends one request on a new connection. `None` if the server is down or is killed first.
    async fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Option<OpenResponse> {
        let session = [
            ("mcp-session-id", self.id.as_str()),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        let bytes = request(method, "/mcp", &[headers, &session].concat(), body.as_bytes());
        let exchange = async {
            let mut connection = RawConnection::open(self.server.addr).await?;
            connection.send(&bytes).await?;
            let head = connection.read_head().await?;
            std::io::Result::Ok((connection, head))
        };
        let answered = timeout(STEP_TIMEOUT, exchange).await;
        let answered =
            answered.unwrap_or_else(|_| panic!("no answer within {STEP_TIMEOUT:?}: {method} {headers:?} {body}"));
        let (connection, (status, headers)) = answered.ok()?;
        let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
        if status == 502 {
            return None; // the balancer found no node, or its node was killed before it answered
        }
        let node = text(BACKEND).and_then(|node| node.parse().ok());
        if status == 503 && node.is_some_and(|node| self.server.is_away(node)) {
            return None; // the node got the request before its pause, and its lease ended in the pause
        }
        Some(OpenResponse {
            node: node.unwrap_or(self.server.addr),
            status: status.as_u16(),
            is_stream: text("content-type").as_deref() == Some("text/event-stream"),
            gap: text("rethread-gap"),
            connection,
        })
    }

    /// After the last kill: replays all streams from their start. No event may have changed.
    pub(super) async fn replay_everything(&self) {
        self.replay_all_calls().await;
        self.replay_all_pushed().await;
    }

    /// Ends the session, after the last kill.
    pub(super) async fn end(&self) {
        let ended = self.send("DELETE", &[], "").await;
        assert_eq!(ended.expect("no more kills").status, 204, "the end of the session");
    }

    /// Counters in words.
    pub(super) fn summary(&self) -> String {
        let received = self.received();
        let (streams, events) = received.size();
        let repeated = received.repeated;
        format!(
            "{}; {streams} streams, {events} events, {repeated} repeated without a change",
            self.tally
        )
    }

    pub(super) fn received(&self) -> MutexGuard<'_, ReceivedEvents> {
        lock(&self.received)
    }

    pub(super) fn batches(&self) -> MutexGuard<'_, Vec<Batch>> {
        lock(&self.batches)
    }
}

/// A poisoned mutex is fine: the panic is reported elsewhere.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
