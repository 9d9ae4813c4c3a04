//! Cases for several nodes on one store: views, owners, members and mail. Skipped without a cluster part.

mod limits;
mod push;
mod readers;

pub use limits::*;
pub use push::*;
pub use readers::*;

use super::Harness;
use super::fixture::*;
use bytes::Bytes;
use rethread_store::{
    ClusterEvent, ClusterEvents, ClusterStore, EventStore as _, Incarnation, MailId, MailboxStatus, Membership,
    Ordinal, OrdinalBlock, Retention, Seq, SessionKey, SessionStore as _, Store, StoreError,
};
use std::time::Duration;
use tokio::time::timeout;

/// Mail gets older by this time. More than the resolution of any clock.
const MAIL_AGE: Duration = Duration::from_millis(40);

/// One node of a case.
pub(super) struct Node<S> {
    pub(super) store: S,
    pub(super) me: Incarnation,
    pub(super) events: ClusterEvents,
}

impl<S: Store> Node<S> {
    pub(super) async fn new(store: S) -> Self {
        let events = cluster(&store).events();
        let me = cluster(&store).join(None).await.expect("a member").incarnation;
        Node { store, me, events }
    }

    pub(super) fn cluster(&self) -> &dyn ClusterStore {
        cluster(&self.store)
    }

    /// Waits for an event for which `pick` returns a value. Skips other events.
    pub(super) async fn event<T>(&mut self, pick: impl Fn(ClusterEvent) -> Option<T>) -> T {
        let waiting = async {
            loop {
                let event = self.events.next().await.expect("the store is open");
                if let Some(picked) = pick(event) {
                    return picked;
                }
            }
        };
        timeout(STEP_TIMEOUT, waiting)
            .await
            .expect("the event did not arrive in time")
    }

    async fn session_changed(&mut self, session: &SessionKey) -> Incarnation {
        let changed = |event| match event {
            ClusterEvent::SessionChanged { key, by } if key == *session => Some(by),
            _ => None,
        };
        self.event(changed).await
    }
}

pub(super) fn cluster<S: Store>(store: &S) -> &dyn ClusterStore {
    store.cluster().expect("the store has a cluster part")
}

/// `N` nodes, and a session that the first one has created. `None` if the store has no cluster part.
pub(super) async fn nodes<H: Harness, const N: usize>(harness: &H) -> Option<([Node<H::Store>; N], SessionKey)> {
    let store = harness.fresh(Retention::default()).await;
    store.cluster()?;
    let mut nodes = Vec::new();
    for at in 0..N {
        let store = if at == 0 {
            store.clone()
        } else {
            harness.peer(&store).await
        };
        nodes.push(Node::new(store).await);
    }
    let session = fresh_session(principal());
    let created = store.create(&session, record(), false).await;
    created.expect("a session can be created");
    let nodes = nodes.try_into().ok().expect("N nodes");
    Some((nodes, session))
}

/// Opening a view fences no other view: two nodes write two streams at once.
pub async fn views_of_two_nodes_write_at_once<H: Harness>(harness: &H) {
    let Some(([a, b], session)) = nodes(harness).await else {
        return;
    };
    let other = b.store.open(&session).await.expect("the session exists");
    assert_eq!(other.record.epoch, 2);
    let fixture = |node: &Node<H::Store>| StoreFixture {
        store: node.store.clone(),
        session: session.clone(),
    };
    let (first, second) = (fixture(&a), fixture(&b));
    for n in 0..5 {
        first.append(&first.stream(Ordinal(1)), batch(n..n + 1)).await;
        second
            .append(&second.stream(Ordinal(3)), batch(n..n + 1).with_epoch(2))
            .await;
    }
    assert_eq!(first.status(&first.stream(Ordinal(3))).await.writer, Some(b.me.clone()));
    assert_eq!(
        second.status(&second.stream(Ordinal(1))).await.writer,
        Some(a.me.clone())
    );
    assert_eq!(
        sequence(&second.page(&second.stream(Ordinal(1)), 0).await),
        [1, 2, 3, 4]
    );
}

/// A node that takes over a stream draws an epoch above those of all views. The earlier writer is fenced on this stream
/// only.
pub async fn takeover_needs_a_new_epoch<H: Harness>(harness: &H) {
    let Some(([a, b], session)) = nodes(harness).await else {
        return;
    };
    let view = a.store.open(&session).await.expect("the session exists");
    let fixture = StoreFixture {
        store: a.store.clone(),
        session: session.clone(),
    };
    let (taken, left) = (fixture.stream(Ordinal(1)), fixture.stream(Ordinal(3)));
    let epoch = view.record.epoch;
    for key in [&taken, &left] {
        fixture.append(key, batch(0..2).with_epoch(epoch)).await;
    }
    let refused = b.store.append(&taken, batch(2..3)).await; // in the epoch of the first view
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    let drawn = b.cluster().draw_epoch(&session).await.expect("the session exists");
    assert!(drawn > epoch, "{drawn}");
    let fence = batch(0..0).with_epoch(drawn);
    b.store.append(&taken, fence).await.expect("the epoch is higher");
    let late = a.store.append(&taken, batch(2..3).with_epoch(epoch)).await;
    assert!(
        matches!(late, Err(StoreError::Conflict { epoch: e, .. }) if e == drawn),
        "{late:?}"
    );
    fixture.append(&left, batch(2..3).with_epoch(epoch)).await;
}

/// A store may lose its last writes or a whole stream. A writer that detects the loss continues after a gap, which
/// readers learn of.
pub async fn writer_goes_on_after_lost_writes<H: Harness>(harness: &H) {
    let Some(([a], session)) = nodes(harness).await else {
        return;
    };
    let fixture = StoreFixture {
        store: a.store.clone(),
        session,
    };
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..4)).await;
    for wrong in [batch(9..10).with_gap(Seq(7)), batch(8..9).with_gap(Seq(8)), batch(8..9)] {
        let refused = a.store.append(&key, wrong).await;
        assert!(
            matches!(refused, Err(StoreError::Conflict { last: Some(Seq(3)), .. })),
            "{refused:?}"
        );
    }
    for _ in 0..2 {
        fixture.append(&key, batch(8..10).with_gap(Seq(7))).await; // a repetition changes nothing
    }
    let page = fixture.page(&key, 0).await;
    assert_eq!(
        (sequence(&page), page.status.purged),
        (vec![1, 2, 3, 8, 9], Some(Seq(7)))
    );
    assert!(page.has_gap_after(Seq(3)) && !page.has_gap_after(Seq(7)));
    fixture.append(&key, batch(10..11).with_gap(Seq(5))).await; // the store lacks no event up to there
    assert_eq!(fixture.status(&key).await.purged, Some(Seq(7)));
    fixture.append(&key, batch(11..12)).await;

    let lost = fixture.stream(Ordinal(3));
    let unknown = a.store.append(&lost, batch(5..6).with_gap(Seq(4))).await;
    assert!(matches!(unknown, Err(StoreError::UnknownStream)), "{unknown:?}");
    fixture
        .append(&lost, batch(5..6).with_gap(Seq(4)).with_info(info()))
        .await;
    let page = fixture.page(&lost, 0).await;
    assert_eq!((sequence(&page), page.status.purged), (vec![5], Some(Seq(4))));
}

/// D2: ordinals of views and of later draws never overlap, even if nodes draw concurrently.
pub async fn ordinals_of_nodes_do_not_overlap<H: Harness>(harness: &H) {
    const DRAWS: usize = 10;
    let Some((nodes, session)) = nodes::<H, 3>(harness).await else {
        return;
    };
    let mut drawing = Vec::new();
    for node in nodes {
        let session = session.clone();
        drawing.push(spawn_thread(async move {
            let view = node.store.open(&session).await.expect("the session exists");
            let mut blocks = vec![view.ordinals];
            for _ in 0..DRAWS {
                let block = node.cluster().draw_ordinals(&session).await;
                blocks.push(block.expect("the session exists"));
            }
            blocks
        }));
    }
    let mut blocks: Vec<OrdinalBlock> = join_all(drawing).await.concat();
    blocks.sort_by_key(|block| block.after);
    for pair in blocks.windows(2) {
        assert!(
            pair[0].after < pair[0].last && pair[0].last <= pair[1].after,
            "{pair:?}"
        );
    }
}

/// Several nodes update at once. Each loser loads the record and tries again, and no update is lost.
pub async fn updates_of_several_nodes_lose_nothing<H: Harness>(harness: &H) {
    const UPDATES: usize = 8;
    let Some((nodes, session)) = nodes::<H, 3>(harness).await else {
        return;
    };
    let store = nodes[0].store.clone();
    let mut writers = Vec::new();
    for node in nodes {
        let session = session.clone();
        writers.push(spawn_thread(async move {
            let view = node.store.open(&session).await.expect("the session exists");
            let (mut record, mut revision) = (view.record, view.revision);
            for n in 0..UPDATES {
                loop {
                    record.subscriptions.insert(format!("{} {n}", node.me).into());
                    match node.store.update(&session, revision, record.clone()).await {
                        Ok(updated) => break revision = updated.revision,
                        Err(StoreError::Conflict { .. }) => {}
                        Err(other) => panic!("expected a conflict: {other:?}"),
                    }
                    let stored = node.store.load(&session).await.expect("the session exists");
                    (record, revision) = (stored.record, stored.revision);
                }
            }
        }));
    }
    join_all(writers).await;
    let stored = store.load(&session).await.expect("the session exists");
    assert_eq!(stored.record.subscriptions.len(), 3 * UPDATES);
    assert_eq!(stored.revision, 1 + 3 * UPDATES as u64);
}

/// A change and the end of a session wake only nodes with a view.
pub async fn changed_session_wakes_other_views<H: Harness>(harness: &H) {
    let Some(([a, mut b, mut c], session)) = nodes(harness).await else {
        return;
    };
    let view = b.store.open(&session).await.expect("the session exists");
    let closed = c.store.open(&session).await.expect("the session exists");
    let views = a.cluster().views(&session).await.expect("the session exists");
    assert_eq!(views.open, [(1, a.me.clone()), (2, b.me.clone()), (3, c.me.clone())]);
    let closing = c.cluster().close_view(&session, closed.record.epoch).await;
    closing.expect("a view can be closed");

    let updated = a.store.update(&session, view.revision, record()).await;
    assert_eq!(updated.expect("the revision is right").views, [b.me.clone()]);
    assert_eq!(b.session_changed(&session).await, a.me);
    let ended = a.store.end(&session).await;
    assert_eq!(ended.expect("ended"), [b.me.clone()]);
    assert_eq!(b.session_changed(&session).await, a.me);

    // Events keep their order, so a wake-up of `c` would arrive before this mail.
    a.cluster()
        .deliver(&c.me, Bytes::from_static(b"x"))
        .await
        .expect("sent");
    let first = c.event(|event| match event {
        ClusterEvent::Reconnected => None, // a join sends it
        event => Some(event),
    });
    assert!(
        matches!(first.await, ClusterEvent::Mail(..)),
        "a closed view is not woken"
    );
}

/// One of several nodes becomes the owner. Only a node that names the owner can replace it. The owner can release.
pub async fn owner_is_claimed_once<H: Harness>(harness: &H) {
    let Some((nodes, session)) = nodes::<H, 3>(harness).await else {
        return;
    };
    let owner = async |node: &Node<H::Store>| node.store.load(&session).await.expect("the session exists").owner;
    assert_eq!(owner(&nodes[0]).await, None);
    let mut claiming = Vec::new();
    for node in nodes {
        let session = session.clone();
        claiming.push(spawn_thread(async move {
            let owner = node.cluster().claim(&session, None).await.expect("the session exists");
            (node, owner)
        }));
    }
    let claimed = join_all(claiming).await;
    let winner = claimed[0].1.clone();
    assert!(
        claimed.iter().all(|(_, owner)| *owner == winner),
        "nodes disagree about the owner"
    );
    let (mut nodes, mut losers) = (Vec::new(), Vec::new());
    for (node, _) in claimed {
        if node.me == winner {
            nodes.push(node);
        } else {
            losers.push(node);
        }
    }
    let [winner] = nodes.as_mut_slice() else {
        panic!("one node is the owner")
    };
    assert_eq!(owner(winner).await, Some(winner.me.clone()));
    // The owner needs a view to get the wake-up.
    winner.store.open(&session).await.expect("the session exists");
    let next = losers[0].cluster().claim(&session, Some(&winner.me)).await;
    assert_eq!(next.expect("the owner is named"), losers[0].me);
    assert_eq!(winner.session_changed(&session).await, losers[0].me);
    let again = winner.cluster().release(&session).await;
    again.expect("the release of another node's session is not an error");
    assert_eq!(owner(winner).await, Some(losers[0].me.clone()));
    losers[0].cluster().release(&session).await.expect("released");
    assert_eq!(owner(winner).await, None);
    let owned = fresh_session(principal());
    let view = winner.store.create(&owned, record(), true).await.expect("created");
    assert_eq!(view.owner, Some(winner.me.clone()));
    let view = losers[1].store.open(&owned).await.expect("it exists");
    assert_eq!(view.owner, Some(winner.me.clone()));
}

/// Members see each other. An expired or released lease cannot be renewed.
pub async fn lease_ends_for_good<H: Harness>(harness: &H) {
    let Some(([a, b], _)) = nodes(harness).await else {
        return;
    };
    let renewal = a.cluster().renew(&a.me).await.expect("the lease holds");
    let mut live = renewal.live.clone();
    live.sort_unstable();
    let mut expected = vec![a.me.clone(), b.me.clone()];
    expected.sort_unstable();
    assert_eq!(live, expected);
    let (joined, again) = (join(&a, None).await, join(&b, None).await);
    assert_eq!(joined.incarnation, a.me, "a process has one membership");
    assert_eq!(joined.secret, again.secret, "all nodes have the same secret");

    // The servers of a process share its lease, and the last one releases it. The harness may have joined too.
    b.cluster().leave(&b.me).await.expect("one of its servers leaves");
    assert!(
        a.cluster().is_alive(&b.me).await.expect("asked"),
        "another server still uses the lease"
    );
    for _ in 0..3 {
        b.cluster().leave(&b.me).await.expect("left");
    }
    assert!(!a.cluster().is_alive(&b.me).await.expect("asked"));
    let late = b.cluster().renew(&b.me).await;
    assert!(matches!(late, Err(StoreError::LeaseEnded)), "{late:?}");
    assert!(a.cluster().is_alive(&a.me).await.expect("asked"));

    if !harness.advance(&a.store, joined.lease + Duration::from_secs(1)) {
        return;
    }
    let late = a.cluster().renew(&a.me).await;
    assert!(matches!(late, Err(StoreError::LeaseEnded)), "{late:?}");
    assert!(!b.cluster().is_alive(&a.me).await.expect("asked"));
    let next = join(&a, Some(&a.me)).await;
    assert_ne!(next.incarnation, a.me);
    let renewal = a.cluster().renew(&next.incarnation).await.expect("a new lease");
    assert_eq!(renewal.live, [next.incarnation]);
}

async fn join<S: Store>(node: &Node<S>, previous: Option<&Incarnation>) -> Membership {
    node.cluster().join(previous).await.expect("a member")
}

/// A death is final, even if only a query has detected it.
pub async fn death_is_final_once_it_is_asked_for<H: Harness>(harness: &H) {
    let Some(([a, b], _)) = nodes(harness).await else {
        return;
    };
    let lease = join(&a, None).await.lease;
    if !harness.advance(&a.store, lease * 2 / 3) {
        return;
    }
    b.cluster().renew(&b.me).await.expect("the lease holds");
    harness.advance(&a.store, lease / 2);
    assert!(b.cluster().is_alive(&b.me).await.expect("asked"), "it was renewed");
    assert!(!b.cluster().is_alive(&a.me).await.expect("asked"));
    let late = a.cluster().renew(&a.me).await;
    assert!(matches!(late, Err(StoreError::LeaseEnded)), "{late:?}");
}

/// Mail of several senders arrives once. Mail of one sender keeps its order.
pub async fn mail_arrives_in_order<H: Harness>(harness: &H) {
    const MAILS: usize = 60;
    let Some(([mut to, a, b], _)) = nodes(harness).await else {
        return;
    };
    let mut sending = Vec::new();
    for (name, from) in [("a", a), ("b", b)] {
        let to = to.me.clone();
        sending.push(spawn_thread(async move {
            for n in 0..MAILS {
                let mail = Bytes::from(format!("{name} {n}"));
                from.cluster().deliver(&to, mail).await.expect("sent");
            }
        }));
    }
    join_all(sending).await;
    let mut next = [("a", 0), ("b", 0)];
    for _ in 0..2 * MAILS {
        let mail = next_mail(&mut to).await.1;
        let text = String::from_utf8(mail.into()).expect("the text from above");
        let (name, n) = text.split_once(' ').expect("the text from above");
        let sender = next.iter_mut().find(|(sender, _)| *sender == name).expect("a sender");
        assert_eq!(n, sender.1.to_string(), "mail of {name}");
        sender.1 += 1;
    }
}

async fn next_mail<S: Store>(node: &mut Node<S>) -> (MailId, Bytes) {
    let mail = |event| match event {
        ClusterEvent::Mail(id, mail) => Some((id, mail)),
        _ => None,
    };
    node.event(mail).await
}

/// One of several nodes claims a message, even if its receiver is among them.
pub async fn mail_is_claimed_once<H: Harness>(harness: &H) {
    let Some(([mut to, from, other], _)) = nodes(harness).await else {
        return;
    };
    for _ in 0..10 {
        let sent = from.cluster().deliver(&to.me, Bytes::from(vec![b'x'; 300])).await;
        let sent = sent.expect("sent");
        let (received, mail) = next_mail(&mut to).await;
        assert_eq!((&received, mail.len()), (&sent, 300));
        let mut claims = Vec::new();
        for store in [&to.store, &from.store, &other.store, &to.store] {
            let (store, address, mail) = (store.clone(), to.me.clone(), sent.clone());
            claims.push(spawn_thread(async move {
                cluster(&store).claim_mail(&address, &mail).await.expect("asked")
            }));
        }
        let claims = join_all(claims).await;
        assert_eq!(claims.iter().filter(|claimed| **claimed).count(), 1, "{claims:?}");
    }
    let unknown = from.cluster().claim_mail(&to.me, &MailId("0".into())).await;
    assert!(!unknown.expect("asked"));
}

/// A mailbox counts the messages that nobody has claimed, and knows the age of the oldest one.
pub async fn mailbox_counts_unclaimed_mail<H: Harness>(harness: &H) {
    let Some(([mut to, from, _], _)) = nodes(harness).await else {
        return;
    };
    let status = async || from.cluster().mailbox(&to.me).await.expect("asked");
    assert_eq!(status().await, MailboxStatus::default());
    let mut sent = Vec::new();
    for _ in 0..3 {
        let mail = from.cluster().deliver(&to.me, Bytes::from_static(b"x")).await;
        sent.push(mail.expect("sent"));
    }
    let first = status().await;
    assert_eq!(first.messages, 3);
    tokio::time::sleep(MAIL_AGE).await;
    assert!(status().await.oldest >= first.oldest + MAIL_AGE / 2, "it gets older");
    for _ in 0..3 {
        next_mail(&mut to).await; // a message that was only read still waits
    }
    let status = async || from.cluster().mailbox(&to.me).await.expect("asked");
    assert_eq!(status().await.messages, 3);
    assert!(from.cluster().claim_mail(&to.me, &sent[0]).await.expect("asked"));
    to.cluster().remove_mail(&to.me, sent).await.expect("one is gone");
    assert_eq!(status().await, MailboxStatus::default());
}
