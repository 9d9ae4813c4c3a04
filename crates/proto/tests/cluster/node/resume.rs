//! Resumes of call streams, and streams without a writer.

use super::remote::RemoteConnection;
use super::streams::{LiveStream, params};
use super::{Node, Shared};
use crate::client::{ConnectionNumber, ToClient};
use crate::store::{Failure, Op, Reply};
use bytes::Bytes;
use rethread_proto::cluster::{Incarnation, Liveness};
use rethread_proto::stream::{
    Batch, ConnectionId, Event, ReaderStart, Refused, ResumePlan, StreamCore, StreamStatus, plan,
};
use rethread_proto::{EventId, Ordinal, Seq};

const MAX_ATTEMPTS: u32 = 10;

impl Node {
    /// A client resumes a call stream.
    pub(crate) fn resume_call(&mut self, ordinal: Ordinal, seq: u64, client: ConnectionNumber, shared: &mut Shared) {
        if !self.lease_holds(shared) {
            return shared.send(client, ToClient::Refused);
        }
        self.with_view(shared, move |node, shared, opened| match opened {
            Ok(()) => node.look_up(ordinal, Seq(seq), client, 0),
            Err(Failure::SessionGone) => shared.send(client, ToClient::NotFound),
            Err(_) => shared.send(client, ToClient::Refused),
        });
    }

    fn look_up(&mut self, ordinal: Ordinal, seq: Seq, client: ConnectionNumber, attempt: u32) {
        self.ask(Op::Status(ordinal), move |node, shared, outcome| {
            let status = match outcome {
                Ok(Reply::Status(status)) => status,
                Err(Failure::UnknownStream | Failure::SessionGone) => return shared.send(client, ToClient::Gone),
                _ => return shared.send(client, ToClient::Refused),
            };
            node.resume(ordinal, seq, &status, client, attempt, shared);
        });
    }

    fn resume(
        &mut self,
        ordinal: Ordinal,
        seq: Seq,
        status: &StreamStatus,
        client: ConnectionNumber,
        attempt: u32,
        shared: &mut Shared,
    ) {
        let live = self.streams.get(&ordinal).filter(|stream| !stream.core.is_closed());
        let missed = live.is_some_and(|stream| stream.core.has_unlogged_after(status.last));
        let (after, gap) = match plan(Some(EventId { ordinal, seq }), true, Some(status), missed) {
            ResumePlan::Resume { after, gap, .. } => (after, gap),
            ResumePlan::Ahead { after, gap } => {
                assert!(
                    shared.has_lost_writes,
                    "a client is ahead of the store, which has lost no writes"
                );
                (after, gap)
            }
            ResumePlan::Ended | ResumePlan::Forgotten | ResumePlan::Fresh { .. } => {
                return shared.send(client, ToClient::Gone);
            }
        };
        let start = ReaderStart {
            cursor: after,
            first: None,
            resumes: true,
            gap_announced: gap,
        };
        if live.is_some() {
            return self.attach(ordinal, client, start, shared);
        }
        if status.sealed {
            if !self.streams.contains_key(&ordinal) {
                let params = params(ordinal, status.epoch, status.info.clone());
                self.insert_stream(ordinal, params, StreamCore::adopt(status), None, shared);
            }
            return self.attach(ordinal, client, start, shared);
        }
        let writer = status
            .writer
            .clone()
            .filter(|writer| Some(writer) != self.incarnation().as_ref());
        let liveness = writer.as_ref().map(|writer| self.members.liveness(writer));
        match (liveness, writer) {
            _ if attempt > MAX_ATTEMPTS => shared.send(client, ToClient::Refused),
            (Some(Liveness::Alive), _) => self.read_remote(ordinal, start, client, shared),
            (Some(Liveness::Unknown), Some(writer)) => self.check(writer, move |node, shared, is_known| {
                if is_known {
                    return node.look_up(ordinal, seq, client, attempt + 1);
                }
                shared.send(client, ToClient::Refused);
            }),
            _ => self.close_orphan(ordinal, shared, move |node, shared, is_closed| {
                if is_closed {
                    return node.look_up(ordinal, seq, client, attempt + 1);
                }
                shared.send(client, ToClient::Refused);
            }),
        }
    }

    pub(super) fn close_orphans_of(&mut self, dead: &Incarnation, shared: &mut Shared) {
        let is_orphaned = |remote: &&RemoteConnection| remote.writer.as_ref() == Some(dead);
        let mut orphans: Vec<_> = self
            .remotes
            .iter()
            .filter(is_orphaned)
            .map(|remote| remote.ordinal)
            .collect();
        orphans.dedup();
        for ordinal in orphans {
            self.close_orphan(ordinal, shared, move |node, shared, _| {
                node.wake_remotes(shared, |remote| remote.ordinal == ordinal);
            });
        }
    }

    /// Ends a stream whose writer is dead, or that ended here while it was unlogged: an error on its calls, in a new
    /// epoch.
    ///
    /// One append does all of it. With a fence and a seal in two appends, the node could fail between them and leave an
    /// open stream whose writer is alive and does nothing.
    pub(super) fn close_orphan(
        &mut self,
        ordinal: Ordinal,
        shared: &mut Shared,
        then: impl FnOnce(&mut Node, &mut Shared, bool) + 'static,
    ) {
        let Some(here) = self.incarnation().filter(|_| self.lease_holds(shared)) else {
            return then(self, shared, false);
        };
        self.ask(Op::Status(ordinal), move |node, shared, outcome| match outcome {
            Ok(Reply::Status(status)) if !status.sealed => node.ask(Op::DrawEpoch, move |node, shared, outcome| {
                let Ok(Reply::Epoch(epoch)) = outcome else {
                    return then(node, shared, false);
                };
                let op = Op::Append(ordinal, end_of_orphan(epoch, &status), here);
                node.ask(op, move |node, shared, outcome| match outcome {
                    // An append of the dead writer arrived before.
                    Err(Failure::Refused(Refused::Conflict { .. })) => node.close_orphan(ordinal, shared, then),
                    outcome => {
                        shared.count("orphan closed");
                        then(node, shared, !matches!(outcome, Err(Failure::Store)));
                    }
                });
            }),
            Err(Failure::Store) => then(node, shared, false),
            _ => then(node, shared, true),
        });
    }

    /// A client has closed its connection.
    pub(crate) fn client_left(&mut self, client: ConnectionNumber, shared: &mut Shared) {
        self.client_of_forward_left(client, shared);
        let is_its = |stream: &LiveStream| stream.reader.as_ref().is_some_and(|reader| reader.client == client);
        let found = self
            .streams
            .iter()
            .find(|(_, stream)| is_its(stream))
            .map(|(ordinal, _)| *ordinal);
        if let Some(ordinal) = found {
            let Some(stream) = self.streams.get_mut(&ordinal) else {
                return;
            };
            stream.reader = None;
            let (_, effects) = stream.core.detach(ConnectionId(client.0));
            self.push_reader_left(ordinal);
            self.perform_effects(ordinal, effects, shared);
        }
        if let Some(at) = self.remotes.iter().position(|remote| remote.client == client) {
            let remote = self.remotes.swap_remove(at);
            self.tell(Op::Detach(remote.ordinal, remote.token));
        }
    }
}

/// An error on each call of an orphaned stream, and its end.
fn end_of_orphan(epoch: u64, status: &StreamStatus) -> Batch {
    let calls = status
        .info
        .calls
        .iter()
        .map(|id| String::from_utf8_lossy(id.as_json()).into_owned());
    let numbers = (status.last.unwrap_or_default().next().0..).map(Seq);
    let error = |(seq, id): (Seq, String)| Event::new(seq, Bytes::from(format!("{{\"e\":{id}}}")));
    Batch::new(epoch, numbers.zip(calls).map(error).collect()).sealing()
}
