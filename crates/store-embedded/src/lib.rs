//! Rethread's store on the local disk: sessions and streams outlive the process, and nothing has to be installed.
//!
//! ```no_run
//! use rethread_store_embedded::{EmbeddedStore, Sync};
//!
//! # fn main() -> Result<(), rethread_store_embedded::OpenError> {
//! let store = EmbeddedStore::open("/var/lib/rethread")?;
//! // Or, if not even a power failure may lose what was acknowledged:
//! let durable = EmbeddedStore::builder().sync(Sync::Always).open("/var/lib/durable")?;
//! # Ok(())
//! # }
//! ```
//!
//! One process at a time has a directory open. The bus reaches this process alone.
//!
//! Only the owner of the process may read what the store makes: directories are 0700, files 0600. A directory that was
//! there and lets others in stays as it is, and the log warns of it.
//!
//! # What it promises
//!
//! | | the process is killed | the machine fails | an append waits for |
//! |---|---|---|---|
//! | [`Sync::Always`] | nothing is lost | nothing is lost | the disk, together with all that wait |
//! | [`Sync::Interval`], the default: 50 ms | nothing is lost | at most the last interval is lost | the operating system |
//! | [`Sync::Os`] | nothing is lost | what the system had not yet written is lost | the operating system |
//!
//! Whatever is lost, what opens is a state that was: all commits up to some moment, and none after it. If commits are
//! missing in between, the store does not open and says which. If events of a stream are missing that were not evicted,
//! that stream is refused ([`StoreError::Unavailable`](rethread_store::StoreError::Unavailable)) and named in the log; a
//! stream with a hole is never served.
//!
//! # What it costs
//!
//! A few megabytes of memory when idle, some 70 when a million events are written; nothing per event, and little per
//! stream. On the disk the data, a journal of 64 MiB or two (most of it a hole in the file at first), and what is
//! deleted but not yet cleared away: at most about as much as the data and 32 MiB. One thread writes, and commits
//! everything that waits at once; reads go to the threads that the runtime keeps for what blocks. To end a session takes
//! the same time however many streams it has.
//!
//! An append costs about the same for one event as for a hundred, so whoever has several appends them together. What is
//! larger than half a kilobyte is written once, to a file that is deleted when nothing in it is wanted any more; only a
//! pointer to it goes through the database, which writes what it holds several times. With [`Sync::Always`] that limit is
//! 64 KiB: there one file to be synced is better than two. On Linux what was written leaves the page cache soon after it
//! is on the disk, but for the last 16 MiB; who comes back later is served from the disk.
//!
//! # What it keeps
//!
//! As much as [`Limits`] says. Eviction comes a little after the append that made it necessary, so a stream may be longer
//! than its limit by a sixteenth for a moment. When all streams together reach the limit, the streams that ended longest
//! ago become tombstones, then those are forgotten; when nothing has ended, a stream gives up its own oldest events; and
//! when it has none, the append is refused ([`StoreError::Full`](rethread_store::StoreError::Full)).
//!
//! # How it recovers
//!
//! When the disk fails or is full, or the directory disappears, every call is refused at once, the database is closed,
//! and opened again as soon as that works: after 100 milliseconds, then at longer intervals, up to two seconds. What was
//! acknowledged is there then; what was refused may be there too, and to append it again is harmless. The log tells once
//! when it begins and once when it is over.

mod books;
mod chunk;
mod coding;
mod db;
mod error;
mod gather;
mod head;
mod journal;
mod keeper;
mod keys;
mod open;
mod options;
mod place;
mod private;
mod queue;
mod read;
mod row;
mod segments;
mod shared;
mod shelf;
mod stage;
mod store;
mod tail;
mod trim;
mod upkeep;
mod waiting;
mod watches;
mod writer;

pub use error::OpenError;
pub use options::{Limits, Options, Sync};
pub use store::{EmbeddedStore, Usage};

/// The example of the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
