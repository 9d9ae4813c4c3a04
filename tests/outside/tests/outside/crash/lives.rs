//! What the raw client knows of the server's lives: it is told by the killer itself.

use std::net::SocketAddr;
use std::sync::Mutex;
use tokio::task::JoinError;
use tokio::time::Instant;

/// The lives of a server, as far as they have come.
pub(super) struct Server {
    pub(super) addr: SocketAddr,
    lives: Mutex<Lives>,
}

#[derive(Default)]
struct Lives {
    /// When each ended, and when the next was ready.
    deaths: Vec<Death>,
    /// When it took long to answer something that is done in no time.
    slow: Vec<Instant>,
    left_alone: bool,
}

/// The time between two lives. The kill strikes early in it.
#[derive(Clone, Copy)]
pub(super) struct Death {
    pub(super) from: Instant,
    to: Option<Instant>,
}

impl Server {
    pub(super) fn new(addr: SocketAddr) -> Self {
        let lives = Mutex::default();
        Server { addr, lives }
    }

    /// Said just before the kill.
    pub(super) fn dies(&self) {
        let from = Instant::now();
        self.lives().deaths.push(Death { from, to: None });
    }

    /// Said once it is ready again.
    pub(super) fn lives_again(&self) {
        if let Some(death) = self.lives().deaths.last_mut() {
            death.to = Some(Instant::now());
        }
    }

    /// Said after the last kill.
    pub(super) fn is_left_alone(&self) {
        self.lives().left_alone = true;
    }

    /// Whether the last kill is over.
    pub(super) fn survived(&self) -> bool {
        self.lives().left_alone
    }

    /// The number of the present life. `None` while one ends and the next begins.
    pub(super) fn life(&self) -> Option<usize> {
        let lives = self.lives();
        let between = lives.deaths.last().is_some_and(|death| death.to.is_none());
        (!between).then_some(lives.deaths.len())
    }

    /// Said when it took long to answer something that is done in no time.
    pub(super) fn is_slow(&self) {
        self.lives().slow.push(Instant::now());
    }

    /// Whether nothing was slow between the two: then what was due a while ago is done.
    pub(super) fn was_quick(&self, from: Instant, to: Instant) -> bool {
        !self.lives().slow.iter().any(|moment| (from..to).contains(moment))
    }

    /// Its next death, seen from a moment when it lived.
    pub(super) fn death_after(&self, moment: Instant) -> Option<Death> {
        let lives = self.lives();
        let over = |death: &&Death| death.to.is_some_and(|to| to <= moment);
        lives.deaths.iter().find(|death| !over(death)).copied()
    }

    /// How long it was away, in words.
    pub(super) fn down_times(&self) -> String {
        let away = |death: &Death| Some((death.to? - death.from).as_millis());
        let mut away: Vec<u128> = self.lives().deaths.iter().filter_map(away).collect();
        let (first, last) = (away.first().copied(), away.last().copied());
        away.sort_unstable();
        let (median, longest) = (away.get(away.len() / 2).copied(), away.last().copied());
        let [first, last, median, longest] = [first, last, median, longest].map(Option::unwrap_or_default);
        let times = away.len();
        format!("down {times} times, for {median} ms each (the first {first}, the last {last}, the longest {longest})")
    }

    /// Fails as the task failed, if it did.
    pub(super) fn must_not_fail(&self, ended: Result<(), JoinError>) {
        if let Err(error) = ended {
            println!("the server was {}", self.down_times());
            std::panic::resume_unwind(error.into_panic());
        }
    }

    fn lives(&self) -> std::sync::MutexGuard<'_, Lives> {
        self.lives.lock().expect("nobody panics while holding it")
    }
}
