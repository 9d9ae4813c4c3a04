//! `rethread`: any MCP server behind Streamable HTTP and SSE.

mod accept;
mod announce;
mod check;
mod child;
mod cli;
mod config;
mod demo;
mod exit;
mod logging;
mod mount;
mod probe;
mod relay;
mod reload;
mod run;
mod serve;
mod settings;
mod stores;

use cli::Job;
use config::Problems;
use exit::{Exit, Failure};
use logging::Talk;
use run::Words;
use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (job, talk) = cli::parse();
    let done = match job {
        Job::Serve(given) => match check::startable(&given) {
            Ok(settings) => in_runtime(run::run(settings, Words::Announcement(given), talk)),
            Err(problems) => return refused(&problems, talk),
        },
        Job::Check(given) => return check(&given, talk),
        Job::Demo(options) => {
            demo::settings(&options).and_then(|settings| in_runtime(run::run(settings, Words::Tour, talk)))
        }
        Job::DemoServer => in_runtime(async { demo::serve().await.map_err(|error| failed(&error)) }),
        Job::Guardian => {
            child::guardian::run();
            Ok(())
        }
        Job::Completions(shell) => cli::print(&cli::completions(shell)),
        Job::Man(command) => cli::man(command.as_deref()).and_then(|page| cli::print(&page)),
    };
    match done {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => ended(&failure, talk),
    }
}

fn check(given: &config::Given, talk: Talk) -> ExitCode {
    let report = check::check(given, talk.colour_on_stdout());
    if let Err(failure) = cli::print(report.listing.as_bytes()) {
        return ended(&failure, talk);
    }
    for warning in &report.warnings {
        talk.warning(warning);
    }
    match &report.problems {
        Some(problems) => refused(problems, talk),
        None => Exit::Ok.into(),
    }
}

fn refused(problems: &Problems, talk: Talk) -> ExitCode {
    for problem in &problems.0 {
        talk.error(&problem.to_string(), problem.hint.as_deref());
    }
    problems.exit().into()
}

fn ended(failure: &Failure, talk: Talk) -> ExitCode {
    talk.error(&failure.what, failure.hint.as_deref());
    failure.exit.into()
}

fn in_runtime(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| failed(&error))?;
    runtime.block_on(work)
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(Exit::Failure, error.to_string())
}
