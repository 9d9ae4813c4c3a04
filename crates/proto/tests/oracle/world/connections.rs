//! The connections of the clients: connect, cut, resume, read.

use super::{MAX_BLOCK_BYTES, RETRY_MILLIS, World};
use crate::client::Connection;
use crate::random::Random;
use rethread_proto::cluster::{Incarnation, ReaderToken};
use rethread_proto::sse::Decoder;
use rethread_proto::stream::{
    ConnectionId, Effects, Input, Page, Reader, ReaderStart, RemoteRead, ResumePlan, Step, plan,
};
use rethread_proto::{EventId, Ordinal, Seq, StreamKind, Version};

impl World {
    pub(super) fn connect(&mut self, client: usize, start: ReaderStart, is_remote: bool) {
        self.next_connection += 1;
        let id = ConnectionId(self.next_connection);
        let (cursor, gap_announced) = (start.cursor, start.gap_announced);
        let version = Version::V2025_11_25;
        let (token, reader) = if is_remote {
            let token = ReaderToken {
                node: Incarnation::new(2, 0),
                connection: id.0,
            };
            self.store.reader = Some((token.clone(), cursor));
            (Some(token), Reader::remote(&self.params, start, version, RETRY_MILLIS))
        } else {
            let effects = self.core.attach(id, cursor, start.resumes);
            self.apply(effects);
            (None, Reader::new(start, version, RETRY_MILLIS))
        };
        // Numbers of messages without ids are reused, unless the store accepts gaps.
        let known_gap = self.core.last_unlogged().filter(|_| gap_announced && self.is_cluster);
        self.clients[client].connection = Some(Connection {
            id,
            token,
            gap_announced,
            reader,
            decoder: Decoder::new(MAX_BLOCK_BYTES),
            page: None,
            waits: false,
            known_gap,
        });
    }

    pub(super) fn cut(&mut self, client: usize, random: &mut Random) {
        if let Some(connection) = self.clients[client].connection.take() {
            if let Some(token) = connection.token {
                if random.chance(50) {
                    self.store.detach(&token);
                }
            } else if random.chance(50) {
                self.unnoticed.push(connection.id);
            } else {
                self.detach(connection.id);
            }
        }
    }

    pub(super) fn notice_cut(&mut self) {
        if let Some(id) = self.unnoticed.pop() {
            self.detach(id);
        }
    }

    fn detach(&mut self, id: ConnectionId) {
        let (_, effects) = self.core.detach(id);
        self.apply(effects);
    }

    pub(super) fn resume(&mut self, client: usize, random: &mut Random) {
        let Some(status) = self.store.status() else { return };
        self.cut(client, random);
        let cursor = self.clients[client].cursor.unwrap_or(Seq::PRIMING);
        let id = EventId {
            ordinal: Ordinal(if self.params.info.kind == StreamKind::Call {
                7
            } else {
                8
            }),
            seq: cursor,
        };
        let missed = self.core.has_unlogged_after(status.last);
        let (after, gap) = match plan(Some(id), true, Some(&status), missed) {
            ResumePlan::Ended => {
                self.clients[client].is_done = true;
                return;
            }
            ResumePlan::Resume { after, gap, .. } => (after, gap),
            ResumePlan::Ahead { after, gap } if self.has_lost_writes && !self.core.is_closed() => (after, gap),
            _ if self.has_lost_writes => return, // refused, or a fresh stream
            other => panic!("a resume from {cursor:?} of {status:?} leads to {other:?}"),
        };
        self.check_gap(client, after, gap);
        let start = ReaderStart {
            cursor: after,
            first: None,
            resumes: true,
            gap_announced: gap,
        };
        let is_remote = self.is_cluster && random.chance(50);
        self.connect(client, start, is_remote);
    }

    /// A resume must announce a gap if it cannot deliver messages without ids.
    fn check_gap(&mut self, client: usize, after: Seq, gap: bool) {
        if self.is_cluster && self.core.last_unlogged().is_none() {
            self.accepted.clear(); // the store announces the gap
        }
        let client = &self.clients[client];
        let is_lost =
            |message: &&u64| !self.store.stored_messages.contains(message) && !client.without_ids.contains(message);
        let is_past = self
            .core
            .last_unlogged()
            .is_some_and(|last| self.is_cluster && after >= last);
        if self.core.last_unlogged().is_some() && !is_past {
            let missing: Vec<_> = self.accepted.iter().filter(is_lost).collect();
            assert!(
                gap || missing.is_empty(),
                "messages {missing:?} without ids are missing, and the resume after {after:?} announces no gap: {:?}",
                self.core
            );
        }
    }

    /// Runs a connection for a random number of chunks.
    pub(super) fn poll(&mut self, client: usize, random: &mut Random) {
        for _ in 0..=random.below(6) {
            let Some(connection) = &mut self.clients[client].connection else {
                return;
            };
            let id = connection.id;
            if connection.waits && !self.woken.remove(&id) && random.chance(80) {
                return;
            }
            connection.waits = false;
            connection.reader.woken();
            let input = match connection.reader.step() {
                Step::End => {
                    let token = connection.token.take();
                    self.clients[client].connection = None;
                    return match token {
                        Some(token) => self.store.detach(&token),
                        None => self.detach(id),
                    };
                }
                Step::Send(chunk) => Input::Send(chunk),
                Step::Wait => Input::Wait,
                Step::Read(cursor) => match self.read(client, cursor, random) {
                    Some(input) => input,
                    None => return, // the page arrives later
                },
                Step::Take => {
                    let (taken, effects) = self.core.take(id, &id);
                    let input = connection.reader.taken(&self.params, taken);
                    self.apply(effects);
                    input
                }
            };
            let client = &mut self.clients[client];
            match input {
                Input::Send(chunk) => client.receive(&chunk, &self.store.stored, &self.numbers),
                Input::Continue | Input::Overtaken => {}
                Input::Wait => {
                    if let Some(connection) = &mut client.connection {
                        connection.waits = true;
                    }
                }
            }
        }
    }

    /// Reads a page for a connection. `None` if it arrives later.
    fn read(&mut self, client: usize, cursor: Seq, random: &mut Random) -> Option<Input> {
        let connection = self.clients[client].connection.as_mut()?;
        if connection.page.is_none() {
            let limit = 1 + random.below(5);
            let page = match &connection.token {
                Some(token) => self.store.read_as(token, cursor, limit),
                None => self.store.read_after(cursor, limit),
            };
            connection.page = Some(page.filter(|_| !random.chance(2)));
            if random.chance(50) {
                return None;
            }
        }
        let page = connection.page.take().flatten();
        if let Some(page) = &page
            && std::mem::take(&mut connection.gap_announced)
        {
            connection.known_gap = connection.known_gap.max(page.status.purged);
        }
        if connection.token.is_some() {
            let read = match &page {
                Some(page) => RemoteRead::Page(page),
                None if self.store.is_down && random.chance(50) => RemoteRead::StoreFailed,
                None => RemoteRead::Ended,
            };
            return Some(connection.reader.remote_page(&self.params, read));
        }
        Some(self.read_locally(client, page.as_ref()))
    }

    fn read_locally(&mut self, client: usize, page: Option<&Page>) -> Input {
        let Some(connection) = &mut self.clients[client].connection else {
            return Input::Continue;
        };
        let (core, mut effects, id) = (&mut self.core, Effects::default(), connection.id);
        let input = connection.reader.page(&self.params, page, |cursor, bytes| {
            let (caught_up, caused) = core.caught_up(id, cursor, bytes);
            effects = caused;
            caught_up
        });
        self.apply(effects);
        input
    }
}
