//! Tests of the code that must run outside of a lock (ARCHITECTURE, "Locks"). A store, a waker or an observer that is called
//! under a lock could wait for that lock, or block others that need it.

use crate::McpService;
use crate::call::context::Context;
use crate::call::handler::Handler;
use crate::call::reply::Reply;
use crate::call::request::Call;
use crate::node::server_info::ServerInfo;
use crate::session::{Session, list_changed};
use crate::stream::Stream;
use parking_lot::Mutex;
use rethread_proto::SessionId;
use rethread_proto::event_id::Seq;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::sse::Draft;
use rethread_proto::stream::{Close, TakeOutcome};
use rethread_store::{ListKind, MemoryStore, Retain};
use rethread_testkit::client::{self, Client};
use rethread_testkit::flaky::{FlakyStore, Switches};
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

struct Nothing;

impl Handler for Nothing {
    fn info(&self) -> ServerInfo {
        ServerInfo::new("nothing", "1.0.0")
    }

    async fn handle(&self, call: Call, _: &Context) -> Result<Reply, RpcError> {
        Err(RpcError::method_not_found(call.method()))
    }
}

async fn session() -> (McpService, client::Session, Arc<Session>, Arc<Switches>) {
    let store = FlakyStore::new(MemoryStore::default());
    let switches = store.switches();
    let service = McpService::builder(Nothing).store(store).build();
    let outside = Client::new(service.clone()).open("2025-11-25").await;
    let id = SessionId::parse(&outside.id).unwrap();
    let inside = service.inner.sessions.known(&id).unwrap();
    (service, outside, inside, switches)
}

/// D6: a message for the session is numbered under the lock of the push queue, and stored after it.
#[tokio::test]
async fn d6_store_is_called_without_the_push_lock() {
    let (_service, outside, inside, switches) = session().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    switches.observe_appends({
        let (inside, seen) = (Arc::downgrade(&inside), Arc::clone(&seen));
        move |_, batch| {
            let hub = inside.upgrade().is_some_and(|session| session.push.is_locked());
            seen.lock().push((batch.events.last().map(|event| event.seq.0), hub));
        }
    });
    for _ in 0..2 {
        inside.offer((Draft::copy_of(b"{}"), rethread_proto::push::Collapse::Never)); // waits for a GET
    }
    let mut get = outside.get(None).await.events();
    get.next().await;
    get.next().await;
    assert!(get.is_silent_for(Duration::from_millis(1)).await); // it has taken all events and waits
    inside.offer(list_changed(ListKind::Tools));
    get.next().await;
    let seen = std::mem::take(&mut *seen.lock());
    assert_eq!(seen.last().unwrap().0, Some(3));
    assert!(
        seen.iter().all(|(_, locked)| !locked),
        "(last number, hub locked): {seen:?}"
    );
}

/// Records whether the stream is locked when it is woken.
struct Watcher {
    stream: Weak<Stream>,
    locked: Mutex<Vec<bool>>,
}

impl Wake for Watcher {
    fn wake(self: Arc<Self>) {
        if let Some(stream) = self.stream.upgrade() {
            self.locked.lock().push(stream.is_locked());
        }
    }
}

/// A named operation that wakes a reader.
type Act<'a> = (&'a str, &'a dyn Fn(&Arc<Stream>));

/// D8: a waker may do anything, such as poll its connection.
#[tokio::test]
async fn d8_reader_is_woken_without_the_stream_lock() {
    let (_service, _outside, inside, switches) = session().await;
    let call = |n: i64| [n.into()];
    let acts: [Act<'_>; 7] = [
        ("emit", &|stream| {
            let _ = stream.emit(Draft::copy_of(b"{}"), Retain::None, false);
        }),
        ("seal", &|stream| stream.seal()),
        ("stop", &|stream| stream.stop()),
        ("close", &|stream| stream.close_reader(Close { retry: 0 })),
        ("wake", &|stream| stream.wake()),
        ("displace", &|stream| {
            stream.attach(Seq::PRIMING, false);
        }),
        ("outage", &|stream| {
            switches.fail_appends(true);
            let _ = stream.emit(Draft::copy_of(b"{}"), Retain::None, false);
            switches.fail_appends(false);
        }),
    ];
    for (n, (name, act)) in (0..).zip(acts) {
        let stream = inside.open_call_stream(&call(n));
        let connection = stream.attach(Seq::PRIMING, false);
        stream.flush();
        let watcher = Arc::new(Watcher {
            stream: Arc::downgrade(&stream),
            locked: Mutex::default(),
        });
        let waker = Waker::from(Arc::clone(&watcher));
        let cx = std::task::Context::from_waker(&waker);
        assert!(
            matches!(stream.take(connection, &cx), TakeOutcome::Frames(..)),
            "the priming event"
        );
        assert!(matches!(stream.take(connection, &cx), TakeOutcome::Nothing));
        act(&stream);
        assert_eq!(*watcher.locked.lock(), [false], "{name}: woken once, unlocked");
    }
}

/// D8: a stream that ends notifies its session without a lock.
#[tokio::test]
async fn d8_session_is_notified_without_the_stream_lock() {
    let (_service, _outside, inside, _switches) = session().await;
    let stream = inside.open_call_stream(&[1.into()]);
    stream.flush();
    let (done, over) = mpsc::channel();
    let busy = inside.lock_for_test();
    let sealing = std::thread::spawn({
        let stream = Arc::clone(&stream);
        move || stream.seal()
    });
    std::thread::sleep(Duration::from_millis(100)); // it waits for the session now

    std::thread::spawn(move || done.send(stream.is_closed()));
    let seen = over.recv_timeout(Duration::from_secs(5));
    drop(busy);
    sealing.join().unwrap();
    assert_eq!(seen, Ok(true), "the stream answers while its session is busy");
    assert!(inside.live_streams().is_empty());
}
