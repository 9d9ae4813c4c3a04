//! Opens the database and looks whether it is whole.

use crate::OpenError;
use crate::books::{self, Books, Chain, Ids, Totals};
use crate::coding::{Reader, number, numbers};
use crate::db::{Db, View};
use crate::journal::{self, Found};
use crate::keys::{self, FORMAT};
use crate::options::Options;
use crate::place::Place;
use crate::private;
use crate::shelf::Stat;
use crate::upkeep::Upkeep;
use rethread_store::Seq;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Opens what is in a directory, or makes it if there is nothing.
pub(crate) fn open(place: &Place, options: Arc<Options>) -> Result<Books, OpenError> {
    place.prepare()?;
    match journal::inspect(&place.database(), &place.segments()) {
        Ok(Found::Whole) => {}
        Ok(Found::Cut(end)) => tracing::warn!(
            dir = %place.dir().display(),
            end,
            "the journal ended with a commit that was not written to its end; it is as if it had never been"
        ),
        Ok(Found::Disordered(n)) => return Err(place.damaged(format!("journal {n} is older than the one before it"))),
        Ok(Found::Broken(n)) => return Err(place.damaged(format!("commit {n} in the journal is garbled"))),
        Err(error) if error.kind() == ErrorKind::NotFound => {} // a new one
        Err(error) => return Err(place.io("the journal cannot be read", error)),
    }
    // The database asserts where it could say that a file is damaged.
    let open = || Db::open(&place.database(), &place.segments(), options.memtable);
    let opened = std::panic::catch_unwind(AssertUnwindSafe(open));
    let db = match opened {
        Ok(Ok(db)) => db,
        Ok(Err(fjall::Error::Io(error))) => return Err(place.io("the database cannot be opened", error)),
        Ok(Err(fjall::Error::Storage(fjall::LsmError::Io(error)))) => {
            return Err(place.io("the database cannot be opened", error));
        }
        Ok(Err(fjall::Error::Locked)) => {
            let dir = place.dir().to_owned();
            return Err(OpenError::InUse { dir });
        }
        Ok(Err(other)) => return Err(place.damaged(format!("the database does not open ({other:?})"))),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text
                .or(panic.downcast_ref::<&str>().copied())
                .unwrap_or("no reason given");
            return Err(place.damaged(format!("the database does not open ({text})")));
        }
    };
    private::tighten(&place.database());
    let mut found = inspect(&db.view(), place)?;
    found.ids.exceed(&db.segments.numbers());
    let fresh = found.chain.next == 0;
    if fresh && place.was_made() {
        return Err(place.damaged("the database is empty, and it was not"));
    }
    db.segments
        .sync()
        .map_err(|error| place.io("the segments cannot be synced", error))?;
    let mut books = Books::new(db, options, found);
    books.give_up_strays();
    if fresh {
        books.put_blind(keys::META_FORMAT, &numbers([u64::from(FORMAT)]));
        let written = books.commit(true);
        written.map_err(|error| place.io("the database cannot be written", std::io::Error::other(error)))?;
    }
    place
        .is_made()
        .map_err(|error| place.io("its folders cannot be synced", error))?;
    Ok(books)
}

fn inspect(view: &View<'_>, place: &Place) -> Result<books::Found, OpenError> {
    let failed = |error: fjall::Error| match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
            place.io("the database cannot be read", error)
        }
        other => place.damaged(format!("the database cannot be read ({other:?})")),
    };
    let meta = |key: &[u8]| -> Result<Option<u64>, OpenError> {
        let Some(value) = view.get(key).map_err(failed)? else {
            return Ok(None);
        };
        number(&value)
            .map(Some)
            .ok_or_else(|| place.damaged("a number in it is garbled"))
    };
    let format = meta(keys::META_FORMAT)?;
    if let Some(newer) = format.filter(|format| *format > u64::from(FORMAT)) {
        return Err(OpenError::Newer {
            dir: place.dir().to_owned(),
            found: u32::try_from(newer).unwrap_or(u32::MAX),
            known: FORMAT,
        });
    }
    let (chain, totals) = follow(view, meta(keys::META_PRUNED)?.unwrap_or(0), place, &failed)?;
    if chain.next > 0 && format.is_none() {
        return Err(place.damaged("its format is missing"));
    }
    let mut upkeep = Upkeep::default();
    for guard in view.prefix(keys::DEAD_SESSIONS) {
        if let Some([sid]) = keys::parts(&guard.key().map_err(failed)?) {
            upkeep.dead_session(sid);
        }
    }
    for guard in view.prefix(keys::DEAD_STREAMS) {
        if let Some([stream]) = keys::parts(&guard.key().map_err(failed)?) {
            upkeep.dead_stream(stream, Seq::PRIMING);
        }
    }
    let mut segments = BTreeMap::new();
    for guard in view.prefix(keys::SEGMENTS) {
        let (key, value) = guard.into_inner().map_err(failed)?;
        let mut reader = Reader(&value);
        let stat = reader.u64().zip(reader.u64());
        let ([number], (written, wanted)) = keys::parts(&key)
            .zip(stat)
            .ok_or_else(|| place.damaged("what is known of a segment is garbled"))?;
        segments.insert(number, Stat { written, wanted });
    }
    let promised = meta(keys::META_IDS)?.unwrap_or(1);
    Ok(books::Found {
        totals,
        ids: Ids {
            next: promised,
            promised,
        },
        chain,
        upkeep,
        segments,
    })
}

/// Follows the chain of commits to its end: none may be missing.
fn follow(
    view: &View<'_>,
    pruned: u64,
    place: &Place,
    failed: &dyn Fn(fjall::Error) -> OpenError,
) -> Result<(Chain, Totals), OpenError> {
    let (mut next, mut totals) = (pruned, Totals::default());
    for guard in view.prefix_from(b"c", &keys::commit(pruned)) {
        let (key, value) = guard.into_inner().map_err(failed)?;
        let [n] = keys::parts(&key).ok_or_else(|| place.damaged("the key of a commit is garbled"))?;
        if n != next {
            return Err(place.damaged(format!(
                "commits {} are missing, though later ones are there: a journal was cut or lost",
                keys::span(next, n.saturating_sub(1))
            )));
        }
        totals = Totals::decode(&value).ok_or_else(|| place.damaged("a commit is garbled"))?;
        next += 1;
    }
    if next == pruned && pruned > 0 {
        return Err(place.damaged(format!("the commits from {pruned} on are missing")));
    }
    let chain = Chain {
        next,
        pruned,
        ..Chain::default()
    };
    Ok((chain, totals))
}
