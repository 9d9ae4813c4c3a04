//! The gateway is killed with SIGKILL and started again: its clients keep their sessions, and lose nothing that they were
//! told (RST-01 to RST-03). What they see is checked in their scripts.

use super::process::{Gateway, Words};
use super::{Client, seed};
use crate::script;
use rethread_testkit::proxy::SplitMix64;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const KILLS: usize = 3;

/// How long a life lasts once everybody is back, in milliseconds at most.
const LIFE: u64 = 1_500;

/// Node and Python take their time to start, clients and servers, above all together on a small machine.
const TO_COME_BACK: Duration = Duration::from_secs(60);

/// All clients at once, with a server process for each.
pub(super) async fn lose_nothing(name: &str, server: Words, clients: &[Client]) {
    let seed = seed();
    println!("seed {seed}; RETHREAD_SEED={seed} repeats its dice");
    let folder = fresh_folder(name);
    let mut gateway = Gateway::with_data(&folder.join("data"), server);

    // Whoever fails first ends the run: the others are dropped with the set, and scripts die with their tasks.
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
        let mut dice = SplitMix64::new(seed);
        for _ in 0..KILLS {
            everybody_is_back(&shared, all).await;
            sleep(Duration::from_millis(dice.below(LIFE))).await;
            // Blocks until the gateway is ready.
            let restarted = tokio::task::spawn_blocking(|| gateway.killed_and_restarted()).await;
            gateway = restarted.expect("the gateway starts again");
        }
        everybody_is_back(&shared, all).await;
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
    let _ = std::fs::remove_dir_all(folder); // kept when something failed
}

/// Waits until each client has begun and finished a call since this was asked. The Python ones do not survive a second kill
/// before they have come back from the first.
async fn everybody_is_back(folder: &Path, clients: usize) {
    let start = Instant::now();
    for sign in finished(folder) {
        std::fs::remove_file(sign).expect("what a client has put there");
    }
    while finished(folder).len() < clients {
        let back = finished(folder).len();
        assert!(
            start.elapsed() < TO_COME_BACK,
            "only {back} of {clients} clients finished a call"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// The signs of the clients that have finished a call.
fn finished(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let signs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("finished-"));
    signs.map(|entry| entry.path()).collect()
}

fn fresh_folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("gateway-{name}"));
    let _ = std::fs::remove_dir_all(&folder); // of a run that failed, if any
    std::fs::create_dir_all(&folder).expect("a folder for the store");
    folder
}
