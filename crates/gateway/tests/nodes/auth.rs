//! Callers of several gateways: sessions belong to a principal on every node, and expiry counts where the client is connected.

use crate::client::{Client, HttpReply, LATEST};
use crate::cluster::{Cluster, SECOND};
use http::HeaderMap;
use rethread_testkit::issuer::{Issuer, SigningKey, now_seconds};
use serde_json::json;

const AUDIENCE: &str = "api://nodes";

async fn start(issuer: &Issuer) -> Option<Cluster> {
    let options = format!("--issuer {} --audience {AUDIENCE}", issuer.url());
    Cluster::start_with("legacy", |gateway| gateway.option(&options)).await
}

async fn whole(reply: HttpReply) -> (u16, HeaderMap, String) {
    let mut headers = reply.headers.clone();
    headers.remove("date");
    (reply.status.as_u16(), headers, reply.text().await)
}

/// AUTH-20, SEC-05: on every node, the session of another caller is one that never existed.
#[tokio::test]
async fn auth_20_session_belongs_to_its_caller_on_every_node() {
    let issuer = Issuer::start().await;
    let key = SigningKey::es256("a");
    issuer.publish(&[&key]);
    let Some(cluster) = start(&issuer).await else { return };
    let token = |subject: &str, id: &str| {
        let mut claims = issuer.claims(subject, AUDIENCE);
        claims["jti"] = json!(id);
        key.token(&claims)
    };
    let session = cluster
        .client()
        .with_token(&token("ada", "1"))
        .open_session(LATEST)
        .await;
    let pid = session.child_pid().await;
    for node in 0..3 {
        let at_node = Client::new(cluster.gateways[node].addr, "");
        let refreshed = session.with_client(&at_node.with_token(&token("ada", "2")));
        assert_eq!(refreshed.child_pid().await, pid, "node {node}");
        let bob = session.with_client(&at_node.with_token(&token("bob", "1")));
        let mut never = bob.clone();
        never.id = "A".repeat(session.id.len());
        let ping = br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
        for (method, more, body) in [
            ("POST", &[][..], &ping[..]),
            ("POST", &[], b"{"),
            ("GET", &[], b""),
            ("GET", &[("last-event-id", "1-0")], b""),
            ("DELETE", &[], b""),
        ] {
            let (theirs, unknown) = (bob.raw(method, more, body).await, never.raw(method, more, body).await);
            assert_eq!(whole(theirs).await, whole(unknown).await, "node {node}, {method}");
        }
    }
    assert_eq!(session.child_pid().await, pid, "Ada's session lives");
}

/// AUTH-21: a connection to a node that does not own the session ends with the token. The call goes on, and another node has its
/// response for the next token.
#[tokio::test]
async fn auth_21_expiry_closes_connections_of_other_nodes_and_loses_no_response() {
    let issuer = Issuer::start().await;
    let key = SigningKey::es256("a");
    issuer.publish(&[&key]);
    let Some(cluster) = start(&issuer).await else { return };
    // The leeway is 30 s, so this token ends in six seconds.
    let mut claims = issuer.claims("ada", AUDIENCE);
    claims["exp"] = json!(now_seconds() - 24);
    let session = cluster
        .client()
        .with_token(&key.token(&claims))
        .open_session(LATEST)
        .await;
    let [one, other] = cluster.others(session.child_pid().await);
    let mut get = cluster.at(&session, one).listen().await;
    let arguments = json!({ "ms": 12_000, "steps": 12, "text": "long" });
    let mut call = cluster.at(&session, one).start_tool(1, "slow", arguments).await;
    let waited = tokio::time::timeout(40 * SECOND, async {
        assert_eq!(get.next().await, None, "the GET ends");
        let mut last = None;
        while let Some(message) = call.next().await {
            last = Some(message);
        }
        last
    });
    let last = waited.await.expect("the connections end in time");
    assert!(
        last.is_none_or(|last| last["id"] != 1),
        "the stream ends before the response"
    );
    let refreshed =
        Client::new(cluster.gateways[other].addr, "").with_token(&key.token(&issuer.claims("ada", AUDIENCE)));
    let rest = session
        .with_client(&refreshed)
        .resume(&call.cursor())
        .await
        .messages()
        .await;
    assert_eq!(rest.last().unwrap()["id"], 1, "{rest:?}");
}
