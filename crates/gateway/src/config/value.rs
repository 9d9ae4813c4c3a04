//! Parsers of option values. Values of all sources pass the same parser, and get the same errors.

use super::layer::ConfigValue;
use super::problem::Problem;
use super::server_name as name;
use crate::settings::{InheritedEnv, is_gateway_variable};
use clap::ValueEnum;
use rethread_proto::auth::Rate;
use rethread_proto::gate::{HostPolicy, OriginPolicy};
use rethread_store_redis::RedisUrl;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::time::Duration;

/// A node that is busy for a moment must not lose its lease.
const MIN_LEASE: Duration = Duration::from_secs(1);
/// Requests for the sessions of a dead node wait for the end of its lease.
const MAX_LEASE: Duration = Duration::from_secs(600);
const MAX_NODE_ID_BYTES: usize = 128;

/// A parsed value, or a problem without its location.
pub(crate) type ParseResult<T> = Result<T, Problem>;

fn invalid<T>(message: impl Into<String>, hint: impl Into<String>) -> ParseResult<T> {
    Err(Problem::new(message).hint(hint))
}

pub(super) fn text(value: &ConfigValue) -> ParseResult<String> {
    match value {
        ConfigValue::Text(text) if !text.is_empty() => Ok(text.clone()),
        ConfigValue::Text(_) => Err(Problem::new("the value is empty")),
        other => invalid(format!("{other} is not a string"), "put it in quotes"),
    }
}

pub(super) fn list(value: &ConfigValue) -> ParseResult<Vec<String>> {
    match value {
        ConfigValue::List(list) | ConfigValue::Masked { list, .. } => Ok(list.clone()),
        ConfigValue::Text(one) => Ok(vec![one.clone()]),
        other => invalid(
            format!("{other} is not a list of strings"),
            r#"["one", "two"], each in quotes"#,
        ),
    }
}

/// A list. One string is refused: it could mean one argument or several.
pub(super) fn args(value: &ConfigValue) -> ParseResult<Vec<String>> {
    match value {
        ConfigValue::Text(_) => invalid("`args` is not a list", r#"args = ["--flag", "value"]"#),
        value => list(value),
    }
}

pub(super) fn boolean(value: &ConfigValue) -> ParseResult<bool> {
    match value {
        ConfigValue::Bool(on) => Ok(*on),
        other => invalid(format!("`{other}` is neither true nor false"), "true"),
    }
}

pub(crate) fn address(value: &ConfigValue) -> ParseResult<SocketAddr> {
    let text = value.to_string();
    // The only name that needs no resolver.
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.clone(),
    };
    match numeric.parse() {
        Ok(address) => Ok(address),
        Err(_) => invalid(
            format!("`{text}` is not an address with a port"),
            "127.0.0.1:8080, or [::1]:8080, or port 0 for a free one",
        ),
    }
}

pub(super) fn integer(value: &ConfigValue, min: u64) -> ParseResult<u64> {
    let number = match value {
        ConfigValue::Number(number) => u64::try_from(*number).ok(),
        ConfigValue::Text(text) => text.parse().ok(),
        _ => None,
    };
    match number {
        Some(number) if number >= min => Ok(number),
        _ => invalid(
            format!("`{value}` is not an integer of at least {min}"),
            min.max(10).to_string(),
        ),
    }
}

pub(super) fn size(value: &ConfigValue, min: u64) -> ParseResult<usize> {
    integer(value, min).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}

/// `30m`, `90s`, `1h30m`, `500ms`. A number without a unit is refused as ambiguous.
pub(super) fn duration(value: &ConfigValue) -> ParseResult<Duration> {
    let text = value.to_string();
    match parse_duration(&text) {
        Some(duration) => Ok(duration),
        None => invalid(
            format!("`{text}` is not a duration"),
            "a number and its unit: 500ms, 90s, 30m, 2h, 1h30m or 1d",
        ),
    }
}

pub(super) fn positive_duration(value: &ConfigValue) -> ParseResult<Duration> {
    match duration(value)? {
        Duration::ZERO => invalid("the value cannot be zero", "30s"),
        duration => Ok(duration),
    }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].find(|c: char| c.is_ascii_digit());
        let (unit, after) = rest[digits..].split_at(unit.unwrap_or(rest.len() - digits));
        let ms = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = total.checked_add(Duration::from_millis(number.checked_mul(ms)?))?;
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}

/// A rate: a count, a slash and a duration, whose 1 may be left out.
pub(super) fn rate(value: &ConfigValue) -> ParseResult<Rate> {
    let text = value.to_string();
    let parsed = text.split_once('/').and_then(|(count, period)| {
        let period = parse_duration(period).or_else(|| parse_duration(&format!("1{period}")))?;
        Rate::new(count.parse().ok()?, period)
    });
    parsed.map_or_else(
        || invalid(format!("`{text}` is not a rate"), "60/1m, 20/10s or 50/s"),
        Ok,
    )
}

pub(super) fn show_rate(rate: &Rate) -> String {
    format!("{}/{}", rate.count(), show_duration(&rate.period()))
}

/// A lease. A bare number is seconds.
pub(super) fn lease(value: &ConfigValue) -> ParseResult<Duration> {
    let seconds = match value {
        ConfigValue::Number(number) => u64::try_from(*number).ok(),
        ConfigValue::Text(text) => text.parse().ok(),
        _ => None,
    };
    let lease = seconds.map_or_else(|| duration(value), |seconds| Ok(Duration::from_secs(seconds)))?;
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(lease);
    }
    let (min, max) = (show_duration(&MIN_LEASE), show_duration(&MAX_LEASE));
    invalid(format!("a lease of `{value}` is not between {min} and {max}"), "10s")
}

/// The name of a node.
pub(super) fn node_id(value: &ConfigValue) -> ParseResult<String> {
    let name = text(value)?;
    if name.len() <= MAX_NODE_ID_BYTES && name.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(name);
    }
    invalid(
        format!("`{}` cannot be the name of a node", name.escape_debug()),
        format!("up to {MAX_NODE_ID_BYTES} visible ASCII characters, for example the host name"),
    )
}

/// The URL of a store that several gateways share. No message has it: it may contain a password.
pub(super) fn store_url(value: &ConfigValue) -> ParseResult<RedisUrl> {
    let hint = "redis://HOST:6379, rediss://USER:PASSWORD@HOST, redis+sentinel://HOST,HOST/NAME or \
                redis+cluster://HOST,HOST";
    let ConfigValue::Text(url) = value else {
        return invalid("the store is not a string", hint);
    };
    RedisUrl::parse(url).or_else(|error| match url.as_str() {
        "memory" => invalid("the store is not a URL", "--memory keeps sessions in memory"),
        "embedded" => invalid("the store is not a URL", "--data DIR keeps sessions on the disk"),
        _ => invalid(error.to_string(), hint),
    })
}

/// Formats a duration as a user would write it.
pub(super) fn show_duration(duration: &Duration) -> String {
    let ms = duration.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    match units.iter().find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None if ms == 0 => "0s".to_owned(),
        None => format!("{ms}ms"),
    }
}

pub(super) fn choice<T: ValueEnum>(value: &ConfigValue) -> ParseResult<T> {
    let text = value.to_string();
    T::from_str(&text, false).or_else(|_| {
        let choices: Vec<_> = T::value_variants().iter().map(show_choice).collect();
        invalid(format!("`{text}` is not among the choices"), choices.join(", "))
    })
}

pub(super) fn show_choice<T: ValueEnum>(choice: &T) -> String {
    choice
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

pub(super) fn hosts(value: &ConfigValue) -> ParseResult<Vec<String>> {
    let hosts = list(value)?;
    match hosts.iter().find(|host| HostPolicy::default().allow(host).is_err()) {
        None => Ok(hosts),
        Some(host) => invalid(
            format!("`{host}` is not a host"),
            "mcp.example or mcp.example:8443, without https://",
        ),
    }
}

pub(super) fn origins(value: &ConfigValue) -> ParseResult<Vec<String>> {
    let origins = list(value)?;
    match origins
        .iter()
        .find(|origin| OriginPolicy::default().allow(origin).is_err())
    {
        None => Ok(origins),
        Some(origin) => invalid(
            format!("`{origin}` is not an origin"),
            "https://app.example or https://app.example:8443, without a path",
        ),
    }
}

/// A URL. Trailing slashes are removed, so that paths can be appended.
pub(super) fn public_url(value: &ConfigValue) -> ParseResult<String> {
    let written = text(value)?;
    let url = written.trim_end_matches('/');
    if public_host(url).is_none() || url.contains(['?', '#']) {
        return invalid(
            format!("`{written}` is not the URL of a server"),
            "https://mcp.example, perhaps with a path, but without a user, `?` or `#`",
        );
    }
    Ok(url.to_owned())
}

/// The host of a URL, with its port if present.
pub(super) fn public_host(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let host = rest.split('/').next()?;
    HostPolicy::default().allow(host).is_ok().then_some(host)
}

pub(super) fn server_name(value: &ConfigValue) -> ParseResult<String> {
    name::validate(&text(value)?)
}

pub(super) fn inherited_env(value: &ConfigValue) -> ParseResult<InheritedEnv> {
    let names = match value {
        ConfigValue::Bool(true) => return Ok(InheritedEnv::All),
        ConfigValue::List(names) => names.clone(),
        other => {
            return invalid(
                format!("{other} is neither true nor a list of variables"),
                r#"inherit_env = ["PATH", "HOME"], or [] for none"#,
            );
        }
    };
    match names.iter().find(|name| is_gateway_variable(OsStr::new(name))) {
        None => Ok(InheritedEnv::Names(names)),
        Some(own) => invalid(
            format!("`{own}` is the gateway's own: no server inherits it"),
            format!("env = {{ NAME = \"${{{own}}}\" }}"),
        ),
    }
}

pub(super) fn show_inherited_env(inherited: &InheritedEnv) -> String {
    match inherited {
        InheritedEnv::All => "true".to_owned(),
        InheritedEnv::Names(names) => show_list(names),
    }
}

pub(super) fn show_list(list: &[String]) -> String {
    if list.is_empty() { none() } else { list.join(", ") }
}

/// Shown for an absent value.
pub(super) fn none() -> String {
    "(none)".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(text: &str) -> ConfigValue {
        ConfigValue::Text(text.to_owned())
    }

    #[test]
    fn durations_need_units() {
        let table = [
            ("30m", Some(1_800_000)),
            ("90s", Some(90_000)),
            ("1h30m", Some(5_400_000)),
            ("500ms", Some(500)),
            ("2d", Some(172_800_000)),
            ("0s", Some(0)),
            ("", None),
            ("30", None),
            ("m", None),
            ("-1s", None),
            ("1.5s", None),
            ("10 s", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
        ];
        for (text, ms) in table {
            assert_eq!(duration(&t(text)).ok(), ms.map(Duration::from_millis), "{text}");
        }
        assert!(duration(&ConfigValue::Number(30)).is_err());
        assert!(positive_duration(&t("0s")).is_err());
    }

    #[test]
    fn shown_durations_parse_to_the_same_value() {
        for text in ["30m", "90s", "500ms", "2h", "1d", "0s", "1500ms"] {
            let shown = show_duration(&duration(&t(text)).unwrap());
            assert_eq!(duration(&t(&shown)), duration(&t(text)), "{text} became {shown}");
        }
        assert_eq!(show_duration(&Duration::from_secs(90 * 60)), "90m");
    }

    #[test]
    fn rates_have_a_count_and_a_period() {
        for (text, shown) in [
            ("60/1m", Some("60/1m")),
            ("50/s", Some("50/1s")),
            ("20/10s", Some("20/10s")),
            ("0/s", None),
            ("5", None),
            ("5/", None),
            ("x/s", None),
            ("5/0s", None),
        ] {
            assert_eq!(rate(&t(text)).ok().as_ref().map(show_rate).as_deref(), shown, "{text}");
        }
    }

    #[test]
    fn addresses_need_a_port() {
        let table = [
            ("127.0.0.1:8080", Some("127.0.0.1:8080")),
            ("localhost:80", Some("127.0.0.1:80")),
            ("[::1]:0", Some("[::1]:0")),
            ("8080", None),
            ("127.0.0.1", None),
            ("mcp.example:80", None),
        ];
        for (text, expected) in table {
            let read = address(&t(text)).ok().map(|address| address.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn public_url_has_no_user_query_or_fragment() {
        let table = [
            ("https://mcp.example", Some("https://mcp.example")),
            ("https://mcp.example/", Some("https://mcp.example")),
            ("http://mcp.example:8443/tools/", Some("http://mcp.example:8443/tools")),
            ("mcp.example", None),
            ("ftp://mcp.example", None),
            ("https://", None),
            ("https://me:pw@mcp.example", None),
            ("https://mcp.example/?a=b", None),
        ];
        for (text, expected) in table {
            assert_eq!(public_url(&t(text)).ok().as_deref(), expected, "{text}");
        }
        assert_eq!(public_host("https://mcp.example:1/x"), Some("mcp.example:1"));
    }

    #[test]
    fn integers_may_be_text() {
        assert_eq!(integer(&t("3"), 1), Ok(3));
        assert_eq!(integer(&ConfigValue::Number(3), 1), Ok(3));
        for bad in [
            t("0"),
            t("-1"),
            t("x"),
            ConfigValue::Number(0),
            ConfigValue::Number(-4),
            ConfigValue::Bool(true),
        ] {
            assert!(integer(&bad, 1).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn hosts_and_origins_are_distinct() {
        assert!(hosts(&t("mcp.example:8443")).is_ok());
        assert!(hosts(&t("https://mcp.example")).is_err());
        assert!(origins(&t("https://app.example")).is_ok());
        assert!(origins(&t("app.example")).is_err());
        assert!(origins(&t("https://app.example/page")).is_err());
    }
}
