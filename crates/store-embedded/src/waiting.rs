//! Push queues: messages that wait for a GET, one row each, and the floor below which none comes back (design D6).

use crate::books::Books;
use crate::coding::{Reader, number, numbers};
use crate::db::{ReadError, View};
use crate::keys;
use crate::stage::Refusal;
use crate::upkeep::SLICE;
use bytes::Bytes;
use rethread_store::{QueuePosition, QueueUpdate, Queued, SessionKey, StoreError, StoredQueue};
use std::collections::BTreeMap;

/// Push queues have this share of the room at most: messages that nobody fetches must not displace streams.
const SHARE: u64 = 4;

/// What the writer knows of a queue: where its messages are, and what each costs.
#[derive(Debug, Default)]
pub(crate) struct QueueIndex {
    costs: BTreeMap<QueuePosition, u64>,
    floor: QueuePosition,
}

impl QueueIndex {
    fn cost_up_to(&self, floor: QueuePosition) -> u64 {
        self.costs.range(..=floor).map(|(_, cost)| cost).sum()
    }
}

/// The length of the collapse key and one, or nothing; the key; the message.
fn encode(queued: &Queued) -> Vec<u8> {
    let collapse = queued.collapse.as_deref();
    let mut value = Vec::with_capacity(9 + queued.message.len() + collapse.map_or(0, str::len));
    let length = collapse.map_or(0, |key| key.len() as u64 + 1);
    value.extend_from_slice(&length.to_le_bytes());
    value.extend_from_slice(collapse.unwrap_or_default().as_bytes());
    value.extend_from_slice(&queued.message);
    value
}

fn decode(position: QueuePosition, value: &[u8]) -> Option<Queued> {
    let mut reader = Reader(value);
    let length = reader.u64()?;
    let collapsing = length.checked_sub(1).map(|length| length as usize);
    let (collapse, message) = reader.rest().split_at_checked(collapsing.unwrap_or(0))?;
    Some(Queued {
        position,
        message: Bytes::copy_from_slice(message),
        collapse: match collapsing {
            Some(_) => Some(std::str::from_utf8(collapse).ok()?.into()),
            None => None,
        },
    })
}

/// The queue of a session, as it is on the disk.
pub(crate) fn load(view: &View<'_>, sid: u64) -> Result<StoredQueue, ReadError> {
    let garbled = || ReadError::Garbled("a push queue");
    let floor = match view.get(&keys::queue_floor(sid))? {
        Some(value) => QueuePosition(number(&value).ok_or_else(garbled)?),
        None => QueuePosition::default(),
    };
    let mut messages = Vec::new();
    for guard in view.prefix(&keys::queue(sid)) {
        let (key, value) = guard.into_inner()?;
        let [_, position] = keys::parts(&key).ok_or_else(garbled)?;
        messages.push(decode(QueuePosition(position), &value).ok_or_else(garbled)?);
    }
    Ok(StoredQueue::new(messages, floor))
}

impl Books {
    /// Refuses one who is not the session's owner any more.
    pub(crate) fn check_epoch(&mut self, key: &SessionKey, epoch: u64) -> Result<(), StoreError> {
        self.session(key)?.ok_or(StoreError::SessionGone)?;
        let known = self.sessions.get(key).and_then(|session| session.epoch);
        let stored = match known {
            Some(stored) => stored,
            None => {
                let row = self.row(key)?.ok_or(StoreError::SessionGone)?;
                row.record().ok_or(ReadError::Garbled("a session's record"))?.epoch
            }
        };
        if let Some(session) = self.sessions.get_mut(key) {
            session.epoch = Some(stored);
        }
        if stored != epoch {
            return Err(StoreError::Conflict {
                epoch: stored,
                last: None,
            });
        }
        Ok(())
    }

    /// Brings the queue of a session that is in memory there, too.
    fn queue_index(&mut self, key: &SessionKey) -> Result<(u64, &mut QueueIndex), StoreError> {
        let session = self.sessions.get(key).ok_or(StoreError::SessionGone)?;
        // What was staged for a queue put it into memory, and it stays there until that is committed.
        let read = match &session.queue {
            Some(_) => None,
            None => Some(load(&self.db.view(), session.sid)?),
        };
        let session = self.sessions.get_mut(key).ok_or(StoreError::SessionGone)?;
        let index = session.queue.get_or_insert_default();
        if let Some(read) = read {
            index.floor = read.floor();
            index.costs = read.messages().map(|q| (q.position, q.cost() as u64)).collect();
        }
        Ok((session.sid, index))
    }

    /// Stages an update of a queue.
    pub(crate) fn update_queue(&mut self, key: &SessionKey, update: &QueueUpdate) -> Result<(), Refusal> {
        self.check_epoch(key, update.epoch)?;
        let (sid, index) = self.queue_index(key)?;
        let floor = index.floor.max(update.floor);
        let lacking = |queued: &&Queued| queued.position > floor && !index.costs.contains_key(&queued.position);
        let new: BTreeMap<QueuePosition, &Queued> = update
            .messages
            .iter()
            .filter(lacking)
            .map(|queued| (queued.position, queued))
            .collect();
        let size: u64 = new.values().map(|queued| queued.cost() as u64).sum();
        let more = size.saturating_sub(index.cost_up_to(floor));
        if more > 0 {
            if self.totals.queued + more > self.options.limits.total_bytes / SHARE {
                return Err(StoreError::Full.into());
            }
            self.need_room(more)?;
        }
        self.raise_floor(key, update.floor)?;
        let (_, index) = self.queue_index(key)?;
        index
            .costs
            .extend(new.iter().map(|(position, queued)| (*position, queued.cost() as u64)));
        for queued in new.into_values() {
            self.put_blind(&keys::queued(sid, queued.position), &encode(queued));
        }
        self.totals.held += size;
        self.totals.queued += size;
        Ok(())
    }

    /// Stages the end of the messages up to `floor`.
    pub(crate) fn raise_floor(&mut self, key: &SessionKey, floor: QueuePosition) -> Result<(), StoreError> {
        let (sid, index) = self.queue_index(key)?;
        if floor <= index.floor {
            return Ok(());
        }
        index.floor = floor;
        let kept = index.costs.split_off(&floor.next());
        let gone = std::mem::replace(&mut index.costs, kept);
        self.put_blind(&keys::queue_floor(sid), &numbers([floor.0]));
        for position in gone.keys() {
            self.remove_blind(&keys::queued(sid, *position));
        }
        self.uncount(gone.values().sum());
        Ok(())
    }

    fn uncount(&mut self, cost: u64) {
        self.totals.held = self.totals.held.saturating_sub(cost);
        self.totals.queued = self.totals.queued.saturating_sub(cost);
    }

    /// Deletes some of the queue of a session that is gone. False if nothing is left of it. Nothing may be staged.
    pub(crate) fn delete_dead_queue(&mut self, sid: u64) -> Result<bool, ReadError> {
        let db = self.db.clone();
        let mut left = SLICE;
        for guard in db.view().prefix(&keys::queue(sid)) {
            if left == 0 {
                return Ok(true);
            }
            left -= 1;
            let (key, value) = guard.into_inner()?;
            self.remove_blind(&key);
            let queued = decode(QueuePosition::default(), &value);
            self.uncount(queued.map_or(0, |queued| queued.cost() as u64));
        }
        self.remove_blind(&keys::queue_floor(sid));
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_message_survives_being_bytes() {
        for collapse in [None, Some(""), Some("resource:test://a")] {
            let queued = Queued {
                position: QueuePosition(7),
                message: Bytes::from_static(b"{}"),
                collapse: collapse.map(Into::into),
            };
            assert_eq!(decode(QueuePosition(7), &encode(&queued)), Some(queued));
        }
        for garbled in [&b""[..], b"\x09\0\0\0\0\0\0\0ab", b"\xff\xff\xff\xff\xff\xff\xff\xff"] {
            assert_eq!(decode(QueuePosition(1), garbled), None);
        }
    }
}
