//! The address of the store and the settings of a node.

use crate::ConnectError;
use rethread_store::Retention;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

/// The address of a store.
///
/// | URL | server |
/// |---|---|
/// | `redis://[user:password@]host[:port][/db][?prefix=]` | one server |
/// | `redis+sentinel://[user:password@]host[:port],…/master[/db][?prefix=]` | the primary that the sentinels name |
/// | `redis+cluster://[user:password@]host[:port],…[?prefix=]` | a cluster |
///
/// `rediss` instead of `redis` means TLS. `valkey` and `valkeys` mean the same as `redis` and `rediss`. A password may
/// contain `%` escapes.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    pub(crate) mode: Mode,
    pub(crate) tls: bool,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) hosts: Vec<(String, u16)>,
    pub(crate) db: i64,
    pub(crate) prefix: String,
}

/// How the client finds servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Single,
    Sentinel { primary: String },
    Cluster,
}

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;
/// Keys begin with this text unless the URL has another prefix.
const DEFAULT_PREFIX: &str = "rt:";

impl RedisUrl {
    /// Parses a URL. The error never contains it, because it may contain a password.
    pub fn parse(url: &str) -> Result<Self, ConnectError> {
        let invalid = |what: &'static str| ConnectError::Url(what.into());
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("the URL has no scheme"))?;
        let (engine, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = match engine {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => {
                return Err(invalid(
                    "the scheme is not redis, rediss, redis+cluster or redis+sentinel",
                ));
            }
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user_info, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (mode, db) = match kind {
            "" => (Mode::Single, path),
            "cluster" if path.is_empty() => (Mode::Cluster, ""),
            "cluster" => return Err(invalid("a cluster has no databases")),
            "sentinel" => {
                let (primary, db) = path.split_once('/').unwrap_or((path, ""));
                if primary.is_empty() {
                    return Err(invalid("the URL does not name the primary: redis+sentinel://host/NAME"));
                }
                let primary = decode(primary).ok_or_else(|| invalid("the name of the primary is invalid"))?;
                (Mode::Sentinel { primary }, db)
            }
            _ => {
                return Err(invalid(
                    "the scheme is not redis, rediss, redis+cluster or redis+sentinel",
                ));
            }
        };
        let db = match db {
            "" => 0,
            db => db.parse().map_err(|_| invalid("the database is not a number"))?,
        };
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        let part = |text: &str| decode(text).ok_or_else(|| invalid("the user or the password has an invalid escape"));
        let default_port = match mode {
            Mode::Sentinel { .. } => DEFAULT_SENTINEL_PORT,
            Mode::Single | Mode::Cluster => DEFAULT_PORT,
        };
        let hosts = hosts.split(',').map(|host| parse_host(host, default_port));
        let hosts = hosts.collect::<Option<Vec<_>>>();
        let hosts = hosts.ok_or_else(|| invalid("the URL has no valid host and port"))?;
        if mode == Mode::Single && hosts.len() > 1 {
            return Err(invalid("several hosts need redis+cluster:// or redis+sentinel://"));
        }
        Ok(RedisUrl {
            mode,
            tls,
            user: Some(part(user)?).filter(|user| !user.is_empty()),
            password: Some(part(password)?).filter(|password| !password.is_empty()),
            hosts,
            db,
            prefix: parse_query(query)?.unwrap_or_else(|| DEFAULT_PREFIX.into()),
        })
    }
}

/// The URL without user and password.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.hosts.iter().map(|(host, port)| format_host(host, *port)).collect();
        let (kind, path) = match &self.mode {
            Mode::Single => ("", String::new()),
            Mode::Cluster => ("+cluster", String::new()),
            Mode::Sentinel { primary } => ("+sentinel", format!("/{primary}")),
        };
        let tls = if self.tls { "s" } else { "" };
        write!(f, "redis{tls}{kind}://{}{path}", hosts.join(","))?;
        if self.db != 0 {
            write!(f, "/{}", self.db)?;
        }
        if self.prefix != DEFAULT_PREFIX {
            write!(f, "?prefix={}", self.prefix)?;
        }
        Ok(())
    }
}

/// Hides the password.
impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

fn format_host(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn parse_host(text: &str, default_port: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(v6) => {
            let (host, port) = v6.split_once(']')?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some(""))?)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let port = if port.is_empty() {
        default_port
    } else {
        port.parse().ok()?
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

fn parse_query(query: &str) -> Result<Option<String>, ConnectError> {
    let mut prefix = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("prefix", value)) => prefix = decode(value),
            _ => {
                return Err(ConnectError::Url(
                    "the URL has an unknown parameter; prefix is known".into(),
                ));
            }
        }
    }
    // Braces would form cluster hash tags, and spaces separate the words of a wake-up.
    let valid = prefix.as_deref().is_none_or(|prefix| {
        !prefix.is_empty()
            && prefix
                .chars()
                .all(|char| char.is_ascii_graphic() && !"{}".contains(char))
    });
    if !valid {
        return Err(ConnectError::Url(
            "the prefix must be visible ASCII without braces".into(),
        ));
    }
    Ok(prefix)
}

/// Decodes `%` escapes.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'%' {
            let (escape, after) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(escape).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The settings of a node.
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisOptions {
    /// The address of the store.
    pub url: RedisUrl,
    /// A unique name of the process. A process that starts with the name of another one replaces it at once.
    pub node_id: Option<Box<str>>,
    /// The lease of this node. Other nodes act for it when the lease has ended.
    pub lease: Duration,
    /// A secret that all nodes share. By default the store keeps a random one.
    pub secret: Option<[u8; 32]>,
    /// Limit of one step of the store, including a reconnect. At most half of the lease, so that calls continue without
    /// the store before the lease ends.
    pub timeout: Duration,
    /// The limits of each stream.
    pub retention: Retention,
    /// Milliseconds that are added to the time of the store.
    pub(crate) skew: Arc<AtomicI64>,
}

impl RedisOptions {
    /// Default settings: a lease of 10 s, a timeout of 3 s.
    pub fn new(url: RedisUrl) -> Self {
        RedisOptions {
            url,
            node_id: None,
            lease: Duration::from_secs(10),
            secret: None,
            timeout: Duration::from_secs(3),
            retention: Retention::default(),
            skew: Arc::default(),
        }
    }

    /// Default settings for the store at a URL.
    pub fn parse(url: &str) -> Result<Self, ConnectError> {
        RedisUrl::parse(url).map(RedisOptions::new)
    }

    /// The same settings with a name for this node.
    #[must_use]
    pub fn with_node_id(mut self, node_id: impl Into<Box<str>>) -> Self {
        self.node_id = Some(node_id.into());
        self
    }

    /// The same settings with another lease.
    #[must_use]
    pub const fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The same settings with a secret that all nodes share.
    #[must_use]
    pub const fn with_secret(mut self, secret: [u8; 32]) -> Self {
        self.secret = Some(secret);
        self
    }

    /// The same settings with another limit of one step.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same settings with other limits of each stream.
    #[must_use]
    pub const fn with_retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// The same settings with milliseconds that are added to the time of the store, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn with_skew(mut self, skew: Arc<AtomicI64>) -> Self {
        self.skew = skew;
        self
    }
}

/// Hides the secret.
impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("url", &self.url)
            .field("node_id", &self.node_id)
            .field("lease", &self.lease)
            .field("timeout", &self.timeout)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let url = RedisUrl::parse("rediss://us%40er:p%3ass@host:1234/7?prefix=a:").unwrap();
        assert_eq!((url.mode, url.tls, url.db), (Mode::Single, true, 7));
        assert_eq!(
            (url.user.as_deref(), url.password.as_deref()),
            (Some("us@er"), Some("p:ss"))
        );
        assert_eq!((url.hosts, url.prefix.as_str()), (vec![("host".into(), 1234)], "a:"));

        let url = RedisUrl::parse("redis://:secret@[::1]").unwrap();
        assert_eq!((url.user, url.password.as_deref()), (None, Some("secret")));
        assert_eq!((url.hosts, url.prefix.as_str()), (vec![("::1".into(), 6379)], "rt:"));

        let url = RedisUrl::parse("redis+sentinel://a,b:99/main/2").unwrap();
        let primary = "main".to_owned();
        assert_eq!((url.mode, url.db), (Mode::Sentinel { primary }, 2));
        assert_eq!(url.hosts, [("a".into(), 26379), ("b".into(), 99)]);

        let url = RedisUrl::parse("valkeys+cluster://a:1,b").unwrap();
        assert_eq!((url.mode, url.tls), (Mode::Cluster, true));
        assert_eq!(url.hosts, [("a".into(), 1), ("b".into(), 6379)]);
    }

    #[test]
    fn errors_of_invalid_urls_hide_the_password() {
        for url in [
            "hidden",
            "postgres://u:hidden@host",
            "redis://u:hidden@",
            "redis://u:hidden@a,b",
            "redis://u:hidden@host:x",
            "redis://u:hidden@host/x",
            "redis://u:hidden%x@host",
            "redis://u:hidden@host?x=y",
            "redis://u:hidden@host?prefix={a}",
            "redis://u:hidden@host?prefix=a%20b",
            "redis+cluster://u:hidden@host/1",
            "redis+sentinel://u:hidden@host",
            "redis+other://u:hidden@host",
            "redis://u:hidden@[::1",
        ] {
            let error = RedisUrl::parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hidden"), "{error:?}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let options = RedisOptions::parse("redis://user:hidden@host/1").unwrap();
        let options = options.with_secret([77; 32]);
        let shown = format!("{options:?} {:?} {}", options.url, options.url);
        assert!(!shown.contains("hidden") && !shown.contains("77"), "{shown}");
        assert!(shown.contains("redis://host:6379/1"), "{shown}");
        let url = RedisUrl::parse("valkey://host?prefix=a:").unwrap();
        assert_eq!(url.to_string(), "redis://host:6379?prefix=a:");
    }
}
