//! `rethread serve` as a program: listener, start message, signals and exit.

use crate::admin::{Admin, AdminToken};
use crate::audit::AuditLog;
use crate::config::{self, CliInput, Problems};
use crate::exit::{Exit, Failure, listen_failure, store_failure};
use crate::gateway::{Gateway, Recorders};
use crate::metrics::{self, Metrics};
use crate::metrics_listener;
use crate::mount::{ServerStartError, ServerStartErrors};
use crate::output::{LogFormat, OutputOptions};
use crate::parent;
use crate::reload::ReloadOutcome;
use crate::settings::Settings;
use crate::start_message::{self, ReadyServer};
use crate::tape::Tape;
use crate::task;
use crate::trace::Tracer;
use rethread_store_embedded::OpenError;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Connections that wait to be accepted. Beyond: clients connect later.
const BACKLOG: u32 = 1024;

/// Runs the gateway until a signal stops it. SIGHUP reads the configuration of `input` again.
pub(crate) async fn run(settings: Settings, input: CliInput, output: OutputOptions) -> Result<(), Failure> {
    output.init_logging();
    let mut signals = StopSignals::listen()?;
    if !parent::follow() {
        return Ok(()); // as if its signal had come
    }
    let cannot_listen = |error: io::Error| listen_failure(settings.listen, &error);
    let socket = bind(settings.listen).map_err(cannot_listen)?;
    let bound = socket.local_addr()?;
    let admin_socket = match &settings.admin {
        Some(admin) => {
            let cannot_listen = |error: io::Error| listen_failure(admin.listen, &error);
            let socket = bind(admin.listen).map_err(cannot_listen)?;
            let listener = socket.listen(BACKLOG).map_err(cannot_listen)?;
            Some((listener, AdminToken::open(&admin.token_file)?))
        }
        None => None,
    };
    let monitor = match settings.operation.metrics {
        Some(address) => Some(listen_for_monitors(address)?),
        None => None,
    };
    let recorders = start_recorders(&settings)?;
    let opening = async {
        tokio::select! {
            opened = Gateway::open(settings.clone(), bound, recorders.clone()) => opened.map(Some).map_err(|error| failure(&error)),
            () = signals.next() => Ok(None), // the guardian ends children that have started
        }
    };
    let (opened, listener) = if settings.store.redis().is_some() {
        // Other gateways serve the clients until this one is a member: a load balancer skips a closed port.
        (opening.await?, socket.listen(BACKLOG).map_err(cannot_listen)?)
    } else {
        let listener = socket.listen(BACKLOG).map_err(cannot_listen)?; // clients wait until the gateway is ready
        (opening.await?, listener)
    };
    let Some(gateway) = opened else { return Ok(()) };
    print_start_message(&gateway, bound, output);
    if let (Some(listener), Some(metrics)) = (monitor, recorders.metrics.clone()) {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "metrics and health");
        }
        task::spawn(metrics_listener::serve(listener, metrics, Arc::clone(&gateway)));
    }
    let admin = match admin_socket {
        Some((socket, token)) => Some(serve_admin(&gateway, socket, token)?),
        None => None,
    };
    let reload_task = task::spawn(reload_on_hangup(Arc::clone(&gateway), input, admin));
    let stop = async {
        let drain_requested = &gateway.operator.drain;
        signals.first(drain_requested.notified()).await;
        // A reload in progress could add servers after the drain has begun.
        reload_task.abort();
    };
    let ran = Arc::clone(&gateway).run(listener, stop).await;
    close_recorders(&recorders).await;
    ran.map_err(|error| failure(&error))
}

/// The listener for monitors.
fn listen_for_monitors(address: SocketAddr) -> Result<TcpListener, Failure> {
    let cannot_listen = |error: io::Error| listen_failure(address, &error);
    bind(address)
        .and_then(|socket| socket.listen(BACKLOG))
        .map_err(cannot_listen)
}

/// Starts what the operator asks for. The recorder of metrics must be there before the first server is opened.
fn start_recorders(settings: &Settings) -> Result<Recorders, Failure> {
    let operation = &settings.operation;
    let metrics = match operation.metrics.is_some() || settings.admin.is_some() {
        true => Some(Metrics::install().map_err(|error| Failure::new(Exit::Failure, format!("{error:#}")))?),
        false => None,
    };
    let audit = match &operation.audit {
        Some(path) => Some(Arc::new(open_audit(path, operation.audit_params)?)),
        None => None,
    };
    let tape = match &operation.tape {
        Some(dir) => Some(start_tape(dir, operation.tape_payloads)?),
        None => None,
    };
    let tracer = Tracer::start(operation.otlp.as_deref(), |name| std::env::var(name).ok());
    Ok(Recorders {
        audit,
        tracer,
        tape,
        metrics,
    })
}

/// Writes what still waits, in bounded time.
async fn close_recorders(recorders: &Recorders) {
    if let Some(tracer) = &recorders.tracer {
        tracer.close().await;
    }
    if let Some(audit) = &recorders.audit {
        audit.close();
    }
    if let Some(tape) = &recorders.tape {
        tape.close();
    }
}

fn start_tape(dir: &Path, has_payloads: bool) -> Result<Arc<Tape>, Failure> {
    Tape::start(dir, has_payloads).map_err(|error| {
        let message = format!("cannot write a tape in {}: {error}", dir.display());
        Failure::new(Exit::Usage, message).hint("--tape with a directory that can be written")
    })
}

fn open_audit(path: &Path, has_params: bool) -> Result<AuditLog, Failure> {
    AuditLog::open(path, has_params).map_err(|error| {
        let message = format!("cannot open the audit log {}: {error}", path.display());
        Failure::new(Exit::Usage, message).hint("--audit with a file in a directory that exists and can be written")
    })
}

/// A socket at the address. It refuses connections until it listens.
fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?; // connections of the previous gateway may still be closing
    socket.bind(address)?;
    Ok(socket)
}

/// Must not keep a reference to the mounts: a reload drops them.
fn print_start_message(gateway: &Gateway, bound: SocketAddr, output: OutputOptions) {
    let (settings, mounts) = (gateway.settings(), gateway.mounts());
    let servers = mounts.iter().map(|mount| ReadyServer {
        server: &mount.server,
        eras: &mount.eras,
    });
    let servers: Vec<_> = servers.collect();
    let color = output.color_on_stderr();
    match output.format {
        LogFormat::Json => start_message::log(&settings, &servers, bound),
        LogFormat::Text if output.quiet => {}
        LogFormat::Text => eprint!("{}", start_message::text(&settings, &servers, bound, color)),
    }
}

/// Ctrl-C and SIGTERM. Created before anything starts, so that no signal is missed.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(StopSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Resolves with the first signal. The second one exits at once; the guardian ends the children.
    /// `asked` is the same as a signal.
    async fn first(mut self, asked: impl Future<Output = ()>) {
        tokio::select! {
            () = self.next() => {}
            () = asked => {}
        }
        task::spawn(async move {
            self.next().await;
            std::process::exit(i32::from(Exit::Interrupted.code()));
        });
    }
}

/// Starts to serve operators. The task ends with the process.
fn serve_admin(gateway: &Arc<Gateway>, listener: TcpListener, token: AdminToken) -> io::Result<Arc<Admin>> {
    let bound = listener.local_addr()?;
    let admin = Admin::new(Arc::clone(gateway), bound, token);
    task::spawn(Arc::clone(&admin).serve(listener));
    tracing::info!(address = %bound, "admin listener ready; `rethread console` prints its URL");
    Ok(admin)
}

/// Reads the configuration again on each SIGHUP. An invalid one changes nothing.
async fn reload_on_hangup(gateway: Arc<Gateway>, input: CliInput, admin: Option<Arc<Admin>>) {
    let Ok(mut hangups) = signal(SignalKind::hangup()) else {
        return;
    };
    loop {
        tokio::select! {
            signal = hangups.recv() => match signal {
                Some(()) => {}
                None => return,
            },
            () = gateway.operator.reload.notified() => {}
        }
        if let Some(audit) = &gateway.audit {
            audit.reopen();
        }
        let is_ok = match config::load(&input) {
            Ok(settings) => {
                for warning in &settings.notes {
                    tracing::warn!(warning, "configuration warning");
                }
                let outcome = gateway.reload(settings).await;
                log_reload(&outcome);
                if let Some(admin) = &admin {
                    admin.reload();
                }
                outcome.failed.is_empty()
            }
            Err(problems) => {
                for problem in &problems.0 {
                    let hint = problem.hint.as_deref().unwrap_or_default();
                    tracing::error!(%problem, hint, "configuration rejected");
                }
                false
            }
        };
        metrics::config_reloaded(is_ok);
        if let Some(audit) = &gateway.audit {
            audit.config_reloaded(is_ok);
        }
    }
}

fn log_reload(outcome: &ReloadOutcome) {
    for (server, error) in &outcome.failed {
        let start_hint = error
            .downcast_ref::<ServerStartError>()
            .map(|error| error.hint.as_str());
        let problem_hint = error
            .downcast_ref::<Problems>()
            .and_then(|problems| problems.0.first()?.hint.as_deref());
        let hint = start_hint.or(problem_hint).unwrap_or_default();
        tracing::error!(server, hint, error = format!("{error:#}"), "server not changed");
    }
    let (applied, failed) = (outcome.applied.join(", "), outcome.failed.len());
    let need_restart = outcome.need_restart.join(", ");
    match (failed, need_restart.as_str()) {
        (0, "") => tracing::info!(applied, "configuration reloaded"),
        (0, _) => tracing::warn!(applied, need_restart, "configuration reloaded"),
        _ => tracing::warn!(applied, need_restart, failed, "configuration reloaded in part"),
    }
}

/// The failure of a gateway that cannot start or go on.
fn failure(error: &anyhow::Error) -> Failure {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.clone();
    }
    if let Some(store) = error.downcast_ref::<OpenError>() {
        return store_failure(store);
    }
    if let Some(problem) = error.downcast_ref::<Problems>().and_then(|problems| problems.0.first()) {
        let failure = Failure::new(problem.exit, problem.to_string());
        return match &problem.hint {
            Some(hint) => failure.hint(hint.clone()),
            None => failure,
        };
    }
    let failure = Failure::new(Exit::Failure, format!("{error:#}"));
    let first = error
        .downcast_ref::<ServerStartErrors>()
        .and_then(|errors| errors.0.first());
    match error.downcast_ref::<ServerStartError>().or(first) {
        Some(error) => failure.hint(error.hint.clone()),
        None => failure,
    }
}
