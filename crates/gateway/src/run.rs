//! `rethread serve` and `rethread demo` as a program: the listener, the words for a person, the signals, the end.

use crate::config::{self, Given};
use crate::exit::{Exit, Failure};
use crate::logging::Talk;
use crate::serve::Gateway;
use crate::settings::Settings;
use crate::{announce, demo};
use rethread_store_embedded::OpenError;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What is said when everything is ready.
pub(crate) enum Words {
    /// Where it is, and how to add it to a client. The options are read again on SIGHUP.
    Announcement(Given),
    /// Three things to try.
    Tour,
}

/// Serves until told to stop.
pub(crate) async fn run(settings: Settings, words: Words, talk: Talk) -> Result<(), Failure> {
    talk.start_log();
    let mut stops = Stops::listen().map_err(|error| failed(&error))?;
    let listener = TcpListener::bind(settings.listen)
        .await
        .map_err(|error| cannot_listen(settings.listen, &error))?;
    let bound = listener.local_addr().map_err(|error| failed(&error))?;
    let gateway = tokio::select! {
        opened = Gateway::open(settings.clone()) => opened.map_err(|e| cannot_open(&e))?,
        () = stops.next() => return Ok(()), // nobody was served yet; the guardian sees to the children
    };
    let mounts = gateway.mounts();
    let served = mounts.iter().map(|mount| announce::Served {
        server: &mount.server,
        eras: mount.found.eras(),
    });
    let served: Vec<_> = served.collect();
    let colour = talk.colour_on_stderr();
    match &words {
        Words::Tour => eprint!("{}", demo::tour(&announce::base_url(&settings, bound), colour)),
        Words::Announcement(_) if talk.quiet => {}
        Words::Announcement(_) => eprint!("{}", announce::text(&settings, &served, bound, colour)),
    }
    if let Words::Announcement(given) = words {
        tokio::spawn(reload_on_hangup(Arc::clone(&gateway), given));
    }
    let ran = gateway.run(listener, stops.first()).await;
    ran.map_err(|error| Failure::new(Exit::Failure, format!("{error:#}")))
}

/// The wish to stop: Ctrl-C, or SIGTERM. Heard from the start, so that none is missed.
struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    fn listen() -> io::Result<Self> {
        Ok(Stops {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Resolves with the first. A second ends the program at once; the guardian sees to the children.
    async fn first(mut self) {
        self.next().await;
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(i32::from(Exit::Interrupted.code()));
        });
    }
}

/// Reads the configuration again with each SIGHUP. One that is wrong changes nothing.
async fn reload_on_hangup(gateway: Arc<Gateway>, given: Given) {
    let Ok(mut hangups) = signal(SignalKind::hangup()) else {
        return;
    };
    while hangups.recv().await.is_some() {
        match config::load(&given) {
            Ok(settings) => match gateway.reload(&settings).await {
                Ok(()) => tracing::info!("configuration reloaded"),
                Err(error) => tracing::error!("configuration taken up in part: {error:#}"),
            },
            Err(problems) => tracing::error!("configuration not taken up: {}", problems.report(false).trim_end()),
        }
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(Exit::Failure, error.to_string())
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
    let exit = match error.kind() {
        io::ErrorKind::AddrInUse => Exit::AddressInUse,
        _ => Exit::Failure,
    };
    Failure::new(exit, format!("cannot listen on {address}: {error}"))
        .hint("--listen 127.0.0.1:0 for a free port, or another address")
}

fn cannot_open(error: &anyhow::Error) -> Failure {
    match error.downcast_ref::<OpenError>() {
        Some(store) => Failure::new(Exit::Store, store.to_string())
            .hint("--data DIR for another folder, or --memory to keep nothing"),
        None => Failure::new(Exit::Failure, format!("{error:#}")),
    }
}
