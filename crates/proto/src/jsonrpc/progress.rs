//! Progress notifications. Long calls send mostly these, so they are written without intermediate values.

use super::ProgressToken;
use crate::sse::EncodeMessage;

/// A `notifications/progress`: a report, and the progress token of the request.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The progress token of the request.
    pub token: &'a ProgressToken,
    /// The report.
    pub report: Report<'a>,
}

/// A progress report without its token. Whole numbers are written as such: `1`, not `1.0`.
#[derive(Clone, Copy, Debug)]
pub enum Report<'a> {
    /// Numbers and a text.
    Value {
        /// The progress so far.
        progress: f64,
        /// The total.
        total: Option<f64>,
        /// A text for the user.
        message: Option<&'a str>,
    },
    /// The members of the `params` object as JSON on one line, without the token and without the braces.
    Members(&'a [u8]),
}

impl Report<'_> {
    /// An estimate of the bytes of its members.
    pub fn size(&self) -> usize {
        match self {
            Report::Value { message, .. } => 48 + message.map_or(0, str::len),
            Report::Members(members) => members.len(),
        }
    }

    /// Appends its members, in the form of [`Report::Members`].
    pub fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Report::Members(members) => out.extend_from_slice(members),
            Report::Value {
                progress,
                total,
                message,
            } => {
                out.extend_from_slice(b"\"progress\":");
                write_number(out, progress);
                if let Some(total) = total {
                    out.extend_from_slice(b",\"total\":");
                    write_number(out, total);
                }
                if let Some(message) = message {
                    out.extend_from_slice(b",\"message\":");
                    write_string(out, message);
                }
            }
        }
    }
}

impl EncodeMessage for Progress<'_> {
    fn size(&self) -> usize {
        96 + self.report.size()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":",
        );
        out.extend_from_slice(self.token.as_json());
        if !matches!(self.report, Report::Members(b"")) {
            out.push(b',');
        }
        self.report.write(out);
        out.extend_from_slice(b"}}");
    }
}

fn write_number(out: &mut Vec<u8>, number: f64) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        out.extend_from_slice(itoa::Buffer::new().format(number as i64).as_bytes());
    } else {
        serde_json::to_writer(out, &number).expect("a number can be written to memory");
    }
}

/// Writes a JSON string. Text rarely needs escapes. The compiler turns a search in whole blocks into vector instructions,
/// which is much cheaper than a search byte by byte.
fn write_string(out: &mut Vec<u8>, text: &str) {
    let block_needs = |block: &[u8]| {
        let needs = |found, &byte: &u8| found | (byte < 0x20) | (byte == b'"') | (byte == b'\\');
        block.iter().fold(false, needs)
    };
    if text.as_bytes().chunks(64).any(block_needs) {
        serde_json::to_writer(out, text).expect("a string can be written to memory");
        return;
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::Params;
    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn token(json: &str) -> ProgressToken {
        let params = format!(r#"{{"_meta":{{"progressToken":{json}}}}}"#);
        Params::from_raw(Bytes::from(params)).progress_token().unwrap()
    }

    fn written(progress: f64, total: Option<f64>, message: Option<&str>) -> String {
        let mut out = Vec::new();
        let token = &token("\"t\"");
        let report = Report::Value {
            progress,
            total,
            message,
        };
        Progress { token, report }.write(&mut out);
        let mut members = Vec::new();
        report.write(&mut members);
        let mut again = Vec::new();
        let report = Report::Members(&members);
        Progress { token, report }.write(&mut again);
        assert_eq!(again, out, "a report is written alike as a value and as members");
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn prg_01_report_without_members_is_still_json() {
        let mut out = Vec::new();
        let report = Report::Members(b"");
        let token = &token("1");
        Progress { token, report }.write(&mut out);
        assert!(out.ends_with(br#""params":{"progressToken":1}}"#));
    }

    #[test]
    fn prg_01_progress_matches_the_schema() {
        let head = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","#;
        for (progress, total, message, rest) in [
            (1.0, None, None, r#""progress":1}}"#),
            (0.5, Some(2.0), None, r#""progress":0.5,"total":2}}"#),
            (-3.0, None, Some(""), r#""progress":-3,"message":""}}"#),
            (1e300, None, Some("é"), r#""progress":1e+300,"message":"é"}}"#),
            (
                2.0,
                Some(4.0),
                Some("a\"b\n"),
                r#""progress":2,"total":4,"message":"a\"b\n"}}"#,
            ),
        ] {
            assert_eq!(written(progress, total, message), format!("{head}{rest}"));
        }
    }

    proptest! {
        #[test]
        fn prg_01_any_text_round_trips(message in any::<String>(), filler in 0usize..200) {
            let message = format!("{}{message}", "x".repeat(filler));
            let value: Value = serde_json::from_str(&written(7.0, None, Some(&message))).unwrap();
            prop_assert_eq!(&value["params"], &json!({ "progressToken": "t", "progress": 7, "message": message }));
        }
    }
}
