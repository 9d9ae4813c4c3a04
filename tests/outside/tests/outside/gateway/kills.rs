//! The gateway is killed with SIGKILL and restarted. Its clients keep their sessions and lose nothing (RST-01 to RST-03).
//! The scripts check what they see.

use super::process::{CommandLine, Gateway};
use crate::official_clients::{Client, seed};
use crate::script;
use crate::server::fresh_folder;
use rethread_testkit::proxy::SplitMix64;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const KILLS: usize = 3;

/// Maximum time between two kills, once all clients are connected.
const MAX_LIFETIME_MILLIS: u64 = 1_500;

/// Node and Python are slow to start on a small machine, clients and servers together.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs all clients concurrently, each with its own server process.
pub(crate) async fn assert_kills_lose_nothing(name: &str, server: CommandLine, clients: &[Client]) {
    let seed = seed();
    let folder = fresh_folder(&format!("gateway-{name}"));
    let mut gateway = Gateway::with_data(&folder.join("data"), server);

    // The first failure ends the run. Dropping the set stops the other tasks and their scripts.
    let mut work = JoinSet::new();
    for client in clients {
        let (program, script) = (client.program, client.crash);
        let (url, folder) = (gateway.url(), folder.display().to_string());
        work.spawn(async move {
            let rest = [&url, &folder, &seed.to_string(), "--behind"];
            script::run(program, &[script, &rest].concat()).await;
        });
    }
    let all = clients.len();
    let (shared, over) = (folder.clone(), folder.join("over"));
    let killing = tokio::spawn(async move {
        let mut random = SplitMix64::new(seed);
        for _ in 0..KILLS {
            wait_for_all_clients(&shared, all).await;
            sleep(Duration::from_millis(random.below(MAX_LIFETIME_MILLIS))).await;
            // Blocks until the gateway is ready.
            let restarted = tokio::task::spawn_blocking(|| gateway.kill_and_restart()).await;
            gateway = restarted.expect("the gateway starts again");
        }
        wait_for_all_clients(&shared, all).await;
        std::fs::write(over, KILLS.to_string()).expect("a folder that can be written to");
        gateway
    });
    let mut killing = Box::pin(killing);
    let gateway = loop {
        tokio::select! {
            killed = &mut killing => break killed.expect("the gateway can be killed and started"),
            Some(ended) = work.join_next() => ended.expect("no client fails"),
        }
    };
    while let Some(ended) = work.join_next().await {
        ended.expect("no client fails");
    }
    drop(gateway);
    let _ = std::fs::remove_dir_all(folder); // kept after a failure
}

/// Waits until each client has started and finished a call. The Python clients do not survive a second kill before they
/// have reconnected.
async fn wait_for_all_clients(folder: &Path, clients: usize) {
    let start = Instant::now();
    for sign in finished(folder) {
        std::fs::remove_file(sign).expect("what a client has put there");
    }
    while finished(folder).len() < clients {
        let back = finished(folder).len();
        assert!(
            start.elapsed() < RECONNECT_TIMEOUT,
            "only {back} of {clients} clients finished a call"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// The marker files of clients that have finished a call.
fn finished(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let signs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("finished-"));
    signs.map(|entry| entry.path()).collect()
}
