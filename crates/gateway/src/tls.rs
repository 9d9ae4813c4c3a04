//! TLS of a listener: its certificate, the reload of it, and handshakes (OPS-17, OPS-18).
//!
//! [`ListenerTls`] fits any listener of [`crate::accept::serve`]. Several listeners may share one: a handshake of one then counts
//! for all. [`ListenerTls::plain`] is a listener without a certificate.

mod files;
mod socket;

pub(crate) use files::TlsFiles;
pub(crate) use socket::AcceptedSocket;

use crate::config::Problem;
use files::FileStamp;
use parking_lot::RwLock;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// From the first packet of a connection to the end of its handshake, including the wait for its turn. Beyond: it closes.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes at the same time. Beyond: new connections wait for their turn.
const MAX_HANDSHAKES: usize = 1024;
/// Certbot and Kubernetes replace files without a signal.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The certificate of a listener, if it has one. New connections use the current one.
pub(crate) struct ListenerTls {
    pair: RwLock<Option<LoadedPair>>,
    handshakes: Semaphore,
}

/// A certificate with its key, and the files that they come from.
struct LoadedPair {
    config: Arc<ServerConfig>,
    files: TlsFiles,
    /// The files when they were read last. They may be invalid now, and the pair older.
    stamp: FileStamp,
}

/// The outcome of a reload, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsReload {
    Ok,
    Failed,
}

impl TlsReload {
    pub(crate) const ALL: [TlsReload; 2] = [TlsReload::Ok, TlsReload::Failed];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            TlsReload::Ok => "ok",
            TlsReload::Failed => "failed",
        }
    }

    fn count(self, times: u64) {
        metrics::counter!("rethread_tls_reloads_total", "outcome" => self.as_str()).increment(times);
    }
}

impl ListenerTls {
    /// Reads a certificate. Without `files`, connections are plain.
    pub(crate) fn open(files: Option<&TlsFiles>) -> Result<Arc<Self>, Problem> {
        // An alert on a rate needs the zero.
        TlsReload::ALL.iter().for_each(|outcome| outcome.count(0));
        Ok(Arc::new(ListenerTls {
            pair: RwLock::new(files.map(LoadedPair::read).transpose()?),
            handshakes: Semaphore::new(MAX_HANDSHAKES),
        }))
    }

    /// A listener without TLS.
    pub(crate) fn plain() -> Arc<Self> {
        Self::open(None).expect("no file is read")
    }

    /// Reads the certificate again, perhaps from other files. An invalid pair changes nothing.
    pub(crate) fn reload(&self, files: Option<&TlsFiles>) -> Result<(), Problem> {
        let Some(files) = files else {
            *self.pair.write() = None;
            return Ok(());
        };
        let read = LoadedPair::read(files);
        let outcome = if read.is_ok() { TlsReload::Ok } else { TlsReload::Failed };
        outcome.count(1);
        *self.pair.write() = Some(read?);
        Ok(())
    }

    /// Reads the certificate again whenever its files change. Ends never.
    pub(crate) async fn watch(&self) {
        let mut checks = tokio::time::interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            self.reload_changed();
        }
    }

    /// Reads changed files once: an invalid pair is reported again only after the next change.
    fn reload_changed(&self) {
        let files = {
            let mut pair = self.pair.write();
            let Some(pair) = &mut *pair else { return };
            let stamp = pair.files.stamp();
            if stamp == pair.stamp {
                return;
            }
            pair.stamp = stamp;
            pair.files.clone()
        };
        match self.reload(Some(&files)) {
            Ok(()) => tracing::info!(cert = %files.cert.display(), "certificate reloaded"),
            Err(problem) => {
                tracing::warn!(%problem, "new certificate rejected; the current one stays");
            }
        }
    }

    fn config(&self) -> Option<Arc<ServerConfig>> {
        self.pair.read().as_ref().map(|pair| Arc::clone(&pair.config))
    }

    /// Makes the handshake, if there is a certificate. The caller runs it in a task of the connection, never in the accept loop.
    pub(crate) async fn accept(&self, socket: TcpStream) -> io::Result<AcceptedSocket> {
        let Some(config) = self.config() else {
            return Ok(AcceptedSocket::Plain(socket));
        };
        let handshake = async {
            let _permit = self.handshakes.acquire().await.map_err(io::Error::other)?;
            TlsAcceptor::from(config).accept(socket).await
        };
        let stream = timeout(HANDSHAKE_TIMEOUT, handshake).await??;
        Ok(AcceptedSocket::Tls(Box::new(stream)))
    }

    /// Whether a connection begins with a handshake.
    pub(crate) fn is_on(&self) -> bool {
        self.pair.read().is_some()
    }
}

impl LoadedPair {
    fn read(files: &TlsFiles) -> Result<Self, Problem> {
        let stamp = files.stamp(); // first: a change while they are read is seen by the next check
        Ok(LoadedPair {
            config: files.server_config()?,
            files: files.clone(),
            stamp,
        })
    }
}

#[cfg(test)]
mod tests;
