//! Takes a change, or refuses it. Everything that can fail comes first: what is refused leaves nothing behind.

use crate::books::{Books, Live, Session};
use crate::chunk::{Chunk, State};
use crate::db::ReadError;
use crate::head::{Ended, Head, Verdict};
use crate::keys;
use crate::queue::Op;
use crate::read::{self, Continuity, Damage};
use crate::row::Row;
use crate::watches::Effect;
use rethread_proto::clock::Wall;
use rethread_store::{Batch, Ordinal, Retain, Seq, SessionKey, SessionRecord, StoreError, StreamKey};
use std::collections::BTreeMap;

/// Why a change was not made.
#[derive(Debug)]
pub(crate) enum Refusal {
    Refused(StoreError),
    /// So many bytes do not fit; some may be freed.
    NoRoom(u64),
}

impl<E: Into<StoreError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Refusal::Refused(error.into())
    }
}

/// A stream as the writer finds it.
pub(crate) enum Standing {
    Absent,
    Open,
    Ended(Box<Head>),
}

/// A row as it is when some of its events are not pinned any more, and which these are.
struct Released {
    chunk: Chunk,
    events: Vec<(Seq, Retain)>,
}

impl Books {
    /// Stages a change; says how many sessions it ended.
    pub(crate) fn apply(&mut self, op: &mut Op) -> Result<usize, Refusal> {
        match op {
            Op::Append(key, batch) => self.append(key, batch)?,
            Op::ForgetStream(key) => self.forget_stream(key)?,
            Op::ForgetSession(key) => self.forget_session(key)?,
            Op::Create(key, record) => self.create(key, record)?,
            Op::Update(key, epoch, record) => self.update(key, *epoch, record)?,
            Op::UpdateQueue(key, update) => self.update_queue(key, update)?,
            Op::Touch(key) => self.touch(key)?,
            Op::End(key) => {
                if let Some(row) = self.row(key)? {
                    self.end(key, &row);
                }
            }
            Op::Expire(key, idle) => {
                let Some(row) = self.row(key)? else { return Ok(0) };
                let (now, touched) = (self.now(), self.touched(key)?);
                if touched.is_some_and(|touched| touched > now) {
                    self.touch(key)?;
                    return Ok(0);
                }
                if touched.is_some_and(|touched| now.since(touched) < *idle) {
                    return Ok(0);
                }
                self.end(key, &row);
                return Ok(1);
            }
            Op::Sweep => {}
        }
        Ok(0)
    }

    fn append(&mut self, key: &StreamKey, batch: &mut Batch) -> Result<(), Refusal> {
        let (sid, standing) = self.standing(key)?.ok_or(StoreError::SessionGone)?;
        if batch.taken.is_some() {
            self.check_epoch(&key.session, batch.epoch)?;
        }
        let size = batch.events.iter().map(|event| event.cost() as u64).sum();
        let verdict = match (&standing, &batch.info) {
            (Standing::Ended(head), _) => head.judge(batch)?,
            (Standing::Open, _) => self.live(key)?.head.judge(batch)?,
            (Standing::Absent, Some(info)) => {
                let head = Head::new(0, info.clone(), batch.epoch);
                let verdict = head.judge(batch)?;
                self.need_room(size + head.fixed_cost())?;
                verdict
            }
            (Standing::Absent, None) => return Err(StoreError::UnknownStream.into()),
        };
        if verdict == Verdict::Repeat {
            return Ok(());
        }
        self.need_room(size)?;
        let released = self.released(key, batch)?;
        if let Some(floor) = batch.taken {
            self.raise_floor(&key.session, floor)?; // the last thing that can fail, and it fails before it stages
        }

        let (now, mut written) = (self.now(), false);
        if let (Standing::Absent, Some(info)) = (standing, batch.info.take()) {
            let head = Head::new(self.take_id(), info, batch.epoch);
            self.totals.streams += 1;
            self.totals.held += head.fixed_cost();
            let session = self.sessions.get_mut(&key.session).ok_or(StoreError::SessionGone)?;
            session.high_water = session.high_water.max(key.ordinal);
            session.open.insert(key.ordinal, Live::new(head));
            written = true;
        }
        self.totals.held += size;
        let mut live = self.take_live(key)?;
        let head = &mut live.head;
        written |= head.epoch != batch.epoch || batch.seals;
        head.epoch = batch.epoch;
        for event in &mut batch.events {
            if !batch.seals && batch.released.contains(&event.seq) {
                event.retain = Retain::None;
            }
            head.count(event);
        }
        self.put_events(head.stream, &batch.events);
        for Released { chunk, events } in released {
            for (seq, retain) in events {
                head.answers -= u64::from(retain == Retain::Answer);
                let kept = live.kept.iter_mut().find(|kept| kept.seq == seq);
                if let Some(kept) = kept {
                    kept.retain = Retain::None;
                }
            }
            self.put_chunk(head.stream, &chunk);
        }
        if batch.seals {
            let ended = Ended {
                at: now.as_millis(),
                ticket: self.take_id(),
            };
            head.ended = Some(ended);
            let whose = crate::coding::numbers([sid, key.ordinal.0]);
            let (by_age, by_session) = (keys::ended(ended.at, ended.ticket), keys::ended_of(sid, ended.ticket));
            self.put_blind(&by_age, &whose);
            self.put_blind(&by_session, &whose);
            self.upkeep.has_ended(by_age);
            let count = self.ended.entry(sid).or_default();
            *count += 1;
            if *count > self.options.limits.ended_streams_per_session as u64 {
                self.upkeep.too_many_ended(sid);
            }
        }
        if written {
            self.put_head(sid, key.ordinal, &live.head);
        }
        self.upkeep.has_grown(key, &mut live, &self.options.limits.stream);
        if batch.seals {
            self.effects.push(Effect::Over(key.clone()));
        } else {
            self.effects.push(Effect::Grown(key.clone()));
            self.put_live(key, live);
        }
        Ok(())
    }

    pub(crate) fn need_room(&self, size: u64) -> Result<(), Refusal> {
        if self.totals.held + size > self.options.limits.total_bytes {
            return Err(Refusal::NoRoom(size));
        }
        Ok(())
    }

    /// The stored events that a batch releases, if they are pinned.
    fn released(&self, key: &StreamKey, batch: &Batch) -> Result<Vec<Released>, StoreError> {
        let mut released: Vec<Released> = Vec::new();
        if batch.seals || batch.released.is_empty() {
            return Ok(released); // the end of a stream releases every question anyway
        }
        let Ok(live) = self.live(key) else {
            return Ok(released);
        };
        for seq in &batch.released {
            let known = released
                .iter()
                .position(|Released { chunk, .. }| (chunk.first..=chunk.last()).contains(seq));
            let at = match known {
                Some(at) => at,
                None => {
                    let Some(chunk) = self.chunk_with(live.head.stream, *seq)? else {
                        continue;
                    };
                    let events = Vec::new();
                    released.push(Released { chunk, events });
                    released.len() - 1
                }
            };
            let Released { chunk, events } = &mut released[at];
            if let Some(item) = chunk.item_mut(*seq)
                && let State::Held(retain @ (Retain::Question | Retain::Answer)) = item.state
            {
                item.state = State::Held(Retain::None);
                events.push((*seq, retain));
            }
        }
        released.retain(|row| !row.events.is_empty());
        Ok(released)
    }

    /// How a stream stands, with its session in memory, and the stream too if it is open; `None` without such a session.
    pub(crate) fn standing(&mut self, key: &StreamKey) -> Result<Option<(u64, Standing)>, StoreError> {
        let Some(sid) = self.session(&key.session)? else {
            return Ok(None);
        };
        let Some(session) = self.sessions.get(&key.session) else {
            return Ok(None);
        };
        if session.open.contains_key(&key.ordinal) {
            return Ok(Some((sid, Standing::Open)));
        }
        if key.ordinal > session.high_water {
            return Ok(Some((sid, Standing::Absent))); // spares the search for what is not there
        }
        let Some(head) = self.head(sid, key.ordinal)? else {
            return Ok(Some((sid, Standing::Absent)));
        };
        if head.ended.is_some() {
            return Ok(Some((sid, Standing::Ended(Box::new(head)))));
        }
        let live = self.load(key, head)?;
        self.put_live(key, live);
        Ok(Some((sid, Standing::Open)))
    }

    /// Brings a session into memory; `None` if there is none.
    pub(crate) fn session(&mut self, key: &SessionKey) -> Result<Option<u64>, StoreError> {
        if let Some(session) = self.sessions.get(key) {
            return Ok(Some(session.sid));
        }
        let Some(Row { sid, .. }) = self.row(key)? else {
            return Ok(None);
        };
        let high_water = self.stored_high_water(sid)?;
        let ended = self.db.view().prefix(&keys::all_ended_of(sid)).count();
        self.ended.insert(sid, ended as u64);
        self.sessions.insert(key.clone(), Session::new(sid, high_water));
        Ok(Some(sid))
    }

    /// An open stream whose events are all on the disk: they tell what the head does not.
    fn load(&self, key: &StreamKey, mut head: Head) -> Result<Live, StoreError> {
        let mut continuity = Continuity::over(&head);
        let written = head.last;
        (head.last, head.count, head.bytes, head.answers) = (None, 0, 0, 0);
        let mut first = None;
        for chunk in self.db.view().chunks(head.stream, head.first) {
            for held in chunk?.held() {
                continuity.saw(held.seq).map_err(|gap| Damage::new(key, gap).report())?;
                first = first.or(Some(held.seq));
                head.last = Some(held.seq);
                head.count += 1;
                head.bytes += held.cost();
                head.answers += u64::from(held.retain == Retain::Answer);
            }
        }
        continuity
            .ends_with(head.last.max(written))
            .map_err(|gap| Damage::new(key, gap).report())?;
        head.first = first.unwrap_or(head.first);
        let floor = head.first;
        Ok(Live {
            floor,
            ..Live::new(head)
        })
    }

    fn live(&self, key: &StreamKey) -> Result<&Live, StoreError> {
        let session = self.sessions.get(&key.session);
        let live = session.and_then(|session| session.open.get(&key.ordinal));
        live.ok_or(StoreError::UnknownStream)
    }

    pub(crate) fn take_live(&mut self, key: &StreamKey) -> Result<Live, StoreError> {
        let session = self.sessions.get_mut(&key.session);
        let live = session.and_then(|session| session.open.remove(&key.ordinal));
        live.ok_or(StoreError::UnknownStream)
    }

    pub(crate) fn put_live(&mut self, key: &StreamKey, live: Live) {
        if let Some(session) = self.sessions.get_mut(&key.session) {
            session.open.insert(key.ordinal, live);
        }
    }

    fn forget_stream(&mut self, key: &StreamKey) -> Result<(), StoreError> {
        let (sid, head) = match self.standing(key)? {
            Some((sid, Standing::Open)) => (sid, self.live(key)?.head.clone()),
            Some((sid, Standing::Ended(head))) => (sid, *head),
            Some((_, Standing::Absent)) | None => return Ok(()),
        };
        self.drop_stream(sid, key.ordinal, &head)?;
        if head.ended.is_none() {
            self.take_live(key)?;
        }
        self.effects.push(Effect::Over(key.clone()));
        Ok(())
    }

    /// Forgets a stream wholly; its events are deleted later.
    pub(crate) fn drop_stream(&mut self, sid: u64, ordinal: Ordinal, head: &Head) -> Result<(), ReadError> {
        self.raise_high_water(sid, ordinal)?;
        self.remove(keys::head(sid, ordinal));
        if let Some(ended) = head.ended {
            let by_age = if head.buried { keys::tomb } else { keys::ended };
            self.remove_blind(&by_age(ended.at, ended.ticket));
            self.remove_blind(&keys::ended_of(sid, ended.ticket));
            if let Some(count) = self.ended.get_mut(&sid) {
                *count = count.saturating_sub(1);
            }
        }
        if !head.buried {
            self.put_blind(&keys::dead_stream(head.stream), b"");
            self.upkeep.dead_stream(head.stream, head.first);
        }
        self.totals.held = self.totals.held.saturating_sub(head.cost());
        self.totals.streams = self.totals.streams.saturating_sub(1);
        Ok(())
    }

    /// Takes down the ordinal of a stream that goes: the next life of its session begins above it.
    fn raise_high_water(&mut self, sid: u64, ordinal: Ordinal) -> Result<(), ReadError> {
        let key = keys::high_water(sid);
        let stored = self.get(&key)?.and_then(|value| crate::coding::number(&value));
        if stored.is_none_or(|stored| stored < ordinal.0) {
            self.put(key, &crate::coding::numbers([ordinal.0]));
        }
        Ok(())
    }

    /// The row gets a new number, under which nothing is found; what is under the old one is deleted later.
    fn forget_session(&mut self, key: &SessionKey) -> Result<(), StoreError> {
        let Some(old) = self.session(key)? else { return Ok(()) };
        let Some(row) = self.row(key)? else { return Ok(()) };
        let high_water = self.sessions.get(key).map_or(Ordinal(0), |session| session.high_water);
        let sid = self.take_id();
        self.put_row(key, &Row { sid, ..row });
        self.put(keys::high_water(sid), &crate::coding::numbers([high_water.0]));
        self.sessions.insert(key.clone(), Session::new(sid, high_water));
        self.ended.insert(sid, 0);
        self.bury_session(key, old);
        Ok(())
    }

    fn create(&mut self, key: &SessionKey, record: &SessionRecord) -> Result<(), Refusal> {
        if keys::row(key).is_none() {
            let error = format!(
                "the names of a session and its principal may have {} bytes",
                keys::LONGEST_NAMES
            );
            return Err(StoreError::unavailable(error).into());
        }
        let record = record.to_bytes();
        let mut row = Row { sid: 0, record };
        self.need_room(row.cost())?;
        if let Some(old) = self.row(key)? {
            self.end(key, &old);
        }
        row.sid = self.take_id();
        self.totals.held += row.cost();
        self.put_row(key, &row);
        self.put_touched(key);
        self.sessions.insert(key.clone(), Session::new(row.sid, Ordinal(0)));
        self.ended.insert(row.sid, 0);
        self.totals.sessions += 1;
        Ok(())
    }

    fn update(&mut self, key: &SessionKey, epoch: u64, record: &SessionRecord) -> Result<(), Refusal> {
        let mut row = self.row(key)?.ok_or(StoreError::SessionGone)?;
        let stored = row.record().ok_or(ReadError::Garbled("a session's record"))?.epoch;
        if stored != epoch {
            let conflict = StoreError::Conflict {
                epoch: stored,
                last: None,
            };
            return Err(conflict.into());
        }
        let before = row.cost();
        row.record = record.to_bytes();
        let growth = row.cost().saturating_sub(before);
        if growth > 0 {
            self.need_room(growth)?;
        }
        self.totals.held = (self.totals.held + row.cost()).saturating_sub(before);
        self.put_row(key, &row);
        if let Some(session) = self.sessions.get_mut(key) {
            session.epoch = Some(record.epoch);
        }
        self.put_touched(key);
        Ok(())
    }

    fn touch(&mut self, key: &SessionKey) -> Result<(), StoreError> {
        if !self.sessions.contains_key(key) && self.row(key)?.is_none() {
            return Err(StoreError::SessionGone);
        }
        self.put_touched(key);
        Ok(())
    }

    fn touched(&self, key: &SessionKey) -> Result<Option<Wall>, ReadError> {
        let Some(name) = keys::touched(key) else {
            return Ok(None);
        };
        let value = self.get(&name)?;
        value.map(|value| read::used_at(&value)).transpose()
    }

    fn put_touched(&mut self, key: &SessionKey) {
        if let Some(name) = keys::touched(key) {
            let now = self.now().as_millis();
            self.put(name, &crate::coding::numbers([now]));
        }
    }

    fn put_row(&mut self, key: &SessionKey, row: &Row) {
        if let Some(name) = keys::row(key) {
            self.put(name, &row.encode());
        }
    }

    fn end(&mut self, key: &SessionKey, row: &Row) {
        for name in [keys::row(key), keys::touched(key)].into_iter().flatten() {
            self.remove(name);
        }
        self.sessions.remove(key);
        self.totals.sessions = self.totals.sessions.saturating_sub(1);
        self.totals.held = self.totals.held.saturating_sub(row.cost());
        self.bury_session(key, row.sid);
    }

    /// However many streams it has, this takes no longer: they are deleted later.
    fn bury_session(&mut self, key: &SessionKey, sid: u64) {
        self.ended.remove(&sid);
        self.put_blind(&keys::dead_session(sid), b"");
        self.upkeep.dead_session(sid);
        self.effects.push(Effect::SessionOver(key.clone()));
    }
}

impl Session {
    fn new(sid: u64, high_water: Ordinal) -> Self {
        Session {
            sid,
            high_water,
            open: BTreeMap::new(),
            epoch: None,
            queue: None,
        }
    }
}

impl Live {
    pub(crate) fn new(head: Head) -> Self {
        Live {
            head,
            floor: Seq::PRIMING,
            kept: Vec::new(),
            queued: false,
        }
    }
}
