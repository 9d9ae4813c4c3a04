//! The options of `[auth]`, and those of a server that say who may use it.

use super::layer::ConfigValue;
use super::option::{DefaultValue, Flag, FlagKind, Heading, OptionDef, Reload, Scope as OptionScope, TypedOption};
use super::problem::Problem;
use super::value::{self, ParseResult};
use crate::auth::Network;
use crate::settings::IdentitySetting;
use rethread_auth::{AllowEntry, ToolPattern};
use rethread_proto::auth::{ImpliedScopes, Rate, Scope, Scopes};
use std::time::Duration;

/// A larger skew is a broken clock, and would let expired tokens pass.
const MAX_LEEWAY: Duration = Duration::from_secs(300);

pub(crate) static NO_AUTH: TypedOption<bool> = TypedOption {
    def: OptionDef {
        key: "no_auth",
        scope: OptionScope::Gateway,
        flag: Some(Flag::new("--no-auth", FlagKind::Switch).heading(Heading::Auth)),
        env: Some("RETHREAD_NO_AUTH"),
        default: DefaultValue::Bool(false),
        help: "Serve every caller, also beyond loopback",
        reload: Reload::Applied {
            differs: |old, new| old.no_auth != new.no_auth,
        },
    },
    parse: value::boolean,
    show: bool::to_string,
};

pub(crate) static TOKENS: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "auth.tokens",
        scope: OptionScope::Gateway,
        flag: Some(Flag::new("--tokens", FlagKind::File("FILE")).heading(Heading::Auth)),
        env: Some("RETHREAD_TOKENS"),
        default: DefaultValue::Unset,
        help: "File with the SHA-256 of each token; `rethread token new` makes one",
        reload: Reload::Applied {
            differs: |old, new| {
                let tokens = |settings: &crate::settings::Settings| settings.auth.as_ref()?.tokens.clone();
                tokens(old) != tokens(new)
            },
        },
    },
    parse: value::text,
    show: String::clone,
};

pub(crate) static AUTH_SCOPES: TypedOption<Scopes> = TypedOption {
    def: OptionDef {
        key: "auth.scopes",
        scope: OptionScope::Gateway,
        flag: Some(Flag::new("--scope", FlagKind::CommaList("SCOPE")).heading(Heading::Auth)),
        env: Some("RETHREAD_SCOPE"),
        default: DefaultValue::EmptyList,
        help: "Scope that every server needs; may be repeated",
        reload: Reload::Applied {
            differs: |old, new| {
                old.auth.as_ref().map(|auth| &auth.scopes) != new.auth.as_ref().map(|auth| &auth.scopes)
            },
        },
    },
    parse: scopes,
    show: show_scopes,
};

pub(crate) static LEEWAY: TypedOption<Duration> = TypedOption {
    def: OptionDef {
        key: "auth.leeway",
        scope: OptionScope::Gateway,
        flag: None,
        env: None,
        default: DefaultValue::Text("30s"),
        help: "Allowed difference of clocks, at most 5m",
        reload: Reload::Applied {
            differs: |old, new| old.auth.as_ref().map(|auth| auth.leeway) != new.auth.as_ref().map(|auth| auth.leeway),
        },
    },
    parse: leeway,
    show: value::show_duration,
};

pub(crate) static IMPLIES: OptionDef = OptionDef {
    key: "auth.implies",
    scope: OptionScope::Gateway,
    flag: None,
    env: None,
    default: DefaultValue::Unset,
    help: "Table of broader scopes with lists of those that they grant",
    reload: Reload::Applied {
        differs: |old, new| old.auth.as_ref().map(|auth| &auth.implies) != new.auth.as_ref().map(|auth| &auth.implies),
    },
};

pub(crate) static FAILURES: TypedOption<Rate> = TypedOption {
    def: OptionDef {
        key: "auth.failures",
        scope: OptionScope::Gateway,
        flag: None,
        env: None,
        default: DefaultValue::Text("60/1m"),
        help: "Bad tokens of one address before it gets 429",
        reload: Reload::Applied {
            differs: |old, new| {
                old.auth.as_ref().map(|auth| auth.failures) != new.auth.as_ref().map(|auth| auth.failures)
            },
        },
    },
    parse: value::rate,
    show: value::show_rate,
};

pub(crate) static TRUSTED_PROXIES: TypedOption<Vec<Network>> = TypedOption {
    def: OptionDef {
        key: "trusted_proxies",
        scope: OptionScope::Gateway,
        flag: None,
        env: None,
        default: DefaultValue::EmptyList,
        help: "List of proxies (10.0.0.0/8) whose X-Forwarded-For names the client",
        reload: Reload::Applied {
            differs: |old, new| old.trusted_proxies != new.trusted_proxies,
        },
    },
    parse: networks,
    show: |networks| value::show_list(&networks.iter().map(Network::to_string).collect::<Vec<_>>()),
};

fn networks(value: &ConfigValue) -> ParseResult<Vec<Network>> {
    let texts = value::list(value)?;
    let parse = |text: &String| {
        text.parse().map_err(|_| {
            let text = text.escape_debug();
            Problem::new(format!("`{text}` is not a network")).hint("10.0.0.0/8, or one address")
        })
    };
    texts.iter().map(parse).collect()
}

pub(crate) static SERVER_SCOPES: TypedOption<Scopes> = TypedOption {
    def: OptionDef {
        key: "scopes",
        scope: OptionScope::OneServer,
        flag: None,
        env: None,
        default: DefaultValue::EmptyList,
        help: "List of scopes that this server needs besides `auth.scopes`",
        reload: Reload::ReplacesServer,
    },
    parse: scopes,
    show: show_scopes,
};

pub(crate) static ALLOW: TypedOption<Vec<AllowEntry>> = TypedOption {
    def: OptionDef {
        key: "allow",
        scope: OptionScope::OneServer,
        flag: None,
        env: None,
        default: DefaultValue::Unset,
        help: "List of PROVIDER:SUBJECT or PROVIDER:*, instead of every caller with the scopes",
        reload: Reload::ReplacesServer,
    },
    parse: allow_list,
    show: |entries| value::show_list(&entries.iter().map(AllowEntry::to_string).collect::<Vec<_>>()),
};

pub(crate) static IDENTITY: TypedOption<IdentitySetting> = TypedOption {
    def: OptionDef {
        key: "identity",
        scope: OptionScope::OneServer,
        flag: None,
        env: None,
        default: DefaultValue::Text("none"),
        help: "How the server learns issuer and subject of the caller: none, meta or env",
        reload: Reload::ReplacesServer,
    },
    parse: value::choice,
    show: value::show_choice,
};

pub(crate) static TOOL_SCOPES: OptionDef = OptionDef {
    key: "tool_scopes",
    scope: OptionScope::OneServer,
    flag: None,
    env: None,
    default: DefaultValue::Unset,
    help: "Table of tools with lists of scopes; a name may end with `*`",
    reload: Reload::ReplacesServer,
};

pub(super) fn scopes(value: &ConfigValue) -> ParseResult<Scopes> {
    let names = value::list(value)?;
    let parse = |name: &String| {
        Scope::parse(name).ok_or_else(|| {
            let name = name.escape_debug();
            Problem::new(format!("`{name}` cannot be a scope"))
                .hint("visible ASCII without spaces, quotes and backslashes")
        })
    };
    names.iter().map(parse).collect()
}

fn show_scopes(scopes: &Scopes) -> String {
    let names: Vec<_> = scopes.iter().map(|scope| scope.as_str().to_owned()).collect();
    value::show_list(&names)
}

fn leeway(value: &ConfigValue) -> ParseResult<Duration> {
    match value::duration(value)? {
        leeway if leeway <= MAX_LEEWAY => Ok(leeway),
        _ => {
            let max = value::show_duration(&MAX_LEEWAY);
            Err(Problem::new(format!("a leeway of `{value}` is more than {max}")).hint("30s"))
        }
    }
}

fn allow_list(value: &ConfigValue) -> ParseResult<Vec<AllowEntry>> {
    let entries = value::list(value)?;
    let parse = |entry: &String| {
        AllowEntry::parse(entry).ok_or_else(|| {
            let entry = entry.escape_debug();
            Problem::new(format!("`{entry}` names no principal")).hint("PROVIDER:SUBJECT or PROVIDER:*")
        })
    };
    entries.iter().map(parse).collect()
}

/// The entries of a table of scopes, such as `implies`.
pub(super) fn scope_table(key: &str, value: &ConfigValue) -> ParseResult<Vec<(String, Scopes)>> {
    let ConfigValue::Table(table) = value else {
        return Err(
            Problem::new(format!("`{key}` is not a table")).hint(format!(r#"{key} = {{ "name" = ["scope"] }}"#))
        );
    };
    let entries = table.iter();
    entries
        .map(|(name, found)| Ok((name.clone(), scopes(&found.value)?)))
        .collect()
}

pub(super) fn implied_scopes(value: &ConfigValue) -> ParseResult<ImpliedScopes> {
    let mut implied = ImpliedScopes::default();
    for (broader, narrower) in scope_table(IMPLIES.key, value)? {
        let found = Scope::parse(&broader);
        let broader = found.ok_or_else(|| Problem::new(format!("`{}` cannot be a scope", broader.escape_debug())))?;
        implied.insert(broader, &narrower);
    }
    Ok(implied)
}

pub(super) fn tool_scopes(value: &ConfigValue) -> ParseResult<Vec<(ToolPattern, Scopes)>> {
    let entries = scope_table(TOOL_SCOPES.key, value)?.into_iter();
    let parse = |(name, scopes): (String, Scopes)| match ToolPattern::parse(&name) {
        Some(pattern) => Ok((pattern, scopes)),
        None => {
            let name = name.escape_debug();
            Err(Problem::new(format!("`{name}` cannot be the name of a tool")).hint("`*` only at the end of a name"))
        }
    };
    entries.map(parse).collect()
}
