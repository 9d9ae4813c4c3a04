//! The push queue of a session, which all nodes share, and broadcasts.

use super::{Node, nodes};
use crate::store_suite::Harness;
use crate::store_suite::fixture::*;
use bytes::Bytes;
use rethread_proto::StreamKind;
use rethread_store::{
    BindRequest, Bound, BroadcastId, Broadcasts, Bus as _, ClusterEvent, Enqueued, ListKind, Ordinal, PushMessage,
    PushQueueLimits, Seq, SessionKey, SessionStore as _, Signal, Store, StoreError, StreamInfo, StreamKey,
};

/// More GETs than any of these cases opens.
const MAX_GETS: usize = 16;

const LIMITS: PushQueueLimits = PushQueueLimits {
    messages: 100,
    bytes: 1 << 20,
};

pub(super) fn message(n: usize) -> PushMessage {
    PushMessage {
        payload: Bytes::from(format!("message {n}")),
        collapse: None,
    }
}

fn collapsing(n: usize, key: &str) -> PushMessage {
    PushMessage {
        collapse: Some(key.into()),
        ..message(n)
    }
}

pub(super) fn get(session: &SessionKey, ordinal: u64) -> StreamKey {
    StreamKey {
        session: session.clone(),
        ordinal: Ordinal(ordinal),
    }
}

pub(super) fn request(epoch: u64, first: u64, max: usize) -> BindRequest {
    let info = StreamInfo::new(StreamKind::Push, Vec::new(), "");
    BindRequest::new(epoch, Seq(first), max, Some(info.into()))
}

async fn enqueue<S: Store>(node: &Node<S>, session: &SessionKey, messages: Vec<PushMessage>) -> Enqueued {
    let enqueued = node.cluster().enqueue(session, messages, LIMITS).await;
    enqueued.expect("the session exists")
}

pub(super) async fn bind<S: Store>(node: &Node<S>, stream: &StreamKey, request: BindRequest) -> Bound {
    node.cluster().bind(stream, request).await.expect("it fits")
}

pub(super) fn texts(bound: &Bound) -> Vec<&str> {
    let text = |payload| std::str::from_utf8(payload).expect("the text from above");
    bound.messages.iter().map(|payload| text(payload)).collect()
}

async fn push_waiting<S: Store>(node: &mut Node<S>, session: &SessionKey) {
    let waiting = |event| matches!(event, ClusterEvent::PushWaiting(key) if key == *session).then_some(());
    node.event(waiting).await;
}

/// Messages wait until there is a GET. The newest GET gets them, in order, as events of its stream.
pub async fn newest_get_takes_messages<H: Harness>(harness: &H) {
    let Some(([mut a, mut b], session)) = nodes(harness).await else {
        return;
    };
    b.store.open(&session).await.expect("the session exists");
    enqueue(&a, &session, (0..5).map(message).collect()).await;
    let (old, new) = (get(&session, 2), get(&session, 4));
    assert_eq!(
        bind(&a, &old, request(1, 1, 64)).await,
        Bound::default(),
        "the stream does not listen"
    );
    a.cluster().listen(&old, MAX_GETS).await.expect("the session exists");
    b.cluster().listen(&new, MAX_GETS).await.expect("the session exists");
    assert_eq!(
        bind(&a, &old, request(1, 1, 64)).await,
        Bound::default(),
        "the stream is not the newest listener"
    );
    let bound = bind(&b, &new, request(2, 1, 2)).await;
    assert_eq!((texts(&bound), bound.more), (vec!["message 0", "message 1"], true));
    let repeated = bind(&b, &new, request(2, 1, 2)).await;
    assert_eq!(
        texts(&repeated),
        texts(&bound),
        "a repetition after a lost acknowledgement"
    );
    let bound = bind(&b, &new, request(2, 3, 64)).await;
    assert_eq!((texts(&bound).len(), bound.more), (3, false));
    let fixture = StoreFixture {
        store: a.store.clone(),
        session: session.clone(),
    };
    let page = fixture.page(&new, 0).await;
    assert_eq!(sequence(&page), [1, 2, 3, 4, 5]);
    assert_eq!(page.events[4].payload, "message 4");
    // The same writer can append, and an earlier writer is fenced.
    fixture.append(&new, batch(6..7).with_epoch(2)).await;
    let fenced = b.cluster().bind(&new, request(1, 7, 64)).await;
    assert!(
        matches!(fenced, Err(StoreError::Conflict { epoch: 2, .. })),
        "{fenced:?}"
    );

    enqueue(&a, &session, vec![message(5)]).await;
    push_waiting(&mut b, &session).await;
    b.cluster().unlisten(&new).await.expect("the session exists");
    push_waiting(&mut a, &session).await;
    assert_eq!(texts(&bind(&a, &old, request(1, 1, 64)).await), ["message 5"]);
}

/// A store that has lost its last writes gets back the entry of a view and its GETs. GETs that it has keep their order.
pub async fn restored_view_has_its_entry_and_its_gets<H: Harness>(harness: &H) {
    let Some(([a, mut b], session)) = nodes(harness).await else {
        return;
    };
    let epoch = b.store.open(&session).await.expect("the session exists").record.epoch;
    let [closed, open, newest, lost] = [2, 4, 6, 8].map(|ordinal| get(&session, ordinal));
    b.cluster().listen(&closed, MAX_GETS).await.expect("the session exists");
    b.cluster().listen(&open, MAX_GETS).await.expect("the session exists");
    a.cluster().listen(&newest, MAX_GETS).await.expect("the session exists");
    let restored = b
        .cluster()
        .restore_view(&session, epoch, vec![open.ordinal], MAX_GETS)
        .await;
    restored.expect("the session exists");
    enqueue(&a, &session, vec![message(1)]).await;
    assert_eq!(
        texts(&bind(&a, &newest, request(1, 1, 64)).await),
        ["message 1"],
        "nothing was lost, so the newest GET is the same"
    );
    a.cluster().unlisten(&newest).await.expect("the session exists");
    a.cluster().listen(&newest, MAX_GETS).await.expect("the session exists");
    let later = epoch + 5; // the store has lost the draw and the entry
    let gets = vec![open.ordinal, lost.ordinal];
    let restored = b.cluster().restore_view(&session, later, gets, MAX_GETS).await;
    restored.expect("the session exists");
    let views = a.cluster().views(&session).await.expect("the session exists");
    assert!(views.open.contains(&(later, b.me.clone())), "{views:?}");
    assert_eq!(views.last_epoch, later);
    enqueue(&a, &session, vec![message(2)]).await;
    push_waiting(&mut b, &session).await;
    assert_eq!(texts(&bind(&b, &lost, request(2, 1, 64)).await), ["message 2"]);

    for key in [&lost, &newest] {
        let node = if key == &lost { &b } else { &a };
        node.cluster().unlisten(key).await.expect("the session exists");
    }
    enqueue(&a, &session, vec![message(3)]).await;
    assert_eq!(bind(&b, &closed, request(2, 1, 64)).await, Bound::default(), "removed");
    assert_eq!(texts(&bind(&b, &open, request(2, 1, 64)).await), ["message 3"]);

    b.store.end(&session).await.expect("the session exists");
    let ended = b.cluster().restore_view(&session, later, Vec::new(), MAX_GETS).await;
    assert!(matches!(ended, Err(StoreError::SessionGone)), "{ended:?}");
}

/// The next GET takes over from a stalled GET and from a GET of a dead node.
pub async fn messages_move_to_the_next_get<H: Harness>(harness: &H) {
    let Some(([mut a, mut b], session)) = nodes(harness).await else {
        return;
    };
    b.store.open(&session).await.expect("the session exists");
    let (old, new) = (get(&session, 2), get(&session, 4));
    a.cluster().listen(&old, MAX_GETS).await.expect("the session exists");
    b.cluster().listen(&new, MAX_GETS).await.expect("the session exists");
    enqueue(&a, &session, vec![message(1)]).await;
    push_waiting(&mut b, &session).await;
    b.cluster().demote(&new).await.expect("the session exists");
    push_waiting(&mut a, &session).await;
    assert_eq!(texts(&bind(&a, &old, request(1, 1, 64)).await), ["message 1"]);
    enqueue(&a, &session, vec![message(2)]).await;
    push_waiting(&mut a, &session).await;
    let removed = b.cluster().remove_listeners(&session, &a.me).await;
    removed.expect("the session exists");
    push_waiting(&mut b, &session).await;
    assert_eq!(texts(&bind(&b, &new, request(2, 1, 64)).await), ["message 2"]);
}

/// GET-04: equal messages collapse while they wait. The oldest are dropped beyond the limits.
pub async fn get_04_push_queue_collapses_and_is_bounded<H: Harness>(harness: &H) {
    let Some(([a, b], session)) = nodes(harness).await else {
        return;
    };
    let stream = get(&session, 2);
    a.cluster().listen(&stream, MAX_GETS).await.expect("the session exists");
    enqueue(
        &a,
        &session,
        vec![collapsing(0, "tools"), message(1), collapsing(2, "")],
    )
    .await;
    enqueue(
        &b,
        &session,
        vec![collapsing(3, "tools"), message(4), collapsing(5, "")],
    )
    .await;
    let bound = bind(&a, &stream, request(1, 1, 64)).await;
    assert_eq!(texts(&bound), ["message 0", "message 1", "message 2", "message 4"]);
    enqueue(&b, &session, vec![collapsing(6, "tools")]).await;
    let bound = bind(&a, &stream, request(1, 5, 64)).await;
    assert_eq!(
        texts(&bound),
        ["message 6"],
        "a taken message does not collapse with the next one"
    );

    let few = PushQueueLimits::new(3, LIMITS.bytes);
    let dropped = a.cluster().enqueue(&session, (0..5).map(message).collect(), few).await;
    let expected = Enqueued::new(2, 3);
    assert_eq!(dropped.expect("the session exists"), expected, "a GET is open");
    let small = PushQueueLimits::new(LIMITS.messages, 12);
    let dropped = a.cluster().enqueue(&session, vec![message(7)], small).await;
    assert_eq!(dropped.expect("the session exists").dropped, 3);
    let large = PushMessage {
        payload: Bytes::from(vec![b'x'; 300 << 10]),
        collapse: None,
    };
    let dropped = a.cluster().enqueue(&session, vec![large.clone()], small).await;
    assert_eq!(dropped.expect("the session exists").dropped, 1);
    assert_eq!(
        bind(&a, &stream, request(1, 6, 64)).await.messages,
        [large.payload],
        "the newest message is kept"
    );
    a.store.end(&session).await.expect("ended");
    let gone = b.cluster().enqueue(&session, vec![message(8)], LIMITS).await;
    assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
    let gone = a.cluster().bind(&stream, request(1, 7, 64)).await;
    assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
}

/// While GETs on several nodes open and close, each message is on exactly one stream.
pub async fn message_is_bound_once<H: Harness>(harness: &H) {
    const MESSAGES: usize = 90;
    let Some((nodes, session)) = nodes::<H, 3>(harness).await else {
        return;
    };
    let store = nodes[0].store.clone();
    let mut takers = Vec::new();
    for (at, node) in nodes.into_iter().enumerate() {
        let session = session.clone();
        takers.push(spawn_thread(async move {
            let view = node.store.open(&session).await.expect("the session exists");
            let (stream, mut next) = (get(&session, 2 + 2 * at as u64), 1);
            let mut taken = Vec::new();
            for n in 0..MESSAGES / 3 {
                enqueue(&node, &session, vec![message(at * 1000 + n)]).await;
                node.cluster()
                    .listen(&stream, MAX_GETS)
                    .await
                    .expect("the session exists");
                let bound = bind(&node, &stream, request(view.record.epoch, next, 4)).await;
                next += bound.messages.len() as u64;
                taken.extend(bound.messages);
                tokio::task::yield_now().await;
            }
            node.cluster().unlisten(&stream).await.expect("the session exists");
            (node, taken)
        }));
    }
    let taken = join_all(takers).await;
    let last = get(&session, 100);
    let mut all = Vec::new();
    let mut next = 1;
    super::cluster(&store)
        .listen(&last, MAX_GETS)
        .await
        .expect("the session exists");
    loop {
        let bound = super::cluster(&store)
            .bind(&last, request(1, next, 64))
            .await
            .expect("it fits");
        if bound.messages.is_empty() {
            break;
        }
        next += bound.messages.len() as u64;
        all.extend(bound.messages);
    }
    for (_, messages) in &taken {
        all.extend(messages.iter().cloned());
    }
    all.sort_unstable();
    let mut expected: Vec<Bytes> = (0..3)
        .flat_map(|at| (0..MESSAGES / 3).map(move |n| message(at * 1000 + n).payload))
        .collect();
    expected.sort_unstable();
    assert_eq!(all, expected);
}

/// A node that missed broadcasts adds them together. It does not repeat one that another node has added meanwhile.
pub async fn missed_broadcasts_are_enqueued_once<H: Harness>(harness: &H) {
    let Some((nodes, session)) = nodes::<H, 3>(harness).await else {
        return;
    };
    let stream = get(&session, 2);
    let before = nodes[0]
        .cluster()
        .listen(&stream, MAX_GETS)
        .await
        .expect("the session exists");
    let log = publish_updates(&nodes, &before).await;
    let ids = log.into_iter().map(|(id, _)| id);
    let messages: Vec<_> = ids.enumerate().map(|(n, id)| (id, message(n))).collect();
    for (node, part) in [(0, &messages[..1]), (1, &messages[..]), (2, &messages[..2])] {
        let last = &part[part.len() - 1].0;
        let added = nodes[node]
            .cluster()
            .enqueue_broadcast(&session, last, part.to_vec(), LIMITS)
            .await;
        added.expect("the session exists");
    }
    let bound = bind(&nodes[0], &stream, request(1, 1, 64)).await;
    assert_eq!(texts(&bound), ["message 0", "message 1", "message 2"]);
}

/// Each node publishes the update of one resource. Returns the broadcasts after `before`.
async fn publish_updates<S: Store>(nodes: &[Node<S>], before: &BroadcastId) -> Broadcasts {
    for (n, node) in nodes.iter().enumerate() {
        let signal = Signal::ResourceUpdated(n.to_string().into());
        node.store.publish(signal).await.expect("published");
    }
    let log = nodes[0].cluster().broadcasts_after(before).await.expect("read");
    log.expect("no broadcast was dropped")
}

/// A broadcast reaches the queue of a session once, even if several nodes add it.
pub async fn broadcast_is_enqueued_once<H: Harness>(harness: &H) {
    let Some((nodes, session)) = nodes::<H, 3>(harness).await else {
        return;
    };
    let stream = get(&session, 2);
    let before = nodes[0]
        .cluster()
        .listen(&stream, MAX_GETS)
        .await
        .expect("the session exists");
    assert_eq!(
        nodes[1].cluster().broadcasts_after(&before).await.expect("read"),
        Some(Vec::new())
    );
    let log = publish_updates(&nodes, &before).await;
    let signals: Vec<_> = (0..3)
        .map(|n: u32| Signal::ResourceUpdated(n.to_string().into()))
        .collect();
    assert_eq!(
        log.iter().map(|(_, signal)| signal.clone()).collect::<Vec<_>>(),
        signals
    );
    for (n, (id, _)) in log.iter().enumerate() {
        let mut adding = Vec::new();
        for node in &nodes {
            let (store, session, id) = (node.store.clone(), session.clone(), id.clone());
            adding.push(spawn_thread(async move {
                let added = super::cluster(&store)
                    .enqueue_broadcast(&session, &id, vec![(id.clone(), message(n))], LIMITS)
                    .await;
                added.expect("the session exists")
            }));
        }
        join_all(adding).await;
    }
    let late = nodes[1]
        .cluster()
        .enqueue_broadcast(&session, &log[0].0, vec![(log[0].0.clone(), message(9))], LIMITS)
        .await;
    late.expect("the session exists");
    let bound = bind(&nodes[0], &stream, request(1, 1, 64)).await;
    assert_eq!(texts(&bound), ["message 0", "message 1", "message 2"]);
    let last = nodes[0]
        .cluster()
        .listen(&stream, MAX_GETS)
        .await
        .expect("the session exists");
    assert_eq!(last, log[2].0);
    assert_eq!(
        nodes[1].cluster().broadcasts_after(&last).await.expect("read"),
        Some(Vec::new())
    );

    // A later session does not get earlier broadcasts.
    let later = fresh_session(principal());
    nodes[0]
        .store
        .publish(Signal::ListChanged(ListKind::Tools))
        .await
        .expect("published");
    nodes[0].store.create(&later, record(), false).await.expect("created");
    let position = nodes[0]
        .cluster()
        .listen(&get(&later, 2), MAX_GETS)
        .await
        .expect("it exists");
    assert_eq!(
        nodes[0].cluster().broadcasts_after(&position).await.expect("read"),
        Some(Vec::new())
    );
}
