//! Several nodes behind a balancer, of which a random one is killed or paused again and again. The clients are those of one
//! server.

use super::lifetimes::ServerLifetimes;
use super::raw::Session;
use crate::nodes::cluster::{Cluster, LEASE_SECONDS};
use crate::official_clients::seed;
use crate::server::ServerProcess;
use rethread_testkit::proxy::SplitMix64;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Kills in CI. `RETHREAD_KILLS` is another number: 60 is a minute.
const KILLS: u32 = 20;
const KILL_INTERVAL: Duration = Duration::from_secs(1);
const SESSIONS: usize = 4;
/// A node that continues after a pause joins again within this time. Until then it answers 503.
const REJOIN_TIME: Duration = Duration::from_millis(1_500);

/// The fate of a random node.
#[derive(Clone, Copy)]
enum Disturbance {
    /// SIGKILL and a restart at once.
    Kill,
    /// SIGSTOP for longer than the lease, then SIGCONT: the others have ended its calls, and its late appends are refused.
    Pause,
}

/// No acknowledged event is lost or changed, no message arrives twice, no call runs twice, and a client that waits for a dead
/// node is told in time.
#[tokio::test]
async fn rst_03_clients_of_three_nodes_lose_nothing_to_twenty_kills() {
    disturb(&[Disturbance::Kill], number_of_kills()).await;
}

/// A paused node is dead for the others, and does not know it when it continues.
#[tokio::test]
async fn rst_03_clients_of_three_nodes_lose_nothing_to_pauses_and_kills() {
    disturb(&[Disturbance::Pause, Disturbance::Kill], number_of_kills() / 3).await;
}

fn number_of_kills() -> u32 {
    let kills = std::env::var("RETHREAD_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok());
    kills.unwrap_or(KILLS)
}

/// Disturbs the nodes in turns of `kinds`, under load, and checks what the clients have received.
async fn disturb(kinds: &[Disturbance], times: u32) {
    let seed = seed();
    let Some(mut cluster) = Cluster::start_at_fixed_ports().await else {
        return;
    };
    let server = Arc::new(ServerLifetimes::of_nodes(cluster.balancer.address()));
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        sessions.push(Session::open(&server, number, seed).await);
    }
    let mut work = JoinSet::new();
    for session in &sessions {
        session.start(&mut work);
    }
    let disturbing = {
        let server = Arc::clone(&server);
        async move {
            let mut random = SplitMix64::new(seed);
            for disturbance in kinds.iter().cycle().take(times as usize) {
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
    }
    println!(
        "{times} times, {} requests; nodes {}",
        cluster.balancer.requests(),
        server.outage_summary()
    );
    for session in &sessions {
        println!("session {}: {}", session.number, session.summary());
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
