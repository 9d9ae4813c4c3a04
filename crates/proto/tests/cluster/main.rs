//! A simulation of several nodes that share one store.
//!
//! The state machines of `proto::cluster` and `proto::stream` run in a reduced node. The store is a model. A schedule is made
//! from one seed: calls, GETs, resumes, answers, changes of the record, and processes that are paused, killed and cut off, a
//! store that is away, answers that are lost, wake-ups that are lost, and a store that lost its last writes.
//!
//! Promises: a number has one payload; a call runs at most once; a client that waits gets an answer or an error in bounded time;
//! a message is in one place, and in the end on a stream; a node knows before the store that its lease has ended, and nobody
//! claims a session whose owner believes in its lease; nothing is stored after the end of a session; idle views equal the record.
//!
//! A failing seed is printed; run it again with `CLUSTER_SEED=<seed> cargo test -p rethread-proto --test cluster`.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the crate is pure; its tests measure and are configured

mod client;
mod node;
#[path = "../oracle/random.rs"]
#[allow(dead_code)] // the oracle needs more of it
mod random;
mod store;
mod world;

use random::Random;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use world::World;

const STEPS: usize = 300;
/// Each check of the messages reads every push stream.
const CHECK_INTERVAL: usize = 50;
/// The test runs at least so many schedules, for at least so long. `CLUSTER_SCHEDULES` asks for more.
const MIN_SCHEDULES: u64 = 300;
const MIN_TIME: Duration = Duration::from_secs(3);

/// A schedule without these would promise nothing about them.
const RARE: [&str; 11] = [
    "answer forwarded",
    "append behind a gap",
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
fn simulation_of_nodes_keeps_every_promise_in_any_schedule() {
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
        assert!(counts.contains_key(name), "no schedule has the case: {name}");
    }
}
