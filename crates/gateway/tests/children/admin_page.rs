//! The console page, its URL, and the address of the admin listener.

use crate::admin::{Operator, admin_address};
use crate::client::{Client, LATEST};
use crate::gateway::gateway_with;
use http::StatusCode;
use rethread_testkit::certificates::Authority;
use rethread_testkit::raw::RawConnection;
use std::net::SocketAddr;

/// OPS-13: the policy, and no data without a token.
#[tokio::test]
async fn ops_13_page_has_its_policy_and_no_data() {
    let operator = Operator::start("legacy", false);
    operator.gateway.client().open_session(LATEST).await;
    let tag = operator.snapshot("").await["sessions"][0]["tag"]
        .as_str()
        .unwrap()
        .to_owned();
    for path in ["/", "/console.css", "/console.js"] {
        let reply = operator.stranger().get(path).await;
        let header = |name: &str| reply.headers[name].to_str().unwrap().to_owned();
        assert_eq!(
            header("content-security-policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'"
        );
        assert_eq!(
            (header("x-content-type-options"), header("referrer-policy")),
            ("nosniff".into(), "no-referrer".into())
        );
        let text = reply.text().await;
        assert!(!text.contains(&operator.token) && !text.contains(&tag));
    }
}

/// OPS-08: beyond loopback the operator must ask for it.
#[tokio::test]
async fn ops_08_open_admin_address_needs_tls_or_a_confirmation() {
    let (code, text) = gateway_with("legacy").option("--admin 0.0.0.0:0").run_to_exit();
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("open to the network") && text.contains("insecure"),
        "{text}"
    );
}

/// OPS-08: beyond loopback the listener has the certificate of the gateway, and serves nothing without a handshake.
#[tokio::test]
async fn ops_08_open_admin_address_is_served_over_tls() {
    let authority = Authority::new();
    let builder = gateway_with("legacy").option("--tls-cert cert.pem --tls-key key.pem");
    authority.write_pair(&builder.path("cert.pem"), &builder.path("key.pem"));
    let config = "[admin]\nlisten = '0.0.0.0:0'\n";
    std::fs::write(builder.path("admin.toml"), config).unwrap();
    let gateway = builder.option("--config admin.toml").start();
    let addr = SocketAddr::from(([127, 0, 0, 1], admin_address(&gateway).port()));
    let token = std::fs::read_to_string(gateway.builder().path(".local/state/rethread/admin.token")).unwrap();
    let client = Client::new(authority.tunnel(addr).await.unwrap(), "");
    let page = client.get("/").await;
    assert_eq!(page.status, StatusCode::OK);
    assert_eq!(client.get("/api/v1/snapshot").await.status, StatusCode::UNAUTHORIZED);
    let operator = client.with_token(token.trim());
    assert_eq!(operator.get("/api/v1/snapshot").await.status, StatusCode::OK);
    let mut plain = RawConnection::open(addr).await.unwrap();
    let request = format!("GET /api/v1/snapshot HTTP/1.1\r\nhost: {addr}\r\n\r\n");
    plain.send(request.as_bytes()).await.unwrap();
    assert!(plain.read_head().await.is_err(), "plain HTTP is not served");
}

/// The URL of the page has the token where browsers never send it.
#[tokio::test]
async fn ops_07_console_command_prints_the_url_with_the_token_in_the_fragment() {
    let operator = Operator::start("legacy", false);
    let builder = operator.gateway.builder();
    std::fs::write(
        builder.path("admin.toml"),
        format!("[admin]\nlisten = '{}'\n", operator.addr),
    )
    .unwrap();
    let url = builder.run_stdout("console");
    assert_eq!(url, format!("http://{}/#{}\n", operator.addr, operator.token));
}
