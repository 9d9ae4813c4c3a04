//! SEC-06: connections are bounded in time and in number.

use crate::gateway::gateway_with;
use http::StatusCode;
use rethread_testkit::raw::{RawConnection, request};
use std::time::Duration;

/// The head timeout of 15 seconds, with a margin for a busy machine.
const HEAD_TIMEOUT: Duration = Duration::from_secs(25);
const SHORT_WAIT: Duration = Duration::from_millis(200);

/// OPS-04.
#[tokio::test]
async fn sec_06_incomplete_head_and_silent_connection_are_closed() {
    let gateway = gateway_with("legacy").start();
    let open = async || RawConnection::open(gateway.addr).await.unwrap();
    let (mut silent, mut half, mut idle) = (open().await, open().await, open().await);
    half.send(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nx-half: ")
        .await
        .unwrap();
    idle.send(&request("GET", "/healthz", &[], b"")).await.unwrap();
    assert_eq!(idle.read_head().await.unwrap().0, StatusCode::OK);
    let mut slow = open().await;
    let trickle = async {
        let letters = "x".repeat(100);
        slow.send(b"GET /healthz HTTP/1.1\r\nx-slow: ").await.unwrap();
        // Fails as soon as the gateway has closed the connection.
        let _ = slow.send_slowly(letters.as_bytes(), 1, SHORT_WAIT).await;
        slow.hung_up_within(HEAD_TIMEOUT).await
    };
    let closed = tokio::join!(
        silent.hung_up_within(HEAD_TIMEOUT),
        half.hung_up_within(HEAD_TIMEOUT),
        trickle
    );
    assert_eq!(closed, (true, true, true), "silent, half a head, a slow head");
    assert!(
        !idle.hung_up_within(SHORT_WAIT).await,
        "a kept connection may be idle for longer"
    );
    idle.send(&request("GET", "/healthz", &[], b"")).await.unwrap();
    assert_eq!(idle.read_head().await.unwrap().0, StatusCode::OK);
}

#[tokio::test]
async fn sec_06_connections_beyond_the_peer_limit_get_429() {
    let gateway = gateway_with("legacy").option("--max-connections-per-peer 3").start();
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut connection = RawConnection::open(gateway.addr).await.unwrap();
        connection.send(&request("GET", "/healthz", &[], b"")).await.unwrap();
        assert_eq!(connection.read_head().await.unwrap().0, StatusCode::OK);
        open.push(connection);
    }
    for _ in 0..2 {
        let mut refused = RawConnection::open(gateway.addr).await.unwrap();
        refused.send(&request("GET", "/healthz", &[], b"")).await.unwrap();
        let (status, headers) = refused.read_head().await.unwrap();
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(
            (&headers["retry-after"], &headers["connection"]),
            (&"1".parse().unwrap(), &"close".parse().unwrap())
        );
        let body = String::from_utf8(refused.read_body_to_end().await.unwrap()).unwrap();
        assert!(body.contains("max_connections_per_peer"), "{body}");
    }
    gateway.wait_for_log("too many connections").await;
    let warned = gateway.log().matches("too many connections").count();
    assert_eq!(warned, 1, "{}", gateway.log());
    open.pop();
    let mut served = false;
    for _ in 0..50 {
        let mut again = RawConnection::open(gateway.addr).await.unwrap();
        again.send(&request("GET", "/healthz", &[], b"")).await.unwrap();
        served = again.read_head().await.unwrap().0 == StatusCode::OK;
        if served {
            break;
        }
        tokio::time::sleep(SHORT_WAIT).await;
    }
    assert!(served, "a closed connection makes room");
}
