//! HTTPS: real handshakes, slow handshakes, and certificates that change (OPS-17, OPS-18).

use crate::client::{Client, LATEST, tool_result};
use crate::gateway::{Gateway, GatewayBuilder, fake_child_command, gateway_with, wait_until};
use http::StatusCode;
use rethread_testkit::certificates::{Authority, connect};
use rethread_testkit::raw::RawConnection;
use rustix::process::Signal;
use serde_json::json;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

const SECOND: Duration = Duration::from_secs(1);

fn with_tls(builder: GatewayBuilder, authority: &Authority) -> GatewayBuilder {
    authority.write_pair(&builder.path("cert.pem"), &builder.path("key.pem"));
    builder.option("--tls-cert cert.pem --tls-key key.pem")
}

/// A client that reaches the gateway with TLS.
async fn secure_client(gateway: &Gateway, authority: &Authority) -> Client {
    Client::new(authority.tunnel(gateway.addr).await.unwrap(), "")
}

/// AUTH-02: sessions, streams and `/sse` work with TLS, and every URL begins with `https`.
#[tokio::test]
async fn auth_02_clients_use_sessions_and_streams_over_tls() {
    let authority = Authority::new();
    let gateway = with_tls(gateway_with("legacy"), &authority).start();
    let (addr, log) = (gateway.addr, gateway.log());
    assert!(log.contains(&format!("https://{addr}/mcp")), "{log}");
    assert!(!log.contains("http://"), "{log}");
    let client = secure_client(&gateway, &authority).await;
    let session = client.open_session(LATEST).await;
    let reply = session.start_tool(1, "echo", json!({ "text": "hi" })).await;
    assert!(tool_result(&reply.response().await)["pid"].is_u64());
    let mut sse = client
        .send("GET", "/sse", &[("accept", "text/event-stream")], b"")
        .await;
    assert_eq!(sse.status, StatusCode::OK);
    let endpoint = sse.next().await.expect("the address for messages");
    assert!(endpoint.to_string().contains("/messages"), "{endpoint}");
}

/// OPS-17: curl checks the certificate, TLS 1.1 is refused, and `h2` is not offered.
#[tokio::test]
async fn ops_17_curl_connects_with_the_authority_only() {
    let authority = Authority::new();
    let gateway = with_tls(gateway_with("legacy"), &authority).start();
    let ca = gateway.builder().path("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let url = format!("https://localhost:{}/healthz", gateway.addr.port());
    let curl = |options: &[&str]| {
        let output = Command::new("curl")
            .args(["-sS", "-i", "--max-time", "20"])
            .args(options)
            .arg(&url)
            .output();
        let output = output.expect("curl is installed");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let ca = ca.to_str().unwrap();
    let (ok, page) = curl(&["--cacert", ca]);
    assert!(
        ok && page.starts_with("HTTP/1.1 200") && page.ends_with("ok\n"),
        "{page}"
    );
    assert!(curl(&["--cacert", ca, "--tls-max", "1.2"]).0);
    assert!(!curl(&["--cacert", ca, "--tls-max", "1.1"]).0);
    assert!(!curl(&[]).0, "an unknown authority");
    let only_h2 = Arc::new(authority.client_config(&[b"h2"]));
    assert!(connect(&only_h2, gateway.addr).await.is_err());
    let both = Arc::new(authority.client_config(&[b"h2", b"http/1.1"]));
    let stream = connect(&both, gateway.addr).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

/// OPS-18: clients that never finish their handshake delay nobody, and are closed after 10 seconds.
#[tokio::test]
async fn ops_18_slow_handshakes_delay_nobody() {
    let authority = Authority::new();
    let gateway = with_tls(gateway_with("legacy"), &authority).start();
    let opened = Instant::now();
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(gateway.addr).await.unwrap());
    }
    let client = secure_client(&gateway, &authority).await;
    client.open_session(LATEST).await;
    assert!(opened.elapsed() < 8 * SECOND, "it did not wait for the others");
    let mut one = silent.pop().unwrap();
    let closed = tokio::time::timeout(30 * SECOND, one.read(&mut [0; 1])).await;
    assert!(matches!(closed, Ok(Ok(0) | Err(_))), "{closed:?}");
    assert!(opened.elapsed() > 9 * SECOND);
}

/// A request without TLS gets no page and no answer of the service.
#[tokio::test]
async fn ops_17_plain_request_is_not_served_on_a_tls_port() {
    let authority = Authority::new();
    let gateway = with_tls(gateway_with("legacy"), &authority).start();
    let mut plain = RawConnection::open(gateway.addr).await.unwrap();
    plain
        .send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert!(plain.read_head().await.is_err());
}

/// OPS-18: SIGHUP reads the certificate again. An invalid pair changes nothing and is named in the log. Connections continue.
#[tokio::test]
async fn ops_18_certificate_is_reloaded_on_sighup() {
    let (first, second) = (Authority::new(), Authority::new());
    let gateway = with_tls(gateway_with("legacy"), &first).start();
    let session = secure_client(&gateway, &first).await.open_session(LATEST).await;
    let reload = async |phrase: &str| {
        let count = |gateway: &Gateway| gateway.log().matches(phrase).count();
        let before = count(&gateway);
        gateway.signal(Signal::HUP);
        assert!(
            wait_until(40 * SECOND, || count(&gateway) > before).await,
            "{}",
            gateway.log()
        );
    };
    std::fs::write(gateway.builder().path("key.pem"), second.issue().1).unwrap();
    reload("cannot be used together").await;
    assert!(first.connect(gateway.addr).await.is_ok(), "the pair in force stays");

    second.write_pair(&gateway.builder().path("cert.pem"), &gateway.builder().path("key.pem"));
    reload("configuration reloaded").await;
    assert!(second.connect(gateway.addr).await.is_ok());
    assert!(first.connect(gateway.addr).await.is_err());
    let client = secure_client(&gateway, &second).await;
    session.with_client(&client).child_pid().await;
}

/// A file that has lost its `[tls]` does not turn HTTPS off.
#[tokio::test]
async fn ops_18_reload_without_a_certificate_keeps_https_on() {
    let authority = Authority::new();
    let builder = GatewayBuilder::new().option("--config rethread.toml");
    authority.write_pair(&builder.path("cert.pem"), &builder.path("key.pem"));
    let command = serde_json::to_string(&fake_child_command("legacy", builder.marker())).unwrap();
    let servers = format!("[servers.a]\ncommand = {command}\n");
    let with_tls = format!("[tls]\ncert = 'cert.pem'\nkey = 'key.pem'\n{servers}");
    std::fs::write(builder.path("rethread.toml"), &with_tls).unwrap();
    let gateway = builder.start();
    let session = Client::new(authority.tunnel(gateway.addr).await.unwrap(), "/servers/a")
        .open_session(LATEST)
        .await;
    let pid = session.child_pid().await;
    std::fs::write(gateway.builder().path("rethread.toml"), &servers).unwrap();
    gateway.signal(Signal::HUP);
    gateway.wait_for_log("HTTPS stays on").await;
    let mut plain = RawConnection::open(gateway.addr).await.unwrap();
    plain
        .send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert!(plain.read_head().await.is_err(), "plain HTTP is not served");
    assert_eq!(session.child_pid().await, pid, "the server goes on");
}

/// A pair that cannot be used is found before anything starts, by `serve` and by `check`.
#[tokio::test]
async fn ops_18_unusable_certificates_are_named_at_the_start() {
    let authority = Authority::new();
    let builder = with_tls(gateway_with("legacy"), &authority);
    std::fs::write(builder.path("key.pem"), authority.issue().1).unwrap();
    let (code, log) = builder.run_to_exit();
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains("cannot be used together"), "{log}");
    let (code, _, log) = builder.run_check();
    assert_eq!(code, Some(2), "{log}");
    let (code, log) = gateway_with("legacy").option("--tls-cert cert.pem").run_to_exit();
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains("--tls-key"), "{log}");
}

/// A secret file that other users can read causes a warning.
#[cfg(unix)]
#[tokio::test]
async fn readable_key_causes_a_warning() {
    use std::os::unix::fs::PermissionsExt as _;
    let authority = Authority::new();
    let builder = with_tls(gateway_with("legacy"), &authority);
    let set_mode = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(builder.path("key.pem"), permissions).unwrap();
    };
    set_mode(0o644);
    let warning = "other users can read";
    let (_, _, warned) = builder.run_check();
    assert!(warned.contains(warning), "{warned}");
    set_mode(0o600);
    let (_, _, silent) = builder.run_check();
    assert!(!silent.contains(warning), "{silent}");
}
