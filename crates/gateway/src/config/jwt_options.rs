//! The options of a provider of JWTs. They are keys below `[auth.jwt.NAME]`; a flag is for the provider `idp`.

use super::layer::ConfigValue;
use super::option::{DefaultValue, Flag, FlagKind, Heading, OptionDef, Reload, Scope as OptionScope, TypedOption};
use super::problem::Problem;
use super::value::{self, ParseResult};
use crate::settings::Settings;
use rethread_auth::Algorithm;
use std::time::Duration;

/// Whether the providers of JWTs differ.
fn providers_differ(old: &Settings, new: &Settings) -> bool {
    old.auth.as_ref().map(|auth| &auth.jwt) != new.auth.as_ref().map(|auth| &auth.jwt)
}

const PROVIDER_RELOAD: Reload = Reload::Applied {
    differs: providers_differ,
};

pub(crate) static JWT: OptionDef = OptionDef {
    key: "auth.jwt",
    scope: OptionScope::Gateway,
    flag: None,
    env: None,
    default: DefaultValue::Unset,
    help: "Tables [auth.jwt.NAME], one for each issuer of JWTs",
    reload: PROVIDER_RELOAD,
};

pub(crate) static ISSUER: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "issuer",
        scope: OptionScope::Provider,
        flag: Some(Flag::new("--issuer", FlagKind::Url("URL")).heading(Heading::Auth)),
        env: Some("RETHREAD_ISSUER"),
        default: DefaultValue::Unset,
        help: "Issuer of JWTs, exactly as in their `iss`",
        reload: PROVIDER_RELOAD,
    },
    parse: http_url,
    show: String::clone,
};

pub(crate) static JWKS_URL: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "jwks_url",
        scope: OptionScope::Provider,
        flag: Some(
            Flag::new("--jwks-url", FlagKind::Url("URL"))
                .heading(Heading::Auth)
                .advanced(),
        ),
        env: Some("RETHREAD_JWKS_URL"),
        default: DefaultValue::Computed("from the metadata of the issuer"),
        help: "URL of the issuer's key set",
        reload: PROVIDER_RELOAD,
    },
    parse: http_url,
    show: String::clone,
};

pub(crate) static JWKS_FILE: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "jwks_file",
        scope: OptionScope::Provider,
        flag: Some(
            Flag::new("--jwks-file", FlagKind::File("FILE"))
                .heading(Heading::Auth)
                .advanced(),
        ),
        env: Some("RETHREAD_JWKS_FILE"),
        default: DefaultValue::Unset,
        help: "File with the issuer's key set",
        reload: PROVIDER_RELOAD,
    },
    parse: value::text,
    show: String::clone,
};

pub(crate) static AUDIENCE: TypedOption<Vec<String>> = TypedOption {
    def: OptionDef {
        key: "audience",
        scope: OptionScope::Provider,
        flag: Some(
            Flag::new("--audience", FlagKind::CommaList("TEXT"))
                .heading(Heading::Auth)
                .advanced(),
        ),
        env: Some("RETHREAD_AUDIENCE"),
        default: DefaultValue::Computed("the URLs of the called server"),
        help: "Accepted `aud` of JWTs; may be repeated",
        reload: PROVIDER_RELOAD,
    },
    parse: value::list,
    show: |list| value::show_list(list),
};

pub(crate) static ALGORITHMS: TypedOption<Vec<Algorithm>> = TypedOption {
    def: OptionDef {
        key: "algorithms",
        scope: OptionScope::Provider,
        flag: None,
        env: None,
        default: DefaultValue::Computed("RS256, PS256, ES256, EdDSA"),
        help: "List of accepted signature algorithms",
        reload: PROVIDER_RELOAD,
    },
    parse: algorithms,
    show: |list| value::show_list(&list.iter().map(Algorithm::to_string).collect::<Vec<_>>()),
};

pub(crate) static REFRESH: TypedOption<Duration> = TypedOption {
    def: OptionDef {
        key: "refresh",
        scope: OptionScope::Provider,
        flag: None,
        env: None,
        default: DefaultValue::Text("5m"),
        help: "Interval between regular fetches of the key set",
        reload: PROVIDER_RELOAD,
    },
    parse: value::positive_duration,
    show: value::show_duration,
};

pub(crate) static COOLDOWN: TypedOption<Duration> = TypedOption {
    def: OptionDef {
        key: "cooldown",
        scope: OptionScope::Provider,
        flag: None,
        env: None,
        default: DefaultValue::Text("10s"),
        help: "Minimum time between fetches for unknown keys",
        reload: PROVIDER_RELOAD,
    },
    parse: value::positive_duration,
    show: value::show_duration,
};

pub(crate) static MAX_STALE: TypedOption<Duration> = TypedOption {
    def: OptionDef {
        key: "max_stale",
        scope: OptionScope::Provider,
        flag: None,
        env: None,
        default: DefaultValue::Text("24h"),
        help: "How long keys stay valid while the issuer is down",
        reload: PROVIDER_RELOAD,
    },
    parse: value::positive_duration,
    show: value::show_duration,
};

/// An `http` or `https` URL, unchanged: issuers are compared byte for byte.
fn http_url(value: &ConfigValue) -> ParseResult<String> {
    let url = value::text(value)?;
    if value::public_host(&url).is_none() || url.contains(['?', '#']) {
        return Err(Problem::new(format!("`{url}` is not a URL")).hint("https://login.example.com/realms/corp"));
    }
    Ok(url)
}

fn algorithms(value: &ConfigValue) -> ParseResult<Vec<Algorithm>> {
    let names = value::list(value)?;
    let hint = || Algorithm::ALL.map(Algorithm::as_str).join(", ");
    if names.is_empty() {
        return Err(Problem::new("no algorithm is accepted").hint(hint()));
    }
    let parse = |name: &String| {
        let unknown = |_| {
            let name = name.escape_debug();
            Problem::new(format!("`{name}` is not a public-key signature algorithm")).hint(hint())
        };
        name.parse().map_err(unknown)
    };
    names.iter().map(parse).collect()
}
