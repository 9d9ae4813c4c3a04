//! How keys look. One byte names the table, numbers are big-endian, so that keys sort as numbers do.
//!
//! Everything lives in one keyspace of the database. With several, a lost end of the journal could leave one table newer
//! than another; with one, whatever is lost, what opens is a prefix of what was written. Payloads that are not small lie
//! beside it (see `segments.rs`), and the rows that point to them are here.

use rethread_store::{Ordinal, Principal, QueuePosition, Seq, SessionId, SessionKey};

/// The version of what is written: of the keys below, of the values of `row.rs`, `head.rs`, `chunk.rs`
/// and `waiting.rs`, of the segments, and of what they mean.
pub(crate) const FORMAT: u32 = 3;

/// A key: short, and made often.
pub(crate) type Key = Vec<u8>;

/// The version of everything else.
pub(crate) const META_FORMAT: &[u8] = b"mformat";
/// The first number that no stream or session has been promised.
pub(crate) const META_IDS: &[u8] = b"mids";
/// The first commit that is still in the chain.
pub(crate) const META_PRUNED: &[u8] = b"mpruned";

/// Written when tables were cleared away, or segments are about to be; says nothing.
pub(crate) const META_TIDIED: &[u8] = b"mtidied";

/// Owners and sessions with longer names are refused: a key of the database has 65535 bytes at most.
pub(crate) const LONGEST_NAMES: usize = 32 << 10;

fn key<const N: usize>(table: u8, parts: [u64; N]) -> Key {
    let mut key = Vec::with_capacity(1 + 8 * N);
    key.push(table);
    for part in parts {
        key.extend_from_slice(&part.to_be_bytes());
    }
    key
}

/// The numbers of a key that [`key`] made.
pub(crate) fn parts<const N: usize>(key: &[u8]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    let bytes = key.get(1..)?;
    if bytes.len() != 8 * N {
        return None;
    }
    for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks().0) {
        *number = u64::from_be_bytes(*bytes);
    }
    Some(numbers)
}

/// The chain: every commit leaves one, without a gap.
pub(crate) fn commit(n: u64) -> Key {
    key(b'c', [n])
}

/// A session's row. `None` if its names are too long.
pub(crate) fn row(session: &SessionKey) -> Option<Key> {
    named(b's', session)
}

/// When a session was last used.
pub(crate) fn touched(session: &SessionKey) -> Option<Key> {
    named(b'k', session)
}

/// Every [`touched`].
pub(crate) const TOUCHED: &[u8] = b"k";

fn named(table: u8, session: &SessionKey) -> Option<Key> {
    let names = [
        session.principal.issuer(),
        session.principal.subject(),
        session.session.as_str(),
    ];
    if names.iter().map(|name| name.len()).sum::<usize>() > LONGEST_NAMES {
        return None;
    }
    let mut key = vec![table];
    for name in names {
        // The length first: no two triples of names make the same key, whatever is in them.
        key.extend_from_slice(&(name.len() as u16).to_be_bytes());
        key.extend_from_slice(name.as_bytes());
    }
    Some(key)
}

/// The session that a [`touched`] belongs to.
pub(crate) fn session(key: &[u8]) -> Option<SessionKey> {
    let mut rest = key.strip_prefix(TOUCHED)?;
    let mut name = || {
        let (len, tail) = rest.split_first_chunk::<2>()?;
        let (name, tail) = tail.split_at_checked(u16::from_be_bytes(*len).into())?;
        rest = tail;
        std::str::from_utf8(name).ok()
    };
    let principal = Principal::new(name()?, name()?);
    let session = SessionId::parse(name()?)?;
    Some(SessionKey { principal, session })
}

/// A stream's head.
pub(crate) fn head(sid: u64, ordinal: Ordinal) -> Key {
    key(b'h', [sid, ordinal.0])
}

/// The heads of a session.
pub(crate) fn heads(sid: u64) -> Key {
    key(b'h', [sid])
}

/// A message in a session's push queue.
pub(crate) fn queued(sid: u64, position: QueuePosition) -> Key {
    key(b'q', [sid, position.0])
}

/// The push queue of a session.
pub(crate) fn queue(sid: u64) -> Key {
    key(b'q', [sid])
}

/// The floor of a session's push queue.
pub(crate) fn queue_floor(sid: u64) -> Key {
    key(b'f', [sid])
}

/// The highest ordinal of a session's forgotten streams.
pub(crate) fn high_water(sid: u64) -> Key {
    key(b'w', [sid])
}

/// A row of events, by the last of them: a search for an event finds the row that holds it, if there is one.
pub(crate) fn chunk(stream: u64, last: Seq) -> Key {
    key(b'v', [stream, last.0])
}

/// The rows of events of a stream.
pub(crate) fn chunks(stream: u64) -> Key {
    key(b'v', [stream])
}

/// The ended streams that have events, in the order in which they ended; the ticket tells those of one millisecond apart.
pub(crate) fn ended(at: u64, ticket: u64) -> Key {
    key(b'e', [at, ticket])
}

/// The tombstones, in the order in which their streams ended.
pub(crate) fn tomb(at: u64, ticket: u64) -> Key {
    key(b't', [at, ticket])
}

/// The ended streams of one session, tombstones too, in the order in which they ended.
pub(crate) fn ended_of(sid: u64, ticket: u64) -> Key {
    key(b'n', [sid, ticket])
}

/// All of a session's [`ended_of`].
pub(crate) fn all_ended_of(sid: u64) -> Key {
    key(b'n', [sid])
}

/// A session that is gone and whose streams are yet to be deleted.
pub(crate) fn dead_session(sid: u64) -> Key {
    key(b'd', [sid])
}

/// Every [`dead_session`].
pub(crate) const DEAD_SESSIONS: &[u8] = b"d";

/// A stream that is gone and whose events are yet to be deleted.
pub(crate) fn dead_stream(stream: u64) -> Key {
    key(b'x', [stream])
}

/// Every [`dead_stream`].
pub(crate) const DEAD_STREAMS: &[u8] = b"x";

/// How much was written to a segment, and how much of that is still wanted.
pub(crate) fn segment(number: u64) -> Key {
    key(b'g', [number])
}

/// Every [`segment`].
pub(crate) const SEGMENTS: &[u8] = b"g";

/// Whether nothing is missing between the numbers from `first` to `last`: a message about what is, otherwise.
pub(crate) fn span(first: u64, last: u64) -> String {
    if first == last {
        first.to_string()
    } else {
        format!("{first} to {last}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_with_names_gives_its_session_back() {
        for (issuer, subject, session) in [("", "", "s"), ("a", "bc", "s"), ("ab", "c", "s"), ("ä\0", "é", "s-1")] {
            let session = SessionKey {
                principal: Principal::new(issuer, subject),
                session: SessionId::parse(session).unwrap(),
            };
            assert_eq!(super::session(&touched(&session).unwrap()), Some(session));
        }
        assert_eq!(super::session(b"k\0\x05abc"), None);
    }

    #[test]
    fn keys_sort_as_their_numbers_do() {
        assert!(chunk(1, Seq(255)) < chunk(1, Seq(256)) && chunk(1, Seq(u64::MAX)) < chunk(2, Seq(0)));
        assert_eq!(parts(&chunk(7, Seq(9))), Some([7, 9]));
        assert_eq!(parts::<1>(&chunk(7, Seq(9))), None);
    }

    #[test]
    fn names_that_are_too_long_have_no_key() {
        let session = |len: usize| SessionKey {
            principal: Principal::new("i", "s".repeat(len)),
            session: SessionId::parse("s").unwrap(),
        };
        assert!(row(&session(LONGEST_NAMES - 2)).is_some() && row(&session(LONGEST_NAMES)).is_none());
    }
}
