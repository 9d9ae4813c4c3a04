//! The streams that this node writes, and those of other nodes that it reads.

use super::calls::Origin;
use super::{Node, Shared};
use crate::client::{ConnectionNumber, ToClient};
use crate::store::{Failure, Op, Outcome, Reply, ReplyKind};
use rethread_proto::cluster::{Incarnation, OpenStream};
use rethread_proto::event_id::IdPrefix;
use rethread_proto::sse::Draft;
use rethread_proto::stream::{
    AppendOutcome, Batch, CloseReason, ConnectionId, Effects, Framing, Input, Reader, ReaderStart, Refused, Retain,
    Step, StreamCore, StreamInfo, StreamLimits, StreamParams,
};
use rethread_proto::{Ordinal, StreamKind, Version};
use std::sync::Arc;

pub(super) const RETRY_MILLIS: u64 = 1;
pub(super) const VERSION: Version = Version::V2025_11_25;

/// A stream that this node writes or has ended.
pub(crate) struct LiveStream {
    /// Distinguishes it from an earlier one with the same ordinal.
    instance: u64,
    pub(super) params: StreamParams,
    pub(super) core: StreamCore<ConnectionId>,
    pub(super) reader: Option<LocalConnection>,
    /// The forwarded call that waits for the stream.
    reply_to: Option<(Incarnation, u64)>,
}

pub(super) struct LocalConnection {
    pub(super) client: ConnectionNumber,
    id: ConnectionId,
    reader: Reader,
    is_reading: bool,
}

impl LiveStream {
    pub(super) fn is_push(&self) -> bool {
        self.params.info.kind == StreamKind::Push
    }
}

pub(super) fn params(ordinal: Ordinal, epoch: u64, info: impl Into<Arc<StreamInfo>>) -> StreamParams {
    StreamParams {
        prefix: IdPrefix::new(format!("{ordinal}-")),
        framing: Framing::Numbered,
        epoch,
        info: info.into(),
        primed: true,
        limits: Arc::new(StreamLimits::default()),
    }
}

impl Node {
    // ---- the writer ----

    pub(super) fn open_call_stream(&mut self, call: u64, ordinal: Ordinal, origin: &Origin, shared: &mut Shared) {
        let Some(view) = &self.view else { return };
        let info = StreamInfo::new(StreamKind::Call, vec![(call as i64).into()], "n");
        let params = params(ordinal, view.epoch, info);
        let core = StreamCore::open(&params, RETRY_MILLIS);
        let reply_to = match origin {
            Origin::Forwarded(from, rid) => Some((from.clone(), *rid)),
            Origin::Client(_) => None,
        };
        self.insert_stream(ordinal, params, core, reply_to, shared);
        if let Origin::Client(client) = origin {
            self.attach(ordinal, *client, ReaderStart::default(), shared);
        }
        self.change(ordinal, shared, |core, _| {
            core.flush();
            Effects::default()
        });
    }

    pub(super) fn insert_stream(
        &mut self,
        ordinal: Ordinal,
        params: StreamParams,
        core: StreamCore<ConnectionId>,
        reply_to: Option<(Incarnation, u64)>,
        shared: &mut Shared,
    ) {
        let stream = LiveStream {
            instance: shared.number(),
            params,
            core,
            reader: None,
            reply_to,
        };
        let replaced = self.streams.insert(ordinal, stream);
        if let Some(connection) = replaced.and_then(|stream| stream.reader) {
            shared.send(connection.client, ToClient::End);
        }
    }

    pub(super) fn emit(&mut self, ordinal: Ordinal, text: &str, retain: Retain, seals: bool, shared: &mut Shared) {
        let draft = Draft::copy_of(text.as_bytes());
        self.change(ordinal, shared, |core, params| {
            let emitted = core.emit(params, draft, retain, seals);
            emitted.map_or_else(|_| Effects::default(), |(_, effects)| effects)
        });
    }

    /// Changes a stream, performs the effects and appends.
    pub(super) fn change(
        &mut self,
        ordinal: Ordinal,
        shared: &mut Shared,
        change: impl FnOnce(&mut StreamCore<ConnectionId>, &StreamParams) -> Effects<ConnectionId>,
    ) {
        let Some(stream) = self.streams.get_mut(&ordinal) else {
            return;
        };
        let effects = change(&mut stream.core, &stream.params);
        let (batch, instance) = (stream.core.next_append(&stream.params), stream.instance);
        if let Some(batch) = batch {
            self.append(ordinal, instance, batch);
        }
        self.perform_effects(ordinal, effects, shared);
    }

    fn append(&mut self, ordinal: Ordinal, instance: u64, batch: Batch) {
        let Some(here) = self.incarnation() else { return };
        self.ask(
            Op::Append(ordinal, batch.clone(), here),
            move |node, shared, outcome| {
                node.appended(ordinal, instance, batch, outcome, shared);
            },
        );
    }

    fn appended(&mut self, ordinal: Ordinal, instance: u64, batch: Batch, outcome: Outcome, shared: &mut Shared) {
        let here = self.incarnation();
        let Some(stream) = self
            .streams
            .get_mut(&ordinal)
            .filter(|stream| stream.instance == instance)
        else {
            return;
        };
        let refused = match &outcome {
            Err(Failure::Refused(refused)) => Some(*refused),
            Err(Failure::UnknownStream) => Some(Refused::Unknown),
            _ => None,
        };
        if let Some(again) = refused.and_then(|refused| batch.after_loss(refused, &stream.params.info)) {
            assert!(
                shared.has_lost_writes,
                "the store lacks events but has lost no writes: {again:?}"
            );
            shared.count("append after a gap");
            return self.append(ordinal, instance, again);
        }
        let result = match &outcome {
            Ok(_) => AppendOutcome::Stored,
            Err(Failure::Store) => AppendOutcome::StoreFailed,
            Err(_) => AppendOutcome::Refused,
        };
        let reply = stream.reply_to.take();
        self.change(ordinal, shared, |core, params| core.appended(params, result));
        if let Ok(Reply::Appended(reader)) = outcome {
            let remote = reader.filter(|(token, _)| Some(&token.node) != here.as_ref());
            self.change(ordinal, shared, |core, _| core.remote_reader(remote));
        }
        if let Some(key) = reply {
            let kind = if result == AppendOutcome::Stored {
                ReplyKind::Stream(ordinal)
            } else {
                ReplyKind::Refused
            };
            self.finish_execution(key, kind, shared);
        }
    }

    pub(super) fn perform_effects(&mut self, ordinal: Ordinal, effects: Effects<ConnectionId>, shared: &mut Shared) {
        if let Some(token) = effects.displaced {
            self.tell(Op::Detach(ordinal, *token));
        }
        if let Some(reason) = effects.ended {
            self.end_call_of(ordinal);
            let may_be_stored = self
                .streams
                .get(&ordinal)
                .is_some_and(|stream| stream.core.may_be_in_store());
            if reason == CloseReason::Unlogged && may_be_stored {
                self.unsealed.push(ordinal);
            }
        }
        self.pump(ordinal, shared);
        let is_over = |stream: &mut LiveStream| stream.core.is_closed() && stream.reader.is_none();
        if self.streams.get_mut(&ordinal).is_some_and(is_over) {
            self.streams.remove(&ordinal);
        }
    }

    /// Unlogged streams return to the log. Streams that ended while they were unlogged are sealed.
    pub(super) fn recover_streams(&mut self, shared: &mut Shared) {
        let failed = |(_, stream): &(&Ordinal, &LiveStream)| stream.core.is_unlogged() && !stream.core.is_closed();
        let failed: Vec<_> = self
            .streams
            .iter()
            .filter(failed)
            .map(|(ordinal, _)| *ordinal)
            .collect();
        for ordinal in failed {
            if ordinal.kind() == StreamKind::Push {
                self.recover_push(ordinal);
            } else {
                self.change(ordinal, shared, |core, params| {
                    core.store_recovered_with_gap(params).unwrap_or_default()
                });
            }
        }
        for ordinal in std::mem::take(&mut self.unsealed) {
            self.close_orphan(ordinal, shared, move |node, _, is_closed| {
                if !is_closed {
                    node.unsealed.push(ordinal);
                }
            });
        }
    }

    /// The store may have lost the end of a stream that this node has finished. Its readers would wait for ever,
    /// because its writer lives.
    pub(super) fn close_lost_ends(&mut self) {
        self.ask(Op::OpenStreams, |node, shared, outcome| {
            let Some(here) = node.incarnation() else { return };
            let open = match outcome {
                Ok(Reply::Open(open)) => open,
                Err(Failure::Store) if node.view.is_some() => return node.close_lost_ends(),
                _ => return,
            };
            for (ordinal, writer) in open {
                let stream = OpenStream {
                    kind: ordinal.kind(),
                    writer: Some(&writer),
                    is_live: node.streams.contains_key(&ordinal),
                };
                if stream.lacks_its_end(&here) {
                    node.unsealed.push(ordinal);
                }
            }
            node.recover_streams(shared);
        });
    }

    /// Closes every stream without a seal, because the lease or the session has ended.
    pub(super) fn close_streams(&mut self, shared: &mut Shared) {
        for stream in std::mem::take(&mut self.streams).into_values() {
            if let Some(connection) = stream.reader {
                shared.send(connection.client, ToClient::End);
            }
        }
        for remote in std::mem::take(&mut self.remotes) {
            shared.send(remote.client, ToClient::End);
        }
        self.unsealed.clear();
    }

    // ---- local readers ----

    pub(super) fn attach(
        &mut self,
        ordinal: Ordinal,
        client: ConnectionNumber,
        start: ReaderStart,
        shared: &mut Shared,
    ) {
        let Some(stream) = self.streams.get_mut(&ordinal) else {
            return shared.send(client, ToClient::End);
        };
        let id = ConnectionId(client.0);
        let effects = stream.core.attach(id, start.cursor, start.resumes);
        let connection = LocalConnection {
            client,
            id,
            reader: Reader::new(start, VERSION, RETRY_MILLIS),
            is_reading: false,
        };
        if let Some(displaced) = stream.reader.replace(connection) {
            shared.send(displaced.client, ToClient::End);
        }
        self.perform_effects(ordinal, effects, shared);
    }

    /// Runs the local reader until it must wait.
    pub(super) fn pump(&mut self, ordinal: Ordinal, shared: &mut Shared) {
        loop {
            let Some(stream) = self.streams.get_mut(&ordinal) else {
                return;
            };
            let Some(connection) = &mut stream.reader else { return };
            if connection.is_reading {
                return;
            }
            let (id, client) = (connection.id, connection.client);
            let input = match connection.reader.step() {
                Step::Send(chunk) => Input::Send(chunk),
                Step::Wait => return,
                Step::End => {
                    stream.reader = None;
                    let (_, effects) = stream.core.detach(id);
                    shared.send(client, ToClient::End);
                    self.push_reader_left(ordinal);
                    return self.perform_effects(ordinal, effects, shared);
                }
                Step::Read(cursor) => {
                    connection.is_reading = true;
                    return self.ask(Op::Read(ordinal, cursor), move |node, shared, outcome| {
                        node.page_read(ordinal, id, outcome, shared);
                    });
                }
                Step::Take => {
                    let (taken, effects) = stream.core.take(id, &id);
                    assert!(effects.wake.is_none() && effects.displaced.is_none());
                    connection.reader.taken(&stream.params, taken)
                }
            };
            match input {
                Input::Send(chunk) => shared.send(client, ToClient::Chunk(chunk.to_vec())),
                Input::Continue | Input::Overtaken => {}
                Input::Wait => return,
            }
        }
    }

    fn page_read(&mut self, ordinal: Ordinal, id: ConnectionId, outcome: Outcome, shared: &mut Shared) {
        let Some(stream) = self.streams.get_mut(&ordinal) else {
            return;
        };
        let Some(connection) = stream.reader.as_mut().filter(|connection| connection.id == id) else {
            return;
        };
        connection.is_reading = false;
        let page = match outcome {
            Ok(Reply::Page(page)) => Some(page),
            _ => None,
        };
        let core = &mut stream.core;
        let caught_up = |cursor, bytes| core.caught_up(id, cursor, bytes).0;
        if let Input::Send(chunk) = connection.reader.page(&stream.params, page.as_ref(), caught_up) {
            shared.send(connection.client, ToClient::Chunk(chunk.to_vec()));
        }
        self.pump(ordinal, shared);
    }
}
