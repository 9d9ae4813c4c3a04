//! A log of requests to the store and of its acknowledgements, written outside the disk under test. The check compares
//! the recovered store with it.
//!
//! Every operation writes two lines: one before the request, one after the acknowledgement. Line order is time order,
//! so the check knows which operations were acknowledged before another one was requested.

use crate::support::{RETENTION, mix};
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

/// The writing end. Each line is one `write` call, so a kill leaves no partial line.
#[derive(Debug)]
pub(crate) struct Ledger(File);

impl Ledger {
    pub(crate) fn open(path: &Path) -> Self {
        Ledger(OpenOptions::new().append(true).create(true).open(path).unwrap())
    }

    fn write_line(&self, line: &str) {
        (&self.0).write_all(line.as_bytes()).unwrap();
    }

    /// Logs the creation of a session: the request (`done` false) or its acknowledgement.
    pub(crate) fn create(&self, session: u64, done: bool) {
        self.write_line(&format!("{} {session}\n", if done { "c" } else { "C" }));
    }

    /// Logs a new epoch in the record of a session.
    pub(crate) fn update(&self, session: u64, epoch: u64, done: bool) {
        self.write_line(&format!("{} {session} {epoch}\n", if done { "u" } else { "U" }));
    }

    /// Logs the end of a session and the removal of its streams.
    pub(crate) fn end(&self, session: u64, done: bool) {
        self.write_line(&format!("{} {session}\n", if done { "e" } else { "E" }));
    }

    /// Logs the request to append a batch.
    pub(crate) fn send(&self, session: u64, ordinal: u64, first: u64, last: u64, seals: bool) {
        self.write_line(&format!("A {session} {ordinal} {first} {last} {}\n", u8::from(seals)));
    }

    /// Logs the acknowledgement of a batch.
    pub(crate) fn sent(&self, session: u64, ordinal: u64, last: u64) {
        self.write_line(&format!("a {session} {ordinal} {last}\n"));
    }
}

/// The ledger lines of a request and of its acknowledgement. Line 0 marks an operation that an earlier check confirmed.
#[derive(Clone, Copy, Debug)]
struct Span {
    requested: usize,
    done: Option<usize>,
}

impl Span {
    const CONFIRMED: Span = Span {
        requested: 0,
        done: Some(0),
    };

    fn acknowledged_before(self, line: usize) -> bool {
        self.done.is_some_and(|done| done < line)
    }
}

#[derive(Clone, Copy, Debug)]
struct SentBatch {
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
    streams: BTreeMap<u64, Vec<SentBatch>>,
}

/// Every operation of all ledgers so far.
#[derive(Debug, Default)]
pub(crate) struct History {
    sessions: BTreeMap<u64, Session>,
    lines: usize,
}

/// The acknowledged operations that must survive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Guarantee {
    /// All of them.
    All,
    /// All that were acknowledged before the latest surviving operation was requested.
    Prefix,
}

/// Counts of a check.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoredItems {
    pub(crate) events: usize,
    pub(crate) streams: usize,
    pub(crate) sessions: usize,
    /// Acknowledged batches that are missing.
    pub(crate) lost: usize,
}

/// A stream as the store returned it.
struct StoredStream {
    last: u64,
    events: usize,
    sealed: bool,
}

impl History {
    /// The operations of one ledger.
    pub(crate) fn of(path: &Path) -> Self {
        let mut history = History::default();
        history.add_ledger(path);
        history
    }

    /// Adds the operations of a ledger.
    pub(crate) fn add_ledger(&mut self, path: &Path) {
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            self.lines += 1;
            self.line(line)
                .unwrap_or_else(|| panic!("line {} is malformed: {line}", self.lines));
        }
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let now = self.lines;
        let span = Span {
            requested: now,
            done: None,
        };
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
                session.streams.entry(ordinal).or_default().push(SentBatch {
                    first,
                    last,
                    seals,
                    span,
                });
            }
            "a" => {
                let (ordinal, last) = (number()?, number()?);
                let sent = session.streams.get_mut(&ordinal)?.last_mut()?;
                assert_eq!(sent.last, last, "a stream has one batch in flight");
                sent.span.done = Some(now);
            }
            _ => return None,
        }
        Some(())
    }

    /// Sessions without a request to end. The next writer resumes them.
    pub(crate) fn open_sessions(&self) -> Vec<u64> {
        let open = self.sessions.iter().filter(|(_, session)| session.end.is_none());
        open.map(|(id, _)| *id).collect()
    }

    /// The lowest session number above all used ones.
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

    /// Compares the store with the history. Afterwards the history contains exactly the operations that are stored.
    pub(crate) async fn check(
        &mut self,
        store: &(impl EventStore + SessionStore),
        guarantee: Guarantee,
    ) -> Result<StoredItems, String> {
        let mut found = StoredItems::default();
        let mut horizon = if guarantee == Guarantee::All { usize::MAX } else { 0 };
        let (mut alive, mut seen) = (BTreeMap::new(), BTreeMap::new());
        for (id, session) in &self.sessions {
            match store.load(&session_key(*id)).await {
                Ok(loaded) => {
                    horizon = horizon.max(session.create.requested);
                    alive.insert(*id, loaded);
                }
                // A missing session proves its end only if an earlier check found the session.
                Err(StoreError::SessionGone) => match session.end {
                    Some(end) if session.create.requested == 0 => horizon = horizon.max(end.requested),
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
                    return Err(format!("stream {id}/{ordinal} ends at {}, inside a batch", stream.last));
                };
                if end.seals != stream.sealed {
                    return Err(format!(
                        "stream {id}/{ordinal} is sealed: {}, sent: {end:?}",
                        stream.sealed
                    ));
                }
                horizon = horizon.max(end.span.requested);
                found.streams += 1;
                found.events += stream.events;
                seen.insert((*id, *ordinal), stream);
            }
        }
        found.sessions = alive.len();
        for (id, session) in &self.sessions {
            let loaded = alive.get(id);
            match (session.end, loaded) {
                (Some(end), Some(_)) if end.acknowledged_before(horizon) => {
                    return Err(format!(
                        "session {id} has ended ({end:?}) and is back; horizon {horizon}"
                    ));
                }
                (Some(end), None) if end.acknowledged_before(horizon) => {
                    if let Some((key, _)) = seen.range((*id, 0)..=(*id, u64::MAX)).next() {
                        return Err(format!("stream {key:?} is back, its session has ended"));
                    }
                }
                (None, None) if session.create.acknowledged_before(horizon) => {
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
                    if sent.span.acknowledged_before(horizon) {
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
                .any(|(sent, span)| *sent > epoch && span.acknowledged_before(horizon));
            if !known || lost {
                return Err(format!("session {id} is of epoch {epoch}, sent: {:?}", session.epochs));
            }
            if ending {
                continue; // the end may have removed only some of its streams
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
        self.assume_stored(&epochs, &seen);
        Ok(found)
    }

    /// Drops operations that are not stored and confirms the others. `alive` has the epoch of every stored session.
    fn assume_stored(&mut self, alive: &BTreeMap<u64, u64>, seen: &BTreeMap<(u64, u64), StoredStream>) {
        self.sessions
            .retain(|id, session| alive.contains_key(id) || session.create.done.is_some());
        for (id, session) in &mut self.sessions {
            session.create = Span::CONFIRMED;
            let Some(epoch) = alive.get(id) else {
                // The session has ended, or its creation was lost. In both cases it must not reappear. The removal of
                // its streams was a second step that nobody repeats, so they are not checked.
                session.end = Some(Span::CONFIRMED);
                session.streams.clear();
                continue;
            };
            session.end = None;
            session.epochs.retain(|(sent, _)| sent <= epoch);
            for (_, span) in &mut session.epochs {
                *span = Span::CONFIRMED;
            }
            session.streams.retain(|ordinal, batches| {
                let last = seen.get(&(*id, *ordinal)).map(|stream| stream.last);
                batches.retain(|sent| last.is_some_and(|last| sent.last <= last));
                for sent in &mut *batches {
                    sent.span = Span::CONFIRMED;
                }
                !batches.is_empty()
            });
        }
    }

    /// Checks a store with damaged files: every read may fail, but a successful read must match the history.
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
                    horizon = horizon.max(session.create.requested);
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
                            return Err(format!("stream {id}/{ordinal} ends at {}, inside a batch", stream.last));
                        };
                        if end.seals != stream.sealed {
                            return Err(format!("stream {id}/{ordinal} is sealed: {}", stream.sealed));
                        }
                        horizon = horizon.max(end.span.requested);
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
                    "session {id} ended at line {done} and is back, although line {horizon} is stored"
                ));
            }
        }
        Ok((found, refused))
    }
}

const REFUSED: &str = "refused";

/// Number of failed reads by error text.
pub(crate) type Refusals = BTreeMap<String, usize>;

/// Reads a stream page by page and compares every event. `None` if the store does not know the stream.
async fn read(store: &impl EventStore, id: u64, ordinal: u64, start: u64) -> Result<Option<StoredStream>, String> {
    let key = stream_key(id, ordinal);
    let limit = ReadLimit::new(17, 1 << 20);
    // The priming event has number 0. No cursor precedes it, so a read never returns it.
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
            purged = page.status.purged; // an eviction between pages can raise it
        }
        let Some(last) = page.events.last() else {
            break page;
        };
        cursor = last.seq.0;
        events.extend(page.events);
    };
    let status = page.status;
    let Some(last) = status.last else {
        return Err(format!("the stream exists and is empty: {status:?}"));
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
    if events.len() + 1 < total.min(RETENTION.events) {
        return Err(format!("{} events of {total} are retained: {status:?}", events.len()));
    }
    Ok(Some(StoredStream {
        last: last.0,
        events: events.len(),
        sealed: status.sealed,
    }))
}

pub(crate) fn session_key(id: u64) -> SessionKey {
    let mut bits = [0; 18];
    bits[..8].copy_from_slice(&mix(id).to_be_bytes()); // so that consecutive sessions have distant keys
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

/// The payload of event `seq` of a stream: unique and reproducible. Every tenth session has large payloads, so that
/// segments fill up.
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
