//! Clients that behave as big hosts do: a session for each call, never a DELETE, or never a session id (GW-21 to GW-27).

use crate::client::{HttpReply, LATEST, tool_result};
use crate::gateway::{Gateway, GatewayBuilder, fake_child_command, gateway_with, wait_until};
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const SESSIONS: usize = 1000;
const AT_A_TIME: usize = 50;
const MAX_CHILDREN: usize = 10;

/// Memory that the allocator may keep after the sessions have ended, and that of the code that ran for the first time.
const KEPT_KIB: u64 = 8 * 1024;

/// Opens sessions with one call each that never return, 50 at a time.
async fn open_sessions(gateway: &Gateway, sessions: usize) {
    let places = Arc::new(Semaphore::new(AT_A_TIME));
    let mut clients = JoinSet::new();
    for n in 0..sessions {
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let client = gateway.client();
        clients.spawn(async move {
            let session = client.open_session(LATEST).await;
            let answer = session.call_tool(1, "echo", json!({ "text": n })).await;
            assert_eq!(tool_result(&answer)["text"], n, "{answer}");
            drop(place);
        });
    }
    while let Some(finished) = clients.join_next().await {
        finished.unwrap();
    }
}

/// A gateway in front of a host that opens `sessions`. There are never more than `max_children` processes, and none but `spares`
/// afterwards. Returns the gateway, and its memory before the host came.
async fn run_host(builder: GatewayBuilder, sessions: usize, spares: usize) -> (Arc<Gateway>, u64) {
    let gateway = builder
        .option(&format!("--max-children {MAX_CHILDREN} --child-idle 1s"))
        .test_timeout(Duration::from_secs(400))
        .start();
    let gateway = Arc::new(gateway);
    gateway.wait_for_children(spares, Duration::from_secs(15)).await;
    let (most, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let watcher = std::thread::spawn({
        let (gateway, most, done) = (Arc::clone(&gateway), Arc::clone(&most), Arc::clone(&done));
        move || {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(gateway.children().len(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    });
    let before = gateway.rss();
    open_sessions(&gateway, sessions).await;
    done.store(true, Ordering::Relaxed);
    watcher.join().unwrap();
    let most = most.load(Ordering::Relaxed);
    assert!((1..=MAX_CHILDREN).contains(&most), "{most} children at a time");
    gateway.wait_for_children(spares, Duration::from_secs(20)).await;
    gateway.wait_for_no_zombies().await;
    let grown = gateway.rss().saturating_sub(before);
    println!("{sessions} sessions: at most {most} children, {grown} KiB more memory");
    let bound = 20 * sessions as u64 + KEPT_KIB; // the goal, and what the allocator keeps
    assert!(grown < bound, "{grown} KiB for {sessions} sessions");
    (gateway, before)
}

/// The sessions of a host leave the memory, and the memory of the gateway is what it was before them.
async fn returns_memory(builder: GatewayBuilder) -> Arc<Gateway> {
    let (gateway, before) = run_host(builder, SESSIONS, 0).await;
    let ended = || {
        let log = gateway.log();
        log.matches("session ended").count() + log.matches("session unloaded").count()
    };
    assert!(
        wait_until(Duration::from_secs(60), || ended() >= SESSIONS).await,
        "{} sessions ended",
        ended()
    );
    let back = || gateway.rss() <= before + KEPT_KIB;
    let is_back = wait_until(Duration::from_secs(20), back).await;
    let after = gateway.rss();
    println!("{SESSIONS} sessions that are not in memory: {before} KiB before them, {after} KiB after them");
    assert!(is_back, "{before} KiB before, {after} KiB after");
    gateway
}

#[tokio::test(flavor = "multi_thread")]
async fn gw_21_thousand_sessions_that_never_return_see_no_error() {
    returns_memory(gateway_with("legacy").option("--session-idle 10s")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gw_21_thousand_sessions_that_never_return_see_no_error_with_a_durable_store() {
    returns_memory(gateway_with("legacy").with_data_dir().option("--session-idle 10s")).await;
}

/// GW-23: with a durable store the sessions need not end. They leave the memory after `session_unused`.
#[tokio::test(flavor = "multi_thread")]
async fn gw_23_thousand_sessions_with_one_call_leave_the_memory() {
    let builder = gateway_with("legacy").with_data_dir().option("--session-unused 5s");
    let gateway = returns_memory(builder).await;
    let log = gateway.log();
    let unloaded = log.lines().filter(|line| line.contains("session unloaded"));
    assert_eq!(unloaded.count(), SESSIONS);
}

#[tokio::test(flavor = "multi_thread")]
async fn gw_21_sessions_that_never_return_see_no_error_with_a_spare() {
    run_host(gateway_with("legacy").option("--spare 1"), 100, 1).await;
}

/// A server that does not end with its stdin costs its stop some time, and nobody an error.
#[tokio::test(flavor = "multi_thread")]
async fn gw_21_sessions_that_never_return_see_no_error_with_a_server_that_ignores_the_end_of_stdin() {
    run_host(gateway_with("legacy,ignores-end-of-stdin"), 40, 0).await;
}

/// GW-22: the first call of a session whose process was a spare, relative to a later call of the same session. Both are
/// measured in turns, so that both see the same machine. The server is not slower at its first call: a Python process without the
/// warm-up takes twice as long for that one, without a gateway.
#[tokio::test(flavor = "multi_thread")]
async fn gw_22_call_with_a_spare_child_takes_about_as_long_as_a_warm_call() {
    const PAIRS: usize = 25;
    let gateway = gateway_with("legacy,warms-up")
        .option(&format!("--max-children {MAX_CHILDREN} --child-idle 1s --spare 1"))
        .test_timeout(Duration::from_secs(300))
        .start();
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let mut ratio = f64::INFINITY;
    // Other tests may disturb a round.
    for _ in 0..6 {
        let (mut opened, mut spare, mut warm) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..PAIRS {
            // The process of the session before, and the next spare. It has the time to start that a host gives it.
            gateway.wait_for_any_child(Duration::from_secs(15)).await;
            tokio::time::sleep(Duration::from_millis(400)).await;
            let began = Instant::now();
            let session = gateway.client().open_session(LATEST).await;
            opened.push(began.elapsed());
            for (id, times) in [(1, &mut spare), (2, &mut warm)] {
                let began = Instant::now();
                let answer = session.call_tool(id, "echo", json!({ "text": n })).await;
                times.push(began.elapsed());
                assert_eq!(tool_result(&answer)["text"], n, "{answer}");
            }
        }
        let (opened, spare, warm) = (median(opened), median(spare), median(warm));
        ratio = spare.as_secs_f64() / warm.as_secs_f64();
        println!(
            "p50: session opened with a spare {opened:?}, its first call {spare:?}, a warm call {warm:?}, ratio {ratio:.2}"
        );
        if ratio < 1.5 {
            break;
        }
    }
    assert!(ratio < 1.5, "{ratio:.2} times the warm call");
}

/// A request of the session era that names no session.
async fn call_without_session(gateway: &Gateway, id: usize, name: &str, arguments: Value) -> HttpReply {
    let params = json!({ "name": name, "arguments": arguments, "_meta": { "progressToken": id } });
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    gateway.client().post(&[("mcp-protocol-version", LATEST)], &body).await
}

#[tokio::test]
async fn gw_27_host_that_never_sends_the_session_id_is_served() {
    let gateway = gateway_with("legacy").record_messages().start();
    gateway.client().open_session(LATEST).await;
    for n in 0..30 {
        let reply = call_without_session(&gateway, n, "echo", json!({ "text": n })).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert!(!reply.headers.contains_key("mcp-session-id"));
        let answer = reply.response().await;
        assert_eq!(
            (&answer["id"], &tool_result(&answer)["text"]),
            (&json!(n), &json!(n)),
            "{answer}"
        );
        assert!(answer["result"].get("resultType").is_none(), "{answer}");
        assert!(gateway.children().len() <= 3, "{:?}", gateway.children());
    }
    gateway.wait_for_log("a client sends no session id").await;
    assert_eq!(gateway.log().matches("a client sends no session id").count(), 1);
    let of_gateway =
        |message: &&Value| message["method"] == "initialize" && message["params"]["clientInfo"]["name"] == "rethread";
    // The probe and the lease. A slow machine may need a second probe.
    let own = gateway.recorded_messages().iter().filter(of_gateway).count();
    assert!((2..=3).contains(&own), "{own}");
}

/// GW-27 in front of a server without sessions: the request is translated, and needs no lease.
#[tokio::test]
async fn gw_27_host_that_never_sends_the_session_id_is_served_by_a_modern_server() {
    let gateway = gateway_with("modern").record_messages().start();
    gateway.client().open_session(LATEST).await;
    for n in 0..30 {
        let reply = call_without_session(&gateway, n, "echo", json!({ "text": n })).await;
        assert_eq!(reply.status, StatusCode::OK);
        let answer = reply.response().await;
        assert_eq!(tool_result(&answer)["text"], n, "{answer}");
        assert!(answer["result"].get("resultType").is_none(), "{answer}");
        assert_eq!(gateway.children().len(), 1);
    }
    let initialized = gateway
        .recorded_messages()
        .iter()
        .any(|m| m["method"] == "initialize" && m["params"]["clientInfo"]["name"] != "rethread");
    assert!(!initialized, "a modern server gets no `initialize` of a client");
}

#[tokio::test]
async fn gw_27_stream_without_a_session_has_no_ids_and_asks_nothing() {
    let gateway = gateway_with("legacy").start();
    let mut stream = call_without_session(&gateway, 1, "slow", json!({ "ms": 600, "steps": 3 })).await;
    let progress = stream.next().await.expect("progress");
    assert_eq!(progress["params"]["progressToken"], 1, "{progress}");
    assert!(stream.last_id().is_none(), "an event without a session has no id");
    assert!(stream.messages().await.pop().unwrap()["result"].is_object());
    let answer = call_without_session(&gateway, 2, "ask", json!({}))
        .await
        .response()
        .await;
    assert_eq!(
        tool_result(&answer)["code"],
        -32601,
        "the question is refused: {answer}"
    );
    let unknown = json!({ "jsonrpc": "2.0", "id": 3, "method": "no/such/method" });
    let reply = gateway
        .client()
        .post(&[("mcp-protocol-version", LATEST)], &unknown)
        .await;
    assert_eq!(reply.status, StatusCode::OK, "an error is an answer like any other");
    assert_eq!(reply.response().await["error"]["code"], -32601);
    for method in ["GET", "DELETE"] {
        let headers = [("accept", "text/event-stream"), ("mcp-protocol-version", LATEST)];
        let reply = gateway.client().send(method, "/mcp", &headers, b"").await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{method}");
    }
}

#[tokio::test]
async fn gw_27_request_without_a_session_is_refused_on_request() {
    let gateway = gateway_with("legacy").option("--sessionless refuse").start();
    let reply = call_without_session(&gateway, 1, "echo", json!({})).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
}

/// A session leaves the memory whether it was used or not, and its client sees no difference.
#[tokio::test]
async fn gw_23_unused_session_leaves_the_memory_and_is_restored() {
    let gateway = gateway_with("legacy")
        .option("--session-unused 3s --child-idle 300ms")
        .start();
    let unused = gateway.client().open_session(LATEST).await;
    let used = gateway.client().open_session(LATEST).await;
    used.child_pid().await;
    let reading = gateway.client().open_session(LATEST).await;
    let get = reading.listen().await;
    assert_eq!(get.status, StatusCode::OK);
    let unloaded = || gateway.log().matches("session unloaded").count();
    assert!(
        wait_until(Duration::from_secs(20), || unloaded() == 2).await,
        "{}",
        gateway.log()
    );
    assert!(!gateway.log().contains("session loaded"));
    for session in [&used, &unused] {
        session.child_pid().await;
        session.child_pid().await;
    }
    gateway.wait_for_log("session loaded").await;
    assert_eq!(
        gateway.log().matches("session loaded").count(),
        2,
        "not the one with a stream"
    );
    drop(get);
}

/// A session stays in memory as long as its process: `child_idle` keeps the process for its client.
#[tokio::test]
async fn gw_23_session_with_a_process_stays_in_memory() {
    let gateway = gateway_with("legacy")
        .option("--session-unused 1s --child-idle 6s")
        .start();
    let session = gateway.client().open_session(LATEST).await;
    let pid = session.child_pid().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!gateway.log().contains("session unloaded"), "{}", gateway.log());
    assert_eq!(session.child_pid().await, pid);
    let unloaded = || gateway.log().contains("session unloaded");
    assert!(wait_until(Duration::from_secs(30), unloaded).await);
    assert!(gateway.log().contains("child hibernated"), "{}", gateway.log());
    assert_ne!(session.child_pid().await, pid);
}

#[tokio::test]
async fn gw_23_unused_session_ends_if_its_process_has_memory() {
    let gateway = gateway_with("legacy")
        .option("--session-unused 3s --child-idle never")
        .start();
    let unused = gateway.client().open_session(LATEST).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(
        unused.call(1, "tools/list", json!({})).await.status,
        StatusCode::NOT_FOUND
    );
    gateway.wait_for_children(0, Duration::from_secs(15)).await;
}

/// GW-25: three servers that take 4 s each start in one such time, and a restart does not probe.
#[tokio::test]
async fn gw_25_servers_are_probed_in_parallel_and_remembered() {
    let builder = GatewayBuilder::new().without_command().with_data_dir();
    let mut file = String::new();
    for name in ["one", "two", "three"] {
        let command = fake_child_command("legacy,start-delay=4", builder.marker());
        file += &format!(
            "[servers.{name}]\ncommand = {command:?}\nenv.RECORD = {:?}\n",
            builder.path("record")
        );
    }
    std::fs::write(builder.path("r.toml"), file).unwrap();
    let began = Instant::now();
    let gateway = builder.option("--config r.toml").start();
    let first = began.elapsed();
    assert!(
        first < Duration::from_secs(12),
        "one after the other takes more than 12 s: {first:?}"
    );
    let probes = gateway.recorded_messages().len();
    assert!(gateway.builder().path("data/one.probe.json").exists());
    let began = Instant::now();
    let gateway = gateway.kill_and_restart();
    let again = began.elapsed();
    assert!(again < Duration::from_secs(4), "{again:?}");
    assert_eq!(gateway.recorded_messages().len(), probes, "no probe");
}

/// GW-25: a server that was replaced by one of the other era is noticed when it refuses `initialize`. New sessions are served as it
/// is now, without a restart of the gateway.
#[tokio::test]
async fn gw_25_changed_server_is_probed_again_and_served_as_it_is_now() {
    let builder = GatewayBuilder::new().option("--memory");
    let mode = builder.path("mode");
    std::fs::write(&mode, "legacy").unwrap();
    let child = fake_child_command("MODE", builder.marker()).join(" ");
    let script = format!("exec {}", child.replace("MODE", &format!("$(cat {})", mode.display())));
    let gateway = builder.command(&["sh", "-c", &script]).start();
    let before = gateway.client().open_session(LATEST).await;
    tool_result(&before.call_tool(1, "echo", json!({})).await);
    std::fs::write(&mode, "modern").unwrap();
    let refused = gateway.client().initialize(LATEST).await.response().await;
    assert!(refused["error"].is_object(), "{refused}");
    gateway.wait_for_log("the server has changed").await;
    let after = gateway.client().open_session(LATEST).await;
    assert_eq!(
        tool_result(&after.call_tool(1, "echo", json!({ "text": "new" })).await)["text"],
        "new"
    );
    tool_result(&before.call_tool(2, "echo", json!({})).await); // its process still runs
}

#[test]
fn gw_25_failures_of_all_servers_are_reported_together() {
    let builder = GatewayBuilder::new()
        .without_command()
        .option("--memory --config r.toml");
    let command = fake_child_command("legacy,refuses-initialize", builder.marker());
    let file = format!("[servers.one]\ncommand = {command:?}\n[servers.two]\ncommand = {command:?}\n");
    std::fs::write(builder.path("r.toml"), file).unwrap();
    let (code, stderr) = builder.run_to_exit();
    assert_eq!(code, Some(1), "{stderr}");
    for name in ["one", "two"] {
        assert!(
            stderr.contains(&format!("the server {name} cannot be served")),
            "{stderr}"
        );
    }
}
