//! The options of the era bridge.

use super::layer::{ConfigValue, Layer};
use super::option::{DefaultValue, Flag, FlagKind, Heading, OptionDef, Reload, Scope, TypedOption};
use super::problem::Problem;
use super::resolver::Resolver;
use super::value::{self, ParseResult};
use crate::settings::{AskingTools, BridgeSettings};
use rethread::LogLevel;
use std::time::Duration;

/// The value that lets the program decide.
const AUTO: &str = "auto";
/// The value that turns log messages off.
const NONE: &str = "none";

const fn flag(long: &'static str, placeholder: &'static str) -> Option<Flag> {
    Some(
        Flag::new(long, FlagKind::Text(placeholder))
            .heading(Heading::Server)
            .advanced(),
    )
}

pub(crate) static SHARE: TypedOption<Option<bool>> = TypedOption {
    def: OptionDef {
        key: "share",
        scope: Scope::EveryServer,
        flag: flag("--share", "WHEN"),
        env: Some("RETHREAD_SHARE"),
        default: DefaultValue::Text(AUTO),
        help: "Whether 2026-07-28 clients without a token share processes of a server with sessions: true, false, or auto (only \
               on loopback without auth)",
        reload: Reload::ReplacesServer,
    },
    parse: share,
    show: |share| share.map_or_else(|| AUTO.to_owned(), |share| share.to_string()),
};

pub(crate) static ASKS: TypedOption<AskingTools> = TypedOption {
    def: OptionDef {
        key: "asks",
        scope: Scope::OneServer,
        flag: None,
        env: None,
        default: DefaultValue::Bool(true),
        help: "Tools that ask their client: true (all), false (none), or a list (`book_*`)",
        reload: Reload::ReplacesServer,
    },
    parse: asks,
    show: |asks| match asks {
        AskingTools::All => "true".to_owned(),
        AskingTools::None => "false".to_owned(),
        AskingTools::Named(patterns) => value::show_list(patterns),
    },
};

pub(crate) static LEASE_CHILDREN: TypedOption<usize> = TypedOption {
    def: OptionDef {
        key: "lease_children",
        scope: Scope::EveryServer,
        flag: flag("--lease-children", "N"),
        env: Some("RETHREAD_LEASE_CHILDREN"),
        default: DefaultValue::Text("4"),
        help: "Processes of a server with sessions for one 2026-07-28 client",
        reload: Reload::ReplacesServer,
    },
    parse: |value| value::size(value, 1),
    show: usize::to_string,
};

pub(crate) static LEASE_IDLE: TypedOption<Duration> = TypedOption {
    def: OptionDef {
        key: "lease_idle",
        scope: Scope::EveryServer,
        flag: flag("--lease-idle", "TIME"),
        env: Some("RETHREAD_LEASE_IDLE"),
        default: DefaultValue::Text("5m"),
        help: "When to stop these processes after their last use",
        reload: Reload::ReplacesServer,
    },
    parse: value::positive_duration,
    show: value::show_duration,
};

pub(crate) static LEASE_WAIT: TypedOption<Duration> = TypedOption {
    def: OptionDef {
        key: "lease_wait",
        scope: Scope::EveryServer,
        flag: flag("--lease-wait", "TIME"),
        env: Some("RETHREAD_LEASE_WAIT"),
        default: DefaultValue::Text("10s"),
        help: "How long a call waits for one of these processes",
        reload: Reload::ReplacesServer,
    },
    parse: value::positive_duration,
    show: value::show_duration,
};

pub(crate) static QUESTION_TIMEOUT: TypedOption<Duration> = TypedOption {
    def: OptionDef {
        key: "question_timeout",
        scope: Scope::EveryServer,
        flag: flag("--question-timeout", "TIME"),
        env: Some("RETHREAD_QUESTION_TIMEOUT"),
        default: DefaultValue::Text("10m"),
        help: "How long a call waits for the answer of its client, and keeps its process",
        reload: Reload::ReplacesServer,
    },
    parse: value::positive_duration,
    show: value::show_duration,
};

pub(crate) static LOG_DEFAULT: TypedOption<Option<LogLevel>> = TypedOption {
    def: OptionDef {
        key: "log_default",
        scope: Scope::EveryServer,
        flag: flag("--log-default", "LEVEL"),
        env: Some("RETHREAD_LOG_DEFAULT"),
        default: DefaultValue::Text("info"),
        help: "Log level of clients with sessions at a 2026-07-28 server until they set one; or none",
        reload: Reload::ReplacesServer,
    },
    parse: log_level,
    show: |level| level.map_or(NONE, LogLevel::as_str).to_owned(),
};

pub(crate) static ROOTS: TypedOption<Vec<String>> = TypedOption {
    def: OptionDef {
        key: "roots",
        scope: Scope::OneServer,
        flag: None,
        env: None,
        default: DefaultValue::EmptyList,
        help: "List of root URIs for a server that asks for them outside of a call",
        reload: Reload::ReplacesServer,
    },
    parse: value::list,
    show: |roots| value::show_list(roots),
};

fn share(value: &ConfigValue) -> ParseResult<Option<bool>> {
    match value {
        ConfigValue::Bool(share) => Ok(Some(*share)),
        ConfigValue::Text(text) if text == AUTO => Ok(None),
        ConfigValue::Text(text) if text == "true" => Ok(Some(true)),
        ConfigValue::Text(text) if text == "false" => Ok(Some(false)),
        other => Err(Problem::new(format!("`{other}` is neither true, false nor auto")).hint(AUTO)),
    }
}

fn asks(value: &ConfigValue) -> ParseResult<AskingTools> {
    match value {
        ConfigValue::Bool(true) => Ok(AskingTools::All),
        ConfigValue::Bool(false) => Ok(AskingTools::None),
        value => {
            let hint = r#"false, or ["book_*"]"#;
            let patterns = value::list(value).map_err(|problem| problem.hint(hint))?;
            Ok(AskingTools::Named(patterns))
        }
    }
}

fn log_level(value: &ConfigValue) -> ParseResult<Option<LogLevel>> {
    let text = value::text(value)?;
    if text == NONE {
        return Ok(None);
    }
    let level = LogLevel::parse(&text).map(Some);
    level.ok_or_else(|| {
        Problem::new(format!("`{}` is not a log level", text.escape_debug()))
            .hint("debug, info, notice, warning, error, critical, alert, emergency or none")
    })
}

impl Resolver<'_> {
    pub(super) fn bridge(&mut self, server: &str, section: &Layer) -> BridgeSettings {
        BridgeSettings {
            share: self.server_value(server, section, &SHARE),
            asks: self.server_value(server, section, &ASKS),
            lease_children: self.server_value(server, section, &LEASE_CHILDREN),
            lease_idle: self.server_value(server, section, &LEASE_IDLE),
            lease_wait: self.server_value(server, section, &LEASE_WAIT),
            question_timeout: self.server_value(server, section, &QUESTION_TIMEOUT),
            log_default: self.server_value(server, section, &LOG_DEFAULT),
            roots: self.server_value(server, section, &ROOTS),
        }
    }
}
