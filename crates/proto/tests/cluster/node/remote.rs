//! Readers of streams that other nodes write.

use super::streams::{RETRY_MILLIS, VERSION, params};
use super::{Node, Shared};
use crate::client::{ConnectionNumber, ToClient};
use crate::store::{Failure, Op, Outcome, Reply};
use rethread_proto::Ordinal;
use rethread_proto::cluster::{Incarnation, Liveness, ReaderToken};
use rethread_proto::stream::{Input, Reader, ReaderStart, RemoteRead, Step, StreamParams};

/// A connection that reads a stream of another node.
pub(crate) struct RemoteConnection {
    pub(super) ordinal: Ordinal,
    pub(super) token: ReaderToken,
    pub(super) writer: Option<Incarnation>,
    params: StreamParams,
    pub(super) client: ConnectionNumber,
    reader: Reader,
    is_reading: bool,
}

impl Node {
    /// Reads a stream of another node for a client.
    pub(super) fn read_remote(
        &mut self,
        ordinal: Ordinal,
        start: ReaderStart,
        client: ConnectionNumber,
        shared: &mut Shared,
    ) {
        let Some(node) = self.incarnation() else {
            return shared.send(client, ToClient::End);
        };
        let token = ReaderToken {
            node,
            connection: client.0,
        };
        let op = Op::Attach(ordinal, token.clone(), start.cursor);
        self.ask(op, move |node, shared, outcome| match outcome {
            Ok(Reply::Status(status)) if node.incarnation().as_ref() == Some(&token.node) => {
                shared.count("remote reader");
                let params = params(ordinal, 0, status.info);
                node.remotes.push(RemoteConnection {
                    ordinal,
                    writer: status.writer,
                    reader: Reader::remote(&params, start, VERSION, RETRY_MILLIS),
                    token: token.clone(),
                    params,
                    client,
                    is_reading: false,
                });
                node.pump_remote(&token, shared);
            }
            _ => shared.send(client, ToClient::End),
        });
    }

    fn pump_remote(&mut self, token: &ReaderToken, shared: &mut Shared) {
        loop {
            let Some(at) = self.remotes.iter().position(|remote| remote.token == *token) else {
                return;
            };
            let remote = &mut self.remotes[at];
            if remote.is_reading {
                return;
            }
            match remote.reader.step() {
                Step::Send(chunk) => shared.send(remote.client, ToClient::Chunk(chunk.to_vec())),
                Step::Wait | Step::Take => return,
                Step::End => {
                    let remote = self.remotes.swap_remove(at);
                    shared.send(remote.client, ToClient::End);
                    return self.tell(Op::Detach(remote.ordinal, remote.token));
                }
                Step::Read(cursor) => {
                    remote.is_reading = true;
                    let (op, token) = (Op::ReadAs(remote.ordinal, token.clone(), cursor), token.clone());
                    return self.ask(op, move |node, shared, outcome| {
                        node.remote_page(&token, &outcome, shared);
                    });
                }
            }
        }
    }

    fn remote_page(&mut self, token: &ReaderToken, outcome: &Outcome, shared: &mut Shared) {
        let Some(remote) = self.remotes.iter_mut().find(|remote| remote.token == *token) else {
            return;
        };
        remote.is_reading = false;
        let read = match outcome {
            Ok(Reply::Page(page)) => {
                remote.writer.clone_from(&page.status.writer);
                RemoteRead::Page(page)
            }
            Err(Failure::Store) => RemoteRead::StoreFailed,
            _ => RemoteRead::Ended,
        };
        if let Input::Send(chunk) = remote.reader.remote_page(&remote.params, read) {
            shared.send(remote.client, ToClient::Chunk(chunk.to_vec()));
        }
        self.pump_remote(token, shared);
    }

    /// A wake-up: the stream has grown or has another reader.
    pub(super) fn stream_changed(&mut self, ordinal: Ordinal, shared: &mut Shared) {
        self.wake_remotes(shared, |remote| remote.ordinal == ordinal);
        let Some(epoch) = self.streams.get(&ordinal).map(|stream| stream.params.epoch) else {
            return;
        };
        self.ask(Op::Status(ordinal), move |node, shared, outcome| {
            let is_fenced = matches!(outcome, Ok(Reply::Status(status)) if status.epoch > epoch);
            let is_same = node
                .streams
                .get(&ordinal)
                .is_some_and(|stream| stream.params.epoch == epoch);
            if is_fenced && is_same {
                node.change(ordinal, shared, |core, _| core.stop());
            }
        });
        self.ask(Op::RemoteReader(ordinal), move |node, shared, outcome| {
            if let Ok(Reply::Appended(reader)) = outcome {
                let here = node.incarnation();
                let remote = reader.filter(|(token, _)| Some(&token.node) != here.as_ref());
                node.change(ordinal, shared, |core, _| core.remote_reader(remote));
            }
        });
    }

    /// The keep-alive: every remote reader reads once and checks that its writer is alive.
    pub(super) fn wake_remote_readers(&mut self, shared: &mut Shared) {
        self.wake_remotes(shared, |_| true);
        let mut writers: Vec<_> = self.remotes.iter().filter_map(|remote| remote.writer.clone()).collect();
        writers.dedup();
        for writer in writers {
            match self.members.liveness(&writer) {
                Liveness::Alive => {}
                Liveness::Dead => self.close_orphans_of(&writer, shared),
                Liveness::Unknown => self.check(writer, |_, _, _| {}),
            }
        }
    }

    pub(super) fn wake_remotes(&mut self, shared: &mut Shared, which: impl Fn(&RemoteConnection) -> bool) {
        let mut tokens = Vec::new();
        for remote in self.remotes.iter_mut().filter(|remote| which(remote)) {
            remote.reader.woken();
            tokens.push(remote.token.clone());
        }
        for token in tokens {
            self.pump_remote(&token, shared);
        }
    }
}
