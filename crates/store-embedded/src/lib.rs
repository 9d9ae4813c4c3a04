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
//! One process at a time can open a directory. The bus reaches this process only.
//!
//! Only the owner of the process may read the files of the store: directories are 0700, files 0600. The store does not
//! change the permissions of an existing directory. It logs a warning if others may read it.
//!
//! # Durability
//!
//! | | the process is killed | the machine fails | an append waits for |
//! |---|---|---|---|
//! | [`Sync::Always`] | nothing is lost | nothing is lost | the disk, together with all other appends |
//! | [`Sync::Interval`], the default: 50 ms | nothing is lost | at most the last interval is lost | the operating system |
//! | [`Sync::Os`] | nothing is lost | writes that the system had not done yet are lost | the operating system |
//!
//! An opened store contains all commits up to some moment and none after it. If durable commits are missing, the store
//! refuses to open and names them. If a payload is damaged, reads of its stream fail
//! ([`StoreError::Unavailable`](rethread_store::StoreError::Unavailable)) and the process log names the stream. The
//! store never serves a stream with a hole.
//!
//! # Design
//!
//! The store is one log on the disk and an index of it in memory. Every change is a record of the log. The thread of a
//! caller writes its own records and those of waiting callers in one group. Payloads are written once and read from the
//! log. The index has their locations and checksums, 32 bytes per event. The store writes checkpoints of the
//! index, so that opening reads the last checkpoint and the log after it. A segment of the log is deleted when nothing
//! in it is live. A mostly dead segment is compacted first.
//!
//! `docs/store-format.md` in the repository describes every byte of the files and the effect of each crash.
//!
//! # Limits
//!
//! [`Limits`] bounds the retained data. When all streams together reach the limit, the streams that ended first become
//! tombstones, then tombstones are forgotten. When nothing has ended, a stream evicts its own oldest events. When it
//! has none, the append is refused ([`StoreError::Full`](rethread_store::StoreError::Full)).
//!
//! # Failures
//!
//! When the disk fails or is full, or the directory disappears, every call fails at once. The store retries to open the
//! log after 100 milliseconds, then at longer intervals, up to two seconds. It then contains all acknowledged writes.
//! It may contain refused writes too, and repeating them is harmless.

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

/// Decodes arbitrary bytes as every part of the files, for the fuzz target. No decoder may panic.
#[doc(hidden)]
pub fn decode_arbitrary(bytes: &[u8]) {
    use coding::{Decoder, Wire};
    let store = 0;
    let _ = group::SegmentHeader::decode(bytes);
    let _ = group::GroupHeader::find_claims(bytes, store);
    let _ = group::parse_records(bytes, store);
    let _ = checkpoint::decode(bytes, store);
    // These bypass the checksums, which random input hardly ever matches.
    let _ = record::Record::parse(bytes).map(|record| record.parts());
    let _ = index::session::Session::decode(&mut Decoder(bytes));
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
