//! What Rethread costs, measured beside bare hyper, rmcp and other gateways. `bench/README.md` tells how to read it.

mod load;
mod machine;
mod measure;
mod process;
mod report;
mod rivals;
mod round;
mod servers;
mod suites;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(
    name = "rethread-bench",
    about = "What Rethread costs, beside bare hyper, rmcp and other gateways"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs suites and prints the figures.
    Run(Options),
    /// Lists the suites.
    List,
    /// Is one of the servers under test, until it is killed. For profilers.
    #[command(subcommand)]
    Server(servers::Which),
    /// Becomes another program, on one core.
    #[command(hide = true)]
    Pinned {
        core: usize,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

#[derive(Args)]
struct Options {
    /// The suite to run; may be repeated. All, unless set.
    #[arg(long, value_name = "NAME")]
    suite: Vec<String>,
    /// The server to measure besides the limit; may be repeated. All, unless set.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only cases with this in their name, such as `64 B` or `16 clients`.
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// How often everything is measured, in turn.
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// How long each measurement of a rate takes.
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// A first impression: short, few rounds, fewer streams.
    #[arg(long)]
    quick: bool,
    /// Writes the report into this folder.
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(options) => run(&options),
        Command::List => {
            for suite in suites::all(scale(false, None)) {
                println!("{:12} {}", suite.name, suite.about);
            }
            Ok(())
        }
        Command::Server(which) => machine::raise_open_files().and_then(|_| servers::run(&which)),
        Command::Pinned { core, command } => machine::become_pinned(core, &command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rethread-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn scale(quick: bool, seconds: Option<f64>) -> suites::Scale {
    let window = seconds.map(Duration::from_secs_f64);
    suites::Scale {
        warm: Duration::from_millis(if quick { 200 } else { 500 }),
        window: window.unwrap_or(Duration::from_millis(if quick { 500 } else { 2000 })),
        quick,
    }
}

fn run(options: &Options) -> Result<()> {
    machine::raise_open_files()?;
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 5 });
    let scale = scale(options.quick, options.seconds);
    let results = round::run(
        scale,
        rounds,
        &round::Choice {
            suites: &options.suite,
            servers: &options.only,
            case: options.case.as_deref(),
        },
    )?;
    print!("{}", report::text(&results));
    if let Some(folder) = &options.write {
        report::write(&results, folder)?;
    }
    Ok(())
}
