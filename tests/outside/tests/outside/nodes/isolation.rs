//! Nobody reads a session of somebody else, on whichever node (SES-04, SES-06, RES-05). `cargo xtask soak isolation` makes
//! more attempts than CI can.

use super::cluster::{Cluster, V2025_11_25};
use super::every_request::text;
use crate::official_clients::seed;
use http::StatusCode;
use rethread_testkit::client::{Client, Events, Session};
use rethread_testkit::proxy::SplitMix64;
use serde_json::json;
use std::time::{Duration, Instant};

/// Attempts in CI. `RETHREAD_ATTEMPTS` is another number.
const ATTEMPTS: usize = 3_000;
const PRINCIPALS: usize = 4;
const SESSIONS_PER_PRINCIPAL: usize = 2;

/// A session with events and messages that only its principal may read.
struct Victim {
    principal: usize,
    session: Session,
    /// A text that is in every event of the session.
    secret: String,
    /// Ids of its events.
    cursors: Vec<String>,
    /// A call that waits for an answer.
    question: serde_json::Value,
    _asking: Events,
    _push: Events,
}

fn of_principal(client: &Client, principal: usize) -> Client {
    let token = format!("Bearer principal{principal}");
    client.with_request_hook(move |request| {
        let token = token.parse().expect("a header value");
        request.headers_mut().insert(http::header::AUTHORIZATION, token);
    })
}

impl Victim {
    async fn open(cluster: &Cluster, number: usize) -> Self {
        let principal = number / SESSIONS_PER_PRINCIPAL;
        let at =
            |session: &Session, node: usize| session.with_client(&of_principal(&cluster.client(node % 3), principal));
        let session = of_principal(&cluster.client(number % 3), principal)
            .open(V2025_11_25)
            .await;
        let secret = format!("secret-{number}-of-{principal}");
        let mut push = at(&session, number + 1).get(None).await.events();
        let pushed = at(&session, number + 2)
            .tool(1, "push", json!({ "count": 3, "tag": secret }))
            .await;
        assert_eq!(text(&pushed.answer().await), "pushed 3");
        let mut cursors = Vec::new();
        for _ in 0..3 {
            let message = push.next().await;
            assert_eq!(message.data["params"]["data"]["push"], secret);
            cursors.extend(message.id);
        }
        let mut events = at(&session, number)
            .tool(secret.as_str(), "burst", json!({ "events": 3 }))
            .await
            .events();
        cursors.extend(events.block().await.and_then(|block| block.id));
        cursors.extend(events.rest().await.into_iter().filter_map(|message| message.id));
        let mut asking = at(&session, number + 1).tool("asks", "ask", json!({})).await.events();
        let question = asking.next().await.data["id"].clone();
        Victim {
            principal,
            session,
            secret,
            cursors,
            question,
            _asking: asking,
            _push: push,
        }
    }
}

/// Attempts of each kind.
const KINDS: [&str; 7] = [
    "resume",
    "GET",
    "call",
    "answer",
    "DELETE",
    "cancel",
    "foreign event id",
];

#[tokio::test]
async fn ses_06_other_principals_read_nothing_on_any_node() {
    let seed = seed();
    let Some(cluster) = Cluster::start_with(&["--trust-bearer"]).await else {
        return;
    };
    let attempts = std::env::var("RETHREAD_ATTEMPTS")
        .ok()
        .and_then(|attempts| attempts.parse().ok());
    let attempts = attempts.unwrap_or(ATTEMPTS);
    let mut victims = Vec::new();
    for number in 0..PRINCIPALS * SESSIONS_PER_PRINCIPAL {
        victims.push(Victim::open(&cluster, number).await);
    }
    let started = Instant::now();
    let mut random = SplitMix64::new(seed);
    let mut made = [0; KINDS.len()];
    for attempt in 0..attempts {
        let kind = attempt_theft(&cluster, &victims, &mut random, attempt).await;
        made[kind] += 1;
    }
    assert_unchanged(&cluster, &victims).await;
    let made: Vec<String> = KINDS.iter().zip(made).map(|(kind, n)| format!("{n} {kind}")).collect();
    println!(
        "result: {attempts} attempts in {} s on {} sessions of {PRINCIPALS} principals and 3 nodes read nothing and changed \
         nothing: {}",
        started.elapsed().as_secs(),
        victims.len(),
        made.join(", ")
    );
}

/// One attempt of a random kind to use a session of somebody else. Returns the kind.
async fn attempt_theft(cluster: &Cluster, victims: &[Victim], random: &mut SplitMix64, attempt: usize) -> usize {
    let mut pick = |below: usize| random.below(below as u64) as usize;
    let at = pick(victims.len());
    let victim = &victims[at];
    let other = &victims[(at + 1 + pick(victims.len() - 1)) % victims.len()];
    let node = pick(3);
    let client = cluster.client(node);
    // Another principal, or none, with the id of the session.
    let thief = (victim.principal + 1 + pick(PRINCIPALS - 1)) % PRINCIPALS;
    let stranger = if pick(4) == 0 {
        client.clone()
    } else {
        of_principal(&client, thief)
    };
    let stolen = victim.session.with_client(&stranger);
    let cursor = &victim.cursors[pick(victim.cursors.len())];
    let kind = pick(KINDS.len());
    let reply = match kind {
        0 => stolen.get(Some(cursor)).await,
        1 => stolen.get(None).await,
        2 => stolen.tool("asks", "echo", json!({ "message": "x" })).await,
        3 => {
            let forged = json!({ "action": "accept", "content": { "answer": "forged" } });
            stolen.answer(&victim.question, forged).await
        }
        4 => stolen.delete().await,
        5 => {
            stolen
                .notify("notifications/cancelled", json!({ "requestId": "asks" }))
                .await
        }
        _ => {
            // A session of their own, with the event id of another session.
            let own = other.session.with_client(&of_principal(&client, other.principal));
            let reply = own.get(Some(cursor)).await;
            // The ids of two sessions may be the same numbers. Then the reader gets events of its own session.
            if reply.status == StatusCode::OK {
                assert_reads_only_its_own(reply.events(), &other.secret, attempt).await;
            } else {
                let body = reply.bytes().await;
                assert!(!String::from_utf8_lossy(&body).contains("secret-"), "attempt {attempt}");
            }
            return kind;
        }
    };
    assert_eq!(reply.status, StatusCode::NOT_FOUND, "attempt {attempt} on node {node}");
    let body = String::from_utf8_lossy(&reply.bytes().await).into_owned();
    assert!(
        !body.contains("secret-") && !body.contains(&victim.session.id),
        "attempt {attempt}: {body}"
    );
    kind
}

/// Nothing has changed for the owners.
async fn assert_unchanged(cluster: &Cluster, victims: &[Victim]) {
    for (number, victim) in victims.iter().enumerate() {
        for node in 0..3 {
            let own = victim
                .session
                .with_client(&of_principal(&cluster.client(node), victim.principal));
            let echo = own
                .tool(format!("last {node}"), "echo", json!({ "message": "mine" }))
                .await;
            assert_eq!(text(&echo.answer().await), "mine", "session {number}, node {node}");
        }
        let own = victim
            .session
            .with_client(&of_principal(&cluster.client(0), victim.principal));
        let answered = own.answer(&victim.question, json!({ "action": "decline" })).await;
        assert_eq!(
            answered.status,
            StatusCode::ACCEPTED,
            "the question of session {number} still waits"
        );
    }
}

async fn assert_reads_only_its_own(mut events: Events, own: &str, attempt: usize) {
    while let Ok(Some(message)) = tokio::time::timeout(Duration::from_millis(20), events.message()).await {
        let text = message.data.to_string();
        assert!(
            !text.contains("secret-") || text.contains(own),
            "attempt {attempt}: {text}"
        );
    }
}
