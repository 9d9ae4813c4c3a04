//! A real full disk under the example server (design D10): what needs the store is told to wait, the rest goes on, and
//! when there is room again nobody has to do anything.

use crate::server::Everything;
use rethread_testkit::raw::{RawConnection, exchange, request};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The store's journal is 64 MiB of holes; this leaves room for it and little else.
const SIZE: &str = "size=72m";
/// Nothing takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A small file system of our own. Unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    /// `None` where it is not allowed to mount one.
    fn mount() -> Option<Self> {
        let dir = std::env::temp_dir().join(format!("rethread-full-disk-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder can be made");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(&dir).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Disk(dir)),
            _ => {
                let _ = std::fs::remove_dir(&dir);
                None
            }
        }
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Writes until nothing more fits.
    fn fill(&self) {
        use std::io::Write;
        let mut ballast = std::fs::File::create(self.ballast()).expect("there is room for a name");
        for size in [1 << 20, 4096, 1] {
            while ballast.write_all(&vec![b'x'; size]).is_ok() {}
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.ballast()).expect("the ballast is there");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");
const JSON: (&str, &str) = ("content-type", "application/json");

struct Reply {
    status: u16,
    retry_after: bool,
    session: Option<String>,
    body: String,
}

async fn post(addr: SocketAddr, session: Option<&str>, body: &str) -> Reply {
    let mut headers = vec![ACCEPT, JSON];
    headers.extend(session.map(|id| ("mcp-session-id", id)));
    let (status, headers, body) = exchange(addr, &request("POST", "/mcp", &headers, body.as_bytes()))
        .await
        .expect("the server answers");
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    Reply {
        status: status.as_u16(),
        retry_after: text("retry-after").is_some(),
        session: text("mcp-session-id"),
        body: String::from_utf8_lossy(&body).into_owned(),
    }
}

async fn initialize(addr: SocketAddr) -> Reply {
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",
        "capabilities":{},"clientInfo":{"name":"full-disk","version":"1"}}}"#;
    post(addr, None, hello).await
}

fn burst(id: u32, events: u32, delay_us: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"burst",
        "arguments":{{"events":{events},"delay_us":{delay_us},"bytes":4096}},"_meta":{{"progressToken":{id}}}}}}}"#
    )
}

/// A call on a connection that stays open.
async fn start(addr: SocketAddr, session: &str, body: &str) -> RawConnection {
    let mut connection = RawConnection::open(addr).await.expect("the server listens");
    let headers = [ACCEPT, JSON, ("mcp-session-id", session)];
    let call = request("POST", "/mcp", &headers, body.as_bytes());
    connection.send(&call).await.expect("it takes the call");
    let (status, _) = connection.read_head().await.expect("it answers");
    assert_eq!(status, 200);
    connection
}

/// Everything of a stream: how many events with an id, how many without, and whether the answer came.
async fn drain(mut stream: RawConnection, id: u32) -> (usize, usize, bool) {
    let (mut named, mut bare, mut answered) = (0, 0, false);
    while let Some(block) = stream.next_block(PATIENCE).await {
        let Some(data) = block.data.filter(|data| !data.is_empty()) else {
            continue;
        };
        match block.id {
            Some(_) => named += 1,
            None => bare += 1,
        }
        answered |= data.contains(&format!("\"id\":{id},\"result\""));
    }
    (named, bare, answered)
}

#[tokio::test]
async fn d10_a_full_disk_costs_what_needs_it_and_nothing_else() {
    let Some(disk) = Disk::mount() else {
        eprintln!("SKIPPED: no file system can be mounted here, so none can be filled (needs root)");
        return;
    };
    let data = disk.0.join("data");
    let server = Everything::start_with(&["--store", "embedded", "--data", text(&data)]);
    let addr = server.addr();
    let session = initialize(addr).await.session.expect("a session");
    let begun = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(post(addr, Some(&session), begun).await.status, 202);

    // A stream that runs through it all: some events before the disk is full, some after.
    let stream = start(addr, &session, &burst(1, 60, 50_000)).await;
    sleep(Duration::from_millis(500)).await;
    disk.fill();

    let deadline = Instant::now() + PATIENCE;
    let refused = loop {
        let reply = initialize(addr).await;
        if reply.status != 200 {
            break reply;
        }
        assert!(
            Instant::now() < deadline,
            "the disk is full, and sessions are still made"
        );
        sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((refused.status, refused.retry_after), (503, true), "{}", refused.body);
    let echo = r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","arguments":{"message":"still here"}}}"#;
    let reply = post(addr, Some(&session), echo).await;
    assert!(
        reply.status == 200 && reply.body.contains("still here"),
        "{}",
        reply.body
    );

    let (named, bare, answered) = drain(stream, 1).await;
    assert!(answered, "the stream reached its reader to the end");
    assert!(named >= 5 && bare >= 5, "{named} with an id, {bare} without");
    assert_eq!(named + bare, 61, "each event once");

    disk.free();
    let deadline = Instant::now() + PATIENCE;
    while initialize(addr).await.status != 200 {
        assert!(Instant::now() < deadline, "there is room again, and nobody has noticed");
        sleep(Duration::from_millis(100)).await;
    }
    // The old session goes on, and what it says has ids again.
    let (named, bare, answered) = drain(start(addr, &session, &burst(2, 10, 1_000)).await, 2).await;
    assert_eq!((named, bare, answered), (11, 0, true));
    // What was told before the disk was full can still be resumed from; what could not be stored is not waited for.
    let mut resumed = RawConnection::open(addr).await.expect("the server listens");
    let headers = [
        ("accept", "text/event-stream"),
        ("mcp-session-id", &session),
        ("last-event-id", "1-2"),
    ];
    resumed
        .send(&request("GET", "/mcp", &headers, b""))
        .await
        .expect("it takes it");
    assert_eq!(resumed.read_head().await.expect("it answers").0, 200);
    let (mut first, mut last) = (None, String::new());
    while let Some(block) = resumed.next_block(PATIENCE).await {
        if let (Some(id), Some(data)) = (block.id, block.data) {
            first.get_or_insert(id);
            last = data;
        }
    }
    assert_eq!(first.as_deref(), Some("1-3"));
    assert!(last.contains("answer_lost"), "{last}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}
