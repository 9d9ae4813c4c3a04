//! `rethread demo`: a story in one terminal, then a gateway to try. Needs no other program.
//!
//! The gateway of the demo is a child process of the ordinary kind: `rethread serve` in front of the built-in server, with
//! a store on disk. So it can be killed, and the demo shows what a client sees then.

mod client;
mod data_dir;
mod gateway_process;
mod printer;
mod server;
mod story;
mod tour;

pub(crate) use server::serve;
pub(crate) use tour::TourShell;

use crate::child::Guardian;
use crate::config::options;
use crate::exit::{Exit, Failure, listen_failure};
use crate::output::OutputOptions;
use crate::run::StopSignals;
use data_dir::DemoData;
use gateway_process::{GatewayCommand, GatewayProcess, GatewayStartError};
use printer::Printer;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

/// A gateway that ends sooner after its start is not started again.
const MIN_GATEWAY_LIFETIME: Duration = Duration::from_secs(1);

/// The options of `demo`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DemoOptions {
    pub(crate) listen: Option<SocketAddr>,
    /// A directory to keep. Without it the data is temporary.
    pub(crate) data: Option<PathBuf>,
    /// The shell of the commands to try. Without it that of the user.
    pub(crate) shell: Option<TourShell>,
}

/// Prints the story, then keeps the gateway up until a signal stops the demo. With `--quiet` there is no story.
pub(crate) async fn run(options: DemoOptions, output: OutputOptions) -> Result<(), Failure> {
    output.init_logging();
    let printer = Printer::new(output);
    let mut signals = StopSignals::listen()?;
    let mut hangup = signal(SignalKind::hangup())?;
    let data = DemoData::open(options.data)?;
    let command = GatewayCommand {
        program: own_program()?,
        data: data.path().to_owned(),
        guardian: Guardian::start()?,
        verbose: output.verbose > 0,
    };
    let mut gateway = None;
    let outcome = tokio::select! {
        shown = show(&command, options.listen, options.shell, printer, &mut gateway) => shown,
        () = signals.next() => Ok(()),
        _ = hangup.recv() => Ok(()),
    };
    if let Some(gateway) = gateway {
        gateway.stop().await;
    }
    drop(data);
    outcome
}

fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        Failure::new(Exit::Failure, format!("cannot find the path of this program: {error}"))
            .hint("rethread serve -- COMMAND, with your own server")
    })
}

/// Never returns `Ok`. `gateway` has the running process at any time, so that the caller can stop it.
async fn show(
    command: &GatewayCommand,
    listen: Option<SocketAddr>,
    shell: Option<TourShell>,
    printer: Printer,
    gateway: &mut Option<GatewayProcess>,
) -> Result<(), Failure> {
    let started = start(command, listen, printer).await?;
    let address = started.address;
    *gateway = Some(started);
    if !printer.is_quiet() {
        story::tell(command, gateway, printer).await?;
    }
    let running = gateway.as_mut().expect("the story leaves a gateway that runs");
    let shell = shell.unwrap_or_else(TourShell::of_user);
    printer.text(&tour::tour(shell, address, running.pid, &printer.styles()));
    loop {
        let running = gateway.as_mut().expect("a gateway is running");
        let since = Instant::now();
        let status = running.wait().await?;
        let pid = running.pid;
        if since.elapsed() < MIN_GATEWAY_LIFETIME {
            return Err(Failure::new(
                Exit::Failure,
                format!("the gateway ended at once: {status}"),
            ));
        }
        let restarted = command
            .start(address)
            .await
            .map_err(|error| start_failure(address, error))?;
        let now = restarted.pid;
        printer.line(&format!(
            "The gateway (process {pid}) ended: {status}. Process {now} continues on its data."
        ));
        *gateway = Some(restarted);
    }
}

/// Starts the first gateway. If the default address is in use, a free port will do.
async fn start(
    command: &GatewayCommand,
    listen: Option<SocketAddr>,
    printer: Printer,
) -> Result<GatewayProcess, Failure> {
    let address = listen.unwrap_or_else(|| options::LISTEN.default_value());
    match command.start(address).await {
        Err(GatewayStartError::AddressInUse) if listen.is_none() => {
            let any = SocketAddr::new(address.ip(), 0);
            let started = command.start(any).await.map_err(|error| start_failure(any, error))?;
            printer.line(&format!(
                "{address} is in use, so the demo listens on {}.\n",
                started.address
            ));
            Ok(started)
        }
        started => started.map_err(|error| start_failure(address, error)),
    }
}

fn start_failure(address: SocketAddr, error: GatewayStartError) -> Failure {
    match error {
        GatewayStartError::AddressInUse => listen_failure(address, &io::ErrorKind::AddrInUse.into()),
        GatewayStartError::Other(message) => {
            Failure::new(Exit::Failure, format!("the gateway cannot start: {message}"))
        }
    }
}
