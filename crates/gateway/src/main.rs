//! `rethread`: puts any MCP server behind Streamable HTTP and SSE.

mod accept;
mod admin;
mod audit;
mod auth;
mod byte_budget;
mod check;
mod child;
mod cli;
mod client_entry;
mod config;
mod console;
mod demo;
mod exit;
mod export;
mod gateway;
mod health;
mod http_client;
mod import;
mod landing_page;
mod metrics;
mod metrics_listener;
mod mount;
mod observers;
mod output;
mod parent;
mod preflight;
mod probe;
mod relay;
mod reload;
mod run;
mod running_gateway;
mod settings;
mod shared_store;
mod start_message;
mod store_registry;
mod tape;
mod task;
mod tls;
mod token;
mod trace;
mod upstream;

use cli::Job;
use client_entry::ClientKind;
use config::{CliInput, Environment, Problems};
use exit::{Exit, Failure};
use export::{ClientExport, ExportSource};
use import::ClientImport;
use output::OutputOptions;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (job, output) = cli::parse();
    let outcome = match job {
        Job::Serve(input) => match check::startable_settings(&input) {
            Ok(settings) => block_on(run::run(settings, input, output)),
            Err(problems) => return report_problems(&problems, output),
        },
        Job::Check(input) => return check(&input, output),
        Job::Import(path) => match import::import(&path, &Environment::current()) {
            Ok(ClientImport { toml, warnings }) => {
                print_warnings(&warnings, output);
                cli::print(toml.as_bytes())
            }
            Err(problems) => return report_problems(&problems, output),
        },
        Job::Export(input, client) => match export::source(&input) {
            Ok(source) => block_on(print_export(source, client, output)),
            Err(problems) => return report_problems(&problems, output),
        },
        Job::Demo(options) => block_on(demo::run(options, output)),
        Job::DemoServer => block_on(async { Ok(demo::serve().await?) }),
        Job::Guardian => {
            child::guardian::run();
            Ok(())
        }
        Job::Console(input) => match console::url(&input) {
            Ok(Ok(url)) => cli::print(format!("{url}\n").as_bytes()),
            Ok(Err(failure)) => Err(failure),
            Err(problems) => return report_problems(&problems, output),
        },
        Job::Token(job) => job.run().and_then(|text| cli::print(text.as_bytes())),
        Job::Tape(path) => print_tape(&path),
        Job::Completions(shell) => cli::print(&cli::completions(shell)),
        Job::Man(command) => cli::man(command.as_deref()).and_then(|page| cli::print(&page)),
    };
    match outcome {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => report_failure(&failure, output),
    }
}

fn check(input: &CliInput, output: OutputOptions) -> ExitCode {
    let report = check::check(input, output.color_on_stdout());
    if let Err(failure) = cli::print(report.listing.as_bytes()) {
        return report_failure(&failure, output);
    }
    print_warnings(&report.warnings, output);
    match &report.problems {
        Some(problems) => report_problems(problems, output),
        None => Exit::Ok.into(),
    }
}

async fn print_export(source: ExportSource, client: ClientKind, output: OutputOptions) -> Result<(), Failure> {
    let ClientExport {
        entry,
        advice,
        warnings,
    } = export::export(source, client).await?;
    print_warnings(&warnings, output);
    if !output.quiet {
        eprint!("{advice}");
    }
    cli::print(entry.as_bytes())
}

/// Prints a tape for people.
fn print_tape(path: &std::path::Path) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let message = format!("cannot read {}: {error}", path.display());
        Failure::new(Exit::Usage, message).hint("a file that `rethread serve --tape DIR` has written")
    })?;
    cli::print(tape::print(&text).as_bytes())
}

fn print_warnings(warnings: &[String], output: OutputOptions) {
    for warning in warnings {
        output.print_warning(warning);
    }
}

fn report_problems(problems: &Problems, output: OutputOptions) -> ExitCode {
    for problem in &problems.0 {
        output.print_error(&problem.to_string(), problem.hint.as_deref());
    }
    problems.exit().into()
}

fn report_failure(failure: &Failure, output: OutputOptions) -> ExitCode {
    output.print_error(&failure.message, failure.hint.as_deref());
    failure.exit.into()
}

fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::runtime::Runtime::new()?.block_on(work)
}
