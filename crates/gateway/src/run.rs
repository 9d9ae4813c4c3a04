//! `rethread serve` and `rethread demo` as a program: the listener, the words for a person, the signals, the end.

use crate::config::{self, Given, Problems};
use crate::exit::{Exit, Failure, cannot_listen, cannot_use_store};
use crate::logging::{Format, Talk};
use crate::mount::NotServed;
use crate::reload::Reloaded;
use crate::serve::Gateway;
use crate::settings::Settings;
use crate::{announce, demo};
use rethread_store_embedded::OpenError;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

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
    greet(&gateway, bound, &words, talk);
    let reloading: Option<JoinHandle<()>> = match words {
        Words::Announcement(given) => Some(tokio::spawn(reload_on_hangup(Arc::clone(&gateway), given))),
        Words::Tour => None,
    };
    let stop = async {
        stops.first().await;
        // What a reload would bring in now would only be drained too.
        if let Some(reloading) = reloading {
            reloading.abort();
        }
    };
    let ran = gateway.run(listener, stop).await;
    ran.map_err(|error| Failure::new(Exit::Failure, format!("{error:#}")))
}

/// Says that everything is ready. Keeps nothing of the mounts: one that is replaced later must be free to go.
fn greet(gateway: &Gateway, bound: SocketAddr, words: &Words, talk: Talk) {
    let (settings, mounts) = (gateway.settings(), gateway.mounts());
    let served = mounts.iter().map(|mount| announce::Served {
        server: &mount.server,
        eras: mount.eras,
    });
    let served: Vec<_> = served.collect();
    let colour = talk.colour_on_stderr();
    match words {
        _ if talk.format == Format::Json => announce::log(&settings, &served, bound),
        Words::Tour => eprint!("{}", demo::tour(&announce::base_url(&settings, bound), colour)),
        Words::Announcement(_) if talk.quiet => {}
        Words::Announcement(_) => eprint!("{}", announce::text(&settings, &served, bound, colour)),
    }
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
            Ok(settings) => tell(&gateway.reload(settings).await),
            Err(problems) => tracing::error!("configuration not taken up: {}", problems.report(false).trim_end()),
        }
    }
}

/// Tells the log what came of a reload.
fn tell(reloaded: &Reloaded) {
    for (server, error) in &reloaded.failed {
        let not_served = error.downcast_ref::<NotServed>().map(|failed| failed.hint.as_str());
        let missing = error
            .downcast_ref::<Problems>()
            .and_then(|problems| problems.0.first()?.hint.as_deref());
        let hint = not_served.or(missing).unwrap_or_default();
        tracing::error!(server, hint, "server is not changed: {error:#}");
    }
    let (applied, failed) = (reloaded.applied.join(", "), reloaded.failed.len());
    let outcome = if failed == 0 {
        "configuration reloaded"
    } else {
        "configuration reloaded in part"
    };
    match reloaded.need_restart.as_slice() {
        [] => tracing::info!(applied, failed, "{outcome}"),
        keys => tracing::warn!(applied, failed, "{outcome}; restart to change {}", keys.join(", ")),
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(Exit::Failure, error.to_string())
}

fn cannot_open(error: &anyhow::Error) -> Failure {
    if let Some(store) = error.downcast_ref::<OpenError>() {
        return cannot_use_store(store);
    }
    let failure = Failure::new(Exit::Failure, format!("{error:#}"));
    match error.downcast_ref::<NotServed>() {
        Some(failed) => failure.hint(failed.hint.clone()),
        None => failure,
    }
}
