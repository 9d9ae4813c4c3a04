//! Advice for usage errors: options of other programs, and a command without `--`.

use crate::config::options;
use crate::config::secret::display_command;
use crate::exit::Exit;
use crate::output::{LogFormat, OutputOptions};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Adds advice to a usage error.
pub(super) fn advise(mut error: clap::Error, args: &[String]) -> clap::Error {
    let advice = match error.kind() {
        ErrorKind::UnknownArgument => {
            invalid_word(&error, ContextKind::InvalidArg).and_then(|arg| advice_for_argument(&arg, args))
        }
        ErrorKind::InvalidSubcommand if error.get(ContextKind::SuggestedSubcommand).is_none() => {
            invalid_word(&error, ContextKind::InvalidSubcommand).and_then(|word| insert_dashes(&word, args, "serve "))
        }
        _ => None,
    };
    if let Some(advice) = advice {
        let advice = vec![StyledStr::from(advice)];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(advice));
    }
    error
}

/// Prints the usage error or the help, in the format of the log, and exits.
pub(super) fn exit(error: &clap::Error, args: &[String]) -> ! {
    let option = &options::LOG_FORMAT.def;
    let from_flag = option.flag.as_ref().and_then(|flag| value_of(args, &[flag.long]));
    let from_env = || option.env.and_then(|name| std::env::var(name).ok());
    let format = from_flag.map(str::to_owned).or_else(from_env);
    if !error.use_stderr() || format.as_deref() != Some("json") {
        error.exit()
    }
    let output = OutputOptions {
        format: LogFormat::Json,
        ..OutputOptions::default()
    };
    let text = error.to_string();
    output.print_error(text.trim_start_matches("error: ").trim_end(), None);
    std::process::exit(i32::from(Exit::Usage.code()))
}

fn invalid_word(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}

fn advice_for_argument(argument: &str, args: &[String]) -> Option<String> {
    if !argument.starts_with('-') {
        return insert_dashes(argument, args, "");
    }
    let listen = || {
        let default = options::LISTEN.default_value();
        let host = value_of(args, &["--host", "--hostname", "--bind", "--address"]);
        let host = host.map_or_else(|| default.ip().to_string(), str::to_owned);
        let port = value_of(args, &["--port", "-p"]);
        let port = port.map_or_else(|| default.port().to_string(), str::to_owned);
        format!("use --listen {host}:{port}")
    };
    let advice = match argument.split('=').next().unwrap_or(argument) {
        "--port" | "-p" | "--host" | "--hostname" | "--bind" | "--address" => listen(),
        "--cors" | "--allow-origins" | "--allowed-origins" => {
            "name each page that may call: --allow-origin https://app.example".to_owned()
        }
        "--allow-hosts" | "--allowed-hosts" => "name each host: --allow-host mcp.example".to_owned(),
        "--stdio" | "--command" => {
            "write the server's command after `--`: rethread serve -- npx -y some-server".to_owned()
        }
        "--sse" | "--transport" | "--outputTransport" | "--output-transport" => {
            "remove it: the gateway serves both /mcp and /sse".to_owned()
        }
        "--baseUrl" | "--base-url" => "use --public-url https://mcp.example".to_owned(),
        "--logLevel" | "--log-level" => "use -v or -q, or set RUST_LOG".to_owned(),
        _ => return None,
    };
    Some(advice)
}

/// The command line with `--` in front of `word`.
fn insert_dashes(word: &str, args: &[String], verb: &str) -> Option<String> {
    let at = args.iter().skip(1).position(|arg| arg == word)? + 1;
    let subcommands: Vec<String> = super::command()
        .get_subcommands()
        .map(|c| c.get_name().to_owned())
        .collect();
    let takes_command = !verb.is_empty()
        || args[..at]
            .iter()
            .any(|arg| ["serve", "check", "export"].contains(&arg.as_str()));
    if !takes_command || subcommands.contains(&args[at]) {
        return None;
    }
    let before: String = args[1..at].iter().map(|arg| format!("{arg} ")).collect();
    // A later `--` becomes redundant.
    let command: Vec<String> = args[at..].iter().filter(|arg| *arg != "--").cloned().collect();
    let command = display_command(&command[0], &command[1..]);
    Some(format!(
        "put `--` in front of the command: rethread {before}{verb}-- {command}"
    ))
}

/// The value of the first option in `names`, as `--name value` or `--name=value`.
fn value_of<'a>(args: &'a [String], names: &[&str]) -> Option<&'a str> {
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let mut words = args[..end].iter();
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some((name, value)) if names.contains(&name) => return Some(value),
            None if names.contains(&word.as_str()) => return words.next().map(String::as_str),
            _ => {}
        }
    }
    None
}
