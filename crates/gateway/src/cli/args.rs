//! Converts the option table to clap arguments, and their matches to values.

use crate::config::options::{self, OPTIONS};
use crate::config::{ConfigValue, FlagKind, Heading, Layer, OptionDef, Scope, Source, SourcedValue, TypedOption};
use clap::builder::{FalseyValueParser, PossibleValuesParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, ValueHint, value_parser};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The flags in some sections of the help, in the order of the table.
pub(super) fn with_heading(select: fn(Heading) -> bool) -> impl Iterator<Item = Arg> {
    let options = OPTIONS.iter().filter(move |option| {
        let flag = option.flag.as_ref();
        flag.is_some_and(|flag| select(flag.heading))
    });
    options.filter_map(|option| arg(option))
}

/// The clap argument of an option. Its id is the key.
///
/// Values are text here. The resolver parses them like values of a file, so that both get the same errors.
pub(super) fn arg(option: &'static OptionDef) -> Option<Arg> {
    let flag = option.flag.as_ref()?;
    let mut arg = Arg::new(option.key)
        .long(flag.long.trim_start_matches('-'))
        .short(flag.short)
        .help(option.help_with_default())
        .hide_short_help(flag.advanced)
        .env(option.env)
        .hide_env(true);
    arg = match flag.heading {
        Heading::Options => arg,
        Heading::Nodes => arg.help_heading("Several gateways"),
        Heading::Clients => arg.help_heading("Clients"),
        Heading::Auth => arg.help_heading("Who may call"),
        Heading::Operation => arg.help_heading("Operation"),
        Heading::Server => arg.help_heading("Server"),
        Heading::Messages => arg.help_heading("Messages").global(true),
    };
    Some(match flag.kind {
        FlagKind::Switch => arg.action(ArgAction::SetTrue).value_parser(FalseyValueParser::new()),
        FlagKind::Count => arg.action(ArgAction::Count),
        FlagKind::Text(name) => arg.value_name(name),
        FlagKind::Url(name) => arg.value_name(name).value_hint(ValueHint::Url),
        FlagKind::Dir(name) => arg.value_name(name).value_hint(ValueHint::DirPath),
        FlagKind::File(name) => arg
            .value_name(name)
            .value_hint(ValueHint::FilePath)
            .value_parser(value_parser!(PathBuf)),
        FlagKind::Choice(name, choices) => arg.value_name(name).value_parser(PossibleValuesParser::new(choices())),
        FlagKind::List(name) => arg.value_name(name).action(ArgAction::Append),
        FlagKind::CommaList(name) => arg.value_name(name).action(ArgAction::Append).value_delimiter(','),
    })
}

/// A clap value parser for addresses.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let parsed = (options::LISTEN.parse)(&ConfigValue::Text(text.to_owned()));
    parsed.map_err(|problem| problem.message)
}

/// The values of a command line.
pub(super) struct Matches<'a>(pub(super) &'a ArgMatches);

impl Matches<'_> {
    /// The values of all options that the resolver takes.
    pub(super) fn layer(&self) -> Layer {
        let values = OPTIONS.iter().filter_map(|option| {
            let (value, source) = (self.value(option)?, self.source(option)?);
            Some((option.key.to_owned(), SourcedValue { value, source }))
        });
        values.collect()
    }

    pub(super) fn config_file(&self) -> Option<(PathBuf, Source)> {
        let path = self.0.get_one::<PathBuf>(options::CONFIG.key)?;
        let path = Some(path.clone()).filter(|path| !path.as_os_str().is_empty());
        path.zip(self.source(&options::CONFIG))
    }

    /// The value of an option that clap has checked, or its default.
    pub(super) fn choice<T>(&self, option: &TypedOption<T>) -> T {
        let value = self.value(&option.def);
        let parsed = value.and_then(|value| (option.parse)(&value).ok());
        parsed.unwrap_or_else(|| option.default_value())
    }

    /// None if the option is absent. An empty variable, as compose files set it, counts as absent.
    fn value(&self, option: &OptionDef) -> Option<ConfigValue> {
        let one = || self.0.get_one::<String>(option.key).cloned();
        match option.flag.as_ref()?.kind {
            FlagKind::Count => None,
            FlagKind::File(_) if option.scope == Scope::Program => None, // see `config_file`
            FlagKind::File(_) => {
                let path = self.0.get_one::<PathBuf>(option.key)?;
                let path = Some(path.to_string_lossy().into_owned());
                path.filter(|path| !path.is_empty()).map(ConfigValue::Text)
            }
            FlagKind::Switch => Some(ConfigValue::Bool(self.0.get_flag(option.key))),
            FlagKind::Text(_) | FlagKind::Url(_) | FlagKind::Dir(_) | FlagKind::Choice(..) => {
                one().filter(|text| !text.is_empty()).map(ConfigValue::Text)
            }
            FlagKind::List(_) | FlagKind::CommaList(_) => {
                let list: Vec<String> = self.0.get_many(option.key)?.cloned().collect();
                (list != [""]).then_some(ConfigValue::List(list))
            }
        }
    }

    fn source(&self, option: &OptionDef) -> Option<Source> {
        match self.0.value_source(option.key)? {
            ValueSource::CommandLine => Some(Source::Flag(option.flag.as_ref()?.long)),
            ValueSource::EnvVariable => option.env.map(Source::Env),
            _ => None,
        }
    }
}
