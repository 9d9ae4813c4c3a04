//! Traces: a span for each call, and one below it for the child (O6).
//!
//! The client's context comes in `_meta.traceparent`, and the child gets that of its own span there. Without a collector nothing
//! of this exists, and `_meta` passes untouched.

mod context;
mod exporter;
mod otlp;
mod recent_calls;
mod resume;

pub(crate) use context::SpanContext;
pub(crate) use resume::ResumeTracer;

use exporter::{Destination, Exporter};
use http::{HeaderName, HeaderValue};
use otlp::{AttributeValue, Span, SpanKind};
use parking_lot::RwLock;
use recent_calls::RecentCalls;
use rethread::{Reply, RpcError, Tag, Version};
use rethread_proto::jsonrpc::{Method, RequestId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Names of tools and of prompts that spans show. Beyond: the span has the name of the method.
const MAX_LISTED_NAMES: usize = 1000;
const MAX_NAME_BYTES: usize = 128;
/// Characters of the id of a request. A client may choose long ones.
const MAX_ID_CHARS: usize = 128;

/// The context in the `traceparent` header, in the extensions of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderContext(pub(crate) SpanContext);

/// Records the spans of one process.
pub(crate) struct Tracer {
    exporter: Exporter,
    /// For the links of resumes.
    recent_calls: RecentCalls,
}

impl Tracer {
    /// A tracer that sends to `endpoint`, or to that of the environment. `None` without one.
    pub(crate) fn start(endpoint: Option<&str>, var: impl Fn(&str) -> Option<String>) -> Option<Arc<Self>> {
        let destination = destination(endpoint, var)?;
        if cfg!(not(feature = "otlp")) {
            tracing::warn!("this program was built without the feature `otlp`; no traces are sent");
            return None;
        }
        tracing::info!(url = destination.url, "traces are exported");
        Some(Arc::new(Tracer {
            exporter: Exporter::start(destination),
            recent_calls: RecentCalls::default(),
        }))
    }

    /// Sends what waits, for a bounded time.
    pub(crate) async fn close(&self) {
        self.exporter.close().await;
    }

    /// Begins the spans of a call. `None` if the client does not want this trace recorded.
    pub(crate) fn begin(self: &Arc<Self>, call: &TracedCall<'_>) -> Option<CallSpans> {
        let parent = call.parent.and_then(SpanContext::parse);
        let is_recorded = parent.is_none_or(SpanContext::is_sampled);
        let server = match parent {
            Some(parent) => parent.child(random_id()),
            None => SpanContext::root(random_id(), random_id()),
        };
        if let Some(session) = call.session {
            self.recent_calls.add(session, call.id, is_recorded.then_some(server));
        }
        if !is_recorded {
            return None;
        }
        let child = server.child(random_id());
        // A client must not choose names, or fill the queue with long ones.
        let method = Method::from(call.method).label();
        let name = match call.target {
            Some(target) => format!("{method} {target}"),
            None => method.to_owned(),
        };
        let mut attributes: Vec<(&'static str, AttributeValue)> = vec![
            ("mcp.method.name", method.into()),
            ("mcp.protocol.version", call.version.as_str().into()),
        ];
        if let Some(tag) = call.session {
            attributes.push(("mcp.session.id", AttributeValue::Text(tag.to_string())));
        }
        match call.target {
            Some(prompt) if method == "prompts/get" => attributes.push(("gen_ai.prompt.name", prompt.into())),
            Some(tool) => {
                attributes.push(("gen_ai.operation.name", "execute_tool".into()));
                attributes.push(("gen_ai.tool.name", tool.into()));
            }
            None => {}
        }
        let (start, link) = (now(), call.header.map(|HeaderContext(context)| context));
        let span = |context, kind| Span {
            context,
            parent: None,
            links: Vec::new(),
            name: name.clone(),
            kind,
            start,
            end: start,
            attributes: attributes.clone(),
            error: None,
        };
        let mut server = span(server, SpanKind::Server);
        server.parent = parent.map(|parent| parent.span_id);
        server.links.extend(link);
        // That of the client. The message to the child has an id of its own.
        let id = call.id.to_string();
        let text = id.strip_prefix('"').and_then(|id| id.strip_suffix('"'));
        let id = text.unwrap_or(&id).chars().take(MAX_ID_CHARS).collect();
        server.attributes.push(("jsonrpc.request.id", AttributeValue::Text(id)));
        server.attributes.push(("rethread.server", call.server.into()));
        server.attributes.push(("network.protocol.name", "http".into()));
        server.attributes.push(("network.transport", "tcp".into()));
        let mut child = span(child, SpanKind::Client);
        child.parent = Some(server.context.span_id);
        child.attributes.push(("network.transport", "pipe".into()));
        Some(CallSpans {
            tracer: Arc::clone(self),
            spans: vec![server, child],
            is_ended: false,
        })
    }
}

/// The facts of a call for its spans. They contain no argument.
pub(crate) struct TracedCall<'a> {
    pub(crate) server: &'a str,
    pub(crate) method: &'a str,
    pub(crate) id: &'a RequestId,
    /// The tool or the prompt. Only if the server has listed it: a client must not choose the names of spans.
    pub(crate) target: Option<&'a str>,
    pub(crate) version: Version,
    pub(crate) session: Option<Tag>,
    /// `_meta.traceparent`.
    pub(crate) parent: Option<&'a str>,
    pub(crate) header: Option<HeaderContext>,
}

/// The two spans of a running call. Dropping them means that the call was cancelled.
pub(crate) struct CallSpans {
    tracer: Arc<Tracer>,
    spans: Vec<Span>,
    is_ended: bool,
}

impl CallSpans {
    /// The context for the child.
    pub(crate) fn child_context(&self) -> String {
        self.spans
            .last()
            .map(|child| child.context.to_string())
            .unwrap_or_default()
    }

    /// The call has ended.
    pub(crate) fn end(mut self, result: &Result<Reply, RpcError>) {
        let (kind, code) = match result {
            Err(error) => (Some(error.code.to_string()), Some(error.code)),
            Ok(reply) if reply.is_tool_error() => (Some("tool_error".to_owned()), None),
            Ok(_) => (None, None),
        };
        self.finish(kind.as_deref(), code);
    }

    fn finish(&mut self, error: Option<&str>, code: Option<i64>) {
        self.is_ended = true;
        let end = now();
        for span in &mut self.spans {
            span.end = end.max(span.start);
            if let Some(error) = error {
                span.error = Some("the call failed");
                span.attributes
                    .push(("error.type", AttributeValue::Text(error.to_owned())));
            }
            if let Some(code) = code {
                span.attributes
                    .push(("rpc.response.status_code", AttributeValue::Text(code.to_string())));
            }
        }
        self.tracer.exporter.send(std::mem::take(&mut self.spans));
    }
}

impl Drop for CallSpans {
    fn drop(&mut self) {
        if !self.is_ended {
            self.finish(Some("cancelled"), None);
        }
    }
}

/// The tools, or the prompts, that a server has listed.
#[derive(Debug, Default)]
pub(crate) struct ListedNames(RwLock<BTreeSet<String>>);

impl ListedNames {
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.read().contains(name)
    }

    /// Adds the names of a reply to `tools/list` or `prompts/list`.
    pub(crate) fn add(&self, names: Vec<String>) {
        let mut known = self.0.write();
        for name in names {
            if known.len() < MAX_LISTED_NAMES && name.len() <= MAX_NAME_BYTES {
                known.insert(name);
            }
        }
    }
}

/// The collector of the flag or the environment, by the rules of OpenTelemetry.
fn destination(endpoint: Option<&str>, var: impl Fn(&str) -> Option<String>) -> Option<Destination> {
    let var = |name: &str| var(name).filter(|value| !value.is_empty());
    if var("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return None;
    }
    let below = |base: &str| format!("{}/v1/traces", base.trim_end_matches('/'));
    let url = match endpoint {
        Some(endpoint) => below(endpoint),
        None => var("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            .or_else(|| var("OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| below(&base)))?,
    };
    let headers = var("OTEL_EXPORTER_OTLP_TRACES_HEADERS").or_else(|| var("OTEL_EXPORTER_OTLP_HEADERS"));
    let headers = headers.unwrap_or_default();
    let pairs = headers.split(',').filter_map(|pair| pair.split_once('='));
    let headers = pairs.filter_map(|(name, value)| {
        let name: HeaderName = name.trim().parse().ok()?;
        let mut value: HeaderValue = value.trim().parse().ok()?;
        value.set_sensitive(true);
        Some((name, value))
    });
    Some(Destination {
        url,
        headers: headers.collect(),
        service: var("OTEL_SERVICE_NAME").unwrap_or_else(|| "rethread".to_owned()),
    })
}

fn random_id<const N: usize>() -> [u8; N] {
    let mut id = [0; N];
    while id == [0; N] {
        if getrandom::fill(&mut id).is_err() {
            id[0] = 1; // a trace with a bad id is better than no call
        }
    }
    id
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_19_collector_comes_from_the_flag_or_the_environment() {
        let url = |endpoint: Option<&str>, vars: &[(&str, &str)]| {
            let var = |name: &str| {
                vars.iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| (*value).to_owned())
            };
            destination(endpoint, var).map(|destination| destination.url)
        };
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318/");
        assert_eq!(url(None, &[]), None);
        assert_eq!(url(None, &[base]).unwrap(), "http://a:4318/v1/traces");
        assert_eq!(url(Some("http://b"), &[base]).unwrap(), "http://b/v1/traces");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c/x");
        assert_eq!(url(None, &[base, traces]).unwrap(), "http://c/x");
        assert_eq!(url(Some("http://b"), &[("OTEL_SDK_DISABLED", "true")]), None);
        assert_eq!(url(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), None);
    }
}
