use redis::{ErrorKind, RedisError, ServerErrorKind};
use rethread_store::StoreError;

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is invalid.
    #[error("invalid store URL: {0}")]
    Url(Box<str>),
    /// The store cannot be reached.
    #[error("the store cannot be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The settings of the server would lose data, or the server is too old.
    #[error("{0}")]
    Unsuitable(Box<str>),
}

impl ConnectError {
    /// Not a `From` implementation, because types of the client library are not part of the API.
    pub(crate) fn unreachable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        ConnectError::Unreachable(error.into())
    }
}

/// How to continue after an error of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// The server has not run the command and does not know the script.
    LoadScripts,
    /// The server has not run the command. A repetition may succeed, on this server or another one.
    WaitAndRepeat,
    /// The connection is lost. The server may have run the command.
    Reconnect,
    /// The command has failed.
    None,
}

impl Remedy {
    pub(crate) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Remedy::LoadScripts,
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly,
            )
            | ErrorKind::ClusterConnectionNotFound => Remedy::WaitAndRepeat,
            _ if error.is_unrecoverable_error() || error.is_io_error() => Remedy::Reconnect,
            _ => Remedy::None,
        }
    }
}

/// An error of a command, for the caller of the store.
pub(crate) fn store_error(error: RedisError) -> StoreError {
    let is_full = error.code() == Some("OOM") || error.detail().is_some_and(|detail| detail.contains("OOM command"));
    if is_full {
        StoreError::Full
    } else {
        StoreError::unavailable(error)
    }
}
