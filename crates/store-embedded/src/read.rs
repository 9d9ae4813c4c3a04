//! Reads: a plan under the lock of the index, then positioned reads of the files without a lock.
//!
//! The plan may contain events of a group that is not acknowledged yet. The read then waits for that commit, so no
//! event is visible before it is stored.

use crate::commit::Core;
use crate::engine::{Engine, decode_message};
use crate::error::damaged_stream;
use crate::group::Location;
use crate::index::session::Blob;
use crate::index::stream::{HeldEvent, Stream};
use crate::log::Log;
use crate::record::{Message, Part};
use crate::segment::SegmentFile;
use bytes::Bytes;
use rethread_store::{
    Event, Ordinal, Page, ReadLimit, Seq, SessionKey, SessionRecord, StoreError, StoreFuture, StoredQueue,
    StoredSession, StreamKey, StreamStatus,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Parts that are at most this far apart are read in one system call.
const MAX_HOLE_BYTES: u64 = 4 << 10;
/// Bytes of one system call.
const MAX_SPAN_BYTES: u64 = 2 << 20;
/// The newest segments are in the page cache. Reads of older ones may wait for the disk.
const CACHED_SEGMENTS: u32 = 2;

/// Parts to read, and their files.
struct Parts {
    parts: Vec<(Location, Part)>,
    files: BTreeMap<u32, Arc<SegmentFile>>,
    /// Whether the read may wait for the disk.
    may_block: bool,
}

impl Parts {
    fn new(log: &Log, parts: Vec<(Location, Part)>) -> Self {
        let mut files = BTreeMap::new();
        for (at, _) in &parts {
            if !files.contains_key(&at.segment) {
                files.extend(log.file(at.segment).map(|file| (at.segment, file)));
            }
        }
        let cached = log.head().saturating_sub(CACHED_SEGMENTS - 1);
        Parts {
            may_block: files.keys().any(|segment| *segment < cached),
            parts,
            files,
        }
    }

    /// Reads all parts. `None` stands for a damaged part.
    fn read(&self) -> Result<Vec<Option<Bytes>>, StoreError> {
        let mut read = Vec::with_capacity(self.parts.len());
        let mut rest = &self.parts[..];
        while let Some((first, _)) = rest.first() {
            let span = span(rest);
            let (now, later) = rest.split_at(span.count);
            let bytes = self.read_span(*first, span.bytes).map_err(StoreError::unavailable)?;
            read.extend(now.iter().map(|(at, part)| {
                let from = (at.offset - first.offset) as usize;
                let slice = bytes.as_ref()?.slice(from..from + part.len as usize);
                part.matches(&slice).then_some(slice)
            }));
            rest = later;
        }
        Ok(read)
    }

    /// Reads a range of bytes. `None` if the file is too short. Other errors may be temporary and do not prove damage.
    fn read_span(&self, from: Location, bytes: u64) -> io::Result<Option<Bytes>> {
        if bytes == 0 {
            return Ok(Some(Bytes::new()));
        }
        let mut buffer = vec![0; bytes as usize];
        let Some(file) = self.files.get(&from.segment) else {
            return Ok(None);
        };
        match file.read_exact_at(&mut buffer, from.offset.into()) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| Some(buffer.into())),
        }
    }
}

/// The first parts of a list that one system call reads.
struct Span {
    count: usize,
    bytes: u64,
}

fn span(parts: &[(Location, Part)]) -> Span {
    let mut span = Span { count: 0, bytes: 0 };
    let Some((first, _)) = parts.first() else { return span };
    for (at, part) in parts {
        let Some(start) = at.offset.checked_sub(first.offset).map(u64::from) else {
            break;
        };
        let end = start + u64::from(part.len);
        let follows = at.segment == first.segment && (span.bytes..=span.bytes + MAX_HOLE_BYTES).contains(&start);
        if span.count > 0 && (!follows || end > MAX_SPAN_BYTES) {
            break;
        }
        (span.count, span.bytes) = (span.count + 1, end);
    }
    span
}

/// A plan of a read.
struct Plan<T> {
    /// The commit that the read waits for.
    commit: u64,
    parts: Vec<(Location, Part)>,
    found: T,
}

/// Plans a read, waits for its commit, reads, and builds the result. Without a plan, the result is `missing`.
fn read<T: Send + 'static, R: Send + Unpin + 'static>(
    core: &Arc<Core>,
    plan: impl FnOnce(&Engine) -> Option<Plan<T>>,
    missing: StoreError,
    finish: impl FnOnce(&Core, T, Vec<Option<Bytes>>) -> Result<R, StoreError> + Send + 'static,
) -> StoreFuture<Result<R, StoreError>> {
    let planned = core.read(|engine, log| {
        let (commit, parts, found) = match plan(engine) {
            Some(plan) => (plan.commit, plan.parts, Ok(plan.found)),
            None => (engine.commit, Vec::new(), Err(missing)),
        };
        (log.wait_for(commit), Parts::new(log, parts), found)
    });
    let (commit, parts, found) = match planned {
        Ok(planned) => planned,
        Err(error) => return StoreFuture::ready(Err(error)),
    };
    let (core, may_block) = (Arc::clone(core), parts.may_block);
    if commit.is_none() && !may_block {
        let read = found.and_then(|found| finish(&core, found, parts.read()?));
        return StoreFuture::ready(read);
    }
    StoreFuture::later(async move {
        if let Some(commit) = commit
            && commit.await.is_err()
        {
            return Err(core.reason());
        }
        let bytes = match may_block {
            true => tokio::task::spawn_blocking(move || parts.read())
                .await
                .map_err(StoreError::unavailable)?,
            false => parts.read(),
        };
        finish(&core, found?, bytes?)
    })
}

fn stream<'a>(engine: &'a Engine, key: &StreamKey) -> Option<&'a Stream> {
    engine.index.session(&key.session)?.stream(key.ordinal)
}

pub(crate) fn page(
    core: &Arc<Core>,
    key: &StreamKey,
    after: Seq,
    limit: ReadLimit,
) -> StoreFuture<Result<Page, StoreError>> {
    let plan = |engine: &Engine| {
        let stream = stream(engine, key)?;
        let events = page_events(stream, after, limit);
        Some(Plan {
            commit: stream.changed,
            parts: events.iter().map(|event| (event.at, event.part)).collect(),
            found: (events, stream.status()),
        })
    };
    let key = key.clone();
    read(
        core,
        plan,
        StoreError::UnknownStream,
        move |core, (events, status), bytes| {
            let damaged = events.iter().zip(&bytes).filter(|(_, bytes)| bytes.is_none());
            let damaged: Vec<Seq> = damaged.map(|(event, _)| event.seq).collect();
            if !damaged.is_empty() {
                return Err(core.report_damage(&key, &damaged));
            }
            let event = |(held, payload): (HeldEvent, Option<Bytes>)| {
                Event::new(held.seq, payload.unwrap_or_default()).with_retain(held.retain)
            };
            Ok(Page::new(events.into_iter().zip(bytes).map(event).collect(), status))
        },
    )
}

/// The events of a page, as [`Log::read_after`](rethread_proto::stream::Log::read_after) chooses them.
fn page_events(stream: &Stream, after: Seq, limit: ReadLimit) -> Vec<HeldEvent> {
    let mut total = 0;
    let fits = |event: &HeldEvent| {
        let first = total == 0;
        total += (event.part.len as usize).max(1);
        first || total <= limit.bytes
    };
    stream.held_after(after).take(limit.events).take_while(fits).collect()
}

pub(crate) fn status(core: &Arc<Core>, key: &StreamKey) -> StoreFuture<Result<StreamStatus, StoreError>> {
    let plan = |engine: &Engine| {
        let stream = stream(engine, key)?;
        Some(Plan {
            commit: stream.changed,
            parts: Vec::new(),
            found: stream.status(),
        })
    };
    read(core, plan, StoreError::UnknownStream, |_, status, _| Ok(status))
}

pub(crate) fn open_streams(core: &Arc<Core>, key: &SessionKey) -> StoreFuture<Result<Vec<Ordinal>, StoreError>> {
    let plan = |engine: &Engine| {
        let streams = engine
            .index
            .session(key)
            .into_iter()
            .flat_map(|session| &session.streams);
        let open = streams.filter(|(_, stream)| stream.ended.is_none());
        Some(Plan {
            commit: engine.commit,
            parts: Vec::new(),
            found: open.map(|(ordinal, _)| *ordinal).collect(),
        })
    };
    read(core, plan, StoreError::SessionGone, |_, open, _| Ok(open))
}

pub(crate) fn load(core: &Arc<Core>, key: &SessionKey) -> StoreFuture<Result<StoredSession, StoreError>> {
    let now = (core.options.clock)();
    let plan = |engine: &Engine| {
        let session = engine.index.session(key)?;
        let Blob { at, part } = session.record;
        Some(Plan {
            commit: engine.commit, // the high-water mark changes with the streams
            parts: vec![(at, part)],
            found: (session.high_water, now.since(session.touched)),
        })
    };
    read(core, plan, StoreError::SessionGone, |_, (high_water, idle), bytes| {
        let bytes = bytes.into_iter().next().flatten();
        let record = bytes.and_then(|bytes| SessionRecord::from_bytes(&bytes));
        let record = record.ok_or_else(|| StoreError::unavailable("the record of a session is damaged"))?;
        Ok(StoredSession::new(record, high_water, idle))
    })
}

pub(crate) fn queue(core: &Arc<Core>, key: &SessionKey) -> StoreFuture<Result<StoredQueue, StoreError>> {
    let plan = |engine: &Engine| {
        let session = engine.index.session(key)?;
        let queue = session.queue.as_deref();
        let messages = queue.into_iter().flat_map(|queue| &queue.messages);
        let (messages, parts): (Vec<Message>, Vec<_>) =
            messages.map(|(message, at)| (*message, (*at, message.body))).unzip();
        Some(Plan {
            commit: session.changed,
            parts,
            found: (queue.map(|queue| queue.floor).unwrap_or_default(), messages),
        })
    };
    read(core, plan, StoreError::SessionGone, |_, (floor, messages), bytes| {
        let queued = messages.iter().zip(bytes);
        let queued: Option<Vec<_>> = queued.map(|(message, body)| decode_message(message, &body?)).collect();
        let queued = queued.ok_or_else(|| StoreError::unavailable("a push queue is damaged"))?;
        Ok(StoredQueue::new(queued, floor))
    })
}

impl Core {
    /// Marks and logs damaged events. Returns the error of the read.
    fn report_damage(&self, key: &StreamKey, damaged: &[Seq]) -> StoreError {
        let (first, last) = (damaged[0], damaged[damaged.len() - 1]);
        tracing::error!(
            dir = %self.dir.display(),
            session = key.session.session.short(),
            stream = key.ordinal.0,
            first = first.0,
            last = last.0,
            "events of the store are damaged"
        );
        self.mark_damaged(key, damaged);
        damaged_stream(key, (first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// A part of one byte at the start of a file.
    fn read(file: File) -> Result<Vec<Option<Bytes>>, StoreError> {
        let at = Location { segment: 1, offset: 0 };
        let parts = Parts {
            parts: vec![(at, Part::of(b"x"))],
            files: BTreeMap::from([(1, Arc::new(SegmentFile::new(1, file)))]),
            may_block: false,
        };
        parts.read()
    }

    #[test]
    fn missing_bytes_are_damage_and_a_failed_read_is_an_outage() {
        assert_eq!(read(tempfile::tempfile().unwrap()).unwrap(), [None]);
        let folder = tempfile::tempdir().unwrap();
        let failed = read(File::open(folder.path()).unwrap()); // reading a directory fails
        assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
    }
}
