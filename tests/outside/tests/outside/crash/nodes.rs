//! Several nodes behind a balancer, of which a random one is killed or paused again and again. The clients are those of one
//! server. `cargo xtask soak kills` runs the first test for longer than CI can.

use super::calls::Tally;
use super::lifetimes::ServerLifetimes;
use super::raw::Session;
use super::recorded_runs::RecordedRuns;
use crate::nodes::cluster::{Cluster, LEASE_SECONDS, death_bound};
use crate::official_clients::seed;
use crate::server::{EXAMPLE, GATEWAY, Program, ServerProcess, fresh_folder};
use rethread_testkit::proxy::SplitMix64;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Kills in CI. `RETHREAD_KILLS` is another number: 60 is a minute.
const KILLS: u32 = 20;
/// Kills of one round. A round has its own sessions, because the final replay needs everything that they got. A round of a
/// minute stays below what a store retains: 1,024 ended streams of a session, 4,096 events of a stream, ten minutes.
const KILLS_PER_ROUND: u32 = 40;
const KILL_INTERVAL: Duration = Duration::from_secs(1);
const SESSIONS: usize = 4;
/// A node that continues after a pause joins again within this time. Until then it answers 503.
const REJOIN_TIME: Duration = Duration::from_millis(1_500);

/// A disturbance of a random node.
#[derive(Clone, Copy)]
enum Disturbance {
    /// SIGKILL and a restart at once.
    Kill,
    /// SIGSTOP for longer than the lease, then SIGCONT: the others have ended its calls, and its late appends are refused.
    Pause,
}

/// No acknowledged event is lost or changed, no message arrives twice, no call runs twice, and a client that waits for a dead
/// node is notified in time.
#[tokio::test]
async fn rst_03_clients_of_three_nodes_lose_nothing_to_twenty_kills() {
    let storm = Storm {
        name: "kills",
        program: &EXAMPLE,
        kinds: &[Disturbance::Kill],
        times: number_of_kills(),
        load: Load::Everything,
    };
    storm.run().await;
}

/// The sessions of a killed gateway are claimed by another one, which starts their child processes again.
#[tokio::test]
async fn rst_03_calls_of_three_gateways_run_once_despite_ten_kills() {
    let storm = Storm {
        name: "gateways",
        program: &GATEWAY,
        kinds: &[Disturbance::Kill],
        times: number_of_kills() / 2,
        load: Load::ForwardedCalls,
    };
    storm.run().await;
}

/// A paused node is dead for the others, and does not know it when it continues.
#[tokio::test]
async fn rst_03_clients_of_three_nodes_lose_nothing_to_pauses_and_kills() {
    let storm = Storm {
        name: "pauses",
        program: &EXAMPLE,
        kinds: &[Disturbance::Pause, Disturbance::Kill],
        times: number_of_kills() / 3,
        load: Load::Everything,
    };
    storm.run().await;
}

/// Each session has an owner, so two of three calls are forwarded. A call whose owner dies is routed again only if it did not run.
#[tokio::test]
async fn rst_03_forwarded_calls_of_three_nodes_run_once_despite_ten_kills() {
    let storm = Storm {
        name: "forwards",
        program: &EXAMPLE,
        kinds: &[Disturbance::Kill, Disturbance::Kill, Disturbance::Pause],
        times: number_of_kills() / 2,
        load: Load::ForwardedCalls,
    };
    storm.run().await;
}

fn number_of_kills() -> u32 {
    let kills = std::env::var("RETHREAD_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok());
    kills.unwrap_or(KILLS)
}

/// The work of the clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Calls, resumptions, pushes and recorded runs.
    Everything,
    /// Recorded runs in sessions with owners.
    ForwardedCalls,
}

/// Disturbs the nodes in turns of `kinds`, under load, and checks what the clients have received.
struct Storm {
    name: &'static str,
    program: &'static Program,
    kinds: &'static [Disturbance],
    times: u32,
    load: Load,
}

impl Storm {
    async fn run(self) {
        let Storm {
            name,
            program,
            kinds,
            times,
            load,
        } = self;
        let seed = seed();
        let folder = fresh_folder(&format!("crash-nodes-{name}"));
        let runs = RecordedRuns::new(&folder);
        let file = runs.file();
        let options: &[&str] = match load {
            Load::Everything => &["--runs", &file],
            Load::ForwardedCalls => &["--runs", &file, "--own-sessions"],
        };
        let Some(mut cluster) = Cluster::start_at_fixed_ports(program, options).await else {
            return;
        };
        let started = Instant::now();
        let mut kinds = kinds.iter().copied().cycle();
        let mut random = SplitMix64::new(seed);
        let mut totals = Totals::default();
        let mut left = times;
        while left > 0 {
            let now = left.min(KILLS_PER_ROUND);
            let turns = kinds.by_ref().take(now as usize).collect();
            let round = Round {
                turns,
                seed: random.next(),
                load,
                runs: Arc::clone(&runs),
            };
            cluster = round.run(cluster, &mut random, &mut totals).await;
            left -= now;
            if left > 0 {
                println!("{} of {times} times: {totals}", times - left);
            }
        }
        println!(
            "result: {times} kills or pauses of random nodes in {} s, {} requests: {totals}; bound {} ms; no acknowledged event \
             lost, none changed, none sent twice, no call run twice: {}",
            started.elapsed().as_secs(),
            cluster.balancer.requests(),
            death_bound().as_millis(),
            runs.check(),
        );
        if std::env::var_os("RETHREAD_STRICT").is_some() {
            assert_eq!(
                totals.calls.late(),
                0,
                "clients that were told later than {:?}",
                death_bound()
            );
        }
        drop(cluster);
        let _ = std::fs::remove_dir_all(folder); // kept after a failure
    }
}

/// Sums over all rounds.
#[derive(Default)]
struct Totals {
    calls: Tally,
    streams: usize,
    events: usize,
    repeated: usize,
    /// Times between a kill and the restart of the node.
    outages: Vec<Duration>,
}

impl Totals {
    fn add(&mut self, session: &Session) {
        self.calls.merge(&session.tally);
        let received = session.received();
        let (streams, events) = received.size();
        self.streams += streams;
        self.events += events;
        self.repeated += received.repeated;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self.outages.iter().max().copied().unwrap_or_default();
        write!(
            f,
            "{}; {} streams, {} events, {} repeated without a change; a node was away for {} ms at most",
            self.calls,
            self.streams,
            self.events,
            self.repeated,
            longest.as_millis()
        )
    }
}

/// Some disturbances with sessions of their own.
struct Round {
    turns: Vec<Disturbance>,
    seed: u64,
    load: Load,
    runs: Arc<RecordedRuns>,
}

impl Round {
    async fn run(self, mut cluster: Cluster, random: &mut SplitMix64, totals: &mut Totals) -> Cluster {
        let Round {
            turns,
            seed,
            load,
            runs,
        } = self;
        let server = Arc::new(ServerLifetimes::of_nodes(cluster.balancer.address()));
        let mut sessions = Vec::new();
        for number in 0..SESSIONS {
            sessions.push(Session::open(&server, number, seed).await);
        }
        let mut work = JoinSet::new();
        for session in &sessions {
            if load == Load::Everything {
                session.start(&mut work);
            }
            runs.start(session, &mut work);
        }
        let disturbing = {
            let server = Arc::clone(&server);
            async move {
                for disturbance in turns {
                    let next = Instant::now() + KILL_INTERVAL;
                    let number = random.below(cluster.nodes.len() as u64) as usize;
                    let node = cluster.nodes[number].take().expect("a node that runs");
                    server.record_kill_of(node.addr());
                    cluster.nodes[number] = Some(disturbance.apply(node, &cluster).await);
                    server.record_restart();
                    sleep(next.saturating_duration_since(Instant::now())).await;
                }
                server.record_last_kill();
                cluster
            }
        };
        let mut disturbing = Box::pin(disturbing);
        let cluster = loop {
            tokio::select! {
                cluster = &mut disturbing => break cluster,
                Some(ended) = work.join_next() => server.propagate_failure(ended),
            }
        };
        while let Some(ended) = work.join_next().await {
            server.propagate_failure(ended);
        }
        for session in &sessions {
            session.replay_everything().await;
            session.end().await;
            totals.add(session);
        }
        totals.outages.extend(server.outages());
        cluster
    }
}

impl Disturbance {
    async fn apply(self, node: ServerProcess, cluster: &Cluster) -> ServerProcess {
        match self {
            Disturbance::Kill => {
                let restarted = tokio::task::spawn_blocking(|| node.kill_and_restart()).await;
                restarted.expect("a restart")
            }
            Disturbance::Pause => {
                // A health check takes it out: a paused process accepts connections and answers nothing.
                cluster.update_backends();
                node.signal("-STOP");
                sleep(Duration::from_secs_f64(LEASE_SECONDS * 1.5)).await;
                node.signal("-CONT");
                sleep(REJOIN_TIME).await;
                let running = cluster.nodes.iter().flatten().chain([&node]);
                cluster.balancer.set_backends(running.map(ServerProcess::addr));
                node
            }
        }
    }
}
