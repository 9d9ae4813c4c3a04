//! Messages, replies and questions of a call that meet its end, its cancellation or a retry at the same moment.

use crate::http_sse::HttpSseClient;
use crate::support::{V2025_03_26, form};
use rethread::{Call, Context, Handler, LogLevel, McpService, Reply, RpcError, ServerInfo};
use rethread_testkit::client::Client;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::timeout;

type Work = Pin<Box<dyn Future<Output = Result<Reply, RpcError>> + Send>>;

#[derive(Clone)]
struct Scripted(Arc<dyn Fn(Context, Value) -> Work + Send + Sync>);

impl Scripted {
    fn new<W>(script: impl Fn(Context, Value) -> W + Send + Sync + 'static) -> Self
    where
        W: Future<Output = Result<Reply, RpcError>> + Send + 'static,
    {
        Scripted(Arc::new(move |cx, params| Box::pin(script(cx, params))))
    }

    fn serve(&self) -> (McpService, Client) {
        let service = McpService::builder(self.clone()).build();
        (service.clone(), Client::new(service))
    }
}

impl Handler for Scripted {
    fn info(&self) -> ServerInfo {
        ServerInfo::new("races", "1").with_capabilities(json!({ "tools": {}, "logging": {} }))
    }

    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        (self.0)(cx.clone(), call.params()?).await
    }
}

fn tool(id: u64, name: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name, "_meta": { "progressToken": id } } })
}

/// HTTP-09: every request of a batch gets its reply, also if two handlers end at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_09_batch_reply_is_not_lost_when_another_seals() {
    let mut lost = 0;
    for round in 0..40 {
        let arrived = Arc::new(AtomicUsize::new(0));
        let handler = Scripted::new(move |_, params| {
            let arrived = Arc::clone(&arrived);
            async move {
                let is_big = params["name"] == "big";
                let text = "x".repeat(if is_big { 2 << 20 } else { 4 });
                let reply = Reply::json(json!({ "content": [{ "type": "text", "text": text }] }));
                arrived.fetch_add(1, Ordering::SeqCst);
                let began = Instant::now();
                // Both threads are here.
                while arrived.load(Ordering::SeqCst) < 2 && began.elapsed() < Duration::from_millis(200) {
                    std::hint::spin_loop();
                }
                let began = Instant::now();
                let lead = Duration::from_micros(if is_big { 0 } else { 50 * (round % 20) });
                while began.elapsed() < lead {
                    std::hint::spin_loop();
                }
                Ok(reply)
            }
        });
        let (_, client) = handler.serve();
        let session = client.open(V2025_03_26).await;
        let mut events = session.post(&json!([tool(1, "big"), tool(2, "small")])).await.events();
        let replies = timeout(Duration::from_secs(60), events.rest())
            .await
            .expect("the stream ends");
        lost += usize::from(replies.len() != 2);
    }
    assert_eq!(lost, 0, "batches with a lost reply, of 100");
}

/// PRG-01: a context that is kept beyond its call says that the call has ended, also in a batch.
#[tokio::test]
async fn prg_01_ended_call_of_a_batch_emits_nothing() {
    let (go, said) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let outcome = Arc::new(Mutex::new(None));
    let (go2, said2, outcome2) = (Arc::clone(&go), Arc::clone(&said), Arc::clone(&outcome));
    let finish = Arc::new(Semaphore::new(0));
    let finish2 = Arc::clone(&finish);
    let handler = Scripted::new(move |cx, params| {
        let (go, said, outcome, finish) = (go2.clone(), said2.clone(), outcome2.clone(), finish2.clone());
        async move {
            if params["name"] == "a" {
                tokio::spawn(async move {
                    go.notified().await;
                    *outcome.lock().unwrap() = Some(cx.progress(1.0, None).await.is_err());
                    said.notify_one();
                });
            } else {
                finish.acquire().await.unwrap().forget();
            }
            Ok(Reply::empty())
        }
    });
    let (_, client) = handler.serve();
    let session = client.open(V2025_03_26).await;
    let mut events = session.post(&json!([tool(1, "a"), tool(2, "b")])).await.events();
    assert_eq!(events.next().await.data["id"], 1);
    go.notify_one();
    said.notified().await;
    finish.add_permits(1);
    let rest = events.rest().await;
    let rest: Vec<_> = rest.iter().map(|m| m.data.clone()).collect();
    assert_eq!((*outcome.lock().unwrap(), rest.len()), (Some(true), 1), "{rest:?}");
}

/// A client of 2024-11-05 with an open session.
async fn open_http_sse(service: &McpService) -> HttpSseClient {
    let mut client = HttpSseClient::open(&Client::new(service.http_sse("/messages"))).await;
    client.handshake("2024-11-05").await;
    client
}

/// LEG-02: a POST that is cut while its reply waits for room gets a reply nevertheless.
#[tokio::test]
async fn leg_02_reply_of_a_cut_post_that_waits_for_room() {
    let handler = Scripted::new(|cx, _| async move {
        let _ = cx
            .notify("notifications/big", json!({ "text": "x".repeat(600 << 10) }))
            .await;
        Ok(Reply::empty())
    });
    let (service, _) = handler.serve();
    let mut sse = open_http_sse(&service).await;
    assert_eq!(sse.post(tool(1, "a")).await, 202);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let ping = sse.post(json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }));
    assert!(
        timeout(Duration::from_millis(100), ping).await.is_err(),
        "it waits for room; the client gives up"
    );
    let mut ids = Vec::new();
    while let Ok(message) = timeout(Duration::from_secs(1), sse.next()).await {
        ids.push(message["id"].clone());
    }
    assert!(ids.contains(&json!(1)), "{ids:?}");
    assert!(ids.contains(&json!(2)), "the ping has no reply: {ids:?}");
}

/// D13: what a stream without a log buffers is bounded.
#[tokio::test(start_paused = true)]
async fn d13_questions_of_an_unread_connection_are_bounded() {
    let asked = Arc::new(Mutex::new(0usize));
    let count = Arc::clone(&asked);
    let handler = Scripted::new(move |cx, _| {
        let count = Arc::clone(&count);
        async move {
            for _ in 0..200 {
                let question = cx.request("roots/list", json!({ "text": "x".repeat(64 << 10) }));
                let _ = timeout(Duration::from_millis(1), question).await;
                *count.lock().unwrap() += 1;
            }
            Ok(Reply::empty())
        }
    });
    let (service, _) = handler.serve();
    let mut sse = open_http_sse(&service).await;
    assert_eq!(sse.post(tool(1, "a")).await, 202);
    tokio::time::sleep(Duration::from_secs(5)).await; // less than `Timing::stall`
    let mut bytes = 0;
    let asked = *asked.lock().unwrap();
    while let Ok(Some(block)) = timeout(Duration::from_secs(1), sse.events.block()).await {
        bytes += block.data.map_or(0, |data| data.len());
    }
    assert!(
        bytes < 2 << 20,
        "{bytes} bytes of {asked} questions were buffered; a live buffer has 1 MiB"
    );
}

/// CAN-03: a client that leaves while the reply waits for room frees the permit.
#[tokio::test(start_paused = true)]
async fn can_03_lost_client_frees_a_reply_that_waits_for_room() {
    let handler = Scripted::new(|cx, _| async move {
        let big = cx.notify("notifications/big", json!({ "text": "x".repeat(600 << 10) }));
        let _ = timeout(Duration::from_millis(50), big).await;
        Ok(Reply::empty())
    });
    let (service, client) = handler.serve();
    let reply = client
        .stateless(1, "tools/call", json!({ "name": "t" }), json!({}))
        .await;
    assert!(reply.is_stream());
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(reply);
    let began = tokio::time::Instant::now();
    while service.stats().running_calls > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "the permit was held for {:?}",
        began.elapsed()
    );
}

fn retry_params(asked: &Value) -> Value {
    json!({ "name": "t", "arguments": {}, "requestState": asked["result"]["requestState"],
        "inputResponses": { "q1": { "action": "accept" } } })
}

async fn park(client: &Client, id: u64) -> Value {
    let params = json!({ "name": "t", "arguments": {} });
    client
        .stateless(id, "tools/call", params, json!({ "progressToken": "p" }))
        .await
        .json()
        .await
}

/// D13: progress that replaces progress does not count twice.
#[tokio::test]
async fn d13_replaced_progress_of_a_parked_call_counts_once() {
    let go = Arc::new(Semaphore::new(0));
    let done = Arc::new(Semaphore::new(0));
    let (go2, done2) = (Arc::clone(&go), Arc::clone(&done));
    let handler = Scripted::new(move |cx, _| {
        let (go, done) = (go2.clone(), done2.clone());
        async move {
            let reports = async {
                go.acquire().await.unwrap().forget();
                for n in 0..300 {
                    cx.relay_progress(json!({ "progress": n, "message": "x".repeat(250 << 10) }))
                        .await
                        .unwrap();
                    cx.relay_progress(json!({ "progress": n })).await.unwrap();
                }
                done.add_permits(1);
            };
            let (answer, ()) = tokio::join!(cx.elicit_json(form()), reports);
            drop(answer);
            Ok(Reply::empty())
        }
    });
    let (_, client) = handler.serve();
    assert_eq!(park(&client, 1).await["result"]["resultType"], "input_required");
    go.add_permits(1);
    done.acquire().await.unwrap().forget();
    let other = park(&client, 2).await;
    assert_eq!(
        other["result"]["resultType"], "input_required",
        "another client is refused: {other}"
    );
}

/// A value whose serialization waits until the test has gone on.
struct Slow {
    begun: Mutex<Option<oneshot::Sender<()>>>,
    go: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Serialize for Slow {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if let Some(begun) = self.begun.lock().unwrap().take() {
            let _ = begun.send(());
        }
        let _ = self.go.lock().unwrap().recv_timeout(Duration::from_secs(5));
        to.serialize_str("late")
    }
}

/// LOG-02: a retry without a log level gets no log messages, also if it comes while one is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn log_02_log_written_while_a_retry_comes_follows_the_level_of_the_retry() {
    let (begun, has_begun) = oneshot::channel();
    let (go, may_go) = std::sync::mpsc::channel();
    let start = Arc::new(Semaphore::new(0));
    let slow = Arc::new(Mutex::new(Some(Slow {
        begun: Mutex::new(Some(begun)),
        go: Mutex::new(may_go),
    })));
    let start2 = Arc::clone(&start);
    let handler = Scripted::new(move |cx, _| {
        let (start, slow) = (start2.clone(), slow.lock().unwrap().take().unwrap());
        async move {
            let logging = cx.clone();
            let log = tokio::spawn(async move {
                start.acquire().await.unwrap().forget();
                logging.log(LogLevel::Debug, None, slow).await
            });
            let _ = cx.elicit_json(form()).await;
            let _ = log.await;
            Ok(Reply::empty())
        }
    });
    let (_, client) = handler.serve();
    let asked = park(&client, 1).await;
    start.add_permits(1);
    has_begun.await.unwrap();
    let retry = tokio::spawn(async move { client.stateless(2, "tools/call", retry_params(&asked), json!({})).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    go.send(()).unwrap();
    let reply = retry.await.unwrap();
    let is_stream = reply.is_stream();
    let body = reply.bytes().await;
    assert!(
        !is_stream,
        "the retry wants no log messages: {}",
        String::from_utf8_lossy(&body)
    );
}

/// PRG-01: nothing of a call follows its response on `/sse`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prg_01_no_progress_follows_the_response() {
    let handler = Scripted::new(|cx, _| async move {
        let (started, has_started) = oneshot::channel();
        tokio::spawn(async move {
            let _ = started.send(());
            let mut n = 0.0;
            while cx.progress(n, None).await.is_ok() {
                n += 1.0;
            }
        });
        let _ = has_started.await;
        tokio::task::yield_now().await;
        Ok(Reply::empty())
    });
    let (service, _) = handler.serve();
    let mut sse = open_http_sse(&service).await;
    let mut late = Vec::new();
    let mut replied = 0;
    for id in 1..3000u64 {
        assert_eq!(sse.post(tool(id, "a")).await, 202);
        loop {
            let message = sse.next().await;
            if message["id"] == id {
                replied = id;
                break;
            }
            if message["params"]["progressToken"].as_u64().unwrap() <= replied {
                late.push(message);
            }
        }
    }
    assert!(late.is_empty(), "{} late reports, such as {}", late.len(), late[0]);
}
