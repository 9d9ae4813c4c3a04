//! Two nodes on a real Redis report the metrics that the guide lists for several nodes.

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use rethread::{Call, Context, Handler, McpService, Principal, Reply, RpcError, ServerInfo, SessionId};
use rethread_store::{Batch, EventStore as _, Ordinal, SessionKey, StreamKey};
use rethread_store_redis::{RedisCluster, RedisOptions};
use rethread_testkit::client::{Client, Session};
use rethread_testkit::redis_server::RedisServer;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// A metric must have its value within this time.
const REPORT_TIMEOUT: Duration = Duration::from_secs(20);
/// Metrics of the lease are reported every quarter of it.
const LEASE: Duration = Duration::from_secs(2);

/// The values of all metrics, by name and labels.
#[derive(Clone, Default)]
struct Values(Arc<Mutex<BTreeMap<String, f64>>>);

/// One metric.
struct Value(Values, String);

impl Values {
    fn handle(&self, key: &Key) -> Arc<Value> {
        let labels: Vec<String> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        Arc::new(Value(
            self.clone(),
            format!("{} {}", key.name(), labels.join(" ")).trim().to_owned(),
        ))
    }

    fn get(&self, metric: &str) -> Option<f64> {
        self.0.lock().unwrap().get(metric).copied()
    }

    /// Waits until a metric has a value that `fits`.
    async fn wait(&self, metric: &str, fits: impl Fn(f64) -> bool) {
        let fitting = async {
            while !self.get(metric).is_some_and(&fits) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let in_time = tokio::time::timeout(REPORT_TIMEOUT, fitting).await;
        in_time.unwrap_or_else(|_| panic!("{metric}: {:?}", self.0.lock().unwrap()));
    }
}

impl Value {
    fn change(&self, change: impl FnOnce(&mut f64)) {
        change(self.0.0.lock().unwrap().entry(self.1.clone()).or_default());
    }
}

impl CounterFn for Value {
    fn increment(&self, by: u64) {
        self.change(|value| *value += by as f64);
    }

    fn absolute(&self, to: u64) {
        self.change(|value| *value = to as f64);
    }
}

impl GaugeFn for Value {
    fn increment(&self, by: f64) {
        self.change(|value| *value += by);
    }

    fn decrement(&self, by: f64) {
        self.change(|value| *value -= by);
    }

    fn set(&self, to: f64) {
        self.change(|value| *value = to);
    }
}

impl HistogramFn for Value {
    /// The largest value.
    fn record(&self, recorded: f64) {
        self.change(|value| *value = value.max(recorded));
    }
}

impl Recorder for Values {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let handle = self.handle(key);
        handle.change(|_| {}); // a counter exists from its registration
        Counter::from_arc(handle)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.handle(key))
    }
}

/// A handler with state of a session, as far as the transport knows. Its call `wait` ends after a notification of the test.
struct Stateful(Arc<Notify>);

impl Handler for Stateful {
    fn info(&self) -> ServerInfo {
        ServerInfo::new("stateful", "1").with_capabilities(json!({ "tools": {}, "logging": {} }))
    }

    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        let params: serde_json::Value = call.params()?;
        if params["name"] == "wait" {
            cx.progress(1.0, "started").await?;
            self.0.notified().await;
            cx.progress(2.0, "continued").await?;
        }
        Ok(Reply::json(json!({ "content": [] })))
    }
}

pub(crate) async fn node(redis: &RedisServer, continued: &Arc<Notify>) -> McpService {
    labelled_node(redis, continued, "metrics-test").await
}

async fn labelled_node(redis: &RedisServer, continued: &Arc<Notify>, label: &str) -> McpService {
    let options = RedisOptions::parse(&redis.url()).unwrap().with_lease(LEASE);
    let cluster = RedisCluster::connect(options).await.unwrap();
    let store = cluster
        .store(if label == "other" { label } else { "metrics" })
        .await
        .unwrap();
    let service = McpService::builder(Stateful(Arc::clone(continued)))
        .server_label(label)
        .store(store)
        .build();
    service.join().await;
    service
}

#[tokio::test]
async fn two_nodes_report_their_metrics() {
    let Some(redis) = RedisServer::start() else { return };
    let values = Values::default();
    let _recording = metrics::set_default_local_recorder(&values);
    let continued = Arc::new(Notify::new());
    let (owner, other) = (node(&redis, &continued).await, node(&redis, &continued).await);
    let session = Client::new(owner.clone()).open("2025-11-25").await;
    let elsewhere = session.with_client(&Client::new(other.clone()));

    values
        .wait("rethread_live_nodes server=metrics-test", |nodes| nodes == 2.0)
        .await;
    values
        .wait("rethread_lease_seconds server=metrics-test", |left| {
            left > 0.0 && left <= LEASE.as_secs_f64()
        })
        .await;
    values
        .wait("rethread_mailbox_messages server=metrics-test", |messages| {
            messages == 0.0
        })
        .await;
    values
        .wait("rethread_mailbox_age_seconds server=metrics-test", |age| age == 0.0)
        .await;

    let echo = elsewhere.tool(1, "echo", json!({})).await;
    assert!(echo.answer().await["result"].is_object());
    let forwarded = values.get("rethread_forwards_total server=metrics-test kind=mcp outcome=replied");
    assert_eq!(forwarded, Some(1.0));
    assert!(
        values
            .get("rethread_forward_seconds server=metrics-test")
            .is_some_and(|time| time > 0.0)
    );
    owner.record_gauges();
    let views = values.get("rethread_sessions_active server=metrics-test");
    assert!(views.is_some_and(|views| views >= 1.0), "{views:?}");

    let mut events = elsewhere.tool(2, "wait", json!({})).await.events();
    events.next().await;
    assert_eq!(values.get("rethread_remote_readers server=metrics-test"), Some(1.0));
    values
        .wait("rethread_append_seconds server=metrics-test", |time| time > 0.0)
        .await;
    values
        .wait("rethread_append_events server=metrics-test", |events| events >= 1.0)
        .await;
    continued.notify_one();
    let rest = events.rest().await;
    assert!(rest.last().unwrap().data["result"].is_object());
    drop(events);
    values
        .wait("rethread_remote_readers server=metrics-test", |readers| readers == 0.0)
        .await;
    values
        .wait("rethread_wakeups_total server=metrics-test result=useful", |woken| {
            woken >= 1.0
        })
        .await;

    let level = session.call(3, "logging/setLevel", json!({ "level": "debug" })).await;
    assert!(level.answer().await["result"].is_object());
    values
        .wait(
            "rethread_invalidations_total server=metrics-test outcome=acked",
            |acked| acked >= 1.0,
        )
        .await;

    // A service that lost its subscription reads everything again. A join is not a reconnect.
    let before = values
        .get("rethread_rereads_total server=metrics-test")
        .unwrap_or_default();
    let reconnects = "rethread_subscriber_reconnects_total server=metrics-test";
    assert_eq!(values.get(reconnects), Some(0.0));
    redis.close_connections("pubsub");
    values.wait(reconnects, |times| times == 2.0).await;
    values
        .wait("rethread_rereads_total server=metrics-test", |times| times > before)
        .await;
}

/// OPS-05: each server of a process has a lease of its own, and values of its own.
#[tokio::test]
async fn ops_05_leases_of_two_servers_have_two_values() {
    let Some(redis) = RedisServer::start() else { return };
    let values = Values::default();
    let _recording = metrics::set_default_local_recorder(&values);
    let continued = Arc::new(Notify::new());
    let first = node(&redis, &continued).await;
    let _second = node(&redis, &continued).await;
    let _other = labelled_node(&redis, &continued, "other").await;
    for server in ["metrics-test", "other"] {
        let named = |metric: &str| format!("{metric} server={server}");
        values.wait(&named("rethread_live_nodes"), |live| live == 3.0).await;
        values.wait(&named("rethread_lease_seconds"), |left| left > 0.0).await;
        values
            .wait(&named("rethread_mailbox_messages"), |waiting| waiting == 0.0)
            .await;
        values
            .wait(&named("rethread_mailbox_age_seconds"), |age| age == 0.0)
            .await;
        assert_eq!(values.get(&named("rethread_leases_lost_total")), Some(0.0));
    }
    let unlabelled: Vec<String> = values.0.lock().unwrap().keys().cloned().collect();
    let shared = ["rethread_refusals_total", "rethread_auth_total"];
    let is_shared = |key: &String| shared.iter().any(|name| key.starts_with(name));
    let unlabelled: Vec<_> = unlabelled
        .iter()
        .filter(|key| !key.contains("server=") && !is_shared(key))
        .collect();
    assert_eq!(unlabelled, [""; 0]);
    drop(first);
}

/// The key of the stream that an event id names.
fn stream_key(session: &Session, event_id: &str) -> StreamKey {
    let (ordinal, _) = event_id.split_once('-').unwrap();
    StreamKey {
        session: SessionKey {
            principal: Principal::anonymous(),
            session: SessionId::parse(&session.id).unwrap(),
        },
        ordinal: Ordinal(ordinal.parse().unwrap()),
    }
}

/// D2: a node that continues after its stream was taken over can append nothing, and reports that.
#[tokio::test]
async fn d2_fenced_append_is_counted_once() {
    let Some(redis) = RedisServer::start() else { return };
    let values = Values::default();
    let _recording = metrics::set_default_local_recorder(&values);
    let continued = Arc::new(Notify::new());
    let writer = node(&redis, &continued).await;
    let session = Client::new(writer).open("2025-11-25").await;
    let mut events = session.tool(1, "wait", json!({})).await.events();
    events.next().await;

    let options = RedisOptions::parse(&redis.url()).unwrap();
    let other_node = RedisCluster::connect(options).await.unwrap();
    let store = other_node.store("metrics").await.unwrap();
    let key = stream_key(&session, events.cursor());
    let epoch = store.status(&key).await.unwrap().epoch;
    let fence = Batch::new(epoch + 1, Vec::new());
    store.append(&key, fence).await.unwrap();
    assert_eq!(
        values.get("rethread_streams_fenced_total server=metrics-test"),
        Some(0.0)
    );

    continued.notify_one();
    values
        .wait("rethread_streams_fenced_total server=metrics-test", |streams| {
            streams == 1.0
        })
        .await;
    assert!(
        events.rest().await.is_empty(),
        "the writer sends nothing that is not stored"
    );
    assert_eq!(
        values.get("rethread_streams_fenced_total server=metrics-test"),
        Some(1.0)
    );
    assert_eq!(values.get("rethread_store_gaps_total server=metrics-test"), Some(0.0));
}

/// D4: a store that has lost a stream gets the rest of it, and the hole is reported once.
#[tokio::test]
async fn d4_gap_of_a_store_that_lost_events_is_counted_once() {
    let Some(redis) = RedisServer::start() else { return };
    let values = Values::default();
    let _recording = metrics::set_default_local_recorder(&values);
    let continued = Arc::new(Notify::new());
    let writer = node(&redis, &continued).await;
    let session = Client::new(writer).open("2025-11-25").await;
    let mut events = session.tool(1, "wait", json!({})).await.events();
    events.next().await;
    let cursor = events.cursor().to_owned();

    let ordinal = stream_key(&session, &cursor).ordinal.0;
    for kind in ["h", "l"] {
        let keys = redis.command(&["KEYS", &format!("*:{kind}:{ordinal}")]);
        let key = keys
            .lines()
            .find(|line| line.ends_with(&format!(":{kind}:{ordinal}")))
            .unwrap();
        assert_eq!(redis.command(&["DEL", key]).trim(), ":1", "{key}");
    }
    assert_eq!(values.get("rethread_store_gaps_total server=metrics-test"), Some(0.0));

    continued.notify_one();
    let rest = events.rest().await;
    assert!(rest.last().unwrap().data["result"].is_object(), "{rest:?}");
    assert_eq!(values.get("rethread_store_gaps_total server=metrics-test"), Some(1.0));
    assert_eq!(
        values.get("rethread_streams_fenced_total server=metrics-test"),
        Some(0.0)
    );
    let resumed = session.get(Some(&cursor)).await;
    assert!(
        resumed.header("rethread-gap").is_none(),
        "this client has seen what the store lost"
    );
    let resumed = resumed.events().rest().await;
    assert_eq!(
        resumed.last().map(|last| &last.data),
        rest.last().map(|last| &last.data)
    );
}
