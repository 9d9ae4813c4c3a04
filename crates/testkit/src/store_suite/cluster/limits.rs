//! Limits that hold for all nodes together.

use super::push::{bind, get, message, request, texts};
use super::{Node, nodes};
use crate::store_suite::Harness;
use crate::store_suite::fixture::*;
use rethread_store::{ClusterEvent, Principal, PushQueueLimits, SessionCounts, SessionStore as _, Store, StreamKey};

/// The counts include the sessions of all nodes and exclude ended ones.
pub async fn sessions_of_all_nodes_are_counted<H: Harness>(harness: &H) {
    let Some(([a, b], session)) = nodes(harness).await else {
        return;
    };
    let other = Principal::new("https://issuer.example", "bob");
    for (node, principal) in [(&a, principal()), (&b, principal()), (&b, other.clone())] {
        let created = node.store.create(&fresh_session(principal), record(), false).await;
        created.expect("a session can be created");
    }
    let (alice, nobody) = (principal(), Principal::anonymous());
    let count = async |node: &Node<H::Store>, of| node.cluster().count_sessions(of).await.expect("counted");
    assert_eq!(count(&a, &alice).await, SessionCounts::new(4, 3));
    assert_eq!(count(&b, &other).await, SessionCounts::new(4, 1));
    b.store.end(&session).await.expect("ended");
    assert_eq!(count(&a, &alice).await, SessionCounts::new(3, 2));
    assert_eq!(count(&a, &nobody).await, SessionCounts::new(3, 0));
}

async fn get_removed<S: Store>(node: &mut Node<S>) -> StreamKey {
    let removed = |event| match event {
        ClusterEvent::GetRemoved(key) => Some(key),
        _ => None,
    };
    node.event(removed).await
}

/// GET-03: the newest GET of any node removes the oldest one, whose node is notified. The others take messages.
pub async fn get_03_gets_of_all_nodes_are_bounded<H: Harness>(harness: &H) {
    let Some(([mut a, mut b], session)) = nodes(harness).await else {
        return;
    };
    let epoch = b.store.open(&session).await.expect("the session exists").record.epoch;
    let [first, second, third, fourth] = [2, 4, 6, 8].map(|ordinal| get(&session, ordinal));
    a.cluster().listen(&first, 2).await.expect("the session exists");
    b.cluster().listen(&second, 2).await.expect("the session exists");
    a.cluster()
        .listen(&first, 2)
        .await
        .expect("a repetition makes it the newest");
    b.cluster().listen(&third, 2).await.expect("the session exists");
    assert_eq!(get_removed(&mut b).await, second);
    b.cluster().unlisten(&third).await.expect("the session exists");
    b.cluster().listen(&third, 2).await.expect("the session exists");
    // A store that has lost its last writes gets the GETs of each node back, and keeps the bound.
    let gets = vec![third.ordinal, fourth.ordinal];
    let restored = b.cluster().restore_view(&session, epoch, gets, 2).await;
    restored.expect("the session exists");
    assert_eq!(get_removed(&mut a).await, first, "the first GET that a has lost");

    b.cluster().unlisten(&fourth).await.expect("the session exists");
    let limits = PushQueueLimits::new(8, 1 << 20);
    let enqueued = a.cluster().enqueue(&session, vec![message(1)], limits).await;
    enqueued.expect("the session exists");
    assert!(bind(&a, &first, request(1, 1, 64)).await.messages.is_empty(), "removed");
    assert_eq!(texts(&bind(&b, &third, request(epoch, 1, 64)).await), ["message 1"]);
}

/// GET-04: messages that several nodes send to a session have one bound, in number and in bytes.
pub async fn get_04_waiting_messages_of_all_nodes_are_bounded<H: Harness>(harness: &H) {
    let Some(([a, b], session)) = nodes(harness).await else {
        return;
    };
    let stream = get(&session, 2);
    a.cluster().listen(&stream, 1).await.expect("the session exists");
    let enqueue = async |at: usize, limits| {
        let node = if at.is_multiple_of(2) { &a } else { &b };
        let enqueued = node.cluster().enqueue(&session, vec![message(at)], limits).await;
        enqueued.expect("the session exists").dropped
    };
    let mut dropped = 0;
    for at in 0..6 {
        dropped += enqueue(at, PushQueueLimits::new(4, 1 << 20)).await;
    }
    let bound = bind(&a, &stream, request(1, 1, 64)).await;
    let newest = ["message 2", "message 3", "message 4", "message 5"];
    assert_eq!((texts(&bound), dropped), (newest.to_vec(), 2), "by number");
    dropped = 0;
    for at in 0..6 {
        dropped += enqueue(at, PushQueueLimits::new(100, 3 * "message 0".len())).await;
    }
    let bound = bind(&a, &stream, request(1, 5, 64)).await;
    assert_eq!((texts(&bound), dropped), (newest[1..].to_vec(), 3), "by bytes");
}
