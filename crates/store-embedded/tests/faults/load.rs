//! Load for a store: concurrent sessions that are created, appended to and partly ended. The ledger records every step.

use crate::ledger::{Ledger, payload, session_key, session_record, stream_key};
use crate::support::Rng;
use rethread_store::{Batch, Event, EventStore, Retain, Seq, SessionStore, StoreError};
use rethread_store_embedded::EmbeddedStore;
use rethread_testkit::store_suite::info;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use tokio::task::JoinSet;

/// The state that the writers share.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) store: EmbeddedStore,
    pub(crate) ledger: Ledger,
    /// Number of the next new session.
    pub(crate) fresh: AtomicU64,
    /// Epoch of this writer process, above that of every earlier one.
    pub(crate) epoch: u64,
    /// Batches that the writers together still have to append.
    pub(crate) batches: AtomicI64,
}

impl Load {
    /// Runs `writers` tasks until all batches are appended or the store returns an error. The tasks share the `open`
    /// sessions and resume some of them.
    pub(crate) async fn run(self: &Arc<Self>, writers: u64, open: Vec<u64>, rng: &mut Rng) -> Result<(), StoreError> {
        let mut tasks = JoinSet::new();
        let mut open: Vec<Vec<u64>> = (0..writers)
            .map(|n| open.iter().copied().filter(|id| id % writers == n).collect())
            .collect();
        while let Some(mine) = open.pop() {
            let (load, rng) = (self.clone(), Rng::new(rng.next()));
            tasks.spawn(async move { load.write(mine, rng).await });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no writer panics")?;
        }
        Ok(())
    }

    async fn write(&self, mut open: Vec<u64>, mut rng: Rng) -> Result<(), StoreError> {
        // Sessions that stay untouched keep old segments in use.
        open.retain(|_| rng.chance(60));
        while self.batches.load(Ordering::Relaxed) > 0 {
            let id = match open.pop() {
                Some(id) => self.resume(id).await?,
                None => self.create().await?,
            };
            let mut streams = self.streams(id).await?;
            for _ in 0..1 + rng.below(24) {
                self.step(id, &mut streams, &mut rng).await?;
                if self.batches.load(Ordering::Relaxed) <= 0 {
                    break;
                }
            }
            if rng.chance(35) {
                self.end(id).await?;
            }
        }
        Ok(())
    }

    async fn create(&self) -> Result<u64, StoreError> {
        let id = self.fresh.fetch_add(1, Ordering::Relaxed);
        self.ledger.create(id, false);
        self.store.create(&session_key(id), session_record(1), false).await?;
        self.ledger.create(id, true);
        Ok(id)
    }

    async fn resume(&self, id: u64) -> Result<u64, StoreError> {
        let epoch = self.store.load(&session_key(id)).await?.record.epoch + 1;
        self.ledger.update(id, epoch, false);
        let view = self.store.open(&session_key(id)).await?;
        assert_eq!(view.record.epoch, epoch);
        self.ledger.update(id, epoch, true);
        Ok(id)
    }

    pub(crate) async fn end(&self, id: u64) -> Result<(), StoreError> {
        self.ledger.end(id, false);
        self.store.end(&session_key(id)).await?;
        self.store.forget_session(&session_key(id)).await?;
        self.ledger.end(id, true);
        Ok(())
    }

    async fn streams(&self, id: u64) -> Result<Streams, StoreError> {
        let mut next = BTreeMap::new();
        for ordinal in self.store.open_streams(&session_key(id)).await? {
            let status = self.store.status(&stream_key(id, ordinal.0)).await?;
            next.insert(ordinal.0, status.last.map_or(0, |last| last.0 + 1));
        }
        let highest = self.store.load(&session_key(id)).await?.high_water.0;
        Ok(Streams { next, highest })
    }

    /// Appends one batch to each of several streams concurrently.
    async fn step(&self, id: u64, streams: &mut Streams, rng: &mut Rng) -> Result<(), StoreError> {
        if streams.next.is_empty() || rng.chance(25) && streams.next.len() < 5 {
            streams.highest += 1;
            streams.next.insert(streams.highest, id % 2); // with and without a priming event
        }
        let mut in_flight = Vec::new();
        let mut sealed = Vec::new();
        for (ordinal, next) in &mut streams.next {
            if rng.chance(30) {
                continue;
            }
            let more = if rng.chance(10) { 40 } else { 3 };
            let (first, last) = (*next, *next + rng.below(more));
            let seals = rng.chance(8);
            self.ledger.send(id, *ordinal, first, last, seals);
            let batch = batch(id, *ordinal, self.epoch, first, last, seals);
            in_flight.push((*ordinal, last, self.store.append(&stream_key(id, *ordinal), batch)));
            *next = last + 1;
            if seals {
                sealed.push(*ordinal);
            }
        }
        for (ordinal, last, append) in in_flight {
            append.await?;
            self.ledger.sent(id, ordinal, last);
            self.batches.fetch_sub(1, Ordering::Relaxed);
        }
        for ordinal in sealed {
            streams.next.remove(&ordinal);
        }
        Ok(())
    }
}

/// The unsealed streams of a session.
struct Streams {
    /// The next sequence number of each stream.
    next: BTreeMap<u64, u64>,
    highest: u64,
}

/// The events `first..=last` of a stream.
pub(crate) fn batch(id: u64, ordinal: u64, epoch: u64, first: u64, last: u64, seals: bool) -> Batch {
    let mut events: Vec<Event> = (first..=last)
        .map(|seq| Event::new(Seq(seq), payload(id, ordinal, seq)))
        .collect();
    if let Some(answer) = events.last_mut().filter(|_| seals) {
        answer.retain = Retain::Answer;
    }
    let mut batch = Batch::new(epoch, events);
    batch.info = (first <= 1).then(info);
    batch.seals = seals;
    batch
}
