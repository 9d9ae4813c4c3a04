//! The command line. Its flags come from the option table; help, completions and manual pages follow from it.

mod advice;
mod args;
mod help;
mod page;

pub(crate) use page::{completions, man};

use crate::client_entry::ClientKind;
use crate::config::{CliInput, Heading, options};
use crate::demo::{DemoOptions, TourShell};
use crate::exit::{Exit, Failure};
use crate::output::OutputOptions;
use crate::token::TokenJob;
use args::Matches;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use clap_complete::Shell;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;

const ABOUT: &str = "Puts any MCP server behind Streamable HTTP and SSE";
const LONG_ABOUT: &str = "\
Puts any MCP server behind Streamable HTTP and SSE.

A broken connection loses nothing: calls continue, and clients resume their streams.";

/// The id of the words after `--`.
const COMMAND_WORDS: &str = "COMMAND";

/// The command of the user.
#[derive(Debug, PartialEq)]
pub(crate) enum Job {
    Serve(CliInput),
    Check(CliInput),
    /// The JSON file of a client.
    Import(PathBuf),
    Export(CliInput, ClientKind),
    Demo(DemoOptions),
    /// The stdio server behind `demo`.
    DemoServer,
    Guardian,
    /// Print the URL of the console page.
    Console(CliInput),
    Token(TokenJob),
    /// A file that `serve --tape` has written.
    Tape(PathBuf),
    Completions(Shell),
    Man(Option<String>),
}

/// The definition of the command line.
fn command() -> Command {
    let shell = Arg::new("shell")
        .help("Shell that reads the script")
        .value_name("SHELL")
        .required(true)
        .value_parser(value_parser!(Shell));
    let page = Arg::new("command")
        .help("Command to describe; without it, the program")
        .value_name("COMMAND")
        .value_parser([
            "serve",
            "check",
            "demo",
            "import",
            "export",
            "token",
            "console",
            "tape",
            "completions",
            "man",
        ]);
    let file = Arg::new("file")
        .help("JSON file of Claude Desktop, Claude Code, Cursor or VS Code")
        .value_name("FILE")
        .required(true)
        .value_hint(ValueHint::FilePath)
        .value_parser(value_parser!(PathBuf));
    let tape_file = Arg::new("file")
        .help("File in the directory of --tape")
        .value_name("FILE")
        .required(true)
        .value_hint(ValueHint::FilePath)
        .value_parser(value_parser!(PathBuf));
    let client = Arg::new("client")
        .long("client")
        .help("Client whose format to print")
        .value_name("CLIENT")
        .required(true)
        .value_parser(value_parser!(ClientKind));
    let ignored = Arg::new("args")
        .num_args(0..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true)
        .value_parser(value_parser!(OsString));
    Command::new("rethread")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .max_term_width(100)
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(help::PROGRAM_SHORT)
        .after_long_help(help::with_exit_codes(help::PROGRAM))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(message_args())
        .subcommand(
            serve_options(Command::new("serve"))
                .about("Serve a stdio MCP server, or the servers of a file, over HTTP")
                .after_help(help::SERVE_SHORT)
                .after_long_help(help::with_exit_codes(&help::serve())),
        )
        .subcommand(
            serve_options(Command::new("check"))
                .about("Check the configuration; print every effective value and its source")
                .long_about(help::CHECK_ABOUT)
                .after_long_help(help::with_exit_codes(help::CHECK)),
        )
        .subcommand(
            Command::new("demo")
                .about("See a call survive its connection and the gateway, then try it")
                .long_about(help::DEMO_ABOUT)
                .args(demo_args())
                .after_long_help(help::with_exit_codes(help::DEMO)),
        )
        .subcommand(
            Command::new("import")
                .about("Print the servers of a client's JSON file as TOML")
                .long_about(help::IMPORT_ABOUT)
                .arg(file)
                .after_help(help::IMPORT),
        )
        .subcommand(
            serve_options(Command::new("export").arg(client))
                .about("Print the entry of this gateway for the configuration of a client")
                .long_about(help::EXPORT_ABOUT)
                .after_long_help(help::with_exit_codes(help::EXPORT)),
        )
        .subcommand(token_command())
        .subcommand(
            serve_options(Command::new("console"))
                .about("Print the URL of the console page, with its token")
                .long_about(help::CONSOLE_ABOUT)
                .after_long_help(help::with_exit_codes(help::CONSOLE)),
        )
        .subcommand(
            Command::new("tape")
                .about("Print what `serve --tape DIR` has recorded")
                .long_about(help::TAPE_ABOUT)
                .arg(tape_file)
                .after_help(help::TAPE),
        )
        .subcommand(
            Command::new("completions")
                .about("Print a completion script for a shell")
                .arg(shell)
                .after_help(help::COMPLETIONS),
        )
        .subcommand(
            Command::new("man")
                .about("Print the manual page of the program or of a command")
                .arg(page)
                .after_help(help::MAN),
        )
        .subcommand(Command::new("demo-server").hide(true))
        .subcommand(Command::new("guardian").hide(true).arg(ignored))
}

fn token_command() -> Command {
    let name = Arg::new("name")
        .help("Name of the caller; several tokens of one name are one caller")
        .value_name("NAME")
        .required(true);
    let scope = Arg::new("scope")
        .long("scope")
        .help("Scope that the token has; may be repeated")
        .value_name("SCOPE")
        .action(ArgAction::Append)
        .value_delimiter(',');
    let expires = Arg::new("expires")
        .long("expires")
        .help("When the token ends: 2027-01-31T12:00:00Z")
        .value_name("DATE");
    Command::new("token")
        .about("Make a token for a caller, or hash one")
        .long_about(help::TOKEN_ABOUT)
        .after_help(help::TOKEN)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("new")
                .about("Print a new token, and its lines for the token file")
                .args([name, scope, expires]),
        )
        .subcommand(Command::new("hash").about("Print the SHA-256 of a token on stdin"))
}

fn token_job(matches: &ArgMatches) -> TokenJob {
    match matches.subcommand() {
        Some(("new", matches)) => TokenJob::New {
            name: matches.get_one::<String>("name").expect("the name is required").clone(),
            scopes: matches.get_many("scope").into_iter().flatten().cloned().collect(),
            expires: matches.get_one("expires").cloned(),
        },
        _ => TokenJob::Hash,
    }
}

fn message_args() -> impl Iterator<Item = Arg> {
    let args = args::with_heading(|heading| heading == Heading::Messages);
    args.map(|arg| match arg.get_id() == options::VERBOSE.key {
        true => arg.conflicts_with(options::QUIET.key),
        false => arg,
    })
}

fn serve_options(command: Command) -> Command {
    let words = Arg::new(COMMAND_WORDS)
        .help("Stdio MCP server to run, and its arguments")
        .last(true)
        .num_args(1..)
        .value_hint(ValueHint::CommandWithArguments);
    command
        .args(args::with_heading(|heading| heading != Heading::Messages))
        .arg(words)
}

fn demo_args() -> [Arg; 3] {
    let listen = args::arg(&options::LISTEN.def).expect("--listen is a flag");
    let data = args::arg(&options::DATA.def).expect("--data is a flag");
    [
        listen
            .help("Address to listen on [default: 127.0.0.1:8080, or a free port if that is in use]")
            .value_parser(args::parse_address),
        data.help("Directory for sessions and streams, which is kept [default: a temporary one]")
            .env(None)
            .value_parser(value_parser!(PathBuf)),
        Arg::new("shell")
            .long("shell")
            .help("Shell of the commands to try [default: that of $SHELL]")
            .value_name("SHELL")
            .value_parser(value_parser!(TourShell)),
    ]
}

/// Parses the command line of this process. On a usage error or for help it prints a message and exits.
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
    let matches = command().try_get_matches_from(args)?;
    let (name, matches) = matches.subcommand().expect("clap requires a subcommand");
    let job = match name {
        "serve" => Job::Serve(cli_input(matches)),
        "check" => Job::Check(cli_input(matches)),
        "import" => Job::Import(
            matches
                .get_one::<PathBuf>("file")
                .expect("the file is required")
                .clone(),
        ),
        "tape" => {
            let file = matches.get_one::<PathBuf>("file").expect("the file is required");
            Job::Tape(file.clone())
        }
        "export" => {
            let client = matches.get_one("client").expect("the client is required");
            Job::Export(cli_input(matches), *client)
        }
        "demo" => Job::Demo(DemoOptions {
            listen: matches.get_one(options::LISTEN.def.key).copied(),
            data: matches.get_one(options::DATA.def.key).cloned(),
            shell: matches.get_one("shell").copied(),
        }),
        "console" => Job::Console(cli_input(matches)),
        "token" => Job::Token(token_job(matches)),
        "completions" => Job::Completions(*matches.get_one("shell").expect("the shell is required")),
        "man" => Job::Man(matches.get_one("command").cloned()),
        "demo-server" => Job::DemoServer,
        "guardian" => Job::Guardian,
        other => unreachable!("clap accepts only known subcommands, not {other}"),
    };
    Ok((job, output_options(matches)))
}

fn cli_input(matches: &ArgMatches) -> CliInput {
    let words = matches.get_many::<String>(COMMAND_WORDS);
    CliInput {
        config_file: Matches(matches).config_file(),
        layer: Matches(matches).layer(),
        command: words.into_iter().flatten().cloned().collect(),
    }
}

fn output_options(matches: &ArgMatches) -> OutputOptions {
    OutputOptions {
        verbose: matches.get_count(options::VERBOSE.key),
        quiet: matches.get_flag(options::QUIET.key),
        color: Matches(matches).choice(&options::COLOR),
        format: Matches(matches).choice(&options::LOG_FORMAT),
    }
}

/// Writes data to stdout. A closed pipe, such as that of `head`, is not a failure.
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
    use crate::config::{ConfigValue, Layer, Source};
    use options::OPTIONS;

    fn input(args: &[&str]) -> CliInput {
        let args = ["rethread", "serve"].into_iter().chain(args.iter().copied());
        match parse_from(args).unwrap().0 {
            Job::Serve(input) => input,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn command_definition_is_valid() {
        command().debug_assert();
    }

    #[test]
    fn words_after_the_dashes_are_the_command() {
        let input = input(&["--memory", "--", "npx", "-y", "--memory", "--", "x"]);
        assert_eq!(input.command, ["npx", "-y", "--memory", "--", "x"]);
        assert_eq!(input.layer["memory"].source, Source::Flag("--memory"));
    }

    #[test]
    fn absent_flags_have_no_value() {
        assert_eq!(input(&["--", "a"]).layer, Layer::new());
    }

    #[test]
    fn every_value_keeps_its_flag() {
        let line = "--listen a --data b --sync os --public-url c --allow-host d,e --allow-origin f --retry-ms 1 \
                    --session-idle 2 --drain 3 --name g --env h=i --env j=k,l --cwd m --era dual --restore expire \
                    --start-timeout 4 --max-children 5 --config n --memory --max-connections-per-peer 6 --store o --node-id p --lease 7 \
                    --secret-file q --tokens r --scope s --no-auth --issuer t --jwks-url u --jwks-file v \
                    --audience w --admin ab --metrics x --audit y --otlp http://z --tape aa --tape-payloads";
        let input = input(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(input.layer.len(), 35);
        for (key, found) in &input.layer {
            let table = key.split('.').next().unwrap();
            let key = key.rsplit('.').next().unwrap();
            let flag = format!("--{}", key.replace('_', "-"));
            let Source::Flag(known) = found.source else {
                panic!("{key}")
            };
            let is_table = known == format!("--{table}");
            assert!(
                is_table || flag == known || flag == format!("{known}s"),
                "{key} comes from {known}"
            );
        }
        let list = |words: &[&str]| ConfigValue::List(words.iter().map(|&word| word.to_owned()).collect());
        assert_eq!(input.layer["allow_hosts"].value, list(&["d", "e"]));
        assert_eq!(input.layer["env"].value, list(&["h=i", "j=k,l"]));
        assert_eq!(input.config_file, Some(("n".into(), Source::Flag("--config"))));
    }

    #[test]
    fn help_of_serve_and_check_shows_every_option() {
        for name in ["serve", "check"] {
            let mut root = command();
            root.build();
            let help = root.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            for option in OPTIONS {
                match &option.flag {
                    Some(flag) => assert!(help.contains(flag.long), "{name} --help lacks {}", flag.long),
                    None if name == "serve" => assert!(help.contains(option.help), "no help for {}", option.key),
                    None => {}
                }
            }
        }
    }
}
