//! Time of a call relative to that of an anonymous caller: rounds in turns, and the median of their ratios.

use rethread_authenticated::{Setup, setup};
use std::time::{Duration, Instant};

const ROUNDS: usize = 41;
const CALLS: u32 = 2_000;

fn time(setup: &mut Setup) -> Duration {
    let start = Instant::now();
    for _ in 0..CALLS {
        setup.send();
    }
    start.elapsed() / CALLS
}

fn main() {
    let (mut anonymous, mut static_token, mut jwt) = (setup(0), setup(46), setup(600));
    let mut ratios = [Vec::new(), Vec::new()];
    let mut base = Vec::new();
    for _ in 0..ROUNDS {
        let of_anonymous = time(&mut anonymous);
        base.push(of_anonymous);
        for (setup, ratios) in [&mut static_token, &mut jwt].into_iter().zip(&mut ratios) {
            ratios.push(time(setup).as_secs_f64() / of_anonymous.as_secs_f64());
        }
    }
    base.sort();
    println!("anonymous call: {:?}", base[ROUNDS / 2]);
    for (name, mut ratios) in ["static token", "JWT of 600 bytes"].into_iter().zip(ratios) {
        ratios.sort_by(f64::total_cmp);
        let quartiles = (ratios[ROUNDS / 4], ratios[ROUNDS * 3 / 4]);
        println!("{name}: {:.3} (quartiles {:.3} to {:.3})", ratios[ROUNDS / 2], quartiles.0, quartiles.1);
    }
}
