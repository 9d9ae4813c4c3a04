//! Rethread's store on the local disk. Sessions and streams survive the process, and no database has to be installed.
//!
//! ```no_run
//! use rethread_store_embedded::{EmbeddedStore, Sync};
//!
//! # fn main() -> Result<(), rethread_store_embedded::OpenError> {
//! let store = EmbeddedStore::open("/var/lib/rethread")?;
//! // Or, if not even a power failure may lose an acknowledged event:
//! let durable = EmbeddedStore::builder().sync(Sync::Always).open("/var/lib/durable")?;
//! # Ok(())
//! # }
//! ```
//!
//! One process at a time has a directory open. The bus reaches this process alone.
//!
//! Only the owner of the process may read the files of the store: directories are 0700, files 0600. A directory that exists
//! and lets others in stays as it is, and the store logs a warning.
//!
//! # Durability
//!
//! | | the process is killed | the machine fails | an append waits for |
//! |---|---|---|---|
//! | [`Sync::Always`] | nothing is lost | nothing is lost | the disk, together with all other appends |
//! | [`Sync::Interval`], the default: 50 ms | nothing is lost | at most the last interval is lost | the operating system |
//! | [`Sync::Os`] | nothing is lost | writes that the system had not done yet are lost | the operating system |
//!
//! A store that opens is in a state that once was: all commits up to some moment, and none after it. If commits are missing
//! that were durable, the store does not open and names them. If a payload is damaged, its stream is refused
//! ([`StoreError::Unavailable`](rethread_store::StoreError::Unavailable)) and named in the log. A stream is never served with
//! a hole.
//!
//! # Design
//!
//! The store is one log on the disk and an index of it in memory. Every change is a record of the log. An append of a caller
//! is written by the thread of the caller, together with the records of all who wait. Payloads are written once and read back
//! from where they are; the index has their locations and checksums, about 40 bytes per event. A checkpoint of the index is
//! written from time to time, so that a start reads the last checkpoint and the log behind it. Segments of the log are
//! deleted when nothing in them is wanted. A segment that is mostly dead is compacted first.
//!
//! `docs/store-format.md` in the repository describes every byte of the files and what each crash leaves behind.
//!
//! # Limits
//!
//! [`Limits`] bounds the retained data. When all streams together reach the limit, the streams that ended first become
//! tombstones, then tombstones are forgotten. When nothing has ended, a stream evicts its own oldest events. When it has none,
//! the append is refused ([`StoreError::Full`](rethread_store::StoreError::Full)).
//!
//! # Failures
//!
//! When the disk fails or is full, or the directory disappears, every call is refused at once. The store opens the log again
//! as soon as that works: after 100 milliseconds, then at longer intervals, up to two seconds. Acknowledged writes are there
//! then. Refused writes may be there too, and appending them again is harmless.

mod checkpoint;
mod coding;
mod commit;
mod compaction;
mod data_dir;
mod engine;
mod error;
mod group;
mod index;
mod log;
mod op;
mod options;
mod private;
mod read;
mod record;
mod recovery;
mod relocation;
#[cfg(test)]
#[path = "../tests/faults/rng.rs"]
mod rng;
mod segment;
#[cfg(test)]
mod simulated_disk;
#[cfg(test)]
mod simulation;
mod store;
mod upkeep;
mod watches;

pub use error::OpenError;
pub use options::{Limits, Options, Sync};
pub use store::{EmbeddedStore, Usage};

/// Decodes arbitrary bytes as every part of the files, for the fuzz target. None of them may panic.
#[doc(hidden)]
pub fn decode_arbitrary(bytes: &[u8]) {
    use coding::{Decoder, Wire};
    let store = 0;
    let _ = group::SegmentHeader::decode(bytes);
    let _ = group::GroupHeader::find_claims(bytes, store);
    let _ = group::parse_records(bytes, store);
    let _ = checkpoint::decode(bytes, store);
    // Without the checksums, which hardly any input gets right.
    let _ = record::Record::parse(bytes).map(|record| record.parts());
    let _ = index::session::Session::decode(&mut Decoder(bytes));
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
