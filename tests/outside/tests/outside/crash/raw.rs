//! The raw client: sessions whose connections break by kills and by their own doing, and who write down what they see.

use super::calls::{CALLERS, Tally};
use super::lives::Server;
use super::push::Batch;
use super::record::{Place, Record, field};
use rethread_testkit::proxy::SplitMix64;
use rethread_testkit::raw::{RawConnection, request};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Nothing takes this long, not even on a busy machine and with a kill in between.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// What was done this long before a kill was done in time: the server had nothing left to do for it.
pub(super) const MARGIN: Duration = Duration::from_millis(800);
/// Between two knocks at a server that is down.
pub(super) const KNOCK: Duration = Duration::from_millis(20);

/// Calls and batches of each who makes them, after the last kill.
pub(super) const LAST: usize = 5;

/// A session of the raw client.
pub(super) struct Session {
    pub(super) server: Arc<Server>,
    pub(super) number: usize,
    id: String,
    seed: u64,
    record: Mutex<Record>,
    batches: Mutex<Vec<Batch>>,
    pub(super) tally: Tally,
}

/// An answer that begins.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) is_stream: bool,
    gap: Option<String>,
    pub(super) connection: RawConnection,
}

/// Why a connection was left.
pub(super) enum Left {
    /// The answer came.
    Answered(String),
    /// It broke, or the reader broke it.
    Cut,
}

impl Session {
    /// Opens it. The server must be alive.
    pub(super) async fn open(server: &Arc<Server>, number: usize, seed: u64) -> Arc<Self> {
        let mut session = Session {
            server: Arc::clone(server),
            number,
            id: String::new(),
            seed: SplitMix64::new(seed ^ (number as u64) << 32).next(),
            record: Mutex::default(),
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
        let (status, headers, _) = answer.expect("the server is alive");
        assert_eq!(status, 200, "initialize succeeds");
        let id = headers.get("mcp-session-id").and_then(|id| id.to_str().ok());
        id.expect("a session id").clone_into(&mut session.id);
        let answer = session
            .post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
        assert_eq!(answer.expect("the server is alive").status, 202);
        Arc::new(session)
    }

    /// Calls, listens and looks back until the last kill is over, and a little longer.
    pub(super) fn start(self: &Arc<Self>, work: &mut JoinSet<()>) {
        for caller in 0..CALLERS {
            let session = Arc::clone(self);
            work.spawn(async move { session.keep_calling(caller as u64).await });
        }
        let session = Arc::clone(self);
        work.spawn(async move { session.keep_listening().await });
        let session = Arc::clone(self);
        work.spawn(async move { session.keep_looking_back().await });
        let session = Arc::clone(self);
        work.spawn(async move { session.keep_pushing().await });
    }

    pub(super) fn dice(&self, whose: u64) -> SplitMix64 {
        SplitMix64::new(self.seed ^ whose)
    }

    /// Reads the priming event of a new stream. `None` if the server dies before.
    pub(super) async fn primed(&self, connection: &mut RawConnection) -> Option<u64> {
        let Some(block) = connection.next_block(PATIENCE).await else {
            assert!(connection.ended(), "a stream without a first event");
            return None;
        };
        assert_eq!(
            block.data.as_deref(),
            Some(""),
            "a stream begins with a priming event: {block:?}"
        );
        let place: Place = block.id.unwrap_or_default().parse().expect("an event id");
        self.record().begins(place.ordinal);
        Some(place.ordinal)
    }

    /// Reads at most `most` events from `cursor` on, which moves along. Each must be the next one.
    pub(super) async fn read(
        &self,
        connection: &mut RawConnection,
        cursor: &mut Place,
        most: u64,
        begun: Instant,
    ) -> Left {
        let mut read = 0;
        while read < most {
            let Some(block) = connection.next_block(PATIENCE).await else {
                assert!(
                    connection.ended(),
                    "silence for {PATIENCE:?} at {cursor}, {:?} after it began",
                    begun.elapsed()
                );
                return Left::Cut;
            };
            let Some(data) = block.data else { continue };
            let place: Place = block.id.clone().unwrap_or_default().parse().expect("an event id");
            if data.is_empty() {
                assert_eq!(place, *cursor, "an event without data repeats the cursor"); // RES-09
                continue;
            }
            assert_eq!(place, cursor.next(), "the next event after {cursor}: {data}");
            self.record().came(place, &data);
            *cursor = place;
            read += 1;
            if !data.contains("\"method\":") {
                while let Some(block) = connection.next_block(PATIENCE).await {
                    let says = (block.id, block.data);
                    assert_eq!(says, (None, None), "nothing comes behind the answer at {place}");
                }
                assert!(
                    connection.ended(),
                    "the connection stays open behind the answer at {place}"
                );
                return Left::Answered(data);
            }
            if let Some(progress) = field(&data, "progress") {
                assert_eq!(progress, place.seq.to_string(), "progress at {place}");
            }
        }
        Left::Cut
    }

    /// POSTs a call of a tool, with its own id as progress token.
    pub(super) async fn tool(&self, id: usize, tool: &str, arguments: &str) -> Option<Answer> {
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":{id}}}}}"#);
        self.post(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#
        ))
        .await
    }

    /// The same for a tool that says nothing on its way. `None` if the server died over it.
    pub(super) async fn json(&self, id: usize, tool: &str, arguments: &str) -> Option<String> {
        let mut answer = self.tool(id, tool, arguments).await?;
        assert_eq!(answer.status, 200, "call {id} of {tool}");
        if answer.is_stream {
            return self.only_event(&mut answer.connection).await; // on a machine too busy to answer at once
        }
        let body = timeout(PATIENCE, answer.connection.read_body_to_end()).await;
        let body = body.expect("an answer that began also ends").ok()?;
        Some(String::from_utf8(body).expect("JSON is UTF-8"))
    }

    /// What comes behind the priming event of a stream that has nothing more. `None` if the server dies before.
    async fn only_event(&self, connection: &mut RawConnection) -> Option<String> {
        let mut cursor = Place::start_of(self.primed(connection).await?);
        match self.read(connection, &mut cursor, 1, Instant::now()).await {
            Left::Answered(answer) => Some(answer),
            Left::Cut => {
                assert_eq!(cursor.seq, 0, "an answer and nothing before it");
                None
            }
        }
    }

    /// The id of a new request.
    pub(super) fn new_id(&self) -> usize {
        self.tally.ids.fetch_add(1, Relaxed) + 1
    }

    async fn post(&self, body: &str) -> Option<Answer> {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        self.send("POST", &headers, body).await
    }

    pub(super) async fn get(&self, cursor: Option<Place>) -> Option<Answer> {
        let cursor = cursor.map(|cursor| cursor.to_string());
        let cursor = cursor.as_deref().map(|cursor| ("last-event-id", cursor));
        let headers: Vec<_> = [("accept", "text/event-stream")].into_iter().chain(cursor).collect();
        self.send("GET", &headers, "").await
    }

    /// Resumes a stream that must be there. `None` after a pause if the server is down.
    pub(super) async fn resume(&self, cursor: Place) -> Option<RawConnection> {
        let Some(answer) = self.get(Some(cursor)).await else {
            sleep(KNOCK).await;
            return None;
        };
        let Answer { connection, gap, .. } = answer;
        assert_eq!(
            (answer.status, gap),
            (200, None),
            "{cursor} can be resumed, with nothing missing"
        );
        self.tally.resumed.fetch_add(1, Relaxed);
        Some(connection)
    }

    /// One request on a connection of its own. `None` if the server is down, or dies before it answers.
    async fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Option<Answer> {
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
        let answered = timeout(PATIENCE, exchange).await;
        let answered =
            answered.unwrap_or_else(|_| panic!("no answer within {PATIENCE:?}: {method} {headers:?} {body}"));
        let (connection, (status, headers)) = answered.ok()?;
        let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
        Some(Answer {
            status: status.as_u16(),
            is_stream: text("content-type").as_deref() == Some("text/event-stream"),
            gap: text("rethread-gap"),
            connection,
        })
    }

    /// The last word, after the last kill: everything that was ever seen is there, from its beginning, and is the same.
    pub(super) async fn conclude(&self) {
        self.replay_all_calls().await;
        self.replay_all_pushed().await;
    }

    /// What happened, in words.
    pub(super) fn summary(&self) -> String {
        let record = self.record();
        let (streams, events) = record.size();
        let again = record.again;
        format!(
            "{}; {streams} streams, {events} events, {again} times one came again and was the same",
            self.tally
        )
    }

    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        held(&self.record)
    }

    pub(super) fn batches(&self) -> MutexGuard<'_, Vec<Batch>> {
        held(&self.batches)
    }
}

/// Panics that poison are failures that were seen already.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
