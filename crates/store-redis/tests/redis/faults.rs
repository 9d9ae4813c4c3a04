//! Restarts, outages, full memory and data loss of the server, and broken connections.

use crate::lossy_proxy::LossyProxy;
use crate::support::{join, node, options, runtime, session, until};
use bytes::Bytes;
use rethread_store::{
    BindRequest, Bus as _, BusEvent, ClusterEvent, ClusterEvents, ClusterStore as _, EventStore as _, Incarnation,
    Ordinal, PushMessage, PushQueueLimits, ReadLimit, Seq, SessionStore as _, Signal, StoreError, StreamKey,
};
use rethread_store_redis::{RedisOptions, RedisStore};
use rethread_testkit::redis_server::RedisServer;
use rethread_testkit::store_suite::{StoreFixture, batch, info, last_batch, record, sequence};
use std::time::{Duration, Instant};

async fn fixture(server: &RedisServer) -> StoreFixture<RedisStore> {
    StoreFixture::new(node(options(server)).await).await
}

/// A restart that is shorter than the timeout of a command only delays it.
#[test]
fn commands_survive_a_short_restart_of_the_server() {
    let Some(mut server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let options = options(&server).with_timeout(Duration::from_secs(20));
        let fixture = StoreFixture::new(node(options).await).await;
        let key = fixture.first_call_stream();
        fixture.append(&key, batch(0..3)).await;
        server.stop();
        let appending = tokio::spawn({
            let (store, key) = (fixture.store.clone(), key.clone());
            async move { store.append(&key, batch(3..4)).await }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.run();
        appending.await.unwrap().expect("the command waits for the server");
        assert_eq!(sequence(&fixture.page(&key, 0).await), [1, 2, 3]);
    });
}

/// RST-02: a restarted server may have lost the last numbers. Views and draws skip numbers that clients may hold.
#[test]
fn rst_02_numbers_are_skipped_after_a_restart_of_the_server() {
    let Some(mut server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let fixture = fixture(&server).await;
        let before = fixture.store.open(&fixture.session).await.unwrap();
        let same = fixture.store.open(&fixture.session).await.unwrap();
        assert_eq!(same.record.epoch, before.record.epoch + 1);
        assert_eq!(same.ordinals.after, before.ordinals.last);
        server.stop();
        server.run();
        let after = fixture.store.open(&fixture.session).await.unwrap();
        assert_eq!(after.record.epoch, same.record.epoch + 10_001);
        assert_eq!(after.ordinals.after, Ordinal(same.ordinals.last.0 + 10_000));
        let drawn = fixture.store.draw_epoch(&fixture.session).await.unwrap();
        assert_eq!(drawn, after.record.epoch + 1, "the next draw skips no numbers");
    });
}

/// With `appendfsync always`, an acknowledged event survives SIGKILL of the server.
#[test]
fn acknowledged_events_survive_a_kill_of_the_server() {
    let settings = [("appendonly", "yes"), ("appendfsync", "always")];
    let Some(mut server) = RedisServer::start_with(&settings) else {
        return;
    };
    runtime().block_on(async {
        let fixture = fixture(&server).await;
        let key = fixture.first_call_stream();
        fixture.append(&key, batch(0..1)).await;
        let writing = tokio::spawn({
            let (store, key) = (fixture.store.clone(), key.clone());
            async move {
                for n in 1.. {
                    if store.append(&key, batch(n..n + 1)).await.is_err() {
                        return n - 1;
                    }
                }
                unreachable!("the server is killed")
            }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.kill();
        let acknowledged = writing.await.unwrap();
        server.run();
        until(async || fixture.store.status(&key).await.is_ok()).await;
        let stored = sequence(&fixture.page(&key, 0).await);
        assert!(
            acknowledged > 0 && stored.len() as u64 >= acknowledged,
            "{acknowledged}, {stored:?}"
        );
        assert_eq!(stored, (1..=stored.len() as u64).collect::<Vec<_>>());
    });
}

/// Each event is stored once.
#[test]
fn commands_survive_closed_connections() {
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let fixture = fixture(&server).await;
        let key = fixture.first_call_stream();
        fixture.append(&key, batch(0..1)).await;
        let writing = tokio::spawn({
            let (fixture, key) = (fixture.clone(), key.clone());
            async move {
                for n in 1..=400 {
                    fixture.append(&key, batch(n..n + 1)).await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
        while !writing.is_finished() {
            server.close_connections("normal");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        writing.await.unwrap();
        assert_eq!(sequence(&fixture.page(&key, 0).await), (1..=400).collect::<Vec<_>>());
    });
}

/// The server runs a command, and its reply is lost. The client repeats the command, which has no second effect.
#[test]
fn repeated_command_after_a_lost_reply_has_one_effect() {
    const ROUNDS: u64 = 20;
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let proxy = LossyProxy::start(server.address()).await;
        let store = node(RedisOptions::parse(&proxy.url()).unwrap()).await;
        let direct = fixture(&server).await;
        let fixture = StoreFixture {
            store,
            session: direct.session.clone(),
        };
        let (store, session) = (&fixture.store, &fixture.session);
        let (call, get) = (fixture.first_call_stream(), fixture.stream(Ordinal(2)));
        let limits = PushQueueLimits {
            messages: 10_000,
            bytes: 1 << 20,
        };
        let to = Incarnation::new(1, 1);
        let mut bus = direct.store.subscribe();
        let mut revision = 1;
        for n in 0..ROUNDS {
            proxy.lose_next_reply();
            fixture.append(&call, batch(n..n + 1)).await;
            proxy.lose_next_reply();
            let message = PushMessage {
                payload: n.to_string().into(),
                collapse: None,
            };
            store.enqueue(session, vec![message], limits).await.unwrap();
            proxy.lose_next_reply();
            store.deliver(&to, n.to_string().into()).await.unwrap();
            proxy.lose_next_reply();
            store.listen(&get, 16).await.unwrap();
            proxy.lose_next_reply();
            let request = BindRequest::new(1, Seq(n + 1), 64, Some(info()));
            let bound = store.bind(&get, request).await.unwrap();
            assert_eq!(bound.messages, [Bytes::from(n.to_string())]);
            proxy.lose_next_reply();
            store
                .publish(Signal::ResourceUpdated(n.to_string().into()))
                .await
                .unwrap();
            proxy.lose_next_reply();
            let mut record = record();
            record.log_level = Some(n.to_string().into());
            revision = store.update(session, revision, record).await.unwrap().revision;
        }
        assert_eq!(proxy.lost() as u64, ROUNDS * 7, "every reply was lost");
        assert_eq!(sequence(&direct.page(&call, 0).await), (1..ROUNDS).collect::<Vec<_>>());
        assert_eq!(sequence(&direct.page(&get, 0).await), (1..=ROUNDS).collect::<Vec<_>>());
        assert_eq!(server.command(&["XLEN", "rt:i:{1.00000001}"]), format!(":{ROUNDS}\r\n"));
        assert_eq!(revision, 1 + ROUNDS);
        for n in 0..ROUNDS {
            let signal = tokio::time::timeout(Duration::from_secs(20), bus.next()).await;
            let expected = Signal::ResourceUpdated(n.to_string().into());
            assert!(matches!(signal, Ok(Some(BusEvent::Signal(_, signal))) if signal == expected));
        }
        // A claim must not be repeated: the repetition would report that another node was first.
        let mail = store.deliver(&to, "x".into()).await.unwrap();
        proxy.lose_next_reply();
        let claimed = store.claim_mail(&to, &mail).await;
        assert!(matches!(claimed, Err(StoreError::Unavailable(_))), "{claimed:?}");
    });
}

/// The mail of a repeated delivery may be claimed before the repetition. It is not added again: its call would run twice.
#[test]
fn repeated_delivery_of_claimed_mail_adds_nothing() {
    const ROUNDS: usize = 20;
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let proxy = LossyProxy::start(server.address()).await;
        let sender = node(RedisOptions::parse(&proxy.url()).unwrap()).await;
        let receiver = node(options(&server)).await;
        let me = join(&receiver).await;
        let mut events = receiver.events();
        let claiming = async {
            let mut claimed = Vec::new();
            while let Some(event) = events.next().await {
                if let ClusterEvent::Mail(id, mail) = event
                    && receiver.claim_mail(&me, &id).await.unwrap()
                {
                    claimed.push(mail);
                }
                if claimed.last().is_some_and(|mail| mail == "end") {
                    break;
                }
            }
            claimed
        };
        let sending = async {
            for n in 0..ROUNDS {
                proxy.lose_next_reply();
                sender.deliver(&me, n.to_string().into()).await.unwrap();
            }
            sender.deliver(&me, "end".into()).await.unwrap();
        };
        let (claimed, ()) = tokio::join!(claiming, sending);
        assert_eq!(proxy.lost(), ROUNDS, "every reply was lost");
        let expected: Vec<_> = (0..ROUNDS).map(|n| n.to_string()).chain(["end".to_owned()]).collect();
        assert_eq!(claimed, expected);
    });
}

/// A reader on another node misses no event while its wake-ups are lost. The service gets both cluster events.
#[test]
fn watch_survives_a_lost_subscriber() {
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let writer = fixture(&server).await;
        let reader = node(options(&server)).await;
        let mut events = reader.events();
        let key = writer.first_call_stream();
        writer.append(&key, batch(0..2)).await;
        let mut watch = reader.watch(&key);
        assert!(watch.changed().await, "the registration wakes the watch");
        for n in 2..6 {
            // Drain wake-ups of earlier changes.
            while tokio::time::timeout(Duration::from_millis(100), watch.changed())
                .await
                .is_ok()
            {}
            server.close_connections("pubsub");
            next_event(&mut events, &ClusterEvent::Disconnected).await;
            writer.append(&key, batch(n..n + 1)).await; // its wake-up is lost
            let woken = tokio::time::timeout(Duration::from_secs(20), watch.changed()).await;
            assert!(woken.expect("the watch did not wake"), "the watch ended");
            let page = reader.read_after(&key, Seq(n - 1), ReadLimit::default()).await;
            assert_eq!(sequence(&page.unwrap()), [n]);
            next_event(&mut events, &ClusterEvent::Reconnected).await;
        }
    });
}

async fn next_event(events: &mut ClusterEvents, expected: &ClusterEvent) {
    let waiting = async { while events.next().await.as_ref() != Some(expected) {} };
    let received = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    received.unwrap_or_else(|_| panic!("{expected:?} did not arrive"));
}

/// A node that does not receive wake-ups must not appear alive.
#[test]
fn lease_is_not_renewed_without_wake_ups() {
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let store = node(options(&server)).await;
        let me = join(&store).await;
        store.renew(&me).await.expect("the lease holds");
        assert_eq!(server.command(&["ACL", "SETUSER", "default", "-subscribe"]), "+OK\r\n");
        server.close_connections("pubsub");
        until(async || matches!(store.renew(&me).await, Err(StoreError::Unavailable(_)))).await;
        assert_eq!(server.command(&["ACL", "SETUSER", "default", "+subscribe"]), "+OK\r\n");
        until(async || store.renew(&me).await.is_ok()).await;
    });
}

/// The first command fails within the timeout, later ones fail at once.
#[test]
fn commands_fail_in_time_without_a_server() {
    const TIMEOUT: Duration = Duration::from_millis(700);
    let Some(mut server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let fixture = StoreFixture::new(node(options(&server).with_timeout(TIMEOUT)).await).await;
        let key = fixture.first_call_stream();
        fixture.append(&key, batch(0..2)).await;
        let fails = async |within: Duration| {
            let start = Instant::now();
            let refused = fixture.store.append(&key, batch(2..3)).await;
            assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
            assert!(start.elapsed() < within, "{:?}", start.elapsed());
        };
        server.pause();
        fails(TIMEOUT * 3).await;
        server.resume();
        until(async || fixture.store.status(&key).await.is_ok()).await;
        server.kill();
        fails(TIMEOUT * 3).await;
        tokio::time::sleep(TIMEOUT).await;
        fails(TIMEOUT / 2).await;
        server.run();
        until(async || fixture.store.status(&key).await.is_ok()).await;
        fixture
            .store
            .append(&key, batch(2..3))
            .await
            .expect("the server is back");
    });
}

/// A full server refuses new events and loses none. Renewals, touches and ends of sessions still work.
#[test]
fn full_server_refuses_events_only() {
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let fixture = fixture(&server).await;
        let me = join(&fixture.store).await;
        let key = fixture.first_call_stream();
        fixture.append(&key, batch(0..3)).await;
        server.config("maxmemory", "1");
        let refused = fixture.store.append(&key, batch(3..4)).await;
        assert!(matches!(refused, Err(StoreError::Full)), "{refused:?}");
        let refused = fixture.store.create(&session(), record(), false).await;
        assert!(matches!(refused, Err(StoreError::Full)), "{refused:?}");
        let refused = fixture.store.append(&key, last_batch(3..4)).await;
        assert!(matches!(refused, Err(StoreError::Full)), "{refused:?}");
        fixture
            .store
            .renew(&me)
            .await
            .expect("a full server does not end leases");
        fixture
            .store
            .touch(&fixture.session)
            .await
            .expect("a session in use is not idle");
        assert_eq!(
            sequence(&fixture.page(&key, 0).await),
            [1, 2],
            "a refused append stores nothing"
        );
        assert_eq!(fixture.status(&key).await.last, Some(Seq(2)));
        server.config("maxmemory", "0");
        fixture.append(&key, batch(3..4)).await;
        server.config("maxmemory", "1");
        fixture
            .store
            .end(&fixture.session)
            .await
            .expect("ending a session frees memory");
        let gone = fixture.store.load(&fixture.session).await;
        assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
    });
}

/// The lease has ended, and the store has a new id.
#[test]
fn node_detects_an_emptied_store() {
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let fixture = fixture(&server).await;
        let me = join(&fixture.store).await;
        let before = fixture.store.renew(&me).await.unwrap();
        assert_eq!(server.command(&["FLUSHALL"]), "+OK\r\n");
        let ended = fixture.store.renew(&me).await;
        assert!(matches!(ended, Err(StoreError::LeaseEnded)), "{ended:?}");
        let next = fixture.store.join(Some(&me)).await.unwrap();
        assert_ne!(next.incarnation, me, "a lost incarnation is not reused");
        let after = fixture.store.renew(&next.incarnation).await.unwrap();
        assert_ne!(after.born, before.born);
        let gone = fixture.store.load(&fixture.session).await;
        assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
    });
}

#[test]
fn flushed_scripts_are_loaded_again() {
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let fixture = fixture(&server).await;
        let key = fixture.first_call_stream();
        for n in 0..3 {
            assert_eq!(server.command(&["SCRIPT", "FLUSH"]), "+OK\r\n");
            fixture.append(&key, batch(n..n + 1)).await;
        }
    });
}

/// An unread mailbox is bounded in bytes, and the sender gets an error.
#[test]
fn full_mailbox_refuses_mail() {
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let store = node(options(&server)).await;
        let (nobody, mail) = (Incarnation::new(7, 7), Bytes::from(vec![b'x'; 8 << 20]));
        let mut sent = Vec::new();
        let refused = loop {
            match store.deliver(&nobody, mail.clone()).await {
                Ok(id) => sent.push(id),
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, StoreError::Full), "{refused:?}");
        assert_eq!(sent.len(), 8);
        assert!(store.claim_mail(&nobody, &sent[3]).await.unwrap());
        store.deliver(&nobody, mail).await.expect("a claim frees space");
        let lifetime = server.command(&["PTTL", "rt:i:{7.00000007}"]);
        let lifetime: u64 = lifetime[1..]
            .trim()
            .parse()
            .expect("the mailbox of a dead node expires");
        assert!((90_000..=100_000).contains(&lifetime), "{lifetime}");
    });
}

#[test]
fn ended_session_leaves_no_key() {
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let fixture = fixture(&server).await;
        let keys = || {
            let reply = server.command(&["KEYS", "rt:suite:*"]);
            reply
                .split("\r\n")
                .filter(|line| line.starts_with("rt:"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let limits = PushQueueLimits { messages: 9, bytes: 99 };
        let message = PushMessage {
            payload: Bytes::from_static(b"x"),
            collapse: Some("k".into()),
        };
        fixture.append(&fixture.first_call_stream(), last_batch(0..4)).await;
        fixture.append(&fixture.stream(Ordinal(3)), batch(0..4)).await;
        fixture.store.listen(&fixture.stream(Ordinal(2)), 16).await.unwrap();
        fixture
            .store
            .enqueue(&fixture.session, vec![message], limits)
            .await
            .unwrap();
        fixture.store.open(&fixture.session).await.unwrap();
        assert!(keys().len() >= 10, "{:?}", keys());
        fixture.store.end(&fixture.session).await.unwrap();
        assert_eq!(keys(), [""; 0]);
    });
}

/// Beyond 1,024 ended streams of a session, the stream that ended first is forgotten.
#[test]
fn ended_streams_of_a_session_are_bounded() {
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let fixture = fixture(&server).await;
        let streams: Vec<StreamKey> = (1..=1030).map(|n| fixture.stream(Ordinal(n))).collect();
        for key in &streams {
            fixture.append(key, last_batch(1..2)).await;
        }
        let mut known = 0;
        for key in &streams {
            known += usize::from(fixture.store.status(key).await.is_ok());
        }
        assert_eq!(known, 1024);
        fixture.assert_unknown(&streams[0]).await;
        let ttl = server.command(&["DBSIZE"]);
        let size: usize = ttl[1..].trim().parse().unwrap();
        assert!(size < 2 * 1024 + 20, "forgotten streams have no keys: {size}");
    });
}
