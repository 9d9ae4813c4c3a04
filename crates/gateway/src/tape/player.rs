//! `rethread tape FILE`: the entries of a tape for people.

use serde_json::Value;
use std::fmt::Write as _;

/// The lines of a tape.
pub(crate) fn print(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        match serde_json::from_str(line) {
            Ok(entry) => print_entry(&mut out, &entry),
            Err(_) => out.push_str("? an invalid line\n"),
        }
    }
    out
}

fn print_entry(out: &mut String, entry: &Value) {
    let text = |key: &str| entry[key].as_str().map(printable).unwrap_or_default();
    let number = |key: &str| entry[key].as_u64().unwrap_or_default();
    let time = text("time");
    let clock = time
        .split('T')
        .nth(1)
        .and_then(|clock| clock.get(..12))
        .unwrap_or("            ");
    let exchange = number("exchange");
    let _ = write!(out, "{clock}  {exchange:>5}  ");
    let _ = match entry["at"].as_str() {
        Some("request") => {
            let session = prefixed(" session ", &text("session"));
            let cursor = prefixed(" after ", &text("cursor"));
            writeln!(out, "-> {} {}{session}{cursor}", text("method"), text("path"))
        }
        Some("received") => writeln!(out, "->   {} ({} bytes)", message(entry), number("bytes")),
        Some("sent") => writeln!(out, "<-   {} ({} bytes)", message(entry), number("bytes")),
        Some("response") => {
            let gap = if entry["gap"] == true { ", with a gap" } else { "" };
            writeln!(out, "<- {} {}{gap}", number("status"), text("body"))
        }
        Some("event") => {
            let id = prefixed("id ", &text("id"));
            let kind = match entry {
                _ if entry["message"] != Value::Null => message(entry),
                _ if entry["retry"].is_u64() => format!("retry {}", number("retry")),
                _ if entry["comment"] == true => "comment".to_owned(),
                _ => "empty event".to_owned(),
            };
            writeln!(
                out,
                "<-   {id}{}{kind} ({} bytes)",
                if id.is_empty() { "" } else { "  " },
                number("bytes")
            )
        }
        Some("end") => {
            let cursor = prefixed(" after ", &text("cursor"));
            writeln!(out, "== {}{cursor}, {} bytes", text("how"), number("bytes"))
        }
        Some("dropped") => writeln!(out, "!! {} entries were dropped", number("count")),
        _ => writeln!(out, "? an unknown entry"),
    };
}

fn prefixed(prefix: &str, text: &str) -> String {
    match text.is_empty() {
        true => String::new(),
        false => format!("{prefix}{text}"),
    }
}

fn message(entry: &Value) -> String {
    match &entry["message"] {
        Value::String(text) => printable(text),
        message => printable(&message.to_string()),
    }
}

/// A file may come from a stranger: no escape sequence reaches the terminal.
fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => safe.extend(c.escape_default()),
            false => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tape_is_printed_with_cursors_and_cuts() {
        let tape = concat!(
            r#"{"time":"2026-11-17T15:00:00.123456Z","at":"request","exchange":7,"method":"GET","path":"/mcp","session":"6b86b273ff34fce1","cursor":"2-5"}"#,
            "\n",
            r#"{"time":"2026-11-17T15:00:00.124Z","at":"response","exchange":7,"status":200,"body":"stream","gap":true}"#,
            "\n",
            r#"{"at":"event","exchange":7,"id":"2-6","bytes":40,"message":{"method":"other"}}"#,
            "\n",
            r#"{"at":"end","exchange":7,"how":"cut","cursor":"2-6","bytes":40}"#,
            "\n",
            "{\"at\":\"dropped\",\"count\":3}\nnonsense\n",
        );
        let printed = print(tape);
        let lines: Vec<_> = printed.lines().collect();
        assert_eq!(
            lines[0],
            "15:00:00.123      7  -> GET /mcp session 6b86b273ff34fce1 after 2-5"
        );
        assert!(lines[1].ends_with("<- 200 stream, with a gap"), "{printed}");
        assert!(
            lines[2].ends_with(r#"<-   id 2-6  {"method":"other"} (40 bytes)"#),
            "{printed}"
        );
        assert!(lines[3].ends_with("== cut after 2-6, 40 bytes"), "{printed}");
        assert!(lines[4].ends_with("!! 3 entries were dropped"), "{printed}");
        assert_eq!(lines[5], "? an invalid line");
    }

    #[test]
    fn tape_of_a_stranger_has_no_terminal_escapes() {
        let printed = print("{\"at\":\"request\",\"method\":\"\\u001b[31m\",\"path\":\"/\"}\n");
        assert!(!printed.contains('\u{1b}'), "{printed:?}");
    }
}
