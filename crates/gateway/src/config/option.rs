//! The types of the option table in `options.rs`.

use super::layer::ConfigValue;
use super::value::ParseResult;
use crate::settings::Settings;
use clap::ValueEnum;
use clap::builder::PossibleValue;

/// One option of the program. Command line, file, environment, help, `check` and reload all read this definition.
pub(crate) struct OptionDef {
    /// The key in the file and in `check`.
    pub(crate) key: &'static str,
    pub(crate) scope: Scope,
    pub(crate) flag: Option<Flag>,
    /// The environment variable with the meaning of the flag.
    pub(crate) env: Option<&'static str>,
    pub(crate) default: DefaultValue,
    pub(crate) help: &'static str,
    pub(crate) reload: Reload,
}

/// An option with the type of its value.
pub(crate) struct TypedOption<T: 'static> {
    pub(crate) def: OptionDef,
    /// Parses a value of any source.
    pub(crate) parse: fn(&ConfigValue) -> ParseResult<T>,
    /// Formats a value for `check`.
    pub(crate) show: fn(&T) -> String,
}

/// The part of the program that an option configures, and its place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The program. Not in a file.
    Program,
    /// The gateway. At the top of a file.
    Gateway,
    /// Every server. At the top of a file, or below `[servers.NAME]`.
    EveryServer,
    /// One server. Below `[servers.NAME]`, or a flag for the command after `--`.
    OneServer,
    /// One issuer of JWTs. Below `[auth.jwt.NAME]`, or a flag for the provider `idp`.
    Provider,
    /// The command after `--`. A file has `NAME` in its place.
    Command,
}

impl Scope {
    pub(crate) fn is_file_top(self) -> bool {
        matches!(self, Scope::Gateway | Scope::EveryServer)
    }

    pub(crate) fn is_file_server(self) -> bool {
        matches!(self, Scope::EveryServer | Scope::OneServer)
    }
}

/// The flag of an option.
pub(crate) struct Flag {
    /// With its dashes: `--listen`.
    pub(crate) long: &'static str,
    pub(crate) short: Option<char>,
    pub(crate) kind: FlagKind,
    pub(crate) heading: Heading,
    /// Not shown by `-h`.
    pub(crate) advanced: bool,
}

/// The values that a flag takes. A `&'static str` is the placeholder in the help.
pub(crate) enum FlagKind {
    /// None. The variable is false if it is empty, `0`, `n`, `no`, `f`, `false` or `off`.
    Switch,
    /// None. The flag may be repeated.
    Count,
    Text(&'static str),
    Url(&'static str),
    Dir(&'static str),
    File(&'static str),
    /// One of a few texts.
    Choice(&'static str, fn() -> Vec<PossibleValue>),
    /// A text. The flag may be repeated.
    List(&'static str),
    /// One text or several separated by commas. The flag may be repeated.
    CommaList(&'static str),
}

/// The section of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heading {
    Options,
    /// For several gateways behind a load balancer.
    Nodes,
    Clients,
    /// For the authentication of callers.
    Auth,
    /// For the people who operate the gateway.
    Operation,
    Server,
    /// For flags of all commands.
    Messages,
}

/// The value of an option that no source sets.
pub(crate) enum DefaultValue {
    /// The option has no value.
    Unset,
    /// Written as for a flag.
    Text(&'static str),
    Bool(bool),
    EmptyList,
    /// Computed from the environment or another value. The text describes it in the help.
    Computed(&'static str),
}

/// The effect of SIGHUP on an option. `differs` and `keep` take the old settings first.
pub(crate) enum Reload {
    /// None: a running program keeps its command line.
    Ignored,
    /// The new value takes effect.
    Applied { differs: fn(&Settings, &Settings) -> bool },
    /// The old value stays, and the log names the key.
    NeedsRestart {
        differs: fn(&Settings, &Settings) -> bool,
        keep: fn(&Settings, &mut Settings),
    },
    /// The gateway replaces each server whose settings changed.
    ReplacesServer,
}

impl Flag {
    pub(super) const fn new(long: &'static str, kind: FlagKind) -> Self {
        Flag {
            long,
            short: None,
            kind,
            heading: Heading::Options,
            advanced: false,
        }
    }

    pub(super) const fn short(mut self, short: char) -> Self {
        self.short = Some(short);
        self
    }

    pub(super) const fn heading(mut self, heading: Heading) -> Self {
        self.heading = heading;
        self
    }

    pub(super) const fn advanced(mut self) -> Self {
        self.advanced = true;
        self
    }
}

impl OptionDef {
    /// The help with the default.
    pub(crate) fn help_with_default(&self) -> String {
        match self.default {
            DefaultValue::Text(default) | DefaultValue::Computed(default) => {
                format!("{} [default: {default}]", self.help)
            }
            _ => self.help.to_owned(),
        }
    }
}

impl<T> TypedOption<T> {
    /// The default. Only for options whose default is a fixed value.
    pub(crate) fn default_value(&self) -> T {
        let value = match self.def.default {
            DefaultValue::Text(text) => ConfigValue::Text(text.to_owned()),
            DefaultValue::Bool(on) => ConfigValue::Bool(on),
            DefaultValue::EmptyList => ConfigValue::List(Vec::new()),
            DefaultValue::Unset | DefaultValue::Computed(_) => panic!("`{}` has no fixed default", self.def.key),
        };
        (self.parse)(&value).expect("the default of an option is valid")
    }
}

/// The values of a [`FlagKind::Choice`].
pub(super) fn choices<T: ValueEnum>() -> Vec<PossibleValue> {
    let variants = T::value_variants().iter();
    variants.filter_map(T::to_possible_value).collect()
}

#[cfg(test)]
mod tests {
    use super::super::options::OPTIONS;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_are_unique() {
        let keys: BTreeSet<_> = OPTIONS.iter().map(|option| option.key).collect();
        assert_eq!(keys.len(), OPTIONS.len());
    }

    #[test]
    fn variables_follow_from_flags_and_flags_from_keys() {
        for option in OPTIONS {
            let Some(flag) = &option.flag else {
                assert_eq!(option.env, None, "{}", option.key);
                continue;
            };
            let from_flag = flag.long.trim_start_matches('-').replace('-', "_");
            let plural = format!("{from_flag}s"); // a list in the file, one value for each flag
            let key = option.key.rsplit('.').next().unwrap(); // without the table
            let with_table = option.key.replace('.', "_");
            let table = option.key.split('.').next().unwrap(); // `--admin ADDR` is `listen` of `[admin]`
            let named = [from_flag.clone(), plural];
            assert!(
                named.contains(&key.to_owned()) || named.contains(&with_table) || table == from_flag,
                "{}",
                flag.long
            );
            if let Some(env) = option.env {
                assert_eq!(env, format!("RETHREAD_{}", from_flag.to_uppercase()));
            }
        }
    }

    #[test]
    fn every_option_of_a_file_has_a_reload_rule() {
        for option in OPTIONS {
            let fits = match option.scope {
                Scope::Program | Scope::Command => matches!(option.reload, Reload::Ignored),
                Scope::Gateway | Scope::Provider => {
                    matches!(option.reload, Reload::Applied { .. } | Reload::NeedsRestart { .. })
                }
                Scope::EveryServer | Scope::OneServer => matches!(option.reload, Reload::ReplacesServer),
            };
            assert!(fits, "{}", option.key);
        }
    }
}
