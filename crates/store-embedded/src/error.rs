use std::path::PathBuf;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Somebody else has it open.
    #[error("the data directory {} is in use by another process; each server needs its own", .dir.display())]
    InUse {
        /// The data directory.
        dir: PathBuf,
    },
    /// It was written by a later version.
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
    /// It was written by an earlier version, in a way that is not read any more.
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
    /// There is something in the directory, and it is no store.
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
    /// What is in it cannot be right.
    #[error(
        "the data in {} is damaged: {what}; restore the directory from a copy, or move it away to start empty",
        .dir.display()
    )]
    Damaged {
        /// The data directory.
        dir: PathBuf,
        /// What was found.
        what: String,
    },
    /// It cannot be read or written.
    #[error("the data directory {} cannot be used: {what}", .dir.display())]
    Io {
        /// The data directory.
        dir: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What came of it.
        #[source]
        source: std::io::Error,
    },
}
