//! Every option of the program, in the order of the help.

pub(crate) use super::admin_options::ADMIN;
use super::admin_options::{ADMIN_ACTIONS, ADMIN_INSECURE, ADMIN_PUBLIC_URL, ADMIN_TOKEN_FILE};
use super::auth_options::{
    ALLOW, AUTH_SCOPES, FAILURES, IDENTITY, IMPLIES, LEEWAY, NO_AUTH, SERVER_SCOPES, TOKENS, TOOL_SCOPES,
    TRUSTED_PROXIES,
};
use super::bridge_options::{
    ASKS, LEASE_CHILDREN, LEASE_IDLE, LEASE_WAIT, LOG_DEFAULT, QUESTION_TIMEOUT, ROOTS, SHARE,
};
use super::child_options::{CHILD_IDLE, SESSION_UNUSED, SESSIONLESS, SPARE};
use super::jwt_options::{ALGORITHMS, AUDIENCE, COOLDOWN, ISSUER, JWKS_FILE, JWKS_URL, JWT, MAX_STALE, REFRESH};
use super::limits::LIMITS;
use super::operation_options::{AUDIT, AUDIT_PARAMS, METRICS, METRICS_TOOLS, OTLP, TAPE, TAPE_PAYLOADS};
use super::option::{DefaultValue, Flag, FlagKind, Heading, OptionDef, Reload, Scope, TypedOption, choices};
pub(crate) use super::store_options::{DATA, LEASE, MEMORY, NODE_ID, SECRET_FILE, STORE, SYNC};
use super::tls_options::{TLS_CERT, TLS_KEY};
use super::value;
use crate::output::LogFormat;
use crate::settings::{EraSetting, InheritedEnv, RestoreSetting};
use clap::ColorChoice;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) static OPTIONS: &[&OptionDef] = &[
    &LISTEN.def,
    &CONFIG,
    &DATA.def,
    &MEMORY.def,
    &SYNC.def,
    &STORE.def,
    &NODE_ID.def,
    &LEASE.def,
    &SECRET_FILE.def,
    &PUBLIC_URL.def,
    &ALLOW_HOSTS.def,
    &ALLOW_ORIGINS.def,
    &TLS_CERT.def,
    &TLS_KEY.def,
    &RETRY_MS.def,
    &SESSION_IDLE.def,
    &SESSION_UNUSED.def,
    &SESSIONLESS.def,
    &DRAIN.def,
    &MAX_CONNECTIONS_PER_PEER.def,
    &LIMITS,
    &TOKENS.def,
    &AUTH_SCOPES.def,
    &LEEWAY.def,
    &IMPLIES,
    &FAILURES.def,
    &JWT,
    &ISSUER.def,
    &JWKS_URL.def,
    &JWKS_FILE.def,
    &AUDIENCE.def,
    &ALGORITHMS.def,
    &REFRESH.def,
    &COOLDOWN.def,
    &MAX_STALE.def,
    &NO_AUTH.def,
    &TRUSTED_PROXIES.def,
    &ADMIN.def,
    &ADMIN_PUBLIC_URL.def,
    &ADMIN_TOKEN_FILE.def,
    &ADMIN_ACTIONS.def,
    &ADMIN_INSECURE.def,
    &METRICS.def,
    &METRICS_TOOLS.def,
    &AUDIT.def,
    &AUDIT_PARAMS.def,
    &OTLP.def,
    &TAPE.def,
    &TAPE_PAYLOADS.def,
    &NAME.def,
    &COMMAND.def,
    &ARGS.def,
    &ENV,
    &INHERIT_ENV.def,
    &CWD.def,
    &ERA.def,
    &RESTORE.def,
    &START_TIMEOUT.def,
    &MAX_CHILDREN.def,
    &CHILD_IDLE.def,
    &SPARE.def,
    &SERVER_SCOPES.def,
    &ALLOW.def,
    &TOOL_SCOPES,
    &IDENTITY.def,
    &SHARE.def,
    &ASKS.def,
    &LEASE_CHILDREN.def,
    &LEASE_IDLE.def,
    &LEASE_WAIT.def,
    &QUESTION_TIMEOUT.def,
    &LOG_DEFAULT.def,
    &ROOTS.def,
    &VERBOSE,
    &QUIET,
    &COLOR.def,
    &LOG_FORMAT.def,
];

pub(crate) static LISTEN: TypedOption<SocketAddr> = TypedOption {
    def: OptionDef {
        key: "listen",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--listen", FlagKind::Text("ADDR")).short('l')),
        env: Some("RETHREAD_LISTEN"),
        default: DefaultValue::Text("127.0.0.1:8080"),
        help: "Address to listen on; port 0 picks a free port",
        reload: Reload::NeedsRestart {
            differs: |old, new| old.listen != new.listen,
            keep: |old, new| new.listen = old.listen,
        },
    },
    parse: value::address,
    show: SocketAddr::to_string,
};

pub(crate) static CONFIG: OptionDef = OptionDef {
    key: "config",
    scope: Scope::Program,
    flag: Some(Flag::new("--config", FlagKind::File("FILE")).short('c')),
    env: Some("RETHREAD_CONFIG"),
    default: DefaultValue::Unset,
    help: "TOML file with servers, or the JSON file of a client; read again on SIGHUP",
    reload: Reload::Ignored,
};

pub(crate) static PUBLIC_URL: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "public_url",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--public-url", FlagKind::Url("URL")).heading(Heading::Clients)),
        env: Some("RETHREAD_PUBLIC_URL"),
        default: DefaultValue::Unset,
        help: "Public URL of the gateway when it runs behind a reverse proxy",
        reload: Reload::Applied {
            differs: |old, new| old.public_url != new.public_url,
        },
    },
    parse: value::public_url,
    show: String::clone,
};

pub(crate) static ALLOW_HOSTS: TypedOption<Vec<String>> = TypedOption {
    def: OptionDef {
        key: "allow_hosts",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--allow-host", FlagKind::CommaList("HOST")).heading(Heading::Clients)),
        env: Some("RETHREAD_ALLOW_HOST"),
        default: DefaultValue::EmptyList,
        help: "Host to accept besides the loopback names; may be repeated",
        reload: Reload::Applied {
            differs: |old, new| old.allow_hosts != new.allow_hosts,
        },
    },
    parse: value::hosts,
    show: |hosts| value::show_list(hosts),
};

pub(crate) static ALLOW_ORIGINS: TypedOption<Vec<String>> = TypedOption {
    def: OptionDef {
        key: "allow_origins",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--allow-origin", FlagKind::CommaList("ORIGIN")).heading(Heading::Clients)),
        env: Some("RETHREAD_ALLOW_ORIGIN"),
        default: DefaultValue::EmptyList,
        help: "Origin to accept besides the loopback origins; may be repeated",
        reload: Reload::Applied {
            differs: |old, new| old.allow_origins != new.allow_origins,
        },
    },
    parse: value::origins,
    show: |origins| value::show_list(origins),
};

pub(crate) static RETRY_MS: TypedOption<Duration> = TypedOption {
    def: OptionDef {
        key: "retry_ms",
        scope: Scope::Gateway,
        flag: Some(
            Flag::new("--retry-ms", FlagKind::Text("MS"))
                .heading(Heading::Clients)
                .advanced(),
        ),
        env: Some("RETHREAD_RETRY_MS"),
        default: DefaultValue::Text("1000"),
        help: "Delay before clients reconnect, in milliseconds",
        reload: Reload::NeedsRestart {
            differs: |old, new| old.retry != new.retry,
            keep: |old, new| new.retry = old.retry,
        },
    },
    parse: |value| value::integer(value, 0).map(Duration::from_millis),
    show: |retry| retry.as_millis().to_string(),
};

pub(crate) static SESSION_IDLE: TypedOption<Duration> = TypedOption {
    def: OptionDef {
        key: "session_idle",
        scope: Scope::Gateway,
        flag: Some(
            Flag::new("--session-idle", FlagKind::Text("TIME"))
                .heading(Heading::Clients)
                .advanced(),
        ),
        env: Some("RETHREAD_SESSION_IDLE"),
        default: DefaultValue::Text("30m"),
        help: "How long a session may be unused before it expires",
        reload: Reload::NeedsRestart {
            differs: |old, new| old.session_idle != new.session_idle,
            keep: |old, new| new.session_idle = old.session_idle,
        },
    },
    parse: value::positive_duration,
    show: value::show_duration,
};

pub(crate) static DRAIN: TypedOption<Duration> = TypedOption {
    def: OptionDef {
        key: "drain",
        scope: Scope::Gateway,
        flag: Some(
            Flag::new("--drain", FlagKind::Text("TIME"))
                .heading(Heading::Clients)
                .advanced(),
        ),
        env: Some("RETHREAD_DRAIN"),
        default: DefaultValue::Text("10s"),
        help: "How long running calls may take to finish when the gateway stops",
        reload: Reload::Applied {
            differs: |old, new| old.drain != new.drain,
        },
    },
    parse: value::duration,
    show: value::show_duration,
};

pub(crate) static MAX_CONNECTIONS_PER_PEER: TypedOption<usize> = TypedOption {
    def: OptionDef {
        key: "max_connections_per_peer",
        scope: Scope::Gateway,
        flag: Some(
            Flag::new("--max-connections-per-peer", FlagKind::Text("N"))
                .heading(Heading::Clients)
                .advanced(),
        ),
        env: Some("RETHREAD_MAX_CONNECTIONS_PER_PEER"),
        default: DefaultValue::Text("1024"),
        help: "Connections of one address, 0 for no limit; more get 429. A proxy is one address",
        reload: Reload::Applied {
            differs: |old, new| old.max_connections_per_peer != new.max_connections_per_peer,
        },
    },
    parse: |value| value::size(value, 0),
    show: usize::to_string,
};

pub(crate) static NAME: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "name",
        scope: Scope::Command,
        flag: Some(Flag::new("--name", FlagKind::Text("NAME")).heading(Heading::Server)),
        env: Some("RETHREAD_NAME"),
        default: DefaultValue::Computed("from the command"),
        help: "Name of the server in the log and on disk",
        reload: Reload::Ignored,
    },
    parse: value::server_name,
    show: String::clone,
};

pub(crate) static COMMAND: TypedOption<Vec<String>> = TypedOption {
    def: OptionDef {
        key: "command",
        scope: Scope::OneServer,
        flag: None,
        env: None,
        default: DefaultValue::Unset,
        help: "Program of the server, or a list of the program and its arguments",
        reload: Reload::ReplacesServer,
    },
    parse: value::list,
    show: |words| value::show_list(words),
};

pub(crate) static ARGS: TypedOption<Vec<String>> = TypedOption {
    def: OptionDef {
        key: "args",
        scope: Scope::OneServer,
        flag: None,
        env: None,
        default: DefaultValue::EmptyList,
        help: "List of further arguments",
        reload: Reload::ReplacesServer,
    },
    parse: value::args,
    show: |args| value::show_list(args),
};

pub(crate) static ENV: OptionDef = OptionDef {
    key: "env",
    scope: Scope::OneServer,
    flag: Some(
        Flag::new("--env", FlagKind::List("KEY=VALUE"))
            .short('e')
            .heading(Heading::Server),
    ),
    env: None,
    default: DefaultValue::Unset,
    help: "Variable for the server besides the inherited ones; may be repeated",
    reload: Reload::ReplacesServer,
};

pub(crate) static INHERIT_ENV: TypedOption<InheritedEnv> = TypedOption {
    def: OptionDef {
        key: "inherit_env",
        scope: Scope::OneServer,
        flag: None,
        env: None,
        default: DefaultValue::Bool(true),
        help: "List of the variables that the server inherits, instead of all",
        reload: Reload::ReplacesServer,
    },
    parse: value::inherited_env,
    show: value::show_inherited_env,
};

pub(crate) static CWD: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "cwd",
        scope: Scope::OneServer,
        flag: Some(Flag::new("--cwd", FlagKind::Dir("DIR")).heading(Heading::Server)),
        env: Some("RETHREAD_CWD"),
        default: DefaultValue::Unset,
        help: "Working directory of the server",
        reload: Reload::ReplacesServer,
    },
    parse: value::text,
    show: String::clone,
};

pub(crate) static ERA: TypedOption<EraSetting> = TypedOption {
    def: OptionDef {
        key: "era",
        scope: Scope::EveryServer,
        flag: Some(
            Flag::new("--era", FlagKind::Choice("ERA", choices::<EraSetting>))
                .heading(Heading::Server)
                .advanced(),
        ),
        env: Some("RETHREAD_ERA"),
        default: DefaultValue::Text("probe"),
        help: "Era that is spoken to the server; clients of every era are served",
        reload: Reload::ReplacesServer,
    },
    parse: value::choice,
    show: value::show_choice,
};

pub(crate) static RESTORE: TypedOption<RestoreSetting> = TypedOption {
    def: OptionDef {
        key: "restore",
        scope: Scope::EveryServer,
        flag: Some(
            Flag::new("--restore", FlagKind::Choice("HOW", choices::<RestoreSetting>))
                .heading(Heading::Server)
                .advanced(),
        ),
        env: Some("RETHREAD_RESTORE"),
        default: DefaultValue::Text("replay"),
        help: "How to continue a session whose server process has exited",
        reload: Reload::ReplacesServer,
    },
    parse: value::choice,
    show: value::show_choice,
};

pub(crate) static START_TIMEOUT: TypedOption<Duration> = TypedOption {
    def: OptionDef {
        key: "start_timeout",
        scope: Scope::EveryServer,
        flag: Some(
            Flag::new("--start-timeout", FlagKind::Text("TIME"))
                .heading(Heading::Server)
                .advanced(),
        ),
        env: Some("RETHREAD_START_TIMEOUT"),
        default: DefaultValue::Text("30s"),
        help: "How long a server process may take to answer",
        reload: Reload::ReplacesServer,
    },
    parse: value::positive_duration,
    show: value::show_duration,
};

pub(crate) static MAX_CHILDREN: TypedOption<usize> = TypedOption {
    def: OptionDef {
        key: "max_children",
        scope: Scope::EveryServer,
        flag: Some(
            Flag::new("--max-children", FlagKind::Text("N"))
                .heading(Heading::Server)
                .advanced(),
        ),
        env: Some("RETHREAD_MAX_CHILDREN"),
        default: DefaultValue::Text("100"),
        help: "Server processes at the same time; one that nobody needs makes room for the next",
        reload: Reload::ReplacesServer,
    },
    parse: |value| value::size(value, 1),
    show: usize::to_string,
};

pub(crate) static VERBOSE: OptionDef = OptionDef {
    key: "verbose",
    scope: Scope::Program,
    flag: Some(
        Flag::new("--verbose", FlagKind::Count)
            .short('v')
            .heading(Heading::Messages),
    ),
    env: None,
    default: DefaultValue::Unset,
    help: "Log more; -vv logs everything. RUST_LOG sets levels for each module",
    reload: Reload::Ignored,
};

pub(crate) static QUIET: OptionDef = OptionDef {
    key: "quiet",
    scope: Scope::Program,
    flag: Some(
        Flag::new("--quiet", FlagKind::Switch)
            .short('q')
            .heading(Heading::Messages),
    ),
    env: None,
    default: DefaultValue::Unset,
    help: "Log only errors",
    reload: Reload::Ignored,
};

pub(crate) static COLOR: TypedOption<ColorChoice> = TypedOption {
    def: OptionDef {
        key: "color",
        scope: Scope::Program,
        flag: Some(Flag::new("--color", FlagKind::Choice("WHEN", choices::<ColorChoice>)).heading(Heading::Messages)),
        env: Some("RETHREAD_COLOR"),
        default: DefaultValue::Text("auto"),
        help: "When to use colors; `auto` obeys NO_COLOR",
        reload: Reload::Ignored,
    },
    parse: value::choice,
    show: value::show_choice,
};

pub(crate) static LOG_FORMAT: TypedOption<LogFormat> = TypedOption {
    def: OptionDef {
        key: "log_format",
        scope: Scope::Program,
        flag: Some(
            Flag::new("--log-format", FlagKind::Choice("FORMAT", choices::<LogFormat>))
                .heading(Heading::Messages)
                .advanced(),
        ),
        env: Some("RETHREAD_LOG_FORMAT"),
        default: DefaultValue::Text("text"),
        help: "Format of the log on stderr",
        reload: Reload::Ignored,
    },
    parse: value::choice,
    show: value::show_choice,
};
