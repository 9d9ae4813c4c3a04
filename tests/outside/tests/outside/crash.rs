//! A server that is killed with SIGKILL again and again, and restarted at once: its clients lose nothing (RST-01 to
//! RST-03). What the official clients see is checked in their scripts, what the raw client sees by its [`record`].

mod calls;
mod lives;
mod push;
mod raw;
mod record;
mod sleeper;

use crate::script;
use crate::server::{EXAMPLE, Everything, Program};
use lives::Server;
use raw::Session;
use rethread_testkit::proxy::SplitMix64;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const KILLS: u32 = 30;

/// The sessions of the raw client, one more aside that sleeps.
const SESSIONS: usize = 3;

/// Node and Python take their time to start, above all together on a small machine.
const TO_CONNECT: Duration = Duration::from_secs(60);

pub(crate) const SDK1: (&str, &[&str]) = ("node", &["ts/crash.mjs", "sdk1"]);
pub(crate) const CLIENT2: (&str, &[&str]) = ("node", &["ts/crash.mjs", "client2"]);
pub(crate) const PY1: (&str, &[&str]) = ("py1/bin/python", &["py/crash.py"]);
pub(crate) const PY2: (&str, &[&str]) = ("py2/bin/python", &["py/crash.py"]);

/// One server, many lives, and everybody who talks to it meanwhile.
pub(crate) struct Run {
    pub(crate) name: &'static str,
    pub(crate) program: &'static Program,
    pub(crate) kills: u32,
    pub(crate) clients: &'static [(&'static str, &'static [&'static str])],
    /// How long clients are asked to wait before they come back.
    pub(crate) retry_ms: &'static str,
    /// How long one life may last, in milliseconds.
    pub(crate) life: Range<u64>,
}

/// The Python clients give up after two failed attempts. With these numbers the second never meets a dead server: it comes
/// one `retry` after the first, and the life in between is longer than that.
#[tokio::test]
async fn rst_03_all_clients_lose_nothing_to_thirty_kills() {
    let run = Run {
        name: "all",
        program: &EXAMPLE,
        kills: KILLS,
        clients: &[SDK1, CLIENT2, PY1, PY2],
        retry_ms: "1000",
        life: 1_300..2_000,
    };
    run.survives_kills().await;
}

/// Clients that come back at once, and lives that may end while they are still being restored.
#[tokio::test]
async fn rst_03_quick_clients_lose_nothing_to_thirty_kills_in_a_row() {
    let run = Run {
        name: "quick",
        program: &EXAMPLE,
        kills: KILLS,
        clients: &[SDK1, CLIENT2],
        retry_ms: "100",
        life: 10..900,
    };
    run.survives_kills().await;
}

impl Run {
    pub(crate) async fn survives_kills(&self) {
        let seed = seed();
        println!("seed {seed}; RETHREAD_SEED={seed} repeats its dice");
        let folder = fresh_folder(self.name);
        let data = folder.join("data").display().to_string();
        let options = ["--retry-ms", self.retry_ms, "--store", "embedded", "--data", &data];
        let everything = self.program.start_at_fixed_port(&options);
        let url = everything.url().to_owned();
        let server = Arc::new(Server::new(everything.addr()));

        let mut sessions = Vec::new();
        for number in 0..SESSIONS {
            sessions.push(Session::open(&server, number, seed).await);
        }
        let sleeper = Session::open(&server, SESSIONS, seed).await;

        // Whoever fails first ends the run: the others are dropped with the set, and scripts die with their tasks.
        let mut work = JoinSet::new();
        for (program, script) in self.clients {
            let (program, url, folder) = (*program, url.clone(), folder.display().to_string());
            work.spawn(async move {
                script::run(program, &[*script, &[&url, &folder, &seed.to_string()]].concat()).await;
            });
        }
        for session in &sessions {
            session.start(&mut work);
        }
        sleeper::start(&sleeper, &mut work);
        let (kills, life) = (self.kills, self.life.clone());
        let killer = kill_again_and_again(Arc::clone(&server), everything, kills, life, seed);
        let (connected, all) = (folder.clone(), self.clients.len());
        let over = folder.join("over");
        let killing = async move {
            wait_for(&connected, all).await;
            let everything = killer.await;
            std::fs::write(over, kills.to_string()).expect("a folder that can be written to");
            everything
        };
        let mut killing = Box::pin(killing);
        let everything = loop {
            tokio::select! {
                everything = &mut killing => break everything,
                Some(ended) = work.join_next() => server.must_not_fail(ended),
            }
        };
        while let Some(ended) = work.join_next().await {
            server.must_not_fail(ended);
        }
        for session in &sessions {
            session.conclude().await;
        }
        drop(everything);
        println!("{}: killed and {}", self.name, server.down_times());
        for session in &sessions {
            println!("raw, session {}: {}", session.number, session.summary());
        }
        let _ = std::fs::remove_dir_all(folder); // kept when something failed
    }
}

/// At a random moment of its life, and at once again.
async fn kill_again_and_again(
    server: Arc<Server>,
    mut everything: Everything,
    kills: u32,
    life: Range<u64>,
    seed: u64,
) -> Everything {
    let mut dice = SplitMix64::new(seed);
    for _ in 0..kills {
        sleep(Duration::from_millis(life.start + dice.below(life.end - life.start))).await;
        server.dies();
        // Blocks until the server is ready; the raw client goes on knocking meanwhile.
        let restarted = tokio::task::spawn_blocking(|| everything.killed_and_restarted()).await;
        everything = restarted.expect("the server starts again");
        server.lives_again();
    }
    server.is_left_alone();
    everything
}

/// Waits until the scripts have their sessions: no client survives a kill before that.
async fn wait_for(folder: &Path, clients: usize) {
    let start = Instant::now();
    let connected = || {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("connected-"))
            .count()
    };
    while connected() < clients {
        assert!(
            start.elapsed() < TO_CONNECT,
            "only {} of {clients} clients connected",
            connected()
        );
        sleep(Duration::from_millis(50)).await;
    }
}

fn fresh_folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("crash-{name}"));
    let _ = std::fs::remove_dir_all(&folder); // of a run that failed, if any
    std::fs::create_dir_all(&folder).expect("a folder for the store");
    folder
}

/// From the environment to draw the same again, otherwise from the clock. When a kill strikes is up to the machine.
fn seed() -> u64 {
    let given = std::env::var("RETHREAD_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::from(now.subsec_nanos()) % 1_000_000
    })
}
