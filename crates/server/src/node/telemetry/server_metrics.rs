//! The metrics of one server. Each has the label `server`, so that two servers of a process have two values.

use super::node_events::NodeEvents;
use super::{AdmittedCallers, TARGET};
use crate::node::observe::{CallOutcome, SessionFacts};
use crate::node::session_end::SessionEnd;
use crate::node::stats::{ConnectionKind, Stats};
use foldhash::fast::RandomState;
use metrics::{Counter, Histogram};
use parking_lot::RwLock;
use rethread_proto::jsonrpc::{Method, code};
use rethread_proto::{Revisions, Tag, Version};
use rethread_store::StoreError;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Names of tools that become labels. Beyond: `other`.
const MAX_TOOL_LABELS: usize = 200;
/// The longest name of a tool that becomes a label.
const MAX_TOOL_LABEL_BYTES: usize = 128;

/// The metrics of one server, registered when it is built: the recorder must be installed before that.
pub(crate) struct ServerMetrics {
    server: Arc<str>,
    pub(crate) events: NodeEvents,
    /// Keys are from closed sets, so no client chooses them. Each call looks one up.
    operations: RwLock<HashMap<OperationKey, Histogram, RandomState>>,
    /// The histograms of most calls: `tools/call` with a result, without the name of the tool. They are also in `operations`, but
    /// need neither a lock nor a hash.
    tool_results: Vec<(Version, Histogram)>,
    /// The tools that the server has listed. `None` if metrics do not name them.
    tools: Option<RwLock<BTreeSet<Arc<str>>>>,
    sessions_opened: Counter,
    sessions_restored: Counter,
    sessions_closed: [Counter; SessionEnd::ALL.len()],
    events_appended: Counter,
    store_failures: Counter,
    sessionless_requests: Counter,
    resumes: Counter,
    resumes_with_gap: Counter,
    append_duration: Histogram,
    store_up: AtomicBool,
    /// Shared with the requests that are being admitted.
    pub(crate) admitted_callers: Arc<AdmittedCallers>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct OperationKey {
    method: &'static str,
    version: Version,
    error_type: ErrorType,
    tool: Option<Arc<str>>,
}

/// The label `error_type` of a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ErrorType {
    None,
    ToolError,
    /// A code of this project.
    Code(i64),
    /// Any other code, and a cancellation.
    Other,
}

/// A call that has ended.
pub(crate) struct EndedCall<'a> {
    pub(crate) method: &'a Method,
    pub(crate) version: Version,
    /// The tool of `tools/call`, if somebody wants to know it.
    pub(crate) tool: Option<&'a str>,
    pub(crate) outcome: CallOutcome,
    pub(crate) duration: Duration,
}

/// The end of a session.
pub(crate) struct SessionLife {
    pub(crate) version: Version,
    pub(crate) end: SessionEnd,
    pub(crate) age: Duration,
}

impl ServerMetrics {
    pub(crate) fn new(server: Arc<str>, revisions: Revisions, names_tools: bool) -> Self {
        super::describe();
        let name = || server.to_string();
        let mut metrics = ServerMetrics {
            operations: RwLock::default(),
            tool_results: Vec::new(),
            tools: names_tools.then(RwLock::default),
            sessions_opened: metrics::counter!("rethread_sessions_opened_total", "server" => name()),
            sessions_restored: metrics::counter!("rethread_sessions_restored_total", "server" => name()),
            sessions_closed: SessionEnd::ALL.map(
                |end| metrics::counter!("rethread_sessions_closed_total", "server" => name(), "reason" => end.as_str()),
            ),
            events_appended: metrics::counter!("rethread_events_appended_total", "server" => name()),
            store_failures: metrics::counter!("rethread_store_failures_total", "server" => name()),
            sessionless_requests: metrics::counter!("rethread_sessionless_requests_total", "server" => name()),
            resumes: metrics::counter!("rethread_resumes_total", "server" => name(), "gap" => "no"),
            resumes_with_gap: metrics::counter!("rethread_resumes_total", "server" => name(), "gap" => "yes"),
            append_duration: metrics::histogram!("rethread_append_duration_seconds", "server" => name()),
            store_up: AtomicBool::new(true),
            admitted_callers: Arc::default(),
            events: NodeEvents::new(&server),
            server,
        };
        // The product of all labels would be thousands of series. These are the ones that alerts need.
        for version in revisions.newest_first() {
            for error_type in [
                ErrorType::None,
                ErrorType::ToolError,
                ErrorType::of_code(code::INTERNAL_ERROR),
                ErrorType::Other,
            ] {
                let key = OperationKey {
                    method: "tools/call",
                    version,
                    error_type,
                    tool: None,
                };
                let histogram = metrics.with_operation(key, Histogram::clone);
                if error_type == ErrorType::None {
                    metrics.tool_results.push((version, histogram));
                }
            }
        }
        for version in revisions.newest_first().filter(|version| version.has_sessions()) {
            for error_type in ["", "other"] {
                let _ = metrics.session_duration(version, error_type);
            }
        }
        metrics
    }

    fn session_duration(&self, version: Version, error_type: &'static str) -> Histogram {
        metrics::histogram!("mcp_server_session_duration_seconds",
            "server" => self.server.to_string(), "mcp_protocol_version" => version.as_str(), "error_type" => error_type)
    }

    /// The name of the server, as in the label.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Whether metrics name the tool of a call.
    pub(crate) fn names_tools(&self) -> bool {
        self.tools.is_some()
    }

    /// Passes the histogram of an operation to `record`.
    fn with_operation<T>(&self, key: OperationKey, record: impl FnOnce(&Histogram) -> T) -> T {
        if let Some(histogram) = self.operations.read().get(&key) {
            return record(histogram);
        }
        let mut labels = vec![
            metrics::Label::new("server", self.server.to_string()),
            metrics::Label::new("mcp_method_name", key.method),
            metrics::Label::new("mcp_protocol_version", key.version.as_str()),
            metrics::Label::new("error_type", key.error_type.as_str()),
        ];
        if let Some(tool) = &key.tool {
            labels.push(metrics::Label::new("tool", tool.to_string()));
        }
        let histogram = metrics::histogram!("mcp_server_operation_duration_seconds", labels);
        record(self.operations.write().entry(key).or_insert(histogram))
    }

    /// A call has ended.
    pub(crate) fn call_ended(&self, call: &EndedCall<'_>) {
        let seconds = call.duration.as_secs_f64();
        if self.tools.is_none() && call.outcome == CallOutcome::Ok && call.method.label() == "tools/call" {
            let of_version = self.tool_results.iter().find(|(version, _)| *version == call.version);
            if let Some((_, histogram)) = of_version {
                return histogram.record(seconds);
            }
        }
        let tool = match (&self.tools, call.method.as_str()) {
            (Some(listed), "tools/call") => {
                let listed = listed.read();
                let found = call.tool.and_then(|tool| listed.get(tool).cloned());
                Some(found.unwrap_or_else(|| "other".into()))
            }
            (Some(_), _) => Some(Arc::default()),
            (None, _) => None,
        };
        let key = OperationKey {
            method: call.method.label(),
            version: call.version,
            error_type: ErrorType::of(call.outcome),
            tool,
        };
        self.with_operation(key, |histogram| histogram.record(seconds));
    }

    /// The server has listed its tools.
    pub(crate) fn tools_listed(&self, names: impl FnOnce() -> Vec<String>) {
        let Some(known) = &self.tools else { return };
        let names = names();
        let mut known = known.write();
        for name in names {
            if known.len() < MAX_TOOL_LABELS && name.len() <= MAX_TOOL_LABEL_BYTES {
                known.insert(name.into());
            }
        }
    }

    /// A request with sessions that does not name its session (GW-27).
    pub(crate) fn sessionless_request(&self) {
        self.sessionless_requests.increment(1);
    }

    /// A session is in memory now.
    pub(crate) fn session_registered(&self) {
        self.sessions_opened.increment(1);
    }

    pub(crate) fn session_opened(&self, session: &SessionFacts<'_>, client: (&str, &str)) {
        let (server, tag, revision) = (self.server(), session.tag, session.version.as_str());
        let principal = Tag::of_principal(session.principal).map(tracing::field::display);
        let (client, client_version) = client;
        if session.is_restored {
            self.sessions_restored.increment(1);
            tracing::info!(target: TARGET, server, session = %tag, principal, revision, client, client_version, "session restored");
        } else {
            tracing::info!(target: TARGET, server, session = %tag, principal, revision, client, client_version, "session opened");
        }
    }

    /// A session has left the memory.
    pub(crate) fn session_closed(&self, life: &SessionLife) {
        let counter = SessionEnd::ALL.iter().position(|end| *end == life.end);
        if let Some(counter) = counter.and_then(|at| self.sessions_closed.get(at)) {
            counter.increment(1);
        }
        let error_type = match life.end {
            SessionEnd::LeaseLost => "other",
            _ => "",
        };
        self.session_duration(life.version, error_type)
            .record(life.age.as_secs_f64());
    }

    pub(crate) fn session_ended(
        &self,
        session: &SessionFacts<'_>,
        (client, client_version): (&str, &str),
        end: SessionEnd,
        age: Duration,
    ) {
        let (server, tag, revision) = (self.server(), session.tag, session.version.as_str());
        let principal = Tag::of_principal(session.principal).map(tracing::field::display);
        let (reason, seconds) = (end.as_str(), age.as_secs_f64());
        tracing::info!(target: TARGET, server, session = %tag, principal, revision, client, client_version, reason, seconds, "session ended");
    }

    /// A session has left the memory, and the store keeps it.
    pub(crate) fn session_unloaded(&self, session: Tag) {
        tracing::info!(target: TARGET, server = self.server(), %session, "session unloaded");
    }

    /// A session that had left the memory is used again.
    pub(crate) fn session_reloaded(&self, session: Tag) {
        tracing::info!(target: TARGET, server = self.server(), %session, "session loaded");
    }

    pub(crate) fn appended(&self, events: usize) {
        self.events_appended.increment(events as u64);
    }

    /// The store has acknowledged an append.
    pub(crate) fn append_took(&self, time: Duration) {
        self.append_duration.record(time.as_secs_f64());
    }

    /// The same for a store of several nodes.
    pub(crate) fn shared_append_took(&self, time: Duration, events: usize) {
        self.append_took(time);
        metrics::histogram!("rethread_append_seconds", "server" => Arc::clone(&self.server)).record(time.as_secs_f64());
        metrics::histogram!("rethread_append_events", "server" => Arc::clone(&self.server)).record(events as f64);
    }

    pub(crate) fn store_lost(&self, error: &StoreError) {
        self.set_store_up(false);
        self.store_failures.increment(1);
        tracing::warn!(target: TARGET, server = self.server(), %error, "stream goes on without ids: the store failed");
    }

    /// The outcome of the latest regular use of the store.
    pub(crate) fn set_store_up(&self, is_up: bool) {
        self.store_up.store(is_up, Ordering::Relaxed);
    }

    pub(crate) fn is_store_up(&self) -> bool {
        self.store_up.load(Ordering::Relaxed)
    }

    pub(crate) fn resumed(&self, session: Tag, gap: bool) {
        if gap {
            self.resumes_with_gap.increment(1);
            tracing::info!(target: TARGET, server = self.server(), %session, "resumed with a gap: events after the cursor are no longer kept");
        } else {
            self.resumes.increment(1);
        }
    }

    /// Sets the gauges to the values of this moment.
    pub(crate) fn record_gauges(&self, stats: &Stats) {
        let name = || self.server.to_string();
        metrics::gauge!("rethread_sessions_active", "server" => name()).set(stats.sessions as f64);
        metrics::gauge!("rethread_calls_running", "server" => name()).set(stats.running_calls as f64);
        metrics::gauge!("rethread_calls_parked", "server" => name()).set(stats.parked_calls as f64);
        metrics::gauge!("rethread_store_up", "server" => name()).set(f64::from(u8::from(stats.store_up)));
        if let Some(bytes) = stats.retained_bytes {
            metrics::gauge!("rethread_retained_bytes", "server" => name()).set(bytes as f64);
        }
        for kind in ConnectionKind::ALL {
            metrics::gauge!("rethread_connections_open", "server" => name(), "kind" => kind.as_str())
                .set(stats.connections_of(kind) as f64);
        }
    }
}

impl ErrorType {
    fn of(outcome: CallOutcome) -> Self {
        match outcome {
            CallOutcome::Ok => ErrorType::None,
            CallOutcome::ToolError => ErrorType::ToolError,
            CallOutcome::Cancelled => ErrorType::Other,
            CallOutcome::Error(code) => ErrorType::of_code(code),
        }
    }

    /// A server behind a gateway may choose any number, so only the codes of this project become labels.
    fn of_code(code: i64) -> Self {
        match ErrorType::Code(code).as_str() {
            "other" => ErrorType::Other,
            _ => ErrorType::Code(code),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            ErrorType::None => "",
            ErrorType::ToolError => "tool_error",
            ErrorType::Code(code::PARSE_ERROR) => "-32700",
            ErrorType::Code(code::INVALID_REQUEST) => "-32600",
            ErrorType::Code(code::METHOD_NOT_FOUND) => "-32601",
            ErrorType::Code(code::INVALID_PARAMS) => "-32602",
            ErrorType::Code(code::INTERNAL_ERROR) => "-32603",
            ErrorType::Code(code::HEADER_MISMATCH) => "-32020",
            ErrorType::Code(code::MISSING_CAPABILITY) => "-32021",
            ErrorType::Code(code::UNSUPPORTED_VERSION) => "-32022",
            ErrorType::Code(_) | ErrorType::Other => "other",
        }
    }
}
