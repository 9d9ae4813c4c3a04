//! What a parked call emits is kept for its retry: the latest progress as members without a token, and messages. Both are
//! encoded or chosen anew for the request that comes.

use bytes::Bytes;
use rethread_proto::LogLevel;
use rethread_proto::ProgressToken;
use rethread_proto::jsonrpc::{Progress, Report};
use rethread_proto::sse::EncodeMessage;
use serde::Deserialize;
use std::borrow::Cow;

/// Progress of a parked call, and how much of what it emitted is not kept.
#[derive(Default)]
pub(super) struct Kept {
    progress: Option<Box<[u8]>>,
    pub(super) dropped: usize,
}

impl Kept {
    /// Keeps the latest report. One of more than `limit` bytes is dropped.
    pub(super) fn progress(&mut self, report: Report<'_>, limit: usize) {
        if report.size() > limit {
            self.dropped += 1;
            return;
        }
        let mut members = Vec::with_capacity(report.size());
        report.write(&mut members);
        self.progress = Some(members.into());
    }

    /// The latest progress as a notification under `token`.
    pub(super) fn progress_under(&self, token: &ProgressToken) -> Option<Bytes> {
        let report = Report::Members(self.progress.as_deref()?);
        Some(Progress { token, report }.draft().into_payload())
    }

    /// Whether a request with this log level wants a message: any but log messages below it (LOG-02).
    pub(super) fn is_wanted(message: &[u8], level: Option<LogLevel>) -> bool {
        #[derive(Deserialize)]
        struct Message<'a> {
            #[serde(borrow)]
            method: Cow<'a, str>,
            params: Option<Params>,
        }
        #[derive(Deserialize)]
        struct Params {
            level: Option<serde_json::Value>,
        }
        match serde_json::from_slice::<Message<'_>>(message) {
            Ok(Message { method, params }) if method == "notifications/message" => {
                let own = params.and_then(|params| LogLevel::parse(params.level?.as_str()?));
                level.is_some_and(|least| own.is_none_or(|own| own >= least))
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LOG-02: a request without a level gets no log messages, and other messages go through.
    #[test]
    fn log_02_level_of_the_request_chooses_among_kept_messages() {
        let log = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
        let strange = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"loud"}}"#;
        let other = br#"{"jsonrpc":"2.0","method":"notifications/anything","params":{"level":7}}"#;
        for (message, level, wanted) in [
            (&log[..], None, false),
            (log, Some(LogLevel::Error), false),
            (log, Some(LogLevel::Info), true),
            (strange, Some(LogLevel::Debug), true),
            (strange, None, false),
            (other, None, true),
        ] {
            assert_eq!(Kept::is_wanted(message, level), wanted, "{level:?}");
        }
    }

    /// D13: a report that is too large is dropped and counted; the one before it stays.
    #[test]
    fn d13_kept_progress_is_bounded() {
        let mut kept = Kept::default();
        kept.progress(Report::Members(br#""progress":1"#), 32);
        kept.progress(Report::Members(&[b'x'; 33]), 32);
        let token = ProgressToken::from_json("7").unwrap();
        let message = kept.progress_under(&token).unwrap();
        assert!(message.ends_with(br#""params":{"progressToken":7,"progress":1}}"#));
        assert_eq!(kept.dropped, 1);
    }
}
