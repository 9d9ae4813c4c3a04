//! The guarantees of the store, derived from the settings of the server.

use crate::ConnectError;
use crate::link::{Connector, Wire, in_time};
use crate::options::Mode;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::{Cmd, RedisResult, Value, cmd};
use std::fmt;
use std::time::Duration;

/// The first version with exclusive ranges of stream entries.
const OLDEST_VERSION: (u32, u32) = (6, 2);

/// When a write is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Persistence {
    /// Unknown: the server hides its settings.
    Unknown,
    /// Never.
    None,
    /// With the next snapshot.
    Snapshots,
    /// When the operating system writes it (`appendfsync no`).
    OperatingSystem,
    /// Within a second (`appendfsync everysec`).
    EverySecond,
    /// Before the acknowledgement (`appendfsync always`).
    Always,
}

/// The guarantees about acknowledged events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Promises {
    /// Name and version of the server.
    pub server: Box<str>,
    /// When a write is durable. In a cluster, the value of the weakest primary.
    pub persistence: Persistence,
    /// Whether another server takes over after a failure (Sentinel or Cluster). Replication is asynchronous, so a
    /// failover may lose the last writes.
    pub fails_over: bool,
    /// The number of connected replicas, of all primaries.
    pub replicas: usize,
    /// The memory limit in bytes. 0 means no limit.
    pub max_memory_bytes: u64,
}

impl fmt::Display for Promises {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let restart = match self.persistence {
            Persistence::Unknown => "the server does not say what a restart of it keeps",
            Persistence::None => "a restart of the server loses everything (persistence is off)",
            Persistence::Snapshots => "a restart of the server loses what is newer than its last snapshot",
            Persistence::OperatingSystem => {
                "an acknowledged event survives a crash of the server, and a power cut if it was written before"
            }
            Persistence::EverySecond => {
                "an acknowledged event survives a crash of the server; a power cut may lose the last second"
            }
            Persistence::Always => "an acknowledged event survives a crash of the server and a power cut",
        };
        write!(f, "{}: {restart}", self.server)?;
        if self.fails_over {
            write!(f, "; a failover may lose the last writes (replication is asynchronous)")?;
        }
        Ok(())
    }
}

/// Reads the settings of the server. Refuses settings that lose data.
pub(crate) async fn read(connector: &Connector, mode: &Mode, timeout: Duration) -> Result<Promises, ConnectError> {
    let mut wire = connector.commands().await.map_err(ConnectError::unreachable)?;
    let texts = match ask(&mut wire, &cmd("INFO"), timeout).await {
        Ok(replies) => replies
            .into_iter()
            .filter_map(|(server, reply)| Some((server, text(reply)?)))
            .collect::<Vec<_>>(),
        Err(error) if error.code() == Some("NOPERM") => Vec::new(),
        Err(error) => return Err(ConnectError::unreachable(error)),
    };
    if texts.is_empty() {
        tracing::warn!("the server does not show its settings; noeviction and persistence are not checked");
    }
    let infos: Vec<Info<'_>> = texts.iter().map(|(_, text)| Info(text)).collect();
    for info in &infos {
        info.check()?;
    }
    let fsync = config(&mut wire, "appendfsync", timeout).await;
    let save = config(&mut wire, "save", timeout).await;
    let persistence_of = |(server, text): &(ServerAddress, String)| {
        let setting = |settings: &[(ServerAddress, String)]| {
            let setting = settings.iter().find(|(other, _)| other == server);
            setting.map(|(_, value)| value.clone())
        };
        Info(text).persistence(setting(&fsync).as_deref(), setting(&save).as_deref())
    };
    let persistence = texts.iter().map(persistence_of).min();
    let promises = Promises {
        server: infos.first().map_or_else(|| "redis".into(), Info::server),
        persistence: persistence.unwrap_or(Persistence::Unknown),
        fails_over: *mode != Mode::Single,
        replicas: infos.iter().map(|info| info.number("connected_slaves") as usize).sum(),
        max_memory_bytes: infos.iter().map(|info| info.number("maxmemory")).sum(),
    };
    if promises.persistence == Persistence::None {
        tracing::warn!("persistence of the store is off: a restart of the server loses every session");
    }
    Ok(promises)
}

/// The address of a primary of a cluster. `None` for the one server without a cluster.
type ServerAddress = Option<String>;

/// Sends a command to the server, or to every primary of a cluster.
async fn ask(wire: &mut Wire, command: &Cmd, timeout: Duration) -> RedisResult<Vec<(ServerAddress, Value)>> {
    let replies = async {
        match wire {
            Wire::Single(connection) => Ok(vec![(None, connection.send_packed_command(command).await?)]),
            Wire::Cluster(connection) => {
                let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                match connection.route_command(command.clone(), all).await? {
                    Value::Map(replies) => Ok(replies.into_iter().map(|(at, reply)| (text(at), reply)).collect()),
                    reply => Ok(vec![(None, reply)]),
                }
            }
        }
    };
    in_time(timeout, replies).await
}

/// A setting of each server. Managed servers often hide it.
async fn config(wire: &mut Wire, name: &str, timeout: Duration) -> Vec<(ServerAddress, String)> {
    let mut command = cmd("CONFIG");
    command.arg("GET").arg(name);
    let replies = ask(wire, &command, timeout).await.unwrap_or_default().into_iter();
    let value = |reply| match reply {
        Value::Array(pair) => pair.into_iter().nth(1).and_then(text),
        Value::Map(pairs) => pairs.into_iter().next().and_then(|(_, value)| text(value)),
        _ => None,
    };
    replies
        .filter_map(|(server, reply)| Some((server, value(reply)?)))
        .collect()
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// The reply to `INFO`: lines of `name:value`.
struct Info<'a>(&'a str);

impl Info<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(str::len);
        let line = self.0.lines().find(|line| value(line).is_some())?;
        Some(&line[name.len() + 1..])
    }

    fn number(&self, name: &str) -> u64 {
        self.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    fn server(&self) -> Box<str> {
        match (self.get("valkey_version"), self.get("redis_version")) {
            (Some(version), _) => format!("valkey {version}").into(),
            (None, Some(version)) => format!("redis {version}").into(),
            (None, None) => "redis".into(),
        }
    }

    fn check(&self) -> Result<(), ConnectError> {
        let unsuitable = |text: String| Err(ConnectError::Unsuitable(text.into()));
        let version = self.get("redis_version").unwrap_or("0");
        let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
        if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST_VERSION {
            return unsuitable(format!(
                "the server has version {version}; Redis 6.2 or Valkey is needed"
            ));
        }
        if let Some(policy) = self.get("maxmemory_policy").filter(|policy| *policy != "noeviction") {
            return unsuitable(format!(
                "the server evicts keys when its memory is full (maxmemory-policy {policy}), which makes holes in \
                 streams; set maxmemory-policy noeviction"
            ));
        }
        if self.get("role") == Some("slave") {
            return unsuitable("the server is a replica; connect to the primary, or use redis+sentinel://".into());
        }
        Ok(())
    }

    fn persistence(&self, fsync: Option<&str>, save: Option<&str>) -> Persistence {
        match (self.get("aof_enabled"), fsync, save) {
            (None, _, _) => Persistence::Unknown,
            (Some("0"), _, Some("")) => Persistence::None,
            (Some("0"), _, Some(_)) => Persistence::Snapshots,
            (Some("0"), _, None) | (Some(_), None, _) => Persistence::Unknown,
            (Some(_), Some("always"), _) => Persistence::Always,
            (Some(_), Some("no"), _) => Persistence::OperatingSystem,
            (Some(_), Some(_), _) => Persistence::EverySecond,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_lose_data_are_refused() {
        let good = "redis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n";
        Info(good).check().unwrap();
        for (from, to) in [("7.0.15", "6.0.9"), ("noeviction", "allkeys-lru"), ("master", "slave")] {
            let bad = good.replace(from, to);
            assert!(matches!(Info(&bad).check(), Err(ConnectError::Unsuitable(_))), "{bad}");
        }
        assert_eq!(
            &*Info("valkey_version:8.1.0\r\nredis_version:7.2.4").server(),
            "valkey 8.1.0"
        );
    }

    #[test]
    fn persistence_is_that_of_the_settings() {
        use Persistence::{Always, EverySecond, OperatingSystem, Snapshots, Unknown};
        for (info, fsync, save, expected) in [
            ("aof_enabled:1", Some("always"), Some(""), Always),
            ("aof_enabled:1", Some("everysec"), Some(""), EverySecond),
            ("aof_enabled:1", Some("no"), Some(""), OperatingSystem),
            ("aof_enabled:1", None, None, Unknown),
            ("aof_enabled:0", Some("everysec"), Some("3600 1"), Snapshots),
            ("aof_enabled:0", Some("everysec"), Some(""), Persistence::None),
            ("aof_enabled:0", None, None, Unknown),
            ("", Some("always"), Some(""), Unknown),
        ] {
            assert_eq!(
                Info(info).persistence(fsync, save),
                expected,
                "{info} {fsync:?} {save:?}"
            );
        }
    }
}
