//! The text of a line. Every call writes one, so this allocates nothing once its buffer has grown.

use super::{AuditEvent, AuditPrincipal};
use crate::output;
use serde::Serialize;
use std::cell::RefCell;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest buffer that a thread keeps.
const MAX_KEPT_BYTES: usize = 16 << 10;
/// Bytes of `2026-11-17T15:00:00`.
const SECOND_BYTES: usize = 19;

/// The buffer of one thread.
#[derive(Default)]
struct LineBuffer {
    bytes: Vec<u8>,
    /// The text of a second, which most lines share with the one before.
    second: Option<(u64, String)>,
}

/// Passes the line of an event at this moment to `use_line`, without its end.
pub(super) fn with_line<T>(event: &AuditEvent<'_>, use_line: impl FnOnce(&[u8]) -> T) -> T {
    thread_local! {
        static BUFFER: RefCell<LineBuffer> = RefCell::default();
    }
    BUFFER.with_borrow_mut(|buffer| {
        buffer.bytes.clear();
        buffer.write(event);
        let used = use_line(&buffer.bytes);
        buffer.bytes.shrink_to(MAX_KEPT_BYTES);
        used
    })
}

impl LineBuffer {
    fn write(&mut self, event: &AuditEvent<'_>) {
        self.bytes.extend_from_slice(b"{\"time\":\"");
        self.write_time();
        // A name that is forgotten here is an error, not a line without it.
        let AuditEvent {
            event,
            server,
            principal,
            session,
            peer,
            revision,
            method,
            tool,
            action,
            target,
            outcome,
            reason,
            duration_ms,
            params,
        } = event;
        self.value("\",\"event\":", Some(event));
        self.value(",\"server\":", server.as_ref());
        if let Some(AuditPrincipal {
            provider,
            issuer,
            subject,
        }) = principal
        {
            self.value(",\"principal\":{\"provider\":", Some(provider));
            self.value(",\"issuer\":", Some(issuer));
            self.value(",\"subject\":", Some(subject));
            self.bytes.push(b'}');
        }
        if let Some(tag) = session {
            let _ = write!(self.bytes, ",\"session\":\"{tag}\"");
        }
        if let Some(peer) = peer {
            let _ = write!(self.bytes, ",\"peer\":\"{peer}\"");
        }
        self.value(",\"revision\":", revision.as_ref());
        self.value(",\"method\":", method.as_ref());
        self.value(",\"tool\":", tool.as_ref());
        self.value(",\"action\":", action.as_ref());
        self.value(",\"target\":", target.as_ref());
        self.value(",\"outcome\":", outcome.as_ref());
        self.value(",\"reason\":", reason.as_ref());
        self.value(",\"duration_ms\":", duration_ms.as_ref());
        self.value(",\"params\":", params.as_ref());
        self.bytes.push(b'}');
    }

    /// A member with its value, if it has one. The name is JSON already.
    fn value<T: Serialize + ?Sized>(&mut self, name: &str, value: Option<&T>) {
        if let Some(value) = value {
            self.bytes.extend_from_slice(name.as_bytes());
            let _ = serde_json::to_writer(&mut self.bytes, value); // these types can be written, and a buffer takes everything
        }
    }

    /// The time in the form of the log. The calendar is computed once in a second.
    fn write_time(&mut self) {
        let now = now();
        let second = now.as_secs();
        if self.second.as_ref().is_none_or(|(known, _)| *known != second) {
            let mut text = output::timestamp();
            if self::now().as_secs() != second || text.len() <= SECOND_BYTES {
                // The next second has begun meanwhile.
                self.bytes.extend_from_slice(text.as_bytes());
                return;
            }
            text.truncate(SECOND_BYTES);
            self.second = Some((second, text));
        }
        if let Some((_, text)) = &self.second {
            self.bytes.extend_from_slice(text.as_bytes());
        }
        let _ = write!(self.bytes, ".{:06}Z", now.subsec_micros());
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rethread::Tag;
    use serde_json::value::RawValue;

    fn line(event: &AuditEvent<'_>) -> String {
        with_line(event, |line| String::from_utf8(line.to_vec()).unwrap())
    }

    #[test]
    fn ops_14_line_has_every_field_in_order_and_escapes_text() {
        let event = AuditEvent {
            event: "call",
            server: Some("a\"b"),
            principal: Some(AuditPrincipal {
                provider: "corp".into(),
                issuer: "https://idp",
                subject: "x\ny",
            }),
            session: Tag::parse("6b86b273ff34fce1"),
            peer: Some([192, 0, 2, 7].into()),
            revision: Some("2025-11-25"),
            method: Some("tools/call"),
            tool: Some("say \u{1b}[31m"),
            action: Some("end"),
            target: Some("7"),
            outcome: Some("ok"),
            reason: Some("-32603"),
            duration_ms: Some(12.5),
            params: Some(RawValue::from_string("{\"a\":1}".to_owned()).unwrap()),
        };
        let text = line(&event);
        let (time, rest) = text.split_once(",\"event\"").unwrap();
        let expected = concat!(
            r#":"call","server":"a\"b","principal":{"provider":"corp","issuer":"https://idp","subject":"x\ny"},"#,
            r#""session":"6b86b273ff34fce1","peer":"192.0.2.7","revision":"2025-11-25","method":"tools/call","#,
            r#""tool":"say \u001b[31m","action":"end","target":"7","outcome":"ok","reason":"-32603","duration_ms":12.5,"#,
            r#""params":{"a":1}}"#
        );
        assert_eq!(rest, expected);
        let time = time
            .strip_prefix("{\"time\":\"")
            .and_then(|time| time.strip_suffix('"'));
        let time = time.unwrap();
        assert_eq!(time.len(), "2026-11-17T15:00:00.000000Z".len(), "{time}");
        let empty = line(&AuditEvent {
            event: "operator",
            ..AuditEvent::default()
        });
        assert!(empty.ends_with("Z\",\"event\":\"operator\"}"), "{empty}");
    }

    /// The text of a second is kept, and must not be used for another one.
    #[test]
    fn ops_14_time_of_a_line_is_that_of_the_log() {
        let mut buffer = LineBuffer::default();
        let deadline = std::time::Instant::now() + Duration::from_millis(1200);
        while std::time::Instant::now() < deadline {
            let before = output::timestamp();
            buffer.bytes.clear();
            buffer.write_time();
            let (written, after) = (String::from_utf8(buffer.bytes.clone()).unwrap(), output::timestamp());
            assert!(before <= written && written <= after, "{before} {written} {after}");
            std::thread::sleep(Duration::from_millis(7));
        }
    }
}
