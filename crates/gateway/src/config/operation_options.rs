//! The options of metrics and the audit log.

use super::option::{DefaultValue, Flag, FlagKind, Heading, OptionDef, Reload, Scope, TypedOption};
use super::resolver::Resolver;
use super::value;
use crate::settings::OperationSettings;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

const METRICS_KEY: &str = "metrics";
const DEFAULT_METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);

pub(crate) static METRICS: TypedOption<SocketAddr> = TypedOption {
    def: OptionDef {
        key: "metrics.listen",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--metrics", FlagKind::Text("ADDR")).heading(Heading::Operation)),
        env: Some("RETHREAD_METRICS"),
        default: DefaultValue::Unset,
        help: "Serve /metrics, /healthz and /readyz at this address, without a token",
        reload: Reload::NeedsRestart {
            differs: |old, new| old.operation.metrics != new.operation.metrics,
            keep: |old, new| new.operation.metrics = old.operation.metrics,
        },
    },
    parse: value::address,
    show: SocketAddr::to_string,
};

pub(crate) static METRICS_TOOLS: TypedOption<bool> = TypedOption {
    def: OptionDef {
        key: "metrics.tools",
        scope: Scope::Gateway,
        flag: None,
        env: None,
        default: DefaultValue::Bool(false),
        help: "Metrics name the tool of a call: up to 200 names that the server has listed",
        reload: Reload::NeedsRestart {
            differs: |old, new| old.operation.label_tools != new.operation.label_tools,
            keep: |old, new| new.operation.label_tools = old.operation.label_tools,
        },
    },
    parse: value::boolean,
    show: bool::to_string,
};

pub(crate) static AUDIT: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "audit.file",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--audit", FlagKind::File("FILE")).heading(Heading::Operation)),
        env: Some("RETHREAD_AUDIT"),
        default: DefaultValue::Unset,
        help: "Append who called which tool, and the outcome, as JSON lines",
        reload: Reload::NeedsRestart {
            differs: |old, new| old.operation.audit != new.operation.audit,
            keep: |old, new| new.operation.audit.clone_from(&old.operation.audit),
        },
    },
    parse: value::text,
    show: String::clone,
};

pub(crate) static AUDIT_PARAMS: TypedOption<bool> = TypedOption {
    def: OptionDef {
        key: "audit.params",
        scope: Scope::Gateway,
        flag: None,
        env: None,
        default: DefaultValue::Bool(false),
        help: "The audit log has the parameters of calls, cut at 4 KiB. They may contain secrets",
        reload: Reload::NeedsRestart {
            differs: |old, new| old.operation.audit_params != new.operation.audit_params,
            keep: |old, new| new.operation.audit_params = old.operation.audit_params,
        },
    },
    parse: value::boolean,
    show: bool::to_string,
};

pub(crate) static OTLP: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "otlp",
        scope: Scope::Gateway,
        flag: Some(
            Flag::new("--otlp", FlagKind::Url("URL"))
                .heading(Heading::Operation)
                .advanced(),
        ),
        env: Some("RETHREAD_OTLP"),
        default: DefaultValue::Computed("$OTEL_EXPORTER_OTLP_ENDPOINT; without it, no traces"),
        help: "Send traces to this OTLP collector (HTTP, protobuf)",
        reload: Reload::NeedsRestart {
            differs: |old, new| old.operation.otlp != new.operation.otlp,
            keep: |old, new| new.operation.otlp.clone_from(&old.operation.otlp),
        },
    },
    parse: value::public_url,
    show: String::clone,
};

pub(crate) static TAPE: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "tape",
        scope: Scope::Gateway,
        flag: Some(
            Flag::new("--tape", FlagKind::Dir("DIR"))
                .heading(Heading::Operation)
                .advanced(),
        ),
        env: Some("RETHREAD_TAPE"),
        default: DefaultValue::Unset,
        help: "Record the shapes of all messages in this directory, at most 256 MiB; `rethread tape` prints them",
        reload: Reload::NeedsRestart {
            differs: |old, new| old.operation.tape != new.operation.tape,
            keep: |old, new| new.operation.tape.clone_from(&old.operation.tape),
        },
    },
    parse: value::text,
    show: String::clone,
};

pub(crate) static TAPE_PAYLOADS: TypedOption<bool> = TypedOption {
    def: OptionDef {
        key: "tape_payloads",
        scope: Scope::Gateway,
        flag: Some(
            Flag::new("--tape-payloads", FlagKind::Switch)
                .heading(Heading::Operation)
                .advanced(),
        ),
        env: Some("RETHREAD_TAPE_PAYLOADS"),
        default: DefaultValue::Bool(false),
        help: "Tapes have whole messages. Only members whose names say that they are secret are removed",
        reload: Reload::NeedsRestart {
            differs: |old, new| old.operation.tape_payloads != new.operation.tape_payloads,
            keep: |old, new| new.operation.tape_payloads = old.operation.tape_payloads,
        },
    },
    parse: value::boolean,
    show: bool::to_string,
};

impl Resolver<'_> {
    /// `[metrics]` and `[audit]`.
    pub(super) fn operation(&mut self) -> OperationSettings {
        // The table alone turns the listener on, as `[admin]` does.
        let has_table = self.file.get(METRICS_KEY).is_some();
        let metrics = self.optional(&METRICS).or(has_table.then_some(DEFAULT_METRICS));
        let label_tools = self.value(&METRICS_TOOLS);
        let audit = self.optional_path(&AUDIT);
        let tape = self.optional_path(&TAPE);
        OperationSettings {
            metrics,
            label_tools,
            audit,
            audit_params: self.value(&AUDIT_PARAMS),
            otlp: self.optional(&OTLP),
            tape,
            tape_payloads: self.value(&TAPE_PAYLOADS),
        }
    }

    fn optional_path(&mut self, option: &TypedOption<String>) -> Option<PathBuf> {
        let text = self.optional(option)?;
        let source = self.find(None, option.def.key)?.source;
        Some(self.path(&source, &text))
    }
}
