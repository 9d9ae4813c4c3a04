//! A full disk under the example server (D10). Requests that need the store get 503, others continue, and the server
//! recovers without help once there is space.

use crate::server::ServerProcess;
use rethread_testkit::raw::{RawConnection, exchange, request};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Room for a few segments of the store (16 MiB each at most).
const DISK_SIZE: &str = "size=72m";
/// Longer than any step takes.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// A small tmpfs. Unmounted on drop.
struct Disk(PathBuf);

impl Disk {
    /// `None` if mounting is not permitted.
    fn mount() -> Option<Self> {
        let dir = std::env::temp_dir().join(format!("rethread-full-disk-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder can be made");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", DISK_SIZE, "tmpfs"]).arg(&dir).output();
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

    /// Writes until the disk is full.
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

/// Starts a call and leaves the response on the connection.
async fn start(addr: SocketAddr, session: &str, body: &str) -> RawConnection {
    let mut connection = RawConnection::open(addr).await.expect("the server listens");
    let headers = [ACCEPT, JSON, ("mcp-session-id", session)];
    let call = request("POST", "/mcp", &headers, body.as_bytes());
    connection.send(&call).await.expect("it takes the call");
    let (status, _) = connection.read_head().await.expect("it answers");
    assert_eq!(status, 200);
    connection
}

/// Reads a stream: events with an id, events without, and whether the answer arrived.
async fn read_to_end(mut stream: RawConnection, id: u32) -> (usize, usize, bool) {
    let (mut named, mut bare, mut answered) = (0, 0, false);
    while let Some(block) = stream.next_block(STEP_TIMEOUT).await {
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
async fn d10_full_disk_affects_only_requests_that_need_it() {
    let Some(disk) = Disk::mount() else {
        eprintln!("SKIPPED: no file system can be mounted here, so none can be filled (needs root)");
        return;
    };
    let data = disk.0.join("data");
    let server = ServerProcess::start_with(&["--store", "embedded", "--data", text(&data)]);
    let addr = server.addr();
    let session = initialize(addr).await.session.expect("a session");
    let begun = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(post(addr, Some(&session), begun).await.status, 202);

    // This stream runs throughout: some events precede the full disk, some follow.
    let stream = start(addr, &session, &burst(1, 60, 50_000)).await;
    sleep(Duration::from_millis(500)).await;
    disk.fill();

    let deadline = Instant::now() + STEP_TIMEOUT;
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

    let (named, bare, answered) = read_to_end(stream, 1).await;
    assert!(answered, "the stream reached its reader to the end");
    assert!(named >= 5 && bare >= 5, "{named} with an id, {bare} without");
    assert_eq!(named + bare, 61, "each event once");

    disk.free();
    let deadline = Instant::now() + STEP_TIMEOUT;
    while initialize(addr).await.status != 200 {
        assert!(Instant::now() < deadline, "the server has not noticed the free space");
        sleep(Duration::from_millis(100)).await;
    }
    // The old session continues, and its events have ids again.
    let (named, bare, answered) = read_to_end(start(addr, &session, &burst(2, 10, 1_000)).await, 2).await;
    assert_eq!((named, bare, answered), (11, 0, true));
    // Events from before the full disk can still be resumed. The resume does not wait for unstored events.
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
    while let Some(block) = resumed.next_block(STEP_TIMEOUT).await {
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
