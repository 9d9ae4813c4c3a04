//! Rethread's store on the local disk: sessions and streams outlive the process.
mod books;
mod coding;
mod db;
mod error;
mod head;
mod keeper;
mod keys;
mod open;
mod options;
mod place;
mod queue;
mod read;
mod row;
mod shared;
mod stage;
mod store;
mod trim;
mod upkeep;
mod watches;
mod writer;

pub use error::OpenError;
pub use options::{Limits, Options, Sync};
pub use store::{EmbeddedStore, Usage};
