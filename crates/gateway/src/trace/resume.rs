//! The span of a resume: the root of a new trace, linked to the calls whose stream is read again (O6).

use super::otlp::{AttributeValue, Span, SpanKind};
use super::{HeaderContext, SpanContext, Tracer, now, random_id};
use rethread::{Observe, ResumeFacts};
use std::sync::Arc;

/// Records the resumes of one server.
pub(crate) struct ResumeTracer {
    pub(crate) server: String,
    pub(crate) tracer: Arc<Tracer>,
}

impl Observe for ResumeTracer {
    fn stream_resumed(&self, resume: &ResumeFacts<'_>) {
        let known = resume.calls.iter();
        let known = known.filter_map(|id| self.tracer.recent_calls.span_of(resume.session, id));
        let calls: Vec<Option<SpanContext>> = known.collect();
        let header = resume
            .extensions
            .get::<HeaderContext>()
            .map(|HeaderContext(context)| *context);
        // The client has said that it does not want these traces, or this one.
        let is_unwanted = !calls.is_empty() && calls.iter().all(Option::is_none);
        if is_unwanted || header.is_some_and(|header| !header.is_sampled()) {
            return;
        }
        let end = now();
        let duration = u64::try_from(resume.duration.as_nanos()).unwrap_or(u64::MAX);
        let gap = if resume.has_gap { "yes" } else { "no" };
        self.tracer.exporter.send(vec![Span {
            context: SpanContext::root(random_id(), random_id()),
            parent: None,
            links: calls.into_iter().flatten().chain(header).collect(),
            name: "resume".to_owned(),
            kind: SpanKind::Server,
            start: end.saturating_sub(duration),
            end,
            attributes: vec![
                ("mcp.protocol.version", resume.version.as_str().into()),
                ("mcp.session.id", AttributeValue::Text(resume.session.to_string())),
                ("rethread.server", self.server.as_str().into()),
                ("rethread.resume.gap", gap.into()),
                ("network.protocol.name", "http".into()),
                ("network.transport", "tcp".into()),
            ],
            error: None,
        }]);
    }
}
