//! A model of the store: one log, its reader on another node, and the loss of the last writes.

use crate::client::message_number;
use crate::random::Random;
use rethread_proto::Seq;
use rethread_proto::cluster::ReaderToken;
use rethread_proto::stream::{Batch, Event, Log, Page, Refused, Retention, StreamInfo, StreamStatus};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The reader on another node, and its position.
pub(crate) type Reported = Option<(ReaderToken, Seq)>;

pub(crate) struct Store {
    info: Arc<StreamInfo>,
    log: Option<Log>,
    /// Every batch of the log, to rebuild an earlier state.
    history: Vec<Batch>,
    /// Every payload that was ever stored, by number. A number never gets another payload.
    pub(crate) stored: BTreeMap<u64, Vec<u8>>,
    pub(crate) stored_messages: HashSet<u64>,
    retention: Retention,
    evicts: bool,
    has_lost_stream: bool,
    pub(crate) is_down: bool,
    pub(crate) reader: Reported,
}

impl Store {
    pub(crate) fn new(info: Arc<StreamInfo>, retention: Retention) -> Self {
        Store {
            info,
            log: None,
            history: Vec::new(),
            stored: BTreeMap::new(),
            stored_messages: HashSet::new(),
            retention,
            evicts: false,
            has_lost_stream: false,
            is_down: false,
            reader: None,
        }
    }

    pub(crate) fn status(&self) -> Option<StreamStatus> {
        self.log.as_ref().map(Log::status)
    }

    pub(crate) fn append(&mut self, batch: Batch) -> Result<(), Refused> {
        let log = match (&mut self.log, &batch.info) {
            (Some(log), _) => log,
            (none, Some(info)) => none.insert(Log::new(info.clone(), batch.epoch)),
            (None, None) => {
                assert!(self.has_lost_stream, "the first batch of a stream has no info");
                return Err(Refused::Unknown); // the store has lost the stream
            }
        };
        log.append(batch.clone())?;
        let new = |event: &Event| (event.seq.0, event.payload.to_vec());
        for (seq, payload) in batch.events.iter().map(new) {
            let text = String::from_utf8_lossy(&payload).into_owned();
            self.stored_messages.extend(message_number(&text));
            let before = self.stored.insert(seq, payload);
            assert!(before.is_none(), "number {seq} has two payloads");
        }
        self.history.push(batch);
        Ok(())
    }

    pub(crate) fn read_after(&self, cursor: Seq, limit: usize) -> Option<Page> {
        self.log.as_ref().map(|log| log.read_after(cursor, limit, 100_000))
    }

    /// Reads for a remote reader and records its position. `None` if the reader is displaced.
    pub(crate) fn read_as(&mut self, token: &ReaderToken, cursor: Seq, limit: usize) -> Option<Page> {
        match &mut self.reader {
            Some((reader, position)) if reader == token => *position = cursor,
            _ => return None,
        }
        self.read_after(cursor, limit)
    }

    pub(crate) fn detach(&mut self, token: &ReaderToken) {
        self.reader.take_if(|(reader, _)| reader == token);
    }

    pub(crate) fn evict(&mut self) {
        self.evicts = true;
        if let Some(log) = &mut self.log {
            log.evict(&self.retention);
        }
    }

    /// Loses the last writes, possibly the whole stream and its reader.
    pub(crate) fn lose_writes(&mut self, random: &mut Random) {
        for _ in 0..=random.below(3) {
            self.history.pop();
        }
        if random.chance(50) {
            self.reader = None;
        }
        self.log = None;
        for batch in &self.history {
            let log = self.log.get_or_insert_with(|| Log::new(self.info.clone(), batch.epoch));
            log.append(batch.clone()).expect("the batch was accepted before");
        }
        self.has_lost_stream |= self.log.is_none();
        if self.evicts {
            self.evict();
        }
    }
}
