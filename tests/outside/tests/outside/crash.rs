//! A server that is killed repeatedly with SIGKILL and restarted at once. Its clients lose nothing (RST-01 to RST-03).
//! The scripts of the official clients check what they see. The raw client checks itself with [`received`].

mod calls;
mod lifetimes;
mod nodes;
mod push;
mod raw;
mod received;
mod recorded_runs;
mod sleep_calls;

use crate::official_clients::{CLIENT2, CLIENTS, Client, SDK1, seed};
use crate::script;
use crate::server::{EXAMPLE, Program, ServerProcess, fresh_folder};
use lifetimes::ServerLifetimes;
use raw::Session;
use rethread_testkit::proxy::SplitMix64;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const KILLS: u32 = 30;

/// Sessions of the raw client. One more session only calls `sleep`.
const SESSIONS: usize = 3;

/// Node and Python are slow to start on a small machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// One server with many kills, and all its clients.
pub(crate) struct CrashRun {
    pub(crate) name: &'static str,
    pub(crate) program: &'static Program,
    pub(crate) kills: u32,
    pub(crate) clients: &'static [Client],
    /// The `retry` time for clients, in milliseconds.
    pub(crate) retry_ms: &'static str,
    /// Time between two kills in milliseconds.
    pub(crate) life: Range<u64>,
}

/// The Python clients give up after two failed attempts. The second attempt comes one `retry` after the first. The time
/// between two kills is longer than that, so the second attempt always succeeds.
#[tokio::test]
async fn rst_03_all_clients_lose_nothing_to_thirty_kills() {
    let run = CrashRun {
        name: "all",
        program: &EXAMPLE,
        kills: KILLS,
        clients: &CLIENTS,
        retry_ms: "1000",
        life: 1_300..2_000,
    };
    run.assert_nothing_lost().await;
}

/// The clients reconnect at once, and a kill may come during a restore.
#[tokio::test]
async fn rst_03_quick_clients_lose_nothing_to_thirty_kills_in_a_row() {
    let run = CrashRun {
        name: "quick",
        program: &EXAMPLE,
        kills: KILLS,
        clients: &[SDK1, CLIENT2],
        retry_ms: "100",
        life: 10..900,
    };
    run.assert_nothing_lost().await;
}

impl CrashRun {
    pub(crate) async fn assert_nothing_lost(&self) {
        let seed = seed();
        let folder = fresh_folder(&format!("crash-{}", self.name));
        let data = folder.join("data").display().to_string();
        let options = ["--retry-ms", self.retry_ms, "--store", "embedded", "--data", &data];
        let process = self.program.start_at_fixed_port(&options);
        let url = process.url().to_owned();
        let server = Arc::new(ServerLifetimes::new(process.addr()));

        let mut sessions = Vec::new();
        for number in 0..SESSIONS {
            sessions.push(Session::open(&server, number, seed).await);
        }
        let sleeper = Session::open(&server, SESSIONS, seed).await;

        // The first failure ends the run. Dropping the set stops the other tasks and their scripts.
        let mut work = JoinSet::new();
        for client in self.clients {
            let (program, script) = (client.program, client.crash);
            let (url, folder) = (url.clone(), folder.display().to_string());
            work.spawn(async move {
                script::run(program, &[script, &[&url, &folder, &seed.to_string()]].concat()).await;
            });
        }
        for session in &sessions {
            session.start(&mut work);
        }
        sleep_calls::start(&sleeper, &mut work);
        let (kills, life) = (self.kills, self.life.clone());
        let killer = kill_repeatedly(Arc::clone(&server), process, kills, life, seed);
        let (connected, all) = (folder.clone(), self.clients.len());
        let over = folder.join("over");
        let killing = async move {
            wait_for(&connected, all).await;
            let process = killer.await;
            std::fs::write(over, kills.to_string()).expect("a folder that can be written to");
            process
        };
        let mut killing = Box::pin(killing);
        let process = loop {
            tokio::select! {
                process = &mut killing => break process,
                Some(ended) = work.join_next() => server.propagate_failure(ended),
            }
        };
        while let Some(ended) = work.join_next().await {
            server.propagate_failure(ended);
        }
        for session in &sessions {
            session.replay_everything().await;
        }
        drop(process);
        println!("{}: killed and {}", self.name, server.outage_summary());
        for session in &sessions {
            println!("raw, session {}: {}", session.number, session.summary());
        }
        let _ = std::fs::remove_dir_all(folder); // kept after a failure
    }
}

/// Kills the server at random times and restarts it at once.
async fn kill_repeatedly(
    server: Arc<ServerLifetimes>,
    mut process: ServerProcess,
    kills: u32,
    life: Range<u64>,
    seed: u64,
) -> ServerProcess {
    let mut random = SplitMix64::new(seed);
    for _ in 0..kills {
        sleep(Duration::from_millis(life.start + random.below(life.end - life.start))).await;
        server.record_kill();
        // Blocks until the server is ready. The raw client keeps reconnecting meanwhile.
        let restarted = tokio::task::spawn_blocking(|| process.kill_and_restart()).await;
        process = restarted.expect("a restart");
        server.record_restart();
    }
    server.record_last_kill();
    process
}

/// Waits until all scripts have a session. No client survives an earlier kill.
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
            start.elapsed() < CONNECT_TIMEOUT,
            "only {} of {clients} clients connected",
            connected()
        );
        sleep(Duration::from_millis(50)).await;
    }
}
