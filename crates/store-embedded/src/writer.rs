//! The one thread that writes.
//!
//! It takes what waits in the queue, judges each change, commits all of them at once, and then answers: one sync of the
//! disk for everybody who waits. When a commit fails it throws away what it knows, closes the database, refuses
//! everything, and tries to open the database again until that works.

use crate::OpenError;
use crate::books::Books;
use crate::db::ReadError;
use crate::keys;
use crate::open;
use crate::options::Sync;
use crate::place::Place;
use crate::queue::{Command, Op, Outcome, Taken};
use crate::shared::Shared;
use crate::stage::{Refusal, Standing};
use crate::watches::Effect;
use rethread_store::StoreError;
use std::io::ErrorKind;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How often the clock is looked at for streams that have aged.
const TICK: Duration = Duration::from_secs(1);
/// A moment is quiet when no command has come for so long.
const QUIET: Duration = Duration::from_millis(2);
/// Work that waits gets its turn this often, however busy it is.
const TURN: Duration = Duration::from_millis(10);
/// A sweep answers after this long at the latest; the rest is done later.
const SWEEP: Duration = Duration::from_millis(250);
/// When this much in the tables is deleted but not cleared away, beside as much as there is data, it is cleared away.
const LITTER: u64 = 16 << 20;
/// How long to wait after that before it is done again.
const TIDY: Duration = Duration::from_secs(10);
/// How long to wait before the database is opened again.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

pub(crate) struct Writer {
    shared: Arc<Shared>,
    state: State,
    /// After the state, so that the directory is free only when the database is closed.
    place: Option<Place>,
}

enum State {
    Up {
        books: Box<Books>,
        tick: Instant,
        turn: Instant,
        tidy: Tidy,
    },
    Down {
        since: Instant,
        retry: Instant,
        wait: Duration,
    },
}

/// Clears away what is deleted, on a thread of its own: it takes longer than anybody should wait.
struct Tidy {
    thread: Option<JoinHandle<()>>,
    next: Instant,
}

/// Who waits for the group, and what to answer.
type Answers = Vec<(oneshot::Sender<Outcome>, Outcome)>;

/// The store as such failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the database cannot be written")]
    Database(#[source] fjall::Error),
    #[error("the journal cannot be synced")]
    Sync(#[source] std::io::Error),
    #[error("the data directory is gone")]
    Gone,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, place: Place, books: Books) -> Self {
        let mut writer = Writer {
            shared,
            place: Some(place),
            state: State::Down {
                since: Instant::now(),
                retry: Instant::now(),
                wait: RETRY.0,
            },
        };
        writer.goes_up(books);
        writer
    }

    /// Until the store is closed.
    pub(crate) fn run(mut self) {
        loop {
            let closed = match &mut self.state {
                State::Up {
                    books,
                    tick,
                    turn,
                    tidy,
                } => {
                    let quiet = Instant::now() + QUIET;
                    let deadline = if books.has_work() { quiet.min(*tick) } else { *tick };
                    let taken = self.shared.queue.take(deadline);
                    let closed = taken.closed;
                    let mut answers = Answers::new();
                    let there = self.place.as_ref().is_some_and(Place::is_there);
                    let done = if there {
                        serve(&self.shared, books, taken, tick, turn, &mut answers)
                            .and_then(|()| tidy.look(books).map_err(Failure::Database))
                    } else {
                        answers.extend(taken.commands.into_iter().map(|command| (command.reply, Ok(0))));
                        Err(Failure::Gone)
                    };
                    if let Err(failure) = done {
                        self.goes_down(&failure, answers);
                    }
                    closed
                }
                State::Down { retry, .. } => {
                    let retry = *retry;
                    let taken = self.shared.queue.take(retry);
                    let reason = self.shared.outage.lock().clone().unwrap_or_else(crate::queue::closed);
                    for command in taken.commands {
                        let _ = command.reply.send(Err(reason.clone()));
                    }
                    if Instant::now() >= retry && !taken.closed {
                        self.try_again();
                    }
                    taken.closed
                }
            };
            if closed {
                return self.close();
            }
        }
    }

    fn goes_up(&mut self, books: Books) {
        *self.shared.totals.lock() = books.totals;
        *self.shared.outage.lock() = None;
        *self.shared.db.write() = Some(books.db.clone());
        self.shared.watches.start_over();
        let now = Instant::now();
        self.state = State::Up {
            books: Box::new(books),
            tick: now,
            turn: now,
            tidy: Tidy {
                thread: None,
                next: now + TIDY,
            },
        };
    }

    /// Nothing of the group was published, and nobody was answered: everybody is told the same.
    fn goes_down(&mut self, failure: &Failure, answers: Answers) {
        let reason = self.reason(failure);
        tracing::error!(
            dir = %self.shared.database.display(),
            reason = %chain(failure),
            "the store on disk failed: nothing is stored until it works again"
        );
        *self.shared.outage.lock() = Some(reason.clone());
        *self.shared.db.write() = None; // waits for those who read
        let now = Instant::now();
        self.state = State::Down {
            since: now,
            retry: now + RETRY.0,
            wait: RETRY.0,
        };
        if matches!(failure, Failure::Gone) {
            self.place = None;
        }
        for (reply, _) in answers {
            let _ = reply.send(Err(reason.clone()));
        }
    }

    /// What callers are told. A full disk is told as such, even if the database no longer knows why it failed.
    fn reason(&self, failure: &Failure) -> StoreError {
        let full = match failure {
            Failure::Database(fjall::Error::Poisoned) => {
                let probe = self.place.as_ref().map(Place::probe);
                matches!(probe, Some(Err(error)) if is_full(&error))
            }
            Failure::Database(fjall::Error::Io(error))
            | Failure::Database(fjall::Error::Storage(fjall::LsmError::Io(error)))
            | Failure::Sync(error) => is_full(error),
            _ => false,
        };
        if full {
            return StoreError::Full;
        }
        StoreError::unavailable(chain(failure))
    }

    fn try_again(&mut self) {
        let State::Down { since, wait, .. } = self.state else {
            return;
        };
        match self.reopen() {
            Ok(books) => {
                tracing::info!(
                    dir = %self.shared.database.display(),
                    outage_ms = since.elapsed().as_millis() as u64,
                    "the store on disk works again"
                );
                self.goes_up(books);
            }
            Err(reason) => {
                *self.shared.outage.lock() = Some(reason);
                let wait = (wait * 2).min(RETRY.1);
                self.state = State::Down {
                    since,
                    retry: Instant::now() + wait,
                    wait,
                };
            }
        }
    }

    fn reopen(&mut self) -> Result<Books, StoreError> {
        let told = |error: OpenError| match &error {
            OpenError::Io { source, .. } if is_full(source) => StoreError::Full,
            _ => StoreError::unavailable(chain(&error)),
        };
        if self.place.as_ref().is_some_and(|place| !place.is_there()) {
            self.place = None;
        }
        let place = match self.place.take() {
            Some(place) => place,
            None => {
                // A directory that is gone is not made again: perhaps a disk is not mounted. One that is back may be
                // empty, and then every session is gone: that is the truth.
                let dir = self.shared.database.parent().unwrap_or(&self.shared.database);
                Place::take(dir, false).map_err(told)?
            }
        };
        let place = self.place.insert(place);
        place.probe().map_err(|error| match is_full(&error) {
            true => StoreError::Full,
            false => StoreError::unavailable(error),
        })?;
        open::open(place, Arc::clone(&self.shared.options)).map_err(told)
    }

    fn close(mut self) {
        if let State::Up { books, .. } = &mut self.state
            && let Err(error) = books.db.sync()
        {
            tracing::error!(reason = %chain(&error), "the store on disk could not be synced at its end");
        }
        *self.shared.outage.lock() = Some(crate::queue::closed());
        *self.shared.db.write() = None;
    }
}

impl Tidy {
    fn look(&mut self, books: &mut Books) -> Result<(), fjall::Error> {
        let now = Instant::now();
        if now < self.next || books.has_work() {
            return Ok(());
        }
        self.next = now + TICK;
        let in_tables = books.totals.held.saturating_sub(books.shelf.wanted());
        match self.thread.take_if(|thread| thread.is_finished()) {
            Some(done) => {
                let _ = done.join();
                for _ in 0..3 {
                    books.put_blind(keys::META_TIDIED, b"");
                    books.commit(false)?;
                }
                self.next = now + TIDY;
                books.db.rotate()
            }
            None if self.thread.is_some() || books.db.table_bytes() < 2 * in_tables + LITTER => Ok(()),
            None => {
                books.db.rotate()?;
                let db = books.db.clone();
                let clear = move || {
                    if let Err(error) = db.clear_away() {
                        tracing::warn!(reason = %chain(&error), "what is deleted could not be cleared away");
                    }
                };
                self.thread = std::thread::Builder::new()
                    .name("rethread-tidy".into())
                    .spawn(clear)
                    .ok();
                Ok(())
            }
        }
    }
}

impl Drop for Tidy {
    /// Until it is done the database cannot be closed.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One round: a group of commands, and a little of what else is to be done.
fn serve(
    shared: &Shared,
    books: &mut Books,
    taken: Taken,
    tick: &mut Instant,
    turn: &mut Instant,
    answers: &mut Answers,
) -> Result<(), Failure> {
    let (mut sweeps, idle) = (Vec::new(), taken.commands.is_empty() && !taken.more);
    let trouble = taken.trouble;
    let sync = shared.options.sync;
    let mut commands = taken.commands.into_iter();
    let mut staged = || -> Result<(), Failure> {
        for Command { mut op, reply, .. } in commands.by_ref() {
            let mut outcome = books.apply(&mut op);
            if let Err(Refusal::NoRoom(size)) = outcome {
                let stream = match &op {
                    Op::Append(key, _) => Some(key),
                    _ => None,
                };
                // What was staged goes first, so that what is counted is what is on the disk.
                commit(books, sync, shared)?;
                outcome = match books.make_room(stream, size) {
                    Ok(true) => books.apply(&mut op),
                    Ok(false) => Err(Refusal::NoRoom(size)),
                    Err(error) => Err(Refusal::Refused(failed(error)?)),
                };
            }
            let outcome = outcome.map_err(|refusal| match refusal {
                Refusal::Refused(error) => error,
                Refusal::NoRoom(_) => StoreError::Full,
            });
            match op {
                Op::Sweep => sweeps.push(reply),
                _ => answers.push((reply, outcome)),
            }
        }
        commit(books, sync, shared)
    };
    let staged = staged();
    answers.extend(commands.map(|command| (command.reply, Ok(0))));
    let staged = match (staged, trouble) {
        (Ok(()), Some(error)) => Err(Failure::Sync(error)),
        (staged, _) => staged,
    };
    if let Err(failure) = staged {
        answers.extend(sweeps.into_iter().map(|reply| (reply, Ok(0))));
        return Err(failure);
    }
    for (reply, outcome) in answers.drain(..) {
        let _ = reply.send(outcome); // who no longer waits does not want to know
    }
    answers.extend(sweeps.into_iter().map(|reply| (reply, Ok(0))));
    check_watches(shared, books);
    upkeep(books, idle, !answers.is_empty(), tick, turn).or_else(|error| {
        let told = failed(error)?;
        tracing::error!(reason = %chain(&told), "what should be evicted or deleted cannot be read");
        Ok(())
    })?;
    if books.awaits_sync() {
        shared.keeper.soil();
    }
    *shared.totals.lock() = books.totals;
    for (reply, outcome) in answers.drain(..) {
        let _ = reply.send(outcome);
    }
    books.slim();
    Ok(())
}

/// Commits what was staged, and lets everybody know who waits for it.
fn commit(books: &mut Books, sync: Sync, shared: &Shared) -> Result<(), Failure> {
    if books.is_dirty() {
        books.commit(sync.waits()).map_err(Failure::Database)?;
        shared.keeper.soil();
        *shared.totals.lock() = books.totals;
    }
    shared.watches.publish(&books.effects);
    books.effects.clear();
    Ok(())
}

/// A failed read is a refusal; anything else is a failure of the store.
fn failed(error: ReadError) -> Result<StoreError, Failure> {
    match error {
        ReadError::Database(fjall::Error::Poisoned) => Err(Failure::Database(fjall::Error::Poisoned)),
        ReadError::Database(fjall::Error::Io(error)) => Err(Failure::Database(fjall::Error::Io(error))),
        other => Ok(StoreError::from(other)),
    }
}

fn upkeep(books: &mut Books, idle: bool, sweep: bool, tick: &mut Instant, turn: &mut Instant) -> Result<(), ReadError> {
    let now = Instant::now();
    if books.upkeep.urgent {
        books.trim_all()?;
    }
    if sweep {
        while books.forget_aged()? && now.elapsed() < SWEEP {}
        while books.slice()? && now.elapsed() < SWEEP {}
    }
    if now >= *tick {
        books.db.alive()?;
        *tick = if books.forget_aged()? { now } else { now + TICK };
        books.slice()?;
    }
    if books.has_work() && (idle || now >= *turn) {
        books.slice()?;
        *turn = Instant::now() + TURN;
    }
    Ok(())
}

/// Ends the watches over streams that are not there, or cannot grow any more.
fn check_watches(shared: &Shared, books: &mut Books) {
    let unchecked = shared.watches.unchecked();
    let over = unchecked.into_iter().filter_map(|key| match books.standing(&key) {
        Ok(Some((_, Standing::Open))) | Err(_) => None,
        Ok(_) => Some(Effect::Over(key)),
    });
    let over: Vec<_> = over.collect();
    shared.watches.publish(&over);
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
