//! The command line: one definition, from which help, completions and the man page follow.

mod advice;
mod help;
mod page;

pub(crate) use page::{completions, man};

use crate::config::{CliInput, Found, LISTEN, Layer, Raw, Source};
use crate::exit::{Exit, Failure};
use crate::output::{LogFormat, OutputOptions};
use crate::settings::{EraSetting, RestoreSetting, SyncMode};
use clap::builder::FalseyValueParser;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;

/// Puts any MCP server behind Streamable HTTP and SSE.
///
/// Nothing is lost when a connection breaks: calls go on, and clients resume where they were.
#[derive(Parser)]
#[command(name = "rethread", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = help::SHORT, after_long_help = help::long(help::EXAMPLES))]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: Global,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a stdio MCP server, or those of a file, over HTTP
    #[command(after_help = help::SERVE_SHORT, after_long_help = help::long(help::SERVE))]
    Serve(ServeOptions),
    /// Print every effective value and where it came from, and check it
    ///
    /// Takes the options of `serve`, starts nothing, and ends with the code that `serve` would. Secrets are masked.
    #[command(after_long_help = help::long(help::CHECK))]
    Check(ServeOptions),
    /// See it work: a built-in server behind the gateway, and three things to try
    ///
    /// Needs no other program than this one, and curl to try things with.
    #[command(after_long_help = help::long(help::DEMO))]
    Demo(DemoOptions),
    /// Print a completion script for a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, of the program or of one of its commands
    #[command(after_help = help::MAN)]
    Man {
        /// The command to print the page of
        #[arg(value_name = "COMMAND", value_parser = ["serve", "check", "demo", "completions", "man"])]
        command: Option<String>,
    },
    /// The server behind `rethread demo`: MCP over stdin and stdout
    #[command(hide = true)]
    DemoServer,
    /// Ends the children of a gateway that died
    #[command(hide = true)]
    Guardian {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// How the program talks to people.
#[derive(Args)]
#[command(next_help_heading = "Messages")]
struct Global {
    /// Say more; twice for everything. RUST_LOG says it in detail
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,
    /// Say only what went wrong
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Use colours; `auto` does on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true
    )]
    #[arg(env = "RETHREAD_COLOR", hide_env = true)]
    color: ColorChoice,
    /// The form of the log on stderr
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text",
        env = "RETHREAD_LOG_FORMAT"
    )]
    #[arg(hide_default_value = true, hide_env = true, hide_short_help = true)]
    log_format: LogFormat,
}

/// Values are texts here; `config` reads them as it reads those of a file, so that both have the same errors.
#[derive(Args)]
struct ServeOptions {
    /// Where to listen; port 0 picks a free one [default: 127.0.0.1:8080]
    #[arg(short, long, value_name = "ADDR", env = "RETHREAD_LISTEN", hide_env = true)]
    listen: Option<String>,
    /// A TOML file with servers in it, read again on SIGHUP
    #[arg(short, long, value_name = "FILE", env = "RETHREAD_CONFIG", hide_env = true, value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Keep sessions and streams in this folder [default: $XDG_STATE_HOME/rethread or ~/.local/state/rethread]
    #[arg(short, long, value_name = "DIR", env = "RETHREAD_DATA", hide_env = true, value_hint = ValueHint::DirPath)]
    data: Option<String>,
    /// Keep sessions and streams in memory only: they end with the gateway
    #[arg(short, long, env = "RETHREAD_MEMORY", hide_env = true, value_parser = FalseyValueParser::new())]
    memory: bool,
    /// When something counts as written [default: interval]
    #[arg(
        long,
        value_name = "WHEN",
        env = "RETHREAD_SYNC",
        hide_env = true,
        hide_short_help = true
    )]
    sync: Option<SyncMode>,

    /// Public URL of the gateway when it runs behind a reverse proxy
    #[arg(long, value_name = "URL", env = "RETHREAD_PUBLIC_URL", hide_env = true, value_hint = ValueHint::Url)]
    #[arg(help_heading = "Clients")]
    public_url: Option<String>,
    /// One more Host to answer to, besides the loopback names. May be repeated
    #[arg(
        long,
        value_name = "HOST",
        env = "RETHREAD_ALLOW_HOST",
        hide_env = true,
        value_delimiter = ','
    )]
    #[arg(help_heading = "Clients")]
    allow_host: Vec<String>,
    /// One more Origin whose pages may call, besides the loopback ones. May be repeated
    #[arg(
        long,
        value_name = "ORIGIN",
        env = "RETHREAD_ALLOW_ORIGIN",
        hide_env = true,
        value_delimiter = ','
    )]
    #[arg(help_heading = "Clients")]
    allow_origin: Vec<String>,
    /// How long clients are asked to wait before they reconnect, in milliseconds [default: 1000]
    #[arg(
        long,
        value_name = "MS",
        env = "RETHREAD_RETRY_MS",
        hide_env = true,
        hide_short_help = true
    )]
    #[arg(help_heading = "Clients")]
    retry_ms: Option<String>,
    /// A session that nobody uses ends after this [default: 30m]
    #[arg(
        long,
        value_name = "TIME",
        env = "RETHREAD_SESSION_IDLE",
        hide_env = true,
        hide_short_help = true
    )]
    #[arg(help_heading = "Clients")]
    session_idle: Option<String>,
    /// How long running calls may take to finish when the gateway stops [default: 10s]
    #[arg(
        long,
        value_name = "TIME",
        env = "RETHREAD_DRAIN",
        hide_env = true,
        hide_short_help = true
    )]
    #[arg(help_heading = "Clients")]
    drain: Option<String>,
    /// How many connections one address may have; 0 for no limit. Beyond: 429. A proxy is one address [default: 1024]
    #[arg(
        long,
        value_name = "N",
        env = "RETHREAD_MAX_CONNECTIONS_PER_PEER",
        hide_env = true,
        hide_short_help = true
    )]
    #[arg(help_heading = "Clients")]
    max_connections_per_peer: Option<String>,

    /// What to call the server, in the log and on the disk [default: from the command]
    #[arg(
        long,
        value_name = "NAME",
        env = "RETHREAD_NAME",
        hide_env = true,
        help_heading = "Server"
    )]
    name: Option<String>,
    /// Set a variable for the server, which also has the gateway's own. May be repeated
    #[arg(short, long, value_name = "KEY=VALUE", help_heading = "Server")]
    env: Vec<String>,
    /// The directory to run the server in
    #[arg(long, value_name = "DIR", env = "RETHREAD_CWD", hide_env = true, value_hint = ValueHint::DirPath)]
    #[arg(help_heading = "Server")]
    cwd: Option<String>,
    /// Which protocol era the server speaks [default: probe]
    #[arg(
        long,
        value_name = "ERA",
        env = "RETHREAD_ERA",
        hide_env = true,
        hide_short_help = true
    )]
    #[arg(help_heading = "Server")]
    era: Option<EraSetting>,
    /// What becomes of a session whose server process is gone [default: replay]
    #[arg(
        long,
        value_name = "HOW",
        env = "RETHREAD_RESTORE",
        hide_env = true,
        hide_short_help = true
    )]
    #[arg(help_heading = "Server")]
    restore: Option<RestoreSetting>,
    /// A server process must answer by then [default: 30s]
    #[arg(
        long,
        value_name = "TIME",
        env = "RETHREAD_START_TIMEOUT",
        hide_env = true,
        hide_short_help = true
    )]
    #[arg(help_heading = "Server")]
    start_timeout: Option<String>,
    /// How many server processes at a time, one per session; more clients get 503 [default: 100]
    #[arg(
        long,
        value_name = "N",
        env = "RETHREAD_MAX_CHILDREN",
        hide_env = true,
        hide_short_help = true
    )]
    #[arg(help_heading = "Server")]
    max_children: Option<String>,

    /// The stdio MCP server to run, and its arguments
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<String>,
}

/// What `rethread demo` takes.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub(crate) struct DemoOptions {
    /// Where to listen [default: 127.0.0.1:8080, or a free port if that is taken]
    #[arg(short, long, value_name = "ADDR", env = "RETHREAD_LISTEN", hide_env = true)]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Keep sessions and streams in this folder, so that they survive a restart [default: memory]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,
}

/// What to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Job {
    /// Serve.
    Serve(CliInput),
    /// Print and check what `serve` would do.
    Check(CliInput),
    /// Serve the built-in server.
    Demo(DemoOptions),
    /// Be the built-in server.
    DemoServer,
    /// Be the guardian.
    Guardian,
    /// Print a completion script.
    Completions(Shell),
    /// Print a manual page.
    Man(Option<String>),
}

/// What the command line says. Ends the process, with help or with an error, if it says nothing to do.
pub(crate) fn parse() -> (Job, OutputOptions) {
    parse_from(std::env::args_os()).unwrap_or_else(|error| {
        let args: Vec<String> = std::env::args_os()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect();
        advice::exit(&advice::advise(error, &args), &args)
    })
}

fn parse_from(
    args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<(Job, OutputOptions), clap::Error> {
    let matches = Cli::command().try_get_matches_from(args)?;
    let Cli { command, global } = Cli::from_arg_matches(&matches)?;
    let (_, matches) = matches.subcommand().expect("clap insists on a command");
    let job = match command {
        Command::Serve(options) => Job::Serve(options.given(matches)),
        Command::Check(options) => Job::Check(options.given(matches)),
        Command::Demo(options) => Job::Demo(options),
        Command::DemoServer => Job::DemoServer,
        Command::Guardian { args: _ } => Job::Guardian,
        Command::Completions { shell } => Job::Completions(shell),
        Command::Man { command } => Job::Man(command),
    };
    let talk = OutputOptions {
        verbose: global.verbose,
        quiet: global.quiet,
        color: global.color,
        format: global.log_format,
    };
    Ok((job, talk))
}

impl ServeOptions {
    /// The values, each with the flag or the variable that gave it.
    fn given(self, matches: &ArgMatches) -> CliInput {
        let source = |flag: &'static str, env: &'static str| {
            let id = flag.trim_start_matches('-').replace('-', "_");
            match matches.value_source(&id) {
                Some(ValueSource::CommandLine) => Some(Source::Flag(flag)),
                Some(ValueSource::EnvVariable) => Some(Source::Env(env)),
                _ => None,
            }
        };
        let mut layer = Layer::new();
        let mut put = |key: &str, flag, env, raw: Option<Raw>| {
            // A variable that is set to nothing, as compose files do, is as good as not set.
            let raw = raw.filter(|raw| *raw != Raw::Text(String::new()) && *raw != Raw::List(vec![String::new()]));
            if let Some((raw, source)) = raw.zip(source(flag, env)) {
                layer.insert(key.to_owned(), Found { raw, source });
            }
        };
        let text = |value: Option<String>| value.map(Raw::Text);
        let list = |values: Vec<String>| Some(Raw::List(values));
        put("listen", "--listen", "RETHREAD_LISTEN", text(self.listen));
        put("data", "--data", "RETHREAD_DATA", text(self.data));
        put("memory", "--memory", "RETHREAD_MEMORY", Some(Raw::Bool(self.memory)));
        put("sync", "--sync", "RETHREAD_SYNC", choice(self.sync));
        put(
            "public_url",
            "--public-url",
            "RETHREAD_PUBLIC_URL",
            text(self.public_url),
        );
        put(
            "allow_hosts",
            "--allow-host",
            "RETHREAD_ALLOW_HOST",
            list(self.allow_host),
        );
        put(
            "allow_origins",
            "--allow-origin",
            "RETHREAD_ALLOW_ORIGIN",
            list(self.allow_origin),
        );
        put("retry_ms", "--retry-ms", "RETHREAD_RETRY_MS", text(self.retry_ms));
        put(
            "session_idle",
            "--session-idle",
            "RETHREAD_SESSION_IDLE",
            text(self.session_idle),
        );
        put("drain", "--drain", "RETHREAD_DRAIN", text(self.drain));
        put(
            "max_connections_per_peer",
            "--max-connections-per-peer",
            "RETHREAD_MAX_CONNECTIONS_PER_PEER",
            text(self.max_connections_per_peer),
        );
        put("name", "--name", "RETHREAD_NAME", text(self.name));
        put("env", "--env", "", list(self.env));
        put("cwd", "--cwd", "RETHREAD_CWD", text(self.cwd));
        put("era", "--era", "RETHREAD_ERA", choice(self.era));
        put("restore", "--restore", "RETHREAD_RESTORE", choice(self.restore));
        put(
            "start_timeout",
            "--start-timeout",
            "RETHREAD_START_TIMEOUT",
            text(self.start_timeout),
        );
        put(
            "max_children",
            "--max-children",
            "RETHREAD_MAX_CHILDREN",
            text(self.max_children),
        );
        let color = matches.get_one::<ColorChoice>("color").copied();
        put("color", "--color", "RETHREAD_COLOR", choice(color));
        let format = matches.get_one::<LogFormat>("log_format").copied();
        put("log_format", "--log-format", "RETHREAD_LOG_FORMAT", choice(format));
        let config = self.config.filter(|path| !path.as_os_str().is_empty());
        CliInput {
            config: config.zip(source("--config", "RETHREAD_CONFIG")),
            layer,
            command: self.command,
        }
    }
}

fn choice<T: clap::ValueEnum>(value: Option<T>) -> Option<Raw> {
    let value = value?.to_possible_value()?;
    Some(Raw::Text(value.get_name().to_owned()))
}

/// Writes data to stdout. A reader that went away, such as `head`, is no failure.
pub(crate) fn print(data: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(data).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Failure, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(args: &[&str]) -> CliInput {
        let args = ["rethread", "serve"].into_iter().chain(args.iter().copied());
        match parse_from(args).unwrap().0 {
            Job::Serve(given) => given,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn everything_after_the_dashes_is_the_command() {
        let given = given(&["--memory", "--", "npx", "-y", "--memory", "--", "x"]);
        assert_eq!(given.command, ["npx", "-y", "--memory", "--", "x"]);
        assert_eq!(given.layer["memory"].source, Source::Flag("--memory"));
    }

    #[test]
    fn what_was_not_given_is_not_there() {
        assert_eq!(given(&["--", "a"]).layer, Layer::new());
    }

    #[test]
    fn every_option_knows_its_flag() {
        let line = "--listen a --data b --sync os --public-url c --allow-host d,e --allow-origin f --retry-ms 1 \
                    --session-idle 2 --drain 3 --name g --env h=i --env j=k,l --cwd m --era dual --restore expire \
                    --start-timeout 4 --max-children 5 --config n --memory --max-connections-per-peer 6";
        let given = given(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(given.layer.len(), 18);
        for (key, found) in &given.layer {
            let flag = format!("--{}", key.replace('_', "-"));
            let Source::Flag(known) = found.source else {
                panic!("{key}")
            };
            assert!(flag == known || flag == format!("{known}s"), "{key} comes from {known}");
        }
        let list = |words: &[&str]| Raw::List(words.iter().map(|&word| word.to_owned()).collect());
        assert_eq!(given.layer["allow_hosts"].raw, list(&["d", "e"]));
        assert_eq!(given.layer["env"].raw, list(&["h=i", "j=k,l"]));
        assert_eq!(given.config, Some(("n".into(), Source::Flag("--config"))));
    }
}
