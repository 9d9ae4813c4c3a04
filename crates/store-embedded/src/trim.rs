//! Eviction within a stream: as [`Log::evict`](rethread_proto::stream::Log::evict) does it, on the disk.

use crate::books::{Books, Kept, Live};
use crate::chunk::{Chunk, Held};
use crate::db::ReadError;
use crate::keys;
use crate::stage::Standing;
use rethread_proto::stream::retention::{HeldAmount, evicted_up_to, may_be_evicted};
use rethread_store::{Retain, Retention, Seq, StreamKey};

impl Books {
    /// Evicts the oldest events beyond `limits`, passing over the pinned ones and never the newest; at most `budget` of
    /// them. Returns how many went: fewer than `budget` if that was all. Nothing may be staged but other evictions.
    pub(crate) fn trim(&mut self, key: &StreamKey, limits: &Retention, budget: usize) -> Result<usize, ReadError> {
        let (sid, mut live) = match self.standing(key) {
            Ok(Some((sid, Standing::Open))) => match self.take_live(key) {
                Ok(live) => (sid, live),
                Err(_) => return Ok(0),
            },
            Ok(Some((sid, Standing::Ended(head)))) if !head.buried => (
                sid,
                Live {
                    floor: head.first,
                    ..Live::new(*head)
                },
            ),
            // It is gone, or damaged, and whoever reads it next is told.
            _ => return Ok(0),
        };
        let used = self.evict(&mut live, limits, budget)?;
        if used > 0 {
            self.put_head(sid, key.ordinal, &live.head);
        }
        live.queued = used == budget;
        if live.head.ended.is_none() {
            self.put_live(key, live);
        }
        Ok(used)
    }

    fn evict(&mut self, live: &mut Live, limits: &Retention, budget: usize) -> Result<usize, ReadError> {
        let sealed = live.head.ended.is_some();
        let stream = live.head.stream;
        let mut used = 0;
        // What was passed over and released since goes first: it is older than the rest.
        while used < budget
            && live.is_beyond(limits)
            && let Some(at) = live.kept.iter().position(|kept| may_be_evicted(kept.retain))
        {
            if Some(live.kept[at].seq) == live.head.last {
                live.settle();
                return Ok(used); // what was just said is always kept, whatever its size
            }
            let released = live.kept.remove(at);
            if let Some(mut chunk) = self.chunk_with(stream, released.seq)? {
                self.evict_from(&mut chunk, released.seq);
                self.put_chunk(stream, &chunk);
            }
            self.has_evicted(live, released.seq, released.cost);
            used += 1;
        }
        let chunks = self.db.view().chunks(stream, live.floor);
        for chunk in chunks {
            if used == budget || !live.is_beyond(limits) {
                break;
            }
            let chunk = chunk?;
            let Some(mut chunk) = self.as_staged(stream, chunk)? else {
                continue;
            };
            let (mut touched, mut done) = (false, false);
            let held: Vec<Held> = chunk.held().filter(|held| held.seq >= live.floor).collect();
            for held in held {
                // The end of a stream releases every question.
                let is_released = sealed && held.retain == Retain::Question;
                let pinned = !is_released && !may_be_evicted(held.retain);
                let newest = !pinned && Some(held.seq) == live.head.last;
                if used == budget || newest || !live.is_beyond(limits) {
                    done = true;
                    break;
                }
                live.floor = held.seq.next();
                let (seq, retain, cost) = (held.seq, held.retain, held.cost());
                if pinned {
                    live.kept.push(Kept { seq, retain, cost });
                    continue;
                }
                self.evict_from(&mut chunk, seq);
                self.has_evicted(live, seq, cost);
                touched = true;
                used += 1;
            }
            if touched {
                self.put_chunk(stream, &chunk);
            }
            if done {
                break;
            }
        }
        live.settle();
        Ok(used)
    }

    fn has_evicted(&mut self, live: &mut Live, seq: Seq, cost: u64) {
        let head = &mut live.head;
        head.count = head.count.saturating_sub(1);
        head.bytes = head.bytes.saturating_sub(cost);
        self.totals.held = self.totals.held.saturating_sub(cost);
        head.purged = evicted_up_to(head.purged, seq);
    }

    /// A row as it will be when the group is committed.
    fn as_staged(&self, stream: u64, stored: Chunk) -> Result<Option<Chunk>, ReadError> {
        let key = keys::chunk(stream, stored.last());
        match self.staged(&key) {
            None => Ok(Some(stored)),
            Some(None) => Ok(None),
            Some(Some(value)) => {
                let chunk = Chunk::decode(stored.last(), value).ok_or(ReadError::Garbled("a row of events"))?;
                Ok(Some(chunk))
            }
        }
    }
}

impl Live {
    fn is_beyond(&self, limits: &Retention) -> bool {
        limits.is_exceeded(HeldAmount {
            events: self.head.count as usize,
            bytes: self.head.bytes as usize,
        })
    }

    fn settle(&mut self) {
        self.head.first = self.kept.first().map_or(self.floor, |kept| kept.seq);
    }
}
