//! `rethread check`: prints every effective value with its source, and the problems that `serve` would meet.

use crate::config::{self, CliInput, Environment, Problems, ValueRow, options};
use crate::exit::listen_failure;
use crate::output::Styles;
use crate::preflight;
use crate::probe::{self, ProbeMemory, ServerProfile};
use crate::settings::{ServerSettings, Settings};
use crate::shared_store;
use crate::start_message;
use rethread_store_redis::Promises;
use std::net::TcpListener;

/// The outcome of `check`.
pub(crate) struct CheckReport {
    /// Every value, for stdout.
    pub(crate) listing: String,
    pub(crate) problems: Option<Problems>,
    pub(crate) warnings: Vec<String>,
}

pub(crate) fn check(input: &CliInput, color: bool) -> CheckReport {
    let environment = Environment::current();
    let mut resolved = config::resolve(input, &environment);
    let mut warnings = start_message::warnings(&resolved.settings, resolved.settings.listen);
    if resolved.problems.is_empty() {
        resolved.problems = preflight::problems(&resolved.settings, &environment);
        match resolved.settings.store.redis().map(shared_store::test_connection) {
            Some(Ok(promises)) => {
                add_promises(&mut resolved.rows, &promises);
                warnings.extend(shared_store::warning(&promises));
            }
            Some(Err(failure)) => resolved.problems.push(failure.into()),
            None => {}
        }
        // Last, as in `serve`.
        let listen = resolved.settings.listen;
        if let Err(error) = TcpListener::bind(listen) {
            resolved.problems.push(listen_failure(listen, &error).into());
        }
    }
    add_eras(&mut resolved.rows, &resolved.settings);
    let problems = Some(resolved.problems).filter(|problems| !problems.is_empty());
    CheckReport {
        listing: listing(&resolved.rows, &resolved.settings.servers, color),
        problems: problems.map(Problems),
        warnings,
    }
}

/// Adds what the store promises, behind its options.
fn add_promises(rows: &mut Vec<ValueRow>, promises: &Promises) {
    let store = rows.iter().rposition(|row| row.key == options::SECRET_FILE.def.key);
    let row = ValueRow {
        server: None,
        key: "promises".to_owned(),
        value: promises.to_string(),
        source: "from the store".to_owned(),
    };
    rows.insert(store.map_or(0, |at| at + 1), row);
}

/// Adds what is spoken to each server and what its clients may speak, behind the setting `era`. No server is started: a server
/// without a stored probe is probed by `serve`.
fn add_eras(rows: &mut Vec<ValueRow>, settings: &Settings) {
    for server in &settings.servers {
        let of_server = |row: &ValueRow| row.server.as_deref() == Some(&server.name) && row.key == "era";
        let Some(at) = rows.iter().position(of_server) else {
            continue;
        };
        let stored = || ProbeMemory::new(&settings.store, server)?.load();
        let (value, source) = match (server.era.revisions(), stored()) {
            (Some(forced), _) => (probe::describe_eras(forced, None), "from era"),
            (
                None,
                Some(ServerProfile {
                    revisions,
                    legacy_version,
                    ..
                }),
            ) => (probe::describe_eras(revisions, legacy_version), "from the last probe"),
            (None, None) => ("not probed yet".to_owned(), "`serve` asks the server"),
        };
        let row = ValueRow {
            server: Some(server.name.clone()),
            key: "eras".to_owned(),
            value,
            source: source.to_owned(),
        };
        rows.insert(at + 1, row);
    }
}

/// The settings for `serve`, or the problems that would keep it from starting.
pub(crate) fn startable_settings(input: &CliInput) -> Result<Settings, Problems> {
    let settings = config::load(input)?;
    let problems = preflight::problems(&settings, &Environment::current());
    if problems.is_empty() {
        Ok(settings)
    } else {
        Err(Problems(problems))
    }
}

/// The values as text: `key = value   (source)`, grouped by server.
fn listing(rows: &[ValueRow], servers: &[ServerSettings], color: bool) -> String {
    let Styles { bold, dim, plain, .. } = Styles::new(color);
    let width = |of: fn(&ValueRow) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
    let (keys, values) = (width(|row| &row.key), width(|row| &row.value).min(48));
    let mut text = String::new();
    let mut section = None;
    for row in rows {
        if row.server != section {
            section.clone_from(&row.server);
            let name = row.server.as_deref().unwrap_or_default();
            let at = servers.iter().find(|server| server.name == name);
            let at = at
                .map(|server| start_message::server_url("", server))
                .unwrap_or_default();
            text.push_str(&format!(
                "\n{bold}[servers.{name}]{plain} {dim}at {at}/mcp and {at}/sse{plain}\n"
            ));
        }
        let ValueRow { key, value, source, .. } = row;
        let value: String = value
            .chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
        text.push_str(&format!("{key:<keys$} = {value:<values$}  {dim}({source}){plain}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_is_aligned_and_grouped() {
        let row = |server: Option<&str>, key: &str, value: &str, source: &str| ValueRow {
            server: server.map(str::to_owned),
            key: key.to_owned(),
            value: value.to_owned(),
            source: source.to_owned(),
        };
        let rows = [
            row(None, "listen", "127.0.0.1:8080", "default"),
            row(None, "retry_ms", "5", "r.toml:3"),
            row(Some("x"), "command", "a\x1bb", "r.toml:5"),
        ];
        let expected = "\
listen   = 127.0.0.1:8080  (default)
retry_ms = 5               (r.toml:3)

[servers.x] at /mcp and /sse
command  = a\u{fffd}b             (r.toml:5)
";
        assert_eq!(listing(&rows, &[], false), expected);
        assert!(listing(&rows, &[], true).contains("\x1b[2m(default)\x1b[0m"));
    }
}
