//! A store that has an event before it says so: readers may see it first, and nothing is told twice or lost for that.

use crate::support::{D, Puppet, progress_of, text_of};
use rethread::MemoryStore;
use rethread_testkit::flaky::{FlakyStore, Switches};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const LATE: Duration = Duration::from_millis(60);

fn late_store() -> (FlakyStore<MemoryStore>, Arc<Switches>) {
    let store = FlakyStore::new(MemoryStore::default());
    let switches = store.switches();
    (store, switches)
}

/// SSE-08: whoever is sent away takes an id along, or could never come back.
#[tokio::test]
async fn sse_08_a_close_does_not_overtake_what_was_said_before_it() {
    let puppet = Puppet::new();
    let (store, switches) = late_store();
    let (_, client) = puppet.serve_with(|b| b.store(store));
    let session = client.open(D).await;
    switches.delay_acknowledgements(LATE);
    let strings = puppet.strings("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), strings.close());
    let mut events = reply.events();
    assert_eq!(events.message().await.map(|m| m.data), None, "closed without a message");
    assert_eq!(events.cursor(), "1-0", "but not without an id");
    strings.finish("later").await;
    let rest = session.resume("1-0").await.rest().await;
    assert_eq!(text_of(&rest[0].data), "later");
}

/// SSE-08: the close comes to nothing once everything was said.
#[tokio::test]
async fn sse_08_a_close_behind_the_answer_is_the_end() {
    let puppet = Puppet::new();
    let (store, switches) = late_store();
    let (_, client) = puppet.serve_with(|b| b.store(store));
    let session = client.open(D).await;
    switches.delay_acknowledgements(LATE);
    let strings = puppet.strings("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), async {
        strings.close().await;
        strings.finish("at once").await;
    });
    let mut events = reply.events();
    let mut blocks = Vec::new();
    while let Some(block) = events.block().await {
        blocks.push(block);
    }
    let last = blocks.last().unwrap();
    assert_eq!(
        last.id.as_deref(),
        Some("1-1"),
        "nothing follows the answer: {blocks:?}"
    );
}

/// RES-05: what a reader found in the store before its writer heard of it is not told again.
#[tokio::test]
async fn res_05_an_event_that_was_read_before_it_was_acknowledged_comes_once() {
    let puppet = Puppet::new();
    let (store, switches) = late_store();
    let (_, client) = puppet.serve_with(|b| b.store(store));
    let session = client.open(D).await;
    let strings = puppet.strings("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), strings.progress(1));
    drop(reply);
    switches.delay_acknowledgements(LATE);
    strings.progress(2).await; // stored, and its writer does not know
    let mut first = session.resume("1-1").await;
    assert_eq!(progress_of(&[first.next().await]), [2]);
    drop(first);
    let mut second = session.resume("1-2").await;
    assert!(second.is_silent_for(LATE * 2).await, "it has seen 1-2");
    strings.progress(3).await;
    assert_eq!(progress_of(&[second.next().await]), [3]);
    let mut behind = session.resume("1-1").await; // in the middle of an append, from further back
    strings.progress(4).await;
    let seen = [behind.next().await, behind.next().await, behind.next().await];
    assert_eq!(progress_of(&seen), [2, 3, 4]);
    strings.finish("x").await;
    assert_eq!(behind.rest().await.len(), 1);
}

/// RES-05, STO-02: an event that the reader found in the store is not missing for it, whatever its writer is told.
#[tokio::test]
async fn res_05_reader_that_has_seen_an_event_stays_when_its_acknowledgement_is_lost() {
    let puppet = Puppet::new();
    let (store, switches) = late_store();
    let (_, client) = puppet.serve_with(|b| b.store(store));
    let session = client.open(D).await;
    let strings = puppet.strings("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), strings.progress(1));
    drop(reply);
    switches.delay_acknowledgements(LATE);
    switches.lose_acknowledgements(1);
    strings.progress(2).await; // stored, and reported as failed after a while
    let mut events = session.resume("1-1").await;
    assert_eq!(progress_of(&[events.next().await]), [2]);
    tokio::time::sleep(LATE * 2).await;
    assert_eq!(switches.failure_count(), 1);
    strings.progress(3).await;
    let next = events.message().await;
    let next = next.map(|message| (message.id, message.data["params"]["progress"].as_u64()));
    assert_eq!(next, Some((None, Some(3))), "it reads on, without ids");
}

/// RES-06: a push stream has one writer, also while its reader comes and goes.
#[tokio::test]
async fn res_06_a_reader_that_comes_back_in_the_middle_of_an_append_loses_nothing() {
    let puppet = Puppet::new();
    let (store, switches) = late_store();
    let (_, client) = puppet.serve_with(|b| b.store(store));
    let session = client.open(D).await;
    let strings = puppet.strings("p");
    let pushing = session.clone();
    let call = tokio::spawn(async move { pushing.call(1, "tools/call", json!({ "name": "p" })).await });
    let mut get = session.get(None).await.events();
    strings.push(1).await;
    assert_eq!(get.next().await.data["params"]["data"], 1);
    switches.delay_acknowledgements(LATE);
    let mut heard = vec![1];
    for n in 2..40 {
        strings.push(n).await;
        // The connection takes the message and breaks before the store has said that it has it.
        let _ = tokio::time::timeout(Duration::from_millis(1), get.message()).await;
        drop(get);
        let cursor = format!("2-{}", heard.len());
        let (one, other) = tokio::join!(session.get(Some(&cursor)), session.get(Some(&cursor)));
        drop(one);
        get = other.events();
        while let Ok(Some(message)) = tokio::time::timeout(Duration::from_secs(10), get.message()).await {
            assert_eq!(message.id.unwrap(), format!("2-{}", heard.len() + 1));
            heard.push(message.data["params"]["data"].as_u64().unwrap());
            if heard.len() as u64 == n {
                break;
            }
        }
        assert_eq!(heard, (1..=n).collect::<Vec<_>>());
    }
    strings.finish("x").await;
    call.await.unwrap();
}
