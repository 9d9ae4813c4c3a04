//! Conversations that are compared byte by byte with a file.
//!
//! A transcript lists requests and exact responses, head and body. `UPDATE=1` rewrites the file. Review the diff.
//!
//! ```text
//! > POST
//! > mcp-session-id: ...
//! > {"jsonrpc":"2.0",...}
//! < 200
//! < content-type: text/event-stream
//! < id: 1-0
//! < data:
//! <
//! ```

use crate::client::{Client, Reply};
use http::HeaderMap;
use std::fmt::Write as _;
use std::path::Path;

/// A recorder that sends requests and writes them down with their responses.
pub struct Transcript {
    client: Client,
    text: String,
}

impl Transcript {
    /// Creates an empty transcript.
    pub fn new(client: &Client) -> Self {
        Transcript {
            client: client.clone(),
            text: String::new(),
        }
    }

    /// Writes a heading.
    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.text, "# {text}");
    }

    /// Sends a request and records it. [`Transcript::record`] records the response.
    pub async fn send(&mut self, method: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let _ = writeln!(self.text, "> {method}");
        for (name, value) in headers {
            let _ = writeln!(self.text, "> {name}: {value}");
        }
        if !body.is_empty() {
            let _ = writeln!(self.text, "> {body}");
        }
        self.client.request(method, headers, body.to_owned()).await
    }

    /// Records a complete response.
    pub async fn record(&mut self, reply: Reply) {
        let _ = writeln!(self.text, "< {}", reply.status.as_u16());
        self.headers(&reply.headers);
        let body = reply.bytes().await;
        for line in String::from_utf8_lossy(&body).lines() {
            let _ = writeln!(self.text, "<{}{line}", if line.is_empty() { "" } else { " " });
        }
        self.text.push('\n');
    }

    /// Sends a request and records the response.
    pub async fn exchange(&mut self, method: &str, headers: &[(&str, &str)], body: &str) {
        let reply = self.send(method, headers, body).await;
        self.record(reply).await;
    }

    fn headers(&mut self, headers: &HeaderMap) {
        let mut lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
            .collect();
        lines.sort();
        for line in lines {
            let _ = writeln!(self.text, "< {line}");
        }
    }

    /// Appends another transcript.
    pub fn append(&mut self, other: &Transcript) {
        self.text.push_str(&other.text);
    }

    /// Compares the transcript with the file. Writes the file if `UPDATE=1` is set.
    pub fn check(self, path: &Path) {
        if std::env::var_os("UPDATE").is_some() {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).expect("created");
            }
            std::fs::write(path, &self.text).expect("written");
            return;
        }
        let expected = std::fs::read_to_string(path)
            .unwrap_or_else(|e| panic!("{e}: {} cannot be read; UPDATE=1 writes it", path.display()));
        if let Some((number, (found, expected))) = self
            .text
            .lines()
            .zip(expected.lines())
            .enumerate()
            .find(|(_, (found, expected))| found != expected)
        {
            panic!(
                "{} line {}:\n  expected {expected}\n  found    {found}",
                path.display(),
                number + 1
            );
        }
        assert_eq!(
            self.text.lines().count(),
            expected.lines().count(),
            "{} differs in length; UPDATE=1 rewrites it",
            path.display()
        );
    }
}
