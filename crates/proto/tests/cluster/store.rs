//! A model of a store that several nodes share. Each operation is atomic. A failover returns to an earlier copy.

use bytes::Bytes;
use rethread_proto::cluster::{Incarnation, LeaseError, ReaderToken};
use rethread_proto::stream::{Batch, BindStart, Event, Log, Page, Refused, StreamStatus};
use rethread_proto::{Ordinal, Seq};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The lease of the model, in milliseconds.
pub(crate) const LEASE_MILLIS: u64 = 1_000;
/// Numbers that are skipped when the store may have lost some (D9).
const SKIPPED: u64 = 10_000;
/// Ordinals of one view.
const BLOCK: u64 = 1_000;
/// A page of a read.
const PAGE_EVENTS: usize = 4;

/// A request to the store.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Join,
    Renew(Incarnation),
    IsAlive(Incarnation),
    Deliver(Incarnation, Mail),
    ClaimMail(Incarnation, u64),
    Open(Incarnation),
    Load,
    Update { revision: u64, level: u64, by: Incarnation },
    End { by: Incarnation },
    Claim { from: Option<Incarnation>, to: Incarnation },
    DrawEpoch,
    Append(Ordinal, Batch, Incarnation),
    Read(Ordinal, Seq),
    Status(Ordinal),
    OpenStreams,
    Attach(Ordinal, ReaderToken, Seq),
    ReadAs(Ordinal, ReaderToken, Seq),
    Detach(Ordinal, ReaderToken),
    RemoteReader(Ordinal),
    Enqueue(u64),
    Listen(Ordinal, Incarnation),
    Unlisten(Ordinal, Incarnation),
    RemoveListeners(Incarnation),
    Bind(Ordinal, u64, BindStart, Incarnation),
}

/// A successful answer.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Done,
    Joined(Incarnation),
    Renewed(Vec<Incarnation>),
    Alive(bool),
    Delivered(u64),
    Claimed(bool),
    Opened(Record, u64, u64),
    Loaded(Record),
    Updated(u64, Vec<Incarnation>),
    Owner(Incarnation),
    Epoch(u64),
    Appended(Option<(ReaderToken, Seq)>),
    Page(Page),
    Status(StreamStatus),
    /// Unsealed streams and their writers.
    Open(Vec<(Ordinal, Incarnation)>),
    /// Messages, or the node of the newest GET.
    Bound(Vec<Bytes>, Option<Incarnation>),
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The store cannot be reached. It may have performed the request.
    Store,
    Lease(LeaseError),
    SessionGone,
    UnknownStream,
    Displaced,
    Refused(Refused),
    /// Another revision of the record is stored.
    Revision,
}

pub(crate) type Outcome = Result<Reply, Failure>;

/// A message in a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mail {
    Forward {
        rid: u64,
        from: Incarnation,
        call: u64,
    },
    Reply {
        rid: u64,
        from: Incarnation,
        kind: ReplyKind,
    },
    ClientLeft {
        rid: u64,
        from: Incarnation,
    },
    Ask {
        rid: u64,
        from: Incarnation,
    },
    Asked {
        rid: u64,
        knows: bool,
    },
    Acknowledge {
        from: Incarnation,
        revision: u64,
    },
    Answer {
        id: Box<str>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    Json,
    Refused,
    /// The call did not run, because another node owns the session.
    Moved,
    Stream(Ordinal),
}

/// The reason of a wake-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WakeUp {
    Mail,
    Session(Incarnation),
    Push,
    /// A stream has grown, or has another reader.
    Stream(Ordinal),
}

/// The record of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) revision: u64,
    pub(crate) level: u64,
    pub(crate) owner: Option<Incarnation>,
    pub(crate) views: Vec<(u64, Incarnation)>,
    pub(crate) last_epoch: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Store {
    members: BTreeMap<Incarnation, u64>,
    mailboxes: HashMap<Incarnation, VecDeque<(u64, Mail)>>,
    /// `None` after the end of the session.
    record: Option<Record>,
    ordinals: u64,
    pub(crate) queue: VecDeque<Bytes>,
    /// The GETs, the newest last.
    listeners: Vec<(Ordinal, Incarnation)>,
    pub(crate) streams: BTreeMap<Ordinal, StoredStream>,
    /// Wake-ups that are ready to be delivered.
    pub(crate) wake_ups: Vec<(Incarnation, WakeUp)>,
    next_incarnation: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct StoredStream {
    pub(crate) log: Log,
    writer: Incarnation,
    reader: Option<(ReaderToken, Seq)>,
}

/// Numbers that survive a failover: they come from a clock or have a random part.
#[derive(Debug, Default)]
pub(crate) struct Unique {
    pub(crate) mail: u64,
    pub(crate) random: u32,
}

impl Store {
    /// A store with one session.
    pub(crate) fn new() -> Self {
        Store {
            members: BTreeMap::new(),
            mailboxes: HashMap::new(),
            record: Some(Record {
                revision: 1,
                level: 0,
                owner: None,
                views: Vec::new(),
                last_epoch: 0,
            }),
            ordinals: 0,
            queue: VecDeque::new(),
            listeners: Vec::new(),
            streams: BTreeMap::new(),
            wake_ups: Vec::new(),
            next_incarnation: 1,
        }
    }

    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    /// Whether other nodes may act for this one.
    pub(crate) fn is_expired(&self, node: &Incarnation, now: u64) -> bool {
        self.members.get(node).is_none_or(|end| *end <= now)
    }

    fn is_member(&self, node: &Incarnation) -> bool {
        self.members.contains_key(node)
    }

    /// The store has restarted. Counters may have lost their last values.
    pub(crate) fn process_changed(&mut self) {
        self.ordinals += SKIPPED;
        if let Some(record) = &mut self.record {
            record.last_epoch += SKIPPED;
            record.revision += SKIPPED;
        }
    }

    /// The next mail of a node after `cursor`.
    pub(crate) fn next_mail(&self, node: &Incarnation, cursor: u64) -> Option<(u64, Mail)> {
        let mailbox = self.mailboxes.get(node)?;
        mailbox.iter().find(|(id, _)| *id > cursor).cloned()
    }

    pub(crate) fn perform(&mut self, op: Op, now: u64, unique: &mut Unique) -> Outcome {
        match op {
            Op::Join => {
                unique.random += 1;
                let node = Incarnation::new(self.next_incarnation, unique.random);
                self.next_incarnation += 1;
                self.members.insert(node.clone(), now + LEASE_MILLIS);
                Ok(Reply::Joined(node))
            }
            Op::Renew(node) => {
                self.members.retain(|_, end| *end > now);
                let end = self.members.get_mut(&node).ok_or(Failure::Lease(LeaseError::Ended))?;
                *end = now + LEASE_MILLIS;
                Ok(Reply::Renewed(self.members.keys().cloned().collect()))
            }
            Op::IsAlive(node) => {
                self.members.retain(|other, end| *other != node || *end > now);
                Ok(Reply::Alive(self.is_member(&node)))
            }
            Op::Deliver(to, mail) => {
                unique.mail += 1;
                self.mailboxes
                    .entry(to.clone())
                    .or_default()
                    .push_back((unique.mail, mail));
                self.wake_ups.push((to, WakeUp::Mail));
                Ok(Reply::Delivered(unique.mail))
            }
            Op::ClaimMail(of, id) => {
                let mailbox = self.mailboxes.entry(of).or_default();
                let before = mailbox.len();
                mailbox.retain(|(other, _)| *other != id);
                Ok(Reply::Claimed(mailbox.len() < before))
            }
            _ => self.perform_in_session(op),
        }
    }

    fn perform_in_session(&mut self, op: Op) -> Outcome {
        let record = self.record.as_mut().ok_or(Failure::SessionGone)?;
        match op {
            Op::Open(node) => {
                record.last_epoch += 1;
                record.views.push((record.last_epoch, node));
                self.ordinals += BLOCK;
                Ok(Reply::Opened(record.clone(), record.last_epoch, self.ordinals - BLOCK))
            }
            Op::Load => Ok(Reply::Loaded(record.clone())),
            Op::Update { revision, level, by } => {
                if record.revision != revision {
                    return Err(Failure::Revision);
                }
                record.revision += 1;
                record.level = level;
                let (revision, views) = (record.revision, self.wake_views(&by));
                Ok(Reply::Updated(revision, views))
            }
            Op::End { by } => {
                let views = self.wake_views(&by);
                self.record = None;
                self.streams.clear();
                self.queue.clear();
                self.listeners.clear();
                Ok(Reply::Updated(u64::MAX, views))
            }
            Op::Claim { from, to } => {
                if record.owner == from {
                    record.owner = Some(to.clone());
                    record.revision += 1;
                    let owner = record.owner.clone();
                    self.wake_views(&to);
                    return Ok(Reply::Owner(owner.expect("the owner was just set")));
                }
                record.owner.clone().map(Reply::Owner).ok_or(Failure::Revision)
            }
            Op::DrawEpoch => {
                record.last_epoch += 1;
                Ok(Reply::Epoch(record.last_epoch))
            }
            Op::Enqueue(message) => {
                self.queue.push_back(format!("{{\"m\":{message}}}").into());
                self.wake_top();
                Ok(Reply::Done)
            }
            Op::Listen(ordinal, node) => {
                self.listeners.retain(|listener| *listener != (ordinal, node.clone()));
                self.listeners.push((ordinal, node));
                Ok(Reply::Done)
            }
            Op::Unlisten(ordinal, node) => {
                self.listeners.retain(|listener| *listener != (ordinal, node.clone()));
                self.wake_top();
                Ok(Reply::Done)
            }
            Op::RemoveListeners(dead) => {
                self.listeners.retain(|(_, node)| *node != dead);
                self.wake_top();
                Ok(Reply::Done)
            }
            _ => self.perform_on_stream(op),
        }
    }

    fn perform_on_stream(&mut self, op: Op) -> Outcome {
        match op {
            Op::Append(ordinal, batch, writer) => self.append(ordinal, batch, writer),
            Op::Bind(ordinal, epoch, start, writer) => self.bind(ordinal, epoch, start, writer),
            Op::Read(ordinal, after) => Ok(Reply::Page(self.stream(ordinal)?.page(after))),
            Op::Status(ordinal) => Ok(Reply::Status(self.stream(ordinal)?.status())),
            Op::OpenStreams => {
                let open = self.streams.iter().filter(|(_, stream)| !stream.log.is_sealed());
                Ok(Reply::Open(
                    open.map(|(ordinal, stream)| (*ordinal, stream.writer.clone()))
                        .collect(),
                ))
            }
            Op::Attach(ordinal, token, seen) => {
                let stream = self.stream(ordinal)?;
                let before = stream.reader.replace((token, seen));
                let (status, writer) = (stream.status(), stream.writer.clone());
                let nodes = before.map(|(token, _)| token.node).into_iter().chain([writer]);
                self.wake_ups.extend(nodes.map(|node| (node, WakeUp::Stream(ordinal))));
                Ok(Reply::Status(status))
            }
            Op::ReadAs(ordinal, token, after) => {
                let stream = self.stream(ordinal)?;
                match &mut stream.reader {
                    Some((reader, seen)) if *reader == token => *seen = after,
                    _ => return Err(Failure::Displaced),
                }
                Ok(Reply::Page(stream.page(after)))
            }
            Op::RemoteReader(ordinal) => Ok(Reply::Appended(self.stream(ordinal)?.reader.clone())),
            Op::Detach(ordinal, token) => {
                self.stream(ordinal)?.reader.take_if(|(reader, _)| *reader == token);
                self.wake_ups.push((token.node, WakeUp::Stream(ordinal)));
                Ok(Reply::Done)
            }
            other => unreachable!("{other:?} is not about a stream"),
        }
    }

    fn append(&mut self, ordinal: Ordinal, batch: Batch, writer: Incarnation) -> Outcome {
        let stream = match (self.streams.get_mut(&ordinal), &batch.info) {
            (Some(stream), _) => stream,
            (None, Some(info)) => self.streams.entry(ordinal).or_insert(StoredStream {
                log: Log::new(info.clone(), batch.epoch),
                writer: writer.clone(),
                reader: None,
            }),
            (None, None) => return Err(Failure::UnknownStream),
        };
        stream.log.append(batch).map_err(Failure::Refused)?;
        if stream.writer != writer {
            // Wake the previous writer: without an append of its own it would not learn that it is fenced.
            let before = std::mem::replace(&mut stream.writer, writer);
            self.wake_ups.push((before, WakeUp::Stream(ordinal)));
        }
        let reader = stream.reader.clone();
        if let Some((token, _)) = &reader {
            self.wake_ups.push((token.node.clone(), WakeUp::Stream(ordinal)));
        }
        Ok(Reply::Appended(reader))
    }

    fn bind(&mut self, ordinal: Ordinal, epoch: u64, start: BindStart, writer: Incarnation) -> Outcome {
        // Check this even for an empty queue: the node may have lost the stream during a takeover.
        if let Some(status) = self.streams.get(&ordinal).map(StoredStream::status)
            && status.epoch > epoch
        {
            let (epoch, last) = (status.epoch, status.last);
            return Err(Failure::Refused(Refused::Conflict { epoch, last }));
        }
        let top = self.listeners.last().filter(|(top, _)| *top != ordinal);
        if let Some((_, node)) = top {
            let turn = (*node != writer).then(|| node.clone());
            return Ok(Reply::Bound(Vec::new(), turn));
        }
        if self.listeners.is_empty() {
            return Ok(Reply::Bound(Vec::new(), None));
        }
        let count = start.max.min(self.queue.len());
        let messages: Vec<Bytes> = self.queue.iter().take(count).cloned().collect();
        if messages.is_empty() {
            return Ok(Reply::Bound(messages, None));
        }
        let numbers = (start.first.0..).map(Seq);
        let events = numbers
            .zip(&messages)
            .map(|(seq, message)| Event::new(seq, message.clone()));
        let mut batch = Batch::new(epoch, events.collect());
        batch.info = start.info;
        self.append(ordinal, batch, writer)?;
        self.queue.drain(..count);
        Ok(Reply::Bound(messages, None))
    }

    fn stream(&mut self, ordinal: Ordinal) -> Result<&mut StoredStream, Failure> {
        self.streams.get_mut(&ordinal).ok_or(Failure::UnknownStream)
    }

    /// Wakes the other views. Returns their nodes.
    fn wake_views(&mut self, by: &Incarnation) -> Vec<Incarnation> {
        let views = self.record.iter().flat_map(|record| &record.views);
        let mut nodes: Vec<_> = views
            .map(|(_, node)| node)
            .filter(|node| *node != by)
            .cloned()
            .collect();
        nodes.dedup();
        let wake_up = |node: &Incarnation| (node.clone(), WakeUp::Session(by.clone()));
        self.wake_ups.extend(nodes.iter().map(wake_up));
        nodes
    }

    fn wake_top(&mut self) {
        if let Some((_, node)) = self.listeners.last() {
            self.wake_ups.push((node.clone(), WakeUp::Push));
        }
    }
}

impl StoredStream {
    fn page(&self, after: Seq) -> Page {
        let mut page = self.log.read_after(after, PAGE_EVENTS, usize::MAX);
        page.status.writer = Some(self.writer.clone());
        page
    }

    pub(crate) fn status(&self) -> StreamStatus {
        let mut status = self.log.status();
        status.writer = Some(self.writer.clone());
        status
    }
}
