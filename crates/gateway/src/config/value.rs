//! One reader for each kind of value, whatever layer it comes from.

use super::layer::{Problem, Raw};
use clap::ValueEnum;
use rethread_proto::gate::{HostPolicy, OriginPolicy};
use std::net::SocketAddr;
use std::time::Duration;

/// What a reader says: the value, or what is wrong and what to write instead.
pub(crate) type Read<T> = Result<T, Problem>;

fn wrong<T>(what: impl Into<String>, hint: impl Into<String>) -> Read<T> {
    Err(Problem::new(what).hint(hint))
}

pub(crate) fn text(raw: &Raw) -> Read<String> {
    match raw {
        Raw::Text(text) if !text.is_empty() => Ok(text.clone()),
        Raw::Text(_) => Err(Problem::new("this is empty")),
        other => wrong(format!("{} is not text", other.shown()), "put it in quotes"),
    }
}

pub(crate) fn list(raw: &Raw) -> Read<Vec<String>> {
    match raw {
        Raw::List(list) => Ok(list.clone()),
        Raw::Text(one) => Ok(vec![one.clone()]),
        other => wrong(
            format!("{} is not a list of texts", other.shown()),
            r#"["one", "two"], each in quotes"#,
        ),
    }
}

pub(crate) fn yes_or_no(raw: &Raw) -> Read<bool> {
    match raw {
        Raw::Bool(on) => Ok(*on),
        other => wrong(format!("`{}` is neither true nor false", other.shown()), "true"),
    }
}

pub(crate) fn address(raw: &Raw) -> Read<SocketAddr> {
    let text = raw.shown();
    // The one name that needs no resolver.
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.clone(),
    };
    match numeric.parse() {
        Ok(address) => Ok(address),
        Err(_) => wrong(
            format!("`{text}` is not an address with a port"),
            "127.0.0.1:8080, or [::1]:8080, or port 0 for a free one",
        ),
    }
}

/// A whole number from `least` on.
pub(crate) fn count(raw: &Raw, least: u64) -> Read<u64> {
    let number = match raw {
        Raw::Number(number) => u64::try_from(*number).ok(),
        Raw::Text(text) => text.parse().ok(),
        _ => None,
    };
    match number {
        Some(number) if number >= least => Ok(number),
        _ => wrong(
            format!("`{}` is not a whole number from {least} on", raw.shown()),
            least.max(10).to_string(),
        ),
    }
}

/// A whole number that counts something in memory.
pub(crate) fn size(raw: &Raw, least: u64) -> Read<usize> {
    count(raw, least).map(|count| usize::try_from(count).unwrap_or(usize::MAX))
}

/// `30m`, `90s`, `1h30m`, `500ms`. A number alone is refused: nobody remembers whether it is seconds.
pub(crate) fn duration(raw: &Raw) -> Read<Duration> {
    let text = raw.shown();
    match parse_duration(&text) {
        Some(duration) => Ok(duration),
        None => wrong(
            format!("`{text}` is not a duration"),
            "a number and its unit: 500ms, 90s, 30m, 2h, 1h30m or 1d",
        ),
    }
}

/// A duration that something can happen in.
pub(crate) fn some_time(raw: &Raw) -> Read<Duration> {
    match duration(raw)? {
        Duration::ZERO => wrong("this cannot be zero", "30s"),
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

/// A duration as it would be written.
pub(crate) fn show_duration(duration: &Duration) -> String {
    let ms = duration.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    match units.iter().find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None if ms == 0 => "0s".to_owned(),
        None => format!("{ms}ms"),
    }
}

pub(crate) fn choice<T: ValueEnum>(raw: &Raw) -> Read<T> {
    let text = raw.shown();
    T::from_str(&text, false).or_else(|_| {
        let known: Vec<_> = T::value_variants().iter().map(show_choice).collect();
        wrong(format!("`{text}` is not among the choices"), known.join(", "))
    })
}

pub(crate) fn show_choice<T: ValueEnum>(choice: &T) -> String {
    choice
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

pub(crate) fn hosts(raw: &Raw) -> Read<Vec<String>> {
    let hosts = list(raw)?;
    for host in &hosts {
        if HostPolicy::default().allow(host).is_err() {
            return wrong(
                format!("`{host}` is not a host"),
                "mcp.example or mcp.example:8443, without https://",
            );
        }
    }
    Ok(hosts)
}

pub(crate) fn origins(raw: &Raw) -> Read<Vec<String>> {
    let origins = list(raw)?;
    for origin in &origins {
        if OriginPolicy::default().allow(origin).is_err() {
            return wrong(
                format!("`{origin}` is not an origin"),
                "https://app.example or https://app.example:8443, without a path",
            );
        }
    }
    Ok(origins)
}

/// A URL without a slash at its end, so that paths can be put after it.
pub(crate) fn public_url(raw: &Raw) -> Read<String> {
    let given = text(raw)?;
    let url = given.trim_end_matches('/');
    if public_host(url).is_none() || url.contains(['?', '#']) {
        return wrong(
            format!("`{given}` is not the URL of a server"),
            "https://mcp.example, perhaps with a path, but without a user, `?` or `#`",
        );
    }
    Ok(url.to_owned())
}

/// The host of a URL, with its port if it names one.
pub(crate) fn public_host(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let host = rest.split('/').next()?;
    HostPolicy::default().allow(host).is_ok().then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(text: &str) -> Raw {
        Raw::Text(text.to_owned())
    }

    #[test]
    fn durations_have_units() {
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
        assert!(duration(&Raw::Number(30)).is_err());
        assert!(some_time(&t("0s")).is_err());
    }

    #[test]
    fn durations_are_shown_as_they_are_written() {
        for text in ["30m", "90s", "500ms", "2h", "1d", "0s", "1500ms"] {
            let shown = show_duration(&duration(&t(text)).unwrap());
            assert_eq!(duration(&t(&shown)), duration(&t(text)), "{text} became {shown}");
        }
        assert_eq!(show_duration(&Duration::from_secs(90 * 60)), "90m");
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
    fn a_public_url_is_plain() {
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
    fn numbers_may_be_text() {
        assert_eq!(count(&t("3"), 1), Ok(3));
        assert_eq!(count(&Raw::Number(3), 1), Ok(3));
        for bad in [
            t("0"),
            t("-1"),
            t("x"),
            Raw::Number(0),
            Raw::Number(-4),
            Raw::Bool(true),
        ] {
            assert!(count(&bad, 1).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn hosts_and_origins_are_not_mixed_up() {
        assert!(hosts(&t("mcp.example:8443")).is_ok());
        assert!(hosts(&t("https://mcp.example")).is_err());
        assert!(origins(&t("https://app.example")).is_ok());
        assert!(origins(&t("app.example")).is_err());
        assert!(origins(&t("https://app.example/page")).is_err());
    }
}
