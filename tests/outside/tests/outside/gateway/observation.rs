//! Metrics and the audit log of the gateway cost at most a twentieth of its calls per second. The log is on in both gateways:
//! at its default it has no line for a call.

use super::process::Gateway;
use rethread_testkit::raw::{RawConnection, request};
use std::time::{Duration, Instant};

/// Calls per second with observation, divided by those without.
const MIN_RATIO: f64 = 0.95;
const CLIENTS: usize = 4;
/// Calls of each client in one round.
const CALLS: usize = 250;
/// Pairs of rounds before the first decision.
const PAIRS: usize = 15;
/// Further pairs are measured while the median is too low, because other programs run on this machine.
const MAX_PAIRS: usize = 150;

/// A connection with a session of its own.
struct Caller {
    connection: RawConnection,
    call: Vec<u8>,
}

impl Caller {
    async fn open(gateway: &Gateway) -> Self {
        let mut connection = RawConnection::open(gateway.addr()).await.expect("connected");
        let body = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"observation","version":"1"}}}"#;
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        connection
            .send(&request("POST", "/mcp", &headers, body))
            .await
            .expect("sent");
        let (status, answer) = connection.read_head().await.expect("a response");
        assert_eq!(status, 200);
        connection.read_body_to_end().await.expect("its body");
        let session = answer["mcp-session-id"].to_str().expect("an id in ASCII").to_owned();
        let headers = [
            ("mcp-session-id", &*session),
            ("mcp-protocol-version", "2025-06-18"),
            headers[0],
            headers[1],
        ];
        let body =
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}"#;
        let call = request("POST", "/mcp", &headers, body);
        Caller { connection, call }
    }

    async fn run(&mut self, calls: usize) {
        for _ in 0..calls {
            self.connection.send(&self.call).await.expect("sent");
            let (status, _) = self.connection.read_head().await.expect("a response");
            let body = self.connection.read_body_to_end().await.expect("its body");
            assert_eq!(status, 200);
            assert!(body.windows(5).any(|text| text == b"hello"), "the echo");
        }
    }
}

struct Callers(Vec<Caller>);

impl Callers {
    async fn open(gateway: &Gateway) -> Self {
        let mut callers = Vec::new();
        for _ in 0..CLIENTS {
            callers.push(Caller::open(gateway).await);
        }
        let mut callers = Callers(callers);
        callers.round().await; // starts the children
        callers
    }

    /// The time of one round.
    async fn round(&mut self) -> Duration {
        let start = Instant::now();
        let [a, b, c, d] = &mut self.0[..] else {
            panic!("{CLIENTS} clients");
        };
        tokio::join!(a.run(CALLS), b.run(CALLS), c.run(CALLS), d.run(CALLS));
        start.elapsed()
    }
}

/// Calls in the audit log. The gateway writes its lines every 50 ms.
fn audited_calls(audit: &str) -> usize {
    let lines = std::fs::read_to_string(audit).expect("the audit log");
    lines.lines().filter(|line| line.contains("\"tools/call\"")).count()
}

fn median(ratios: &[f64]) -> f64 {
    let mut ratios = ratios.to_vec();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// Both gateways live through the whole test, and their rounds alternate: other programs disturb both alike.
#[tokio::test]
async fn ops_overhead_of_observation_is_at_most_five_percent() {
    let folder = std::env::temp_dir().join(format!("rethread-observation-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new folder");
    let audit = folder.join("audit.jsonl").display().to_string();
    let plain = Gateway::for_example();
    let observed = Gateway::for_example_with(&["--metrics", "127.0.0.1:0", "--audit", &audit]);
    let (mut without, mut with) = (Callers::open(&plain).await, Callers::open(&observed).await);

    let mut ratios = Vec::new();
    while ratios.len() < PAIRS || (median(&ratios) < MIN_RATIO && ratios.len() < MAX_PAIRS) {
        // The second of a pair has no advantage over the first.
        let (without, with) = if ratios.len() % 2 == 0 {
            let first = without.round().await;
            (first, with.round().await)
        } else {
            let first = with.round().await;
            (without.round().await, first)
        };
        ratios.push(without.as_secs_f64() / with.as_secs_f64());
    }

    let expected = CLIENTS * CALLS * (ratios.len() + 1);
    let complete = async {
        while audited_calls(&audit) < expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let complete = tokio::time::timeout(Duration::from_secs(5), complete).await;
    assert!(
        complete.is_ok(),
        "the audit log has {} of {expected} calls",
        audited_calls(&audit)
    );
    std::fs::remove_dir_all(&folder).expect("removed");
    let median = median(&ratios);
    println!(
        "calls per second with observation: {median:.3} of those without, {} pairs",
        ratios.len()
    );
    assert!(median >= MIN_RATIO, "{median:.3}: {ratios:.2?}");
}
