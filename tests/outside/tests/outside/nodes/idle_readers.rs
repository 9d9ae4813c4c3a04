//! Readers of streams that another node writes, all of them idle: their memory in their node, and their cost for Redis. They
//! are compared with GETs that are local to their node. `cargo xtask soak readers` runs more readers than CI can.

use super::cluster::Cluster;
use rethread_testkit::raw::{RawConnection, request};
use rethread_testkit::redis_server::RedisServer;
use serde_json::Value;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Readers in CI. `RETHREAD_READERS` is another number.
const READERS: usize = 200;
/// With fewer readers, the memory of other things hides theirs.
const MIN_READERS_FOR_MEMORY: usize = 2_000;
/// Readers that are open before the first measurement, so that a node has allocated what it needs once.
const WARM_UP_READERS: usize = 50;
/// The goal: memory of a remote reader beyond that of a local GET.
const MAX_EXTRA_BYTES: f64 = 1_000.0;

/// The default of the server. With each keep-alive, a reader compares its cursor with the store.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Two keep-alives of each reader.
const QUIET_TIME: Duration = KEEP_ALIVE.saturating_mul(2);
/// The nodes alone: leases, ticks and mailboxes.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// The last effects of opening the readers are over after this time.
const SETTLE_TIME: Duration = Duration::from_secs(3);
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections that are opened at the same time.
const WORKERS: usize = 16;

/// The node that runs the calls, and the node of the readers.
const WRITER: usize = 0;
const READER: usize = 1;

#[tokio::test]
async fn idle_remote_readers_cost_a_check_per_keep_alive() {
    let readers = std::env::var("RETHREAD_READERS").ok().and_then(|n| n.parse().ok());
    let readers = readers.unwrap_or(READERS);
    let Some(local) = Cost::measure(readers, Kind::LocalGet).await else {
        return;
    };
    let remote = Cost::measure(readers, Kind::RemoteReader)
        .await
        .expect("Redis was there");
    let extra = remote.bytes_each - local.bytes_each;
    println!(
        "result: {readers} idle readers, quiet for {} s: remote reader {remote}; local GET {local}; a remote reader needs \
         {extra:.0} B more (goal {MAX_EXTRA_BYTES} B); idle cluster {}; every remote reader got its answer",
        QUIET_TIME.as_secs(),
        remote.idle
    );
    let keep_alives = QUIET_TIME.as_secs_f64() / KEEP_ALIVE.as_secs_f64();
    assert!(
        remote.scripts_each <= keep_alives * 1.1,
        "{:.2} requests of each reader to Redis, and {keep_alives} keep-alives",
        remote.scripts_each
    );
    assert!(
        local.scripts_each <= 0.1,
        "{:.2} requests of each local GET to Redis",
        local.scripts_each
    );
    if readers >= MIN_READERS_FOR_MEMORY {
        assert!(
            extra <= MAX_EXTRA_BYTES,
            "a remote reader needs {extra:.0} B more than a local GET"
        );
    }
}

#[derive(Clone, Copy)]
enum Kind {
    /// A GET on the node that writes its stream.
    LocalGet,
    /// A resume of a running call on another node than that of the call.
    RemoteReader,
}

/// The cost of one kind of reader.
struct Cost {
    /// Memory of the node for each reader.
    bytes_each: f64,
    /// Script calls beyond those of the idle cluster, for each reader in the quiet time.
    scripts_each: f64,
    idle: Traffic,
    quiet: Traffic,
}

impl Cost {
    /// `None` if there is no Redis on this machine, which CI does not allow.
    async fn measure(readers: usize, kind: Kind) -> Option<Self> {
        let cluster = Cluster::start_with(&["--no-updates"]).await?;
        let warm_up = open_all(&cluster, kind, WARM_UP_READERS).await;
        sleep(SETTLE_TIME).await;
        let idle = Traffic::during(IDLE_TIME, &cluster.redis).await;
        let pid = cluster.node(READER).pid();
        let before = anonymous_memory(pid);
        let open = open_all(&cluster, kind, readers).await;
        sleep(SETTLE_TIME).await;
        let after = anonymous_memory(pid);
        let quiet = Traffic::during(QUIET_TIME, &cluster.redis).await;
        let scripts = quiet.scripts - idle.scripts; // per second
        match kind {
            Kind::LocalGet => assert_open(open).await,
            Kind::RemoteReader => answer_all(open, cluster.addr(READER)).await,
        }
        // The idle time was shorter than a keep-alive, so the first readers count here, too.
        let all_readers = (readers + warm_up.len()) as f64;
        Some(Cost {
            bytes_each: (after - before) / readers as f64,
            scripts_each: scripts * QUIET_TIME.as_secs_f64() / all_readers,
            idle,
            quiet,
        })
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} B of memory, {:.2} requests to Redis each ({})",
            self.bytes_each, self.scripts_each, self.quiet
        )
    }
}

/// The work of Redis per second.
struct Traffic {
    /// Calls of scripts: every step of the store is one.
    scripts: f64,
    /// Reads of mailboxes.
    mailbox_reads: f64,
    /// Bytes in both directions.
    bytes: f64,
}

impl Traffic {
    async fn during(time: Duration, redis: &RedisServer) -> Traffic {
        let (started, before) = (Instant::now(), Traffic::total(redis));
        sleep(time).await;
        let (after, seconds) = (Traffic::total(redis), started.elapsed().as_secs_f64());
        Traffic {
            scripts: (after.scripts - before.scripts) / seconds,
            mailbox_reads: (after.mailbox_reads - before.mailbox_reads) / seconds,
            bytes: (after.bytes - before.bytes) / seconds,
        }
    }

    fn total(redis: &RedisServer) -> Traffic {
        let (commands, stats) = (
            redis.command(&["INFO", "commandstats"]),
            redis.command(&["INFO", "stats"]),
        );
        let value = |info: &str, start: &str| -> f64 {
            let rest = info.lines().find_map(|line| line.strip_prefix(start)).unwrap_or("0");
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or("0");
            digits.parse().expect("a number")
        };
        let bytes = value(&stats, "total_net_input_bytes:") + value(&stats, "total_net_output_bytes:");
        assert!(bytes > 0.0, "INFO stats: {stats}");
        Traffic {
            scripts: value(&commands, "cmdstat_evalsha:calls="),
            mailbox_reads: value(&commands, "cmdstat_xread:calls="),
            bytes,
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Traffic {
            scripts,
            mailbox_reads,
            bytes,
        } = self;
        write!(
            f,
            "{scripts:.1} scripts/s, {mailbox_reads:.1} mailbox reads/s, {:.1} kB/s",
            bytes / 1000.0
        )
    }
}

/// Memory of a process without files, in bytes.
fn anonymous_memory(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the node runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kb = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kb.expect("Linux reports it") * 1024.0
}

/// An open connection that waits for events.
struct IdleReader {
    connection: RawConnection,
    session: String,
    /// The id of the question that its call waits for.
    question: Value,
}

async fn open_all(cluster: &Cluster, kind: Kind, readers: usize) -> Vec<IdleReader> {
    let (writer, reader) = (cluster.addr(WRITER), cluster.addr(READER));
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let share = readers / WORKERS + usize::from(worker < readers % WORKERS);
        workers.spawn(async move {
            let mut open = Vec::new();
            for _ in 0..share {
                open.push(match kind {
                    Kind::LocalGet => IdleReader::get(reader).await,
                    Kind::RemoteReader => IdleReader::resume(writer, reader).await,
                });
            }
            open
        });
    }
    let open: Vec<IdleReader> = workers.join_all().await.into_iter().flatten().collect();
    assert_eq!(open.len(), readers);
    open
}

/// Every connection is still open and has got nothing but keep-alives. Otherwise the figures mean nothing.
async fn assert_open(open: Vec<IdleReader>) {
    for mut reader in open {
        while let Some(block) = reader.connection.next_block(Duration::ZERO).await {
            assert_eq!((block.id, block.data), (None, None), "no event for an idle GET");
        }
        assert!(
            !reader.connection.ended(),
            "a GET was closed: the machine is too busy for this test"
        );
    }
}

/// Answers the questions of all calls. Each reader must get the result of its call.
async fn answer_all(open: Vec<IdleReader>, node: SocketAddr) {
    let mut workers = JoinSet::new();
    let mut shares: Vec<Vec<IdleReader>> = (0..WORKERS).map(|_| Vec::new()).collect();
    for (at, reader) in open.into_iter().enumerate() {
        shares[at % WORKERS].push(reader);
    }
    for share in shares {
        workers.spawn(async move {
            let mut posts = RawConnection::open(node).await.expect("the node runs");
            for reader in share {
                reader.answer(&mut posts).await;
            }
        });
    }
    workers.join_all().await;
}

impl IdleReader {
    /// A GET of a new session.
    async fn get(node: SocketAddr) -> Self {
        let mut connection = RawConnection::open(node).await.expect("the node runs");
        let session = initialize(&mut connection).await;
        send(&mut connection, "GET", &session, &[("accept", "text/event-stream")], "").await;
        let block = connection.next_block(STEP_TIMEOUT).await.expect("a priming event");
        assert!(block.id.is_some(), "{block:?}");
        IdleReader {
            connection,
            session,
            question: Value::Null,
        }
    }

    /// A call on one node that asks and waits for the answer, and a reader of its stream on another node.
    async fn resume(writer: SocketAddr, reader: SocketAddr) -> Self {
        let mut calling = RawConnection::open(writer).await.expect("the node runs");
        let session = initialize(&mut calling).await;
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{}}}"#;
        send(&mut calling, "POST", &session, &[], call).await;
        let (cursor, question) = loop {
            let block = calling.next_block(STEP_TIMEOUT).await.expect("a question");
            let data: Value = serde_json::from_str(block.data.as_deref().unwrap_or_default()).unwrap_or_default();
            if data["method"] == "elicitation/create" {
                break (block.id.expect("an event id"), data["id"].clone());
            }
        };
        calling.reset().expect("an open connection");
        let mut connection = RawConnection::open(reader).await.expect("the node runs");
        let headers = [("accept", "text/event-stream"), ("last-event-id", cursor.as_str())];
        send(&mut connection, "GET", &session, &headers, "").await;
        IdleReader {
            connection,
            session,
            question,
        }
    }

    async fn answer(mut self, posts: &mut RawConnection) {
        let result = r#"{"action":"accept","content":{"answer":"yes"}}"#;
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.question);
        send(posts, "POST", &self.session, &[], &answer).await;
        posts.read_body_to_end().await.expect("an empty body");
        loop {
            let block = self.connection.next_block(STEP_TIMEOUT).await.expect("the answer");
            let Some(data) = block.data.filter(|data| !data.is_empty()) else {
                continue; // keep-alives
            };
            let message: Value = serde_json::from_str(&data).expect("JSON");
            assert_eq!(message["id"], 1, "{message}");
            assert!(message["result"].is_object(), "{message}");
            return;
        }
    }
}

/// Opens a session on a connection that stays open.
async fn initialize(connection: &mut RawConnection) -> String {
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#.to_owned()
        + r#""capabilities":{"elicitation":{}},"clientInfo":{"name":"idle","version":"1"}}}"#;
    let session = send(connection, "POST", "", &[], &hello).await.expect("a session id");
    connection.read_body_to_end().await.expect("a response");
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    send(connection, "POST", &session, &[], ready).await;
    connection.read_body_to_end().await.expect("an empty body");
    session
}

/// Sends a request and reads the head of its response. Returns the session id of the head.
async fn send(
    connection: &mut RawConnection,
    method: &str,
    session: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<String> {
    let mut all = vec![("mcp-protocol-version", "2025-11-25")];
    if !session.is_empty() {
        all.push(("mcp-session-id", session));
    }
    if method == "POST" {
        all.push(("content-type", "application/json"));
        all.push(("accept", "application/json, text/event-stream"));
    }
    all.extend_from_slice(headers);
    let bytes = request(method, "/mcp", &all, body.as_bytes());
    let exchange = async {
        connection.send(&bytes).await?;
        connection.read_head().await
    };
    let head = tokio::time::timeout(STEP_TIMEOUT, exchange)
        .await
        .expect("a response in time");
    let (status, headers) = head.expect("a response");
    assert!(status.is_success(), "{method} {body}: {status}");
    Some(headers.get("mcp-session-id")?.to_str().ok()?.to_owned())
}
