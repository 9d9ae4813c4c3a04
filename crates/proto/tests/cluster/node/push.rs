//! The GET of a session: its stream, and the messages of the shared queue.

use super::streams::params;
use super::{Node, Shared};
use crate::client::{ConnectionNumber, ToClient};
use crate::store::{Failure, Op, Reply};
use rethread_proto::cluster::{Incarnation, Liveness};
use rethread_proto::stream::{
    Batch, BindOutcome, Effects, ReaderStart, ResumePlan, StreamCore, StreamInfo, StreamStatus, plan,
};
use rethread_proto::{EventId, Ordinal, Seq, StreamKind};

impl Node {
    /// A client opens a GET, or resumes one.
    pub(crate) fn get(&mut self, cursor: Option<(Ordinal, u64)>, client: ConnectionNumber, shared: &mut Shared) {
        if !self.lease_holds(shared) {
            return shared.send(client, ToClient::Refused);
        }
        self.with_view(shared, move |node, shared, opened| match (opened, cursor) {
            (Ok(()), None) => node.open_push(client, shared),
            (Ok(()), Some((ordinal, seq))) => node.look_up_push(ordinal, Seq(seq), client),
            (Err(Failure::SessionGone), _) => shared.send(client, ToClient::NotFound),
            (Err(_), _) => shared.send(client, ToClient::Refused),
        });
    }

    fn open_push(&mut self, client: ConnectionNumber, shared: &mut Shared) {
        let Some(view) = &mut self.view else {
            return shared.send(client, ToClient::Refused);
        };
        let ordinal = view.ordinals.issue(StreamKind::Push);
        let params = params(ordinal, view.epoch, StreamInfo::new(StreamKind::Push, Vec::new(), "n"));
        let core = StreamCore::open(&params, 1);
        self.insert_stream(ordinal, params, core, None, shared);
        self.attach(ordinal, client, ReaderStart::default(), shared);
        self.change(ordinal, shared, |core, _| {
            core.flush();
            Effects::default()
        });
        self.listen(ordinal);
    }

    fn look_up_push(&mut self, ordinal: Ordinal, seq: Seq, client: ConnectionNumber) {
        self.ask(Op::Status(ordinal), move |node, shared, outcome| {
            let status = match outcome {
                Ok(Reply::Status(status)) => Some(status),
                Err(Failure::UnknownStream) => None,
                Err(Failure::SessionGone) => return shared.send(client, ToClient::NotFound),
                _ => return shared.send(client, ToClient::Refused),
            };
            match (
                plan(Some(EventId { ordinal, seq }), true, status.as_ref(), false),
                status,
            ) {
                (ResumePlan::Resume { after, gap, .. }, Some(status)) => {
                    let start = ReaderStart {
                        cursor: after,
                        first: None,
                        resumes: true,
                        gap_announced: gap,
                    };
                    node.take_over(ordinal, &status, start, client, shared);
                }
                _ => node.open_push(client, shared),
            }
        });
    }

    /// Moves the writer of a push stream to the node of its connection: an empty append in a new epoch.
    fn take_over(
        &mut self,
        ordinal: Ordinal,
        status: &StreamStatus,
        start: ReaderStart,
        client: ConnectionNumber,
        shared: &mut Shared,
    ) {
        let is_live = self
            .streams
            .get(&ordinal)
            .is_some_and(|stream| !stream.core.is_closed() && stream.params.epoch == status.epoch);
        if is_live || status.sealed {
            return self.attach(ordinal, client, start, shared);
        }
        let Some(here) = self.incarnation() else {
            return shared.send(client, ToClient::Refused);
        };
        self.fence(ordinal, here, start, client);
    }

    fn fence(&mut self, ordinal: Ordinal, here: Incarnation, start: ReaderStart, client: ConnectionNumber) {
        self.ask(Op::DrawEpoch, move |node, shared, outcome| {
            let Ok(Reply::Epoch(epoch)) = outcome else {
                return shared.send(client, ToClient::Refused);
            };
            let fence = Op::Append(ordinal, Batch::new(epoch, Vec::new()), here);
            node.ask(fence, move |node, shared, outcome| match outcome {
                Ok(_) => node.ask(Op::Status(ordinal), move |node, shared, outcome| match outcome {
                    Ok(Reply::Status(status)) if status.epoch == epoch && node.view.is_some() => {
                        shared.count("push stream taken over");
                        let params = params(ordinal, epoch, status.info.clone());
                        node.insert_stream(ordinal, params, StreamCore::adopt(&status), None, shared);
                        node.attach(ordinal, client, start, shared);
                        node.listen(ordinal);
                    }
                    _ => shared.send(client, ToClient::Refused),
                }),
                Err(_) => shared.send(client, ToClient::Refused),
            });
        });
    }

    /// Adds a push message to the queue of the session.
    pub(crate) fn enqueue(&mut self, message: u64) {
        if self.incarnation().is_some() {
            self.tell(Op::Enqueue(message));
        }
    }

    /// Registers the listeners again, because the store may have lost them.
    pub(super) fn listen_again(&mut self) {
        let push: Vec<_> = self
            .streams
            .keys()
            .filter(|ordinal| ordinal.kind() == StreamKind::Push)
            .copied()
            .collect();
        for ordinal in push {
            self.listen(ordinal);
        }
    }

    fn listen(&mut self, ordinal: Ordinal) {
        let Some(here) = self.incarnation() else { return };
        self.ask(Op::Listen(ordinal, here), move |node, _, outcome| match outcome {
            Ok(_) if node.has_push_reader(ordinal) => node.bind(ordinal),
            Ok(_) => node.unlisten(ordinal),
            Err(Failure::Store) if node.has_push_reader(ordinal) => node.listen(ordinal),
            Err(_) => {}
        });
    }

    fn unlisten(&mut self, ordinal: Ordinal) {
        let Some(here) = self.incarnation() else {
            return; // other nodes remove the listeners of a dead one
        };
        self.ask(Op::Unlisten(ordinal, here), move |node, _, outcome| {
            if outcome.is_err_and(|failure| failure == Failure::Store) && !node.has_push_reader(ordinal) {
                node.unlisten(ordinal);
            }
        });
    }

    fn has_push_reader(&self, ordinal: Ordinal) -> bool {
        self.streams
            .get(&ordinal)
            .is_some_and(|stream| stream.core.has_reader())
    }

    /// The connection of a push stream has ended. Another node may take the stream over.
    pub(super) fn push_reader_left(&mut self, ordinal: Ordinal) {
        if ordinal.kind() == StreamKind::Push {
            self.streams.remove(&ordinal);
            self.unlisten(ordinal);
        }
    }

    /// Messages may wait for a GET of this node.
    pub(super) fn bind_all(&mut self) {
        let push = |(ordinal, _): (&Ordinal, _)| (ordinal.kind() == StreamKind::Push).then_some(*ordinal);
        let streams: Vec<_> = self.streams.iter().filter_map(push).collect();
        for ordinal in streams {
            self.bind(ordinal);
        }
    }

    fn bind(&mut self, ordinal: Ordinal) {
        let (Some(stream), Some(here)) = (self.streams.get_mut(&ordinal), self.keeper.member()) else {
            return;
        };
        let Some(start) = stream.core.begin_bind(&stream.params) else {
            return;
        };
        let (epoch, here) = (stream.params.epoch, here.0.clone());
        self.ask(Op::Bind(ordinal, epoch, start, here), move |node, shared, outcome| {
            let is_same = node
                .streams
                .get(&ordinal)
                .is_some_and(|stream| stream.params.epoch == epoch);
            if !is_same {
                return; // the messages are in the stream for its next reader
            }
            let (outcome, again) = match outcome {
                Ok(Reply::Bound(messages, turn)) => {
                    let again = !messages.is_empty();
                    if let Some(other) = turn {
                        node.check_listener(other);
                    }
                    (BindOutcome::Messages(messages), again)
                }
                Err(Failure::Store) => (BindOutcome::StoreFailed, false),
                _ => (BindOutcome::Refused, false),
            };
            node.change(ordinal, shared, |core, params| core.bound(params, outcome));
            if again {
                node.bind(ordinal);
            }
        });
    }

    /// Checks the node of the newest GET. It may have died unnoticed.
    fn check_listener(&mut self, other: Incarnation) {
        match self.members.liveness(&other) {
            Liveness::Alive => {}
            Liveness::Dead => self.tell(Op::RemoveListeners(other)),
            Liveness::Unknown => self.check(other, |_, _, _| {}),
        }
    }

    /// Recovers from a store failure during a bind. The next number is unknown until the store returns its last one.
    pub(super) fn recover_push(&mut self, ordinal: Ordinal) {
        self.ask(Op::Status(ordinal), move |node, _, outcome| {
            let here = node.incarnation();
            let (Some(stream), Some(here)) = (node.streams.get_mut(&ordinal), here) else {
                return;
            };
            let last = match outcome {
                Ok(Reply::Status(status)) => status.last,
                Err(Failure::Store) => return,
                _ => None,
            };
            let before = Seq(stream.core.first_unseen(last).0 - 1);
            let mut batch = Batch::new(stream.params.epoch, Vec::new()).with_info(stream.params.info.clone());
            batch.gap = Some(before).filter(|before| Some(*before) > last);
            let unlogged = stream.core.last_unlogged();
            node.ask(
                Op::Append(ordinal, batch, here),
                move |node, shared, outcome| match outcome {
                    Ok(_) => node.change(ordinal, shared, |core, _| {
                        core.store_recovered(unlogged, Some(before)).unwrap_or_default()
                    }),
                    Err(Failure::Store) => {}
                    Err(_) => node.change(ordinal, shared, |core, _| core.stop()),
                },
            );
        });
    }
}
