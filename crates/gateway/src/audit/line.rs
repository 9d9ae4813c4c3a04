//! The text of a line. Every call writes one, so this allocates nothing once its buffer has grown.

use super::{AuditEvent, AuditPrincipal};
use crate::output;
use std::cell::RefCell;
use std::io::Write as _;
use std::net::IpAddr;
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
            duration,
            params,
        } = event;
        self.text("\",\"event\":", Some(event));
        self.text(",\"server\":", *server);
        if let Some(AuditPrincipal {
            provider,
            issuer,
            subject,
        }) = principal
        {
            self.text(",\"principal\":{\"provider\":", Some(provider));
            self.text(",\"issuer\":", Some(issuer));
            self.text(",\"subject\":", Some(subject));
            self.bytes.push(b'}');
        }
        if let Some(tag) = session {
            self.bytes.extend_from_slice(b",\"session\":\"");
            self.bytes.extend_from_slice(&tag.hex_digits());
            self.bytes.push(b'"');
        }
        if let Some(peer) = peer {
            self.bytes.extend_from_slice(b",\"peer\":\"");
            self.address(*peer);
            self.bytes.push(b'"');
        }
        self.text(",\"revision\":", *revision);
        self.text(",\"method\":", *method);
        self.text(",\"tool\":", *tool);
        self.text(",\"action\":", *action);
        self.text(",\"target\":", *target);
        self.text(",\"outcome\":", *outcome);
        self.text(",\"reason\":", *reason);
        if let Some(duration) = duration {
            self.bytes.extend_from_slice(b",\"duration_ms\":");
            self.millis(*duration);
        }
        if let Some(params) = params {
            self.bytes.extend_from_slice(b",\"params\":");
            self.bytes.extend_from_slice(params.get().as_bytes());
        }
        self.bytes.push(b'}');
    }

    /// A member with a text, if it has one. The name is JSON already.
    fn text(&mut self, name: &str, text: Option<&str>) {
        let Some(text) = text else { return };
        self.bytes.extend_from_slice(name.as_bytes());
        if text.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
            let _ = serde_json::to_writer(&mut self.bytes, text); // a text can be written, and a buffer takes everything
            return;
        }
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(b'"');
    }

    /// Without `core::fmt`, because nearly every line has an address.
    fn address(&mut self, address: IpAddr) {
        let IpAddr::V4(address) = address else {
            let _ = write!(self.bytes, "{address}");
            return;
        };
        for (at, octet) in address.octets().into_iter().enumerate() {
            if at > 0 {
                self.bytes.push(b'.');
            }
            self.number(octet.into(), 1);
        }
    }

    /// Milliseconds, to the microsecond.
    fn millis(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.number(micros / 1000, 1);
        self.bytes.push(b'.');
        self.number(micros % 1000, 3);
    }

    /// A number with at least so many digits.
    fn number(&mut self, mut number: u64, least_digits: usize) {
        let mut digits = [b'0'; 20];
        let mut first = digits.len();
        while number > 0 || digits.len() - first < least_digits {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        self.bytes.extend_from_slice(&digits[first..]);
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
        self.bytes.push(b'.');
        self.number(now.subsec_micros().into(), 6);
        self.bytes.push(b'Z');
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
            duration: Some(Duration::from_micros(12_050)),
            params: Some(RawValue::from_string("{\"a\":1}".to_owned()).unwrap()),
        };
        let text = line(&event);
        let (time, rest) = text.split_once(",\"event\"").unwrap();
        let expected = concat!(
            r#":"call","server":"a\"b","principal":{"provider":"corp","issuer":"https://idp","subject":"x\ny"},"#,
            r#""session":"6b86b273ff34fce1","peer":"192.0.2.7","revision":"2025-11-25","method":"tools/call","#,
            r#""tool":"say \u001b[31m","action":"end","target":"7","outcome":"ok","reason":"-32603","duration_ms":12.050,"#,
            r#""params":{"a":1}}"#
        );
        assert_eq!(rest, expected);
        let time = time
            .strip_prefix("{\"time\":\"")
            .and_then(|time| time.strip_suffix('"'));
        let time = time.unwrap();
        assert_eq!(time.len(), "2026-11-17T15:00:00.000000Z".len(), "{time}");
        let peer = |text: &str| {
            let event = AuditEvent {
                peer: Some(text.parse().unwrap()),
                duration: Some(Duration::from_nanos(999)),
                ..AuditEvent::default()
            };
            let line: serde_json::Value = serde_json::from_str(&line(&event)).unwrap();
            assert_eq!(line["duration_ms"], 0.0);
            line["peer"].as_str().unwrap().to_owned()
        };
        for address in ["0.0.0.0", "10.200.255.9", "::1", "2001:db8::7"] {
            assert_eq!(peer(address), address);
        }
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
