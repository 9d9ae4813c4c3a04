//! A record of the requests to the store and of its acknowledgements, stored beside the disk under test. It decides
//! afterwards whether the content of that disk is right.
//!
//! Every step is two lines: one before the store is asked, one after it has said yes. The order of lines is an order of
//! time, so that the check knows what was already certain when something else was only begun.

use crate::support::{KEPT, mix};
use bytes::Bytes;
use rethread_store::{
    Event, EventStore, Ordinal, Page, Principal, ReadLimit, Seq, SessionId, SessionKey, SessionStore, StoreError,
    StreamKey,
};
use rethread_testkit::store_suite::{principal, record};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// The writing end. One line is one `write`, so a kill leaves no half lines.
#[derive(Debug)]
pub(crate) struct Ledger(File);

impl Ledger {
    pub(crate) fn open(path: &Path) -> Self {
        Ledger(OpenOptions::new().append(true).create(true).open(path).unwrap())
    }

    fn note(&self, line: &str) {
        (&self.0).write_all(line.as_bytes()).unwrap();
    }

    /// Before (`done` false) and after a session was created.
    pub(crate) fn create(&self, session: u64, done: bool) {
        self.note(&format!("{} {session}\n", if done { "c" } else { "C" }));
    }

    /// Before and after the record of a session got a new epoch.
    pub(crate) fn update(&self, session: u64, epoch: u64, done: bool) {
        self.note(&format!("{} {session} {epoch}\n", if done { "u" } else { "U" }));
    }

    /// Before and after a session was ended and its streams forgotten.
    pub(crate) fn end(&self, session: u64, done: bool) {
        self.note(&format!("{} {session}\n", if done { "e" } else { "E" }));
    }

    /// Before a batch was sent.
    pub(crate) fn send(&self, session: u64, ordinal: u64, first: u64, last: u64, seals: bool) {
        self.note(&format!("A {session} {ordinal} {first} {last} {}\n", u8::from(seals)));
    }

    /// After a batch was acknowledged.
    pub(crate) fn sent(&self, session: u64, ordinal: u64, last: u64) {
        self.note(&format!("a {session} {ordinal} {last}\n"));
    }
}

/// When something was requested and when it was certain, in lines. An item of an earlier check is certain since 0.
#[derive(Clone, Copy, Debug)]
struct Span {
    asked: usize,
    done: Option<usize>,
}

impl Span {
    const CERTAIN: Span = Span {
        asked: 0,
        done: Some(0),
    };

    fn done_before(self, line: usize) -> bool {
        self.done.is_some_and(|done| done < line)
    }
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    first: u64,
    last: u64,
    seals: bool,
    span: Span,
}

#[derive(Debug)]
struct Session {
    create: Span,
    epochs: Vec<(u64, Span)>,
    end: Option<Span>,
    streams: BTreeMap<u64, Vec<Sent>>,
}

/// Everything that was ever asked.
#[derive(Debug, Default)]
pub(crate) struct History {
    sessions: BTreeMap<u64, Session>,
    lines: usize,
}

/// The items that a check must find.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Promise {
    /// Everything that was acknowledged.
    All,
    /// If something is there, everything that was acknowledged before it was asked for.
    Prefix,
}

/// The items that a check has found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoredItems {
    pub(crate) events: usize,
    pub(crate) streams: usize,
    pub(crate) sessions: usize,
    /// Batches that were acknowledged and are not there.
    pub(crate) lost: usize,
}

/// A stream as it was found.
struct Seen {
    last: u64,
    events: usize,
    sealed: bool,
}

impl History {
    /// Reads a ledger.
    pub(crate) fn of(path: &Path) -> Self {
        let mut history = History::default();
        history.absorb(path);
        history
    }

    /// Adds what a ledger says.
    pub(crate) fn absorb(&mut self, path: &Path) {
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            self.lines += 1;
            self.line(line)
                .unwrap_or_else(|| panic!("line {} makes no sense: {line}", self.lines));
        }
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let now = self.lines;
        let span = Span { asked: now, done: None };
        let mut words = line.split(' ');
        let kind = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let id = number()?;
        if kind == "C" {
            let session = Session {
                create: span,
                epochs: Vec::new(),
                end: None,
                streams: BTreeMap::new(),
            };
            let before = self.sessions.insert(id, session);
            assert!(before.is_none(), "session {id} is created twice");
            return Some(());
        }
        let session = self.sessions.get_mut(&id)?;
        match kind {
            "c" => session.create.done = Some(now),
            "U" => session.epochs.push((number()?, span)),
            "u" => session.epochs.last_mut()?.1.done = Some(now),
            "E" => session.end = Some(span),
            "e" => session.end.as_mut()?.done = Some(now),
            "A" => {
                let (ordinal, first, last, seals) = (number()?, number()?, number()?, number()? == 1);
                session.streams.entry(ordinal).or_default().push(Sent {
                    first,
                    last,
                    seals,
                    span,
                });
            }
            "a" => {
                let (ordinal, last) = (number()?, number()?);
                let sent = session.streams.get_mut(&ordinal)?.last_mut()?;
                assert_eq!(sent.last, last, "a stream has one batch under way at a time");
                sent.span.done = Some(now);
            }
            _ => return None,
        }
        Some(())
    }

    /// The sessions that have not ended, for the next life to go on with.
    pub(crate) fn open_sessions(&self) -> Vec<u64> {
        let open = self.sessions.iter().filter(|(_, session)| session.end.is_none());
        open.map(|(id, _)| *id).collect()
    }

    /// The first number that no session has.
    pub(crate) fn fresh(&self) -> u64 {
        self.sessions.keys().last().map_or(1, |last| last + 1)
    }

    pub(crate) fn acknowledged(&self) -> usize {
        let batches = self
            .sessions
            .values()
            .flat_map(|session| session.streams.values().flatten());
        batches.filter(|sent| sent.span.done.is_some()).count()
    }

    /// Checks the content of the store. From now on a stored item is certain, and a missing one was never requested.
    pub(crate) async fn check(
        &mut self,
        store: &(impl EventStore + SessionStore),
        promise: Promise,
    ) -> Result<StoredItems, String> {
        let mut found = StoredItems::default();
        let mut horizon = if promise == Promise::All { usize::MAX } else { 0 };
        let (mut alive, mut seen) = (BTreeMap::new(), BTreeMap::new());
        for (id, session) in &self.sessions {
            match store.load(&session_key(*id)).await {
                Ok(loaded) => {
                    horizon = horizon.max(session.create.asked);
                    alive.insert(*id, loaded);
                }
                // That it ended is only certain where it once surely was.
                Err(StoreError::SessionGone) => match session.end {
                    Some(end) if session.create.asked == 0 => horizon = horizon.max(end.asked),
                    _ => {}
                },
                Err(error) => return Err(format!("session {id} does not load: {error:?}")),
            }
            for (ordinal, batches) in &session.streams {
                let start = batches.first().map_or(0, |sent| sent.first);
                let Some(stream) = read(store, *id, *ordinal, start)
                    .await
                    .map_err(|error| format!("stream {id}/{ordinal}: {error}"))?
                else {
                    continue;
                };
                let end = batches.iter().rfind(|sent| sent.last == stream.last);
                let Some(end) = end else {
                    return Err(format!("stream {id}/{ordinal} ends at {}, amid a batch", stream.last));
                };
                if end.seals != stream.sealed {
                    return Err(format!(
                        "stream {id}/{ordinal} is sealed: {}, sent: {end:?}",
                        stream.sealed
                    ));
                }
                horizon = horizon.max(end.span.asked);
                found.streams += 1;
                found.events += stream.events;
                seen.insert((*id, *ordinal), stream);
            }
        }
        found.sessions = alive.len();
        for (id, session) in &self.sessions {
            let loaded = alive.get(id);
            match (session.end, loaded) {
                (Some(end), Some(_)) if end.done_before(horizon) => {
                    return Err(format!(
                        "session {id} has ended ({end:?}) and is back; horizon {horizon}"
                    ));
                }
                (Some(end), None) if end.done_before(horizon) => {
                    if let Some((key, _)) = seen.range((*id, 0)..=(*id, u64::MAX)).next() {
                        return Err(format!("stream {key:?} is back, its session has ended"));
                    }
                }
                (None, None) if session.create.done_before(horizon) => {
                    return Err(format!("session {id} is lost, {:?}; horizon {horizon}", session.create));
                }
                _ => {}
            }
            let ending = session.end.is_some();
            for (ordinal, batches) in &session.streams {
                let last = seen.get(&(*id, *ordinal)).map(|stream| stream.last);
                let gone = batches.iter().filter(|sent| last.is_none_or(|last| sent.last > last));
                for sent in gone.filter(|sent| !ending && sent.span.done.is_some()) {
                    found.lost += 1;
                    if sent.span.done_before(horizon) {
                        return Err(format!(
                            "stream {id}/{ordinal} ends at {last:?}, acknowledged: {sent:?}; horizon {horizon}"
                        ));
                    }
                }
            }
            let Some(loaded) = loaded else { continue };
            let epoch = loaded.record.epoch;
            let known = epoch == 1 || session.epochs.iter().any(|(sent, _)| *sent == epoch);
            let lost = session
                .epochs
                .iter()
                .any(|(sent, span)| *sent > epoch && span.done_before(horizon));
            if !known || lost {
                return Err(format!("session {id} is of epoch {epoch}, sent: {:?}", session.epochs));
            }
            if ending {
                continue; // its streams may be half forgotten
            }
            let streams = || seen.range((*id, 0)..=(*id, u64::MAX));
            let highest = streams().map(|((_, ordinal), _)| *ordinal).max().unwrap_or(0);
            if loaded.high_water.0 < highest {
                return Err(format!(
                    "session {id} has stream {highest}, high water {}",
                    loaded.high_water
                ));
            }
            let open = store.open_streams(&session_key(*id)).await;
            let open: BTreeSet<_> = open.map_err(|error| format!("{error:?}"))?.into_iter().collect();
            let expected = streams().filter(|(_, stream)| !stream.sealed);
            let expected: BTreeSet<_> = expected.map(|((_, ordinal), _)| Ordinal(*ordinal)).collect();
            if open != expected {
                return Err(format!("session {id} has open streams {open:?}, expected {expected:?}"));
            }
        }
        let epochs = alive.iter().map(|(id, loaded)| (*id, loaded.record.epoch)).collect();
        self.settle(&epochs, &seen);
        Ok(found)
    }

    /// `alive` has the epoch of every session that is there.
    fn settle(&mut self, alive: &BTreeMap<u64, u64>, seen: &BTreeMap<(u64, u64), Seen>) {
        self.sessions
            .retain(|id, session| alive.contains_key(id) || session.create.done.is_some());
        for (id, session) in &mut self.sessions {
            session.create = Span::CERTAIN;
            let Some(epoch) = alive.get(id) else {
                // Whether by its end or because its creation was lost: it must not come back. Its streams were to be
                // forgotten in a second step, which nobody takes any more.
                session.end = Some(Span::CERTAIN);
                session.streams.clear();
                continue;
            };
            session.end = None;
            session.epochs.retain(|(sent, _)| sent <= epoch);
            for (_, span) in &mut session.epochs {
                *span = Span::CERTAIN;
            }
            session.streams.retain(|ordinal, batches| {
                let last = seen.get(&(*id, *ordinal)).map(|stream| stream.last);
                batches.retain(|sent| last.is_some_and(|last| sent.last <= last));
                for sent in &mut *batches {
                    sent.span = Span::CERTAIN;
                }
                !batches.is_empty()
            });
        }
    }

    /// Judges a store whose files were damaged: what can be read must be true, but any of it may be unreadable.
    pub(crate) async fn check_damaged(
        &self,
        store: &(impl EventStore + SessionStore),
    ) -> Result<(StoredItems, Refusals), String> {
        let (mut found, mut refused, mut horizon) = (StoredItems::default(), Refusals::new(), 0);
        let mut back = Vec::new();
        for (id, session) in &self.sessions {
            match store.load(&session_key(*id)).await {
                Ok(_) => {
                    found.sessions += 1;
                    horizon = horizon.max(session.create.asked);
                    back.extend(session.end.and_then(|end| end.done).map(|done| (*id, done)));
                }
                Err(StoreError::SessionGone) => {}
                Err(error) => *refused.entry(format!("{error:?}")).or_default() += 1,
            }
            for (ordinal, batches) in &session.streams {
                let start = batches.first().map_or(0, |sent| sent.first);
                match read(store, *id, *ordinal, start).await {
                    Ok(None) => {}
                    Ok(Some(stream)) => {
                        let end = batches.iter().rfind(|sent| sent.last == stream.last);
                        let Some(end) = end else {
                            return Err(format!("stream {id}/{ordinal} ends at {}, amid a batch", stream.last));
                        };
                        if end.seals != stream.sealed {
                            return Err(format!("stream {id}/{ordinal} is sealed: {}", stream.sealed));
                        }
                        horizon = horizon.max(end.span.asked);
                        found.streams += 1;
                        found.events += stream.events;
                        found.lost += batches.iter().filter(|sent| sent.last > stream.last).count();
                    }
                    Err(error) if error.starts_with(REFUSED) => *refused.entry(error).or_default() += 1,
                    Err(error) => return Err(format!("stream {id}/{ordinal}: {error}")),
                }
            }
        }
        for (id, done) in back {
            if done < horizon {
                return Err(format!(
                    "session {id} ended at {done} and is back, while {horizon} is there"
                ));
            }
        }
        Ok((found, refused))
    }
}

const REFUSED: &str = "refused";

/// Why something was refused, and how often.
pub(crate) type Refusals = BTreeMap<String, usize>;

/// Reads a stream page by page and compares every event. `None` if nothing is known of it.
async fn read(store: &impl EventStore, id: u64, ordinal: u64, start: u64) -> Result<Option<Seen>, String> {
    let key = stream_key(id, ordinal);
    let limit = ReadLimit::new(17, 1 << 20);
    // The priming event has number 0, and a read goes after a number: no cursor precedes it.
    let mut cursor = 0;
    let mut events: Vec<Event> = Vec::new();
    let mut purged = None;
    let page: Page = loop {
        let page = match store.read_after(&key, Seq(cursor), limit).await {
            Ok(page) => page,
            Err(StoreError::UnknownStream) if events.is_empty() => return Ok(None),
            Err(error) => return Err(format!("{REFUSED}: {error:?}")),
        };
        if events.is_empty() {
            purged = page.status.purged; // later pages may know that more has gone since
        }
        let Some(last) = page.events.last() else {
            break page;
        };
        cursor = last.seq.0;
        events.extend(page.events);
    };
    let status = page.status;
    let Some(last) = status.last else {
        return Err(format!("it is there and empty: {status:?}"));
    };
    let first = purged.map_or(start, |purged| purged.0 + 1).max(1);
    let numbers: Vec<u64> = events.iter().map(|event| event.seq.0).collect();
    if !numbers.iter().copied().eq(first..=last.0) {
        return Err(format!("expected {first}..={last}, read {numbers:?}, {status:?}"));
    }
    for event in &events {
        if event.payload != payload(id, ordinal, event.seq.0) {
            return Err(format!("{} has another payload: {:.80?}", event.seq, event.payload));
        }
    }
    let total = (last.0 + 1 - start) as usize;
    if events.len() + 1 < total.min(KEPT.events) {
        return Err(format!("{} events of {total} are kept: {status:?}", events.len()));
    }
    Ok(Some(Seen {
        last: last.0,
        events: events.len(),
        sealed: status.sealed,
    }))
}

pub(crate) fn session_key(id: u64) -> SessionKey {
    let mut bits = [0; 18];
    bits[..8].copy_from_slice(&mix(id).to_be_bytes()); // so that neighbours in time are not neighbours on the disk
    bits[8..16].copy_from_slice(&id.to_be_bytes());
    let principal = if id.is_multiple_of(3) {
        Principal::new("https://issuer.example", "bob")
    } else {
        principal()
    };
    SessionKey {
        principal,
        session: SessionId::from_random(bits),
    }
}

pub(crate) fn stream_key(id: u64, ordinal: u64) -> StreamKey {
    StreamKey {
        session: session_key(id),
        ordinal: Ordinal(ordinal),
    }
}

/// The payload of event `seq` of a stream. It differs from every other, and the check can make it again. Every tenth
/// session has large payloads, so that segments fill up.
pub(crate) fn payload(id: u64, ordinal: u64, seq: u64) -> Bytes {
    if seq == 0 {
        return Bytes::new(); // the priming event
    }
    let bits = mix(mix(id) ^ mix(ordinal << 32 ^ seq));
    let length = match (id % 10, bits % 16) {
        (0, _) => bits % 60_000,
        (_, 0) => bits % 9_000,
        _ => bits % 400,
    };
    let mut bytes = format!("{id}/{ordinal}/{seq} ").into_bytes();
    let mut word = bits;
    while bytes.len() < length as usize {
        word = mix(word + 1);
        bytes.extend(word.to_le_bytes());
    }
    bytes.into()
}

/// The record of a new session.
pub(crate) fn session_record(epoch: u64) -> rethread_store::SessionRecord {
    record().with_epoch(epoch)
}
