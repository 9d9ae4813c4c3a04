//! Measures Rethread, bare hyper, rmcp and other gateways. See `bench/README.md`.

mod load;
mod machine;
mod measure;
mod other_gateways;
mod process;
mod redis_use;
mod report;
mod runner;
mod servers;
mod suites;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use machine::Cores;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(
    name = "rethread-bench",
    about = "Measures Rethread, bare hyper, rmcp and other gateways"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run suites and print the results.
    Run(Options),
    /// Write the report again from the stored results in a folder.
    Report {
        /// Folder with figures.csv and run.json.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// List the suites.
    List,
    /// Run one of the servers under test until it is killed, for example in a profiler.
    #[command(subcommand)]
    Server(servers::ServerCommand),
    /// Run another program pinned to one core.
    #[command(hide = true)]
    Pinned {
        core: usize,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

#[derive(Args)]
struct Options {
    /// Suite to run; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    suite: Vec<String>,
    /// Server to measure besides bare hyper; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run only cases whose name contains this text, such as `64 B` or `16 clients`.
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Number of rounds.
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Duration of each rate measurement.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Short measurements, few rounds, fewer streams. Not precise.
    #[arg(long)]
    quick: bool,
    /// Write the report and the results to this folder.
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(options) => run(&options),
        Command::Report { folder } => report(&folder),
        Command::List => {
            for suite in suites::all(scale(false, None)) {
                println!("{:10} {}. {}", suite.name, suite.title, suite.about);
            }
            Ok(())
        }
        Command::Server(server) => machine::raise_open_files().and_then(|_| servers::run(&server)),
        Command::Pinned { core, command } => machine::exec_pinned(core, &command),
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
        warmup: Duration::from_millis(if quick { 200 } else { 500 }),
        window: window.unwrap_or(Duration::from_millis(if quick { 500 } else { 2000 })),
        quick,
    }
}

fn run(options: &Options) -> Result<()> {
    machine::raise_open_files()?;
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 5 });
    let scale = scale(options.quick, options.seconds);
    let cores = Cores::find()?;
    let selection = runner::Selection {
        suites: &options.suite,
        servers: &options.only,
        case: options.case.as_deref(),
    };
    let results = runner::run(cores, scale, rounds, &selection)?;
    print!("{}", report::text(&results));
    if let Some(folder) = &options.write {
        let run = report::RunInfo::collect(cores, scale, rounds);
        report::write(&results, &run, folder)?;
    }
    Ok(())
}

fn report(folder: &Path) -> Result<()> {
    let (results, run) = report::load(folder)?;
    report::write(&results, &run, folder)
}
