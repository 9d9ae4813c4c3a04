//! The end of the proof of identity that the owner of a session has presented (AUTH-21).

use super::{Session, Transport};
use rethread_proto::StreamKind;
use rethread_proto::clock::Wall;
use rethread_proto::stream::Close;
use std::sync::atomic::Ordering;

/// A moment that has passed. Zero would mean that nothing was presented.
const REVOKED: u64 = 1;

impl Session {
    /// A request of the owner has this expiry; `None` if it does not end by itself. The latest one counts.
    pub(crate) fn present(&self, expires: Option<Wall>) {
        let millis = expires.map_or(u64::MAX, Wall::as_millis);
        self.identity_expires.fetch_max(millis, Ordering::Relaxed);
    }

    /// Everything that was presented so far has expired.
    pub(crate) fn revoke(&self) {
        self.identity_expires.store(REVOKED, Ordering::Relaxed);
    }

    /// Whether the latest expiry has passed. Never without an authenticator.
    pub(crate) fn is_expired(&self, now: Wall) -> bool {
        let expires = self.identity_expires.load(Ordering::Relaxed);
        expires != 0 && expires <= now.as_millis()
    }

    /// Whether the session itself ends with its proof of identity, because its connection is the session.
    pub(crate) fn ends_when_expired(&self) -> bool {
        self.transport == Transport::HttpSse
    }

    /// Closes connections that can be resumed with a new token, after `retry:`. Calls go on, and their answers wait.
    pub(crate) fn close_connections(&self) {
        let closes_calls = self.version().may_close_early();
        let may_close = |kind: StreamKind| kind == StreamKind::Push || closes_calls;
        let close = || Close {
            retry: self.node.timing.retry.as_millis() as u64,
        };
        for stream in self.live_streams() {
            if may_close(stream.key.ordinal.kind()) && stream.has_reader() {
                stream.close_reader(close());
            }
        }
        for reader in self.remote_readers() {
            if may_close(reader.key.ordinal.kind()) {
                reader.close(close());
            }
        }
    }
}
