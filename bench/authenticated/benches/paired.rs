//! CPU time of a call relative to that of an anonymous caller: short rounds in turns, and the median of their ratios. Other
//! programs on the machine count less than in a wall time.

use nix::time::{ClockId, clock_gettime};
use rethread_authenticated::{Setup, TokenKind, setup};
use std::time::Duration;

const ROUNDS: usize = 401;
const CALLS: u32 = 250;

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock").into()
}

fn time(setup: &mut Setup) -> Duration {
    let requests: Vec<_> = (0..CALLS).map(|_| setup.request()).collect();
    let start = cpu_time();
    for request in requests {
        setup.send(request);
    }
    (cpu_time() - start) / CALLS
}

fn main() {
    let mut anonymous = setup(None);
    let mut others = [setup(Some(TokenKind::Static)), setup(Some(TokenKind::Jwt))];
    let mut ratios = [Vec::new(), Vec::new()];
    let mut base = Vec::new();
    for _ in 0..ROUNDS {
        let of_anonymous = time(&mut anonymous);
        base.push(of_anonymous);
        for (setup, ratios) in others.iter_mut().zip(&mut ratios) {
            ratios.push(time(setup).as_secs_f64() / of_anonymous.as_secs_f64());
        }
    }
    base.sort();
    println!("anonymous call: {:?} of CPU time", base[ROUNDS / 2]);
    for (name, mut ratios) in ["static token", "JWT of 600 bytes"].into_iter().zip(ratios) {
        ratios.sort_by(f64::total_cmp);
        let quartiles = (ratios[ROUNDS / 4], ratios[ROUNDS * 3 / 4]);
        println!("{name}: {:.3} (quartiles {:.3} to {:.3})", ratios[ROUNDS / 2], quartiles.0, quartiles.1);
    }
}
