//! A simulation of several nodes that share one store.
//!
//! The state machines of `proto::cluster` and `proto::stream` run in a reduced node. The store is a model. One seed
//! determines a schedule: calls, GETs, resumes, answers and changes of the record. Its faults are paused, killed and
//! disconnected processes, store outages, lost replies, lost wake-ups, and a store that lost its last writes.
//!
//! Invariants:
//! - A number has one payload.
//! - A call runs at most once.
//! - A waiting client gets an answer or an error in bounded time.
//! - A message is in the queue or on one stream, and in the end on a stream.
//! - The lease of a node ends for the node before it ends for the store.
//! - No node claims a session while its owner's lease holds.
//! - Nothing is stored after the end of a session.
//! - Idle views equal the record.
//!
//! A failure prints its seed. Repeat it with `CLUSTER_SEED=<seed> cargo test -p rethread-proto --test cluster`.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the tests read clocks and the environment

mod client;
mod node;
#[path = "../oracle/random.rs"]
#[allow(dead_code)] // the oracle uses the rest
mod random;
mod store;
mod world;

use random::Random;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use world::World;

const STEPS: usize = 300;
/// Steps between two checks of the messages, which read every push stream.
const CHECK_INTERVAL: usize = 50;
/// The test runs at least this many schedules for at least this time. `CLUSTER_SCHEDULES` raises the number.
const MIN_SCHEDULES: u64 = 300;
const MIN_TIME: Duration = Duration::from_secs(3);

/// Cases that the schedules together must contain, so that they are tested.
const RARE: [&str; 11] = [
    "answer forwarded",
    "append after a gap",
    "forward failed",
    "forward replied",
    "forward routed again",
    "lease lost",
    "orphan closed",
    "push stream taken over",
    "question answered",
    "remote reader",
    "session claimed",
];

fn run(seed: u64) -> BTreeMap<&'static str, u64> {
    let mut world = World::new(Random::new(seed));
    for step in 0..STEPS {
        world.step();
        if step % CHECK_INTERVAL == 0 {
            world.check_messages(false);
        }
    }
    world.finish();
    world.counts().clone()
}

#[test]
fn simulated_nodes_keep_every_invariant_in_any_schedule() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(seed) = variable("CLUSTER_SEED") {
        run(seed);
        return;
    }
    let min_schedules = variable("CLUSTER_SCHEDULES").unwrap_or(MIN_SCHEDULES);
    let began = Instant::now();
    let (mut schedules, mut counts) = (0, BTreeMap::new());
    while schedules < min_schedules || began.elapsed() < MIN_TIME {
        match catch_unwind(AssertUnwindSafe(|| run(schedules))) {
            Ok(counted) => counted
                .iter()
                .for_each(|(name, count)| *counts.entry(*name).or_insert(0) += count),
            Err(panic) => {
                eprintln!("failing seed: CLUSTER_SEED={schedules}");
                std::panic::resume_unwind(panic);
            }
        }
        schedules += 1;
    }
    let rate = schedules as f64 / began.elapsed().as_secs_f64();
    println!("{schedules} schedules of {STEPS} steps, {rate:.0} per second: {counts:?}");
    for name in RARE {
        assert!(counts.contains_key(name), "no schedule contains the case: {name}");
    }
}
