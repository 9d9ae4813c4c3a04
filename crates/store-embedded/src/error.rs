use rethread_store::{Seq, StoreError, StreamKey};
use std::path::PathBuf;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has the directory open.
    #[error("the data directory {} is in use by another process; each server needs its own", .dir.display())]
    InUse {
        /// The data directory.
        dir: PathBuf,
    },
    /// A later version wrote the directory.
    #[error(
        "the data directory {} was written by a newer Rethread (format {found}, this one knows up to {known}); \
         run that one, or use another directory",
        .dir.display()
    )]
    Newer {
        /// The data directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
        /// The latest format that can be read.
        known: u32,
    },
    /// An earlier version wrote the directory, in a format that is no longer supported.
    #[error(
        "the data directory {} was written by an older Rethread (format {found}, this one reads {known}); \
         run that one, or use another directory",
        .dir.display()
    )]
    Older {
        /// The data directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
        /// The format that can be read.
        known: u32,
    },
    /// The directory is not empty and does not belong to a store.
    #[error(
        "the directory {} is not empty and holds no Rethread data ({found} is in it); nothing was touched; \
         use an empty directory, or one of its own",
        .dir.display()
    )]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// A name in it.
        found: String,
    },
    /// The data are damaged.
    #[error(
        "the data in {} is damaged: {what}; restore the directory from a copy, or move it away to start empty",
        .dir.display()
    )]
    Damaged {
        /// The data directory.
        dir: PathBuf,
        /// The damage.
        what: String,
    },
    /// The directory cannot be read or written.
    #[error("the data directory {} cannot be used: {what}", .dir.display())]
    Io {
        /// The data directory.
        dir: PathBuf,
        /// The operation.
        what: &'static str,
        /// Its error.
        #[source]
        source: std::io::Error,
    },
}

/// The error of a stream whose events from `first` to `last` cannot be read.
pub(crate) fn damaged_stream(key: &StreamKey, (first, last): (Seq, Seq)) -> StoreError {
    let events = match first == last {
        true => format!("event {} is missing", first.0),
        false => format!("events {} to {} are missing", first.0, last.0),
    };
    let (ordinal, session) = (key.ordinal.0, key.session.session.short());
    StoreError::unavailable(format!("stream {ordinal} of session {session}… is damaged: {events}"))
}

/// An error and its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
