//! The oracle: every cursor sees its own stream, in order, once, without an unannounced gap.
//!
//! One seed determines a schedule: messages, appends that are acknowledged at once, late, wrongly or never, broken
//! connections, resumes, takeovers by readers of the same and of another node, evictions, outages, recoveries, restarts
//! and lost writes of the store. The world has no clock and no threads, so runs are reproducible. A failure prints its
//! seed. Repeat it with `ORACLE_SEED=<seed> cargo test -p rethread-proto --test oracle`.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the tests read clocks and the environment

mod client;
mod random;
mod shared_queue;
mod store;
mod world;

use random::Random;
use shared_queue::SharedQueue;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use world::World;

const OPERATIONS: usize = 200;
/// Operations between two checks of the shared queue, which read both logs.
const CHECK_INTERVAL: usize = 25;
/// The test runs at least this many schedules for at least this time. `ORACLE_SCHEDULES` raises the number.
const MIN_SCHEDULES: u64 = 500;
const MIN_TIME: Duration = Duration::from_secs(3);

fn run_stream(seed: u64) {
    let mut random = Random::new(seed);
    let mut world = World::new(&mut random);
    for _ in 0..OPERATIONS {
        world.operate(&mut random);
        world.check_wake_ups();
    }
    world.finish(&mut random);
}

fn run_shared_queue(seed: u64) {
    let mut random = Random::new(seed);
    let mut world = SharedQueue::new(&mut random);
    for operation in 0..OPERATIONS {
        world.operate(&mut random);
        if operation % CHECK_INTERVAL == 0 {
            world.check();
        }
    }
    world.finish(&mut random);
}

/// Runs schedules from consecutive seeds, or the one that `ORACLE_SEED` names.
fn run_all(run: fn(u64), min_time: Duration) {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(seed) = variable("ORACLE_SEED") {
        return run(seed);
    }
    let min_schedules = variable("ORACLE_SCHEDULES").unwrap_or(MIN_SCHEDULES);
    let began = Instant::now();
    let mut schedules = 0;
    while schedules < min_schedules || began.elapsed() < min_time {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(schedules))) {
            eprintln!("failing seed: ORACLE_SEED={schedules}");
            std::panic::resume_unwind(panic);
        }
        schedules += 1;
    }
    let rate = schedules as f64 / began.elapsed().as_secs_f64();
    println!("{schedules} schedules of {OPERATIONS} operations, {rate:.0} per second");
}

#[test]
fn oracle_every_cursor_sees_its_own_stream_in_order_once_without_unannounced_gaps() {
    run_all(run_stream, MIN_TIME);
}

#[test]
fn oracle_each_message_of_a_shared_queue_is_on_one_stream() {
    run_all(run_shared_queue, MIN_TIME / 3);
}
