//! Eviction within a stream: as [`Log::evict`](rethread_proto::session::stream::Log::evict) does it, on the disk.

use crate::books::{Books, Kept, Live};
use crate::db::ReadError;
use crate::head::event_cost;
use crate::keys;
use crate::stage::Standing;
use rethread_store::{Pin, Retention, Seq, StreamKey};

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
        let Live { head, floor, kept, .. } = live;
        let sealed = head.ended.is_some();
        let mut events = self.db.view().events(head.stream, *floor);
        let mut used = 0;
        while used < budget && (head.count > limits.events as u64 || head.bytes > limits.bytes as u64) {
            let (seq, cost) = if let Some(at) = kept.iter().position(|kept| kept.pin == Pin::None) {
                if Some(kept[at].seq) == head.last {
                    break; // what was just said is always kept, whatever its size
                }
                let released = kept.remove(at);
                (released.seq, released.cost)
            } else {
                let Some(event) = events.next().transpose()? else { break };
                let (seq, cost) = (event.seq, event_cost(event.payload()));
                // The end of a stream releases every question.
                let pinned = event.pin == Pin::Answer || (event.pin == Pin::Question && !sealed);
                if !pinned && Some(seq) == head.last {
                    break;
                }
                *floor = seq.next();
                if pinned {
                    let pin = event.pin;
                    kept.push(Kept { seq, pin, cost });
                    continue;
                }
                (seq, cost)
            };
            self.remove_blind(&keys::event(head.stream, seq));
            head.count = head.count.saturating_sub(1);
            head.bytes = head.bytes.saturating_sub(cost);
            self.totals.held = self.totals.held.saturating_sub(cost);
            // The loss of a priming event alone is no gap: it says nothing.
            if seq > Seq::PRIMING {
                head.purged = head.purged.max(Some(seq));
            }
            used += 1;
        }
        head.first = kept.first().map_or(*floor, |kept| kept.seq);
        Ok(used)
    }
}
