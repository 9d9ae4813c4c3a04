//! The options of child processes and of hosts that use sessions in their own way.

use super::layer::{ConfigValue, Layer, Source};
use super::option::{DefaultValue, Flag, FlagKind, Heading, OptionDef, Reload, Scope, TypedOption, choices};
use super::options;
use super::problem::Problem;
use super::resolver::Resolver;
use super::value::{self, ParseResult};
use crate::settings::{IdentitySetting, RestoreSetting, SessionlessSetting};
use std::time::Duration;

/// The default of `child_idle`, if a stopped child does not end its session.
const DEFAULT_CHILD_IDLE: Duration = Duration::from_secs(60);
/// The value that turns a time limit off.
const NEVER: &str = "never";

pub(crate) static CHILD_IDLE: TypedOption<Option<Duration>> = TypedOption {
    def: OptionDef {
        key: "child_idle",
        scope: Scope::EveryServer,
        flag: Some(
            Flag::new("--child-idle", FlagKind::Text("TIME"))
                .heading(Heading::Server)
                .advanced(),
        ),
        env: Some("RETHREAD_CHILD_IDLE"),
        default: DefaultValue::Computed("60s, or never with `restore = expire`"),
        help: "When to stop a process that nobody needs; its session goes on. `never` keeps its memory",
        reload: Reload::ReplacesServer,
    },
    parse: time_or_never,
    show: |time| time.as_ref().map_or_else(|| NEVER.to_owned(), value::show_duration),
};

pub(crate) static SPARE: TypedOption<usize> = TypedOption {
    def: OptionDef {
        key: "spare",
        scope: Scope::EveryServer,
        flag: Some(
            Flag::new("--spare", FlagKind::Text("N"))
                .heading(Heading::Server)
                .advanced(),
        ),
        env: Some("RETHREAD_SPARE"),
        default: DefaultValue::Text("0"),
        help: "Processes to start before a client needs them; 1 helps with a server that starts slowly",
        reload: Reload::ReplacesServer,
    },
    parse: |value| value::size(value, 0),
    show: usize::to_string,
};

pub(crate) static SESSION_UNUSED: TypedOption<Duration> = TypedOption {
    def: OptionDef {
        key: "session_unused",
        scope: Scope::Gateway,
        flag: Some(
            Flag::new("--session-unused", FlagKind::Text("TIME"))
                .heading(Heading::Clients)
                .advanced(),
        ),
        env: Some("RETHREAD_SESSION_UNUSED"),
        default: DefaultValue::Text("5m"),
        help: "How long a session may be unused before it leaves the memory",
        reload: Reload::NeedsRestart {
            differs: |old, new| old.session_unused != new.session_unused,
            keep: |old, new| new.session_unused = old.session_unused,
        },
    },
    parse: value::positive_duration,
    show: value::show_duration,
};

pub(crate) static SESSIONLESS: TypedOption<SessionlessSetting> = TypedOption {
    def: OptionDef {
        key: "sessionless",
        scope: Scope::Gateway,
        flag: Some(
            Flag::new("--sessionless", FlagKind::Choice("HOW", choices::<SessionlessSetting>))
                .heading(Heading::Clients)
                .advanced(),
        ),
        env: Some("RETHREAD_SESSIONLESS"),
        default: DefaultValue::Text("serve"),
        help: "How to treat requests of hosts that never send the session id",
        reload: Reload::NeedsRestart {
            differs: |old, new| old.sessionless != new.sessionless,
            keep: |old, new| new.sessionless = old.sessionless,
        },
    },
    parse: value::choice,
    show: value::show_choice,
};

fn time_or_never(value: &ConfigValue) -> ParseResult<Option<Duration>> {
    if value.to_string() == NEVER {
        return Ok(None);
    }
    let time = value::positive_duration(value).map_err(|problem| problem.hint("60s, or `never`"));
    time.map(Some)
}

/// The children of one server.
pub(super) struct ChildSettings {
    pub(super) max_children: usize,
    pub(super) child_idle: Option<Duration>,
    pub(super) spare: usize,
}

impl Resolver<'_> {
    pub(super) fn children(
        &mut self,
        server: &str,
        section: &Layer,
        restore: RestoreSetting,
        identity: IdentitySetting,
    ) -> ChildSettings {
        let max_children = self.server_value(server, section, &options::MAX_CHILDREN);
        let child_idle = self.child_idle(server, section, restore);
        let spare = self.server_value(server, section, &SPARE);
        if let Some(source) = self.find(Some(section), SPARE.def.key).map(|found| found.source) {
            if spare >= max_children {
                let problem = Problem::new(format!(
                    "{spare} spare processes leave no room for clients: `max_children` is {max_children}"
                ));
                self.problems.push(problem.at(&source).hint("spare = 1"));
            }
            if spare > 0 && identity == IdentitySetting::Env {
                let problem = Problem::new("a spare process cannot know its caller from its environment");
                let hint = "spare = 0, or identity = \"meta\"";
                self.problems.push(problem.at(&source).hint(hint));
            }
        }
        ChildSettings {
            max_children,
            child_idle,
            spare,
        }
    }

    /// A process that is stopped ends its session with `restore = expire`, so that must be asked for.
    fn child_idle(&mut self, server: &str, section: &Layer, restore: RestoreSetting) -> Option<Duration> {
        let found = self.find(Some(section), CHILD_IDLE.def.key);
        let parsed = found.as_ref().and_then(|found| self.parse(&CHILD_IDLE, found));
        let source = found.map_or(Source::Default, |found| found.source);
        let child_idle = parsed.unwrap_or_else(|| (restore == RestoreSetting::Replay).then_some(DEFAULT_CHILD_IDLE));
        self.add_row(
            Some(server),
            CHILD_IDLE.def.key,
            (CHILD_IDLE.show)(&child_idle),
            &source,
        );
        child_idle
    }
}
