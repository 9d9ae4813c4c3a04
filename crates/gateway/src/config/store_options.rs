//! The options of the stores.

use super::option::{DefaultValue, Flag, FlagKind, Heading, OptionDef, Reload, Scope, TypedOption, choices};
use super::value;
use crate::settings::{RedisSettings, Settings, StoreSettings, SyncMode};
use rethread_store_redis::RedisUrl;
use std::time::Duration;

pub(crate) static DATA: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "data",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--data", FlagKind::Dir("DIR")).short('d')),
        env: Some("RETHREAD_DATA"),
        default: DefaultValue::Computed("$XDG_STATE_HOME/rethread or ~/.local/state/rethread"),
        help: "Directory for sessions and streams",
        reload: Reload::NeedsRestart {
            differs: |old, new| match (&old.store, &new.store) {
                (StoreSettings::Embedded { data: old, .. }, StoreSettings::Embedded { data: new, .. }) => old != new,
                _ => false,
            },
            keep: keep_store,
        },
    },
    parse: value::text,
    show: String::clone,
};

pub(crate) static MEMORY: TypedOption<bool> = TypedOption {
    def: OptionDef {
        key: "memory",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--memory", FlagKind::Switch).short('m')),
        env: Some("RETHREAD_MEMORY"),
        default: DefaultValue::Bool(false),
        help: "Keep sessions and streams in memory; they end with the gateway",
        reload: Reload::NeedsRestart {
            differs: |old, new| (old.store == StoreSettings::Memory) != (new.store == StoreSettings::Memory),
            keep: keep_store,
        },
    },
    parse: value::boolean,
    show: bool::to_string,
};

pub(crate) static SYNC: TypedOption<SyncMode> = TypedOption {
    def: OptionDef {
        key: "sync",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--sync", FlagKind::Choice("WHEN", choices::<SyncMode>)).advanced()),
        env: Some("RETHREAD_SYNC"),
        default: DefaultValue::Text("interval"),
        help: "When an event counts as stored",
        reload: Reload::NeedsRestart {
            differs: |old, new| match (&old.store, &new.store) {
                (StoreSettings::Embedded { sync: old, .. }, StoreSettings::Embedded { sync: new, .. }) => old != new,
                _ => false,
            },
            keep: keep_store,
        },
    },
    parse: value::choice,
    show: value::show_choice,
};

pub(crate) static STORE: TypedOption<RedisUrl> = TypedOption {
    def: OptionDef {
        key: "store",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--store", FlagKind::Url("URL")).heading(Heading::Nodes)),
        env: Some("RETHREAD_STORE"),
        default: DefaultValue::Unset,
        help: "Redis or Valkey server that several gateways share: redis://HOST",
        reload: Reload::NeedsRestart {
            differs: |old, new| old.store.redis().map(|redis| &redis.url) != new.store.redis().map(|redis| &redis.url),
            keep: keep_store,
        },
    },
    parse: value::store_url,
    show: RedisUrl::to_string,
};

pub(crate) static NODE_ID: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "node_id",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--node-id", FlagKind::Text("NAME")).heading(Heading::Nodes)),
        env: Some("RETHREAD_NODE_ID"),
        default: DefaultValue::Unset,
        help: "Name that no other gateway uses; a new gateway replaces the one with its name at once",
        reload: Reload::NeedsRestart {
            differs: |old, new| redis_differs(old, new, |old, new| old.node_id != new.node_id),
            keep: keep_store,
        },
    },
    parse: value::node_id,
    show: String::clone,
};

pub(crate) static LEASE: TypedOption<Duration> = TypedOption {
    def: OptionDef {
        key: "lease",
        scope: Scope::Gateway,
        flag: Some(
            Flag::new("--lease", FlagKind::Text("TIME"))
                .heading(Heading::Nodes)
                .advanced(),
        ),
        env: Some("RETHREAD_LEASE"),
        default: DefaultValue::Text("10s"),
        help: "Time without a sign of life after which other gateways act for this one; a bare number is seconds",
        reload: Reload::NeedsRestart {
            differs: |old, new| redis_differs(old, new, |old, new| old.lease != new.lease),
            keep: keep_store,
        },
    },
    parse: value::lease,
    show: value::show_duration,
};

pub(crate) static SECRET_FILE: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "secret_file",
        scope: Scope::Gateway,
        flag: Some(
            Flag::new("--secret-file", FlagKind::File("FILE"))
                .heading(Heading::Nodes)
                .advanced(),
        ),
        env: Some("RETHREAD_SECRET_FILE"),
        default: DefaultValue::Unset,
        help: "File with a secret that all gateways have; without it, the store has a random one",
        reload: Reload::NeedsRestart {
            differs: |old, new| redis_differs(old, new, |old, new| old.secret_file != new.secret_file),
            keep: keep_store,
        },
    },
    parse: value::text,
    show: String::clone,
};

/// Whether a setting of a shared store differs. Another kind of store is the change of another option.
fn redis_differs(old: &Settings, new: &Settings, differs: fn(&RedisSettings, &RedisSettings) -> bool) -> bool {
    let both = old.store.redis().zip(new.store.redis());
    both.is_some_and(|(old, new)| differs(old, new))
}

fn keep_store(old: &Settings, new: &mut Settings) {
    new.store.clone_from(&old.store);
}
