//! `rethread`: any MCP server behind Streamable HTTP and SSE.

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
mod serve;
mod settings;

use cli::Job;
use exit::{Exit, Failure};
use logging::Talk;
use settings::Settings;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (job, talk) = cli::parse();
    let done = match job {
        Job::Serve(given) => match config::load(&given) {
            Ok(settings) => in_runtime(serve(settings, talk, false)),
            Err(problems) => {
                eprint!("{}", problems.report(talk.colour_on_stderr()));
                return problems.exit().into();
            }
        },
        Job::Check(given) => return check(&given, talk),
        Job::Demo(options) => demo::settings(&options).and_then(|settings| in_runtime(serve(settings, talk, true))),
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
        Err(failure) => {
            eprint!("{}", failure.report(talk.colour_on_stderr()));
            failure.exit.into()
        }
    }
}

fn check(given: &config::Given, talk: Talk) -> ExitCode {
    let report = check::check(given, talk.colour_on_stdout());
    if let Err(failure) = cli::print(report.listing.as_bytes()) {
        eprint!("{}", failure.report(talk.colour_on_stderr()));
        return failure.exit.into();
    }
    for warning in &report.warnings {
        eprintln!("warning: {warning}");
    }
    match &report.problems {
        Some(problems) => {
            eprint!("{}", problems.report(talk.colour_on_stderr()));
            problems.exit().into()
        }
        None => Exit::Ok.into(),
    }
}

fn in_runtime(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| failed(&error))?;
    runtime.block_on(work)
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(Exit::Failure, error.to_string())
}

async fn serve(settings: Settings, talk: Talk, as_demo: bool) -> Result<(), Failure> {
    talk.start_log();
    let listener = tokio::net::TcpListener::bind(settings.listen)
        .await
        .map_err(|error| cannot_listen(settings.listen, &error))?;
    let bound = listener.local_addr().map_err(|error| failed(&error))?;
    let gateway = serve::Gateway::open(settings.clone())
        .await
        .map_err(|error| Failure::new(Exit::Failure, format!("{error:#}")))?;
    let mounts = gateway.mounts();
    let served = mounts.iter().map(|mount| announce::Served {
        server: &mount.server,
        eras: mount.found.eras(),
    });
    let served: Vec<_> = served.collect();
    let colour = talk.colour_on_stderr();
    match as_demo {
        true => eprint!("{}", demo::tour(&announce::base_url(&settings, bound), colour)),
        false if talk.quiet => {}
        false => eprint!("{}", announce::text(&settings, &served, bound, colour)),
    }
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    let ran = gateway.run(listener, stop).await;
    ran.map_err(|error| Failure::new(Exit::Failure, format!("{error:#}")))
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
    let exit = match error.kind() {
        io::ErrorKind::AddrInUse => Exit::AddressInUse,
        _ => Exit::Failure,
    };
    Failure::new(exit, format!("cannot listen on {address}: {error}"))
        .hint("--listen 127.0.0.1:0 for a free port, or another address")
}
