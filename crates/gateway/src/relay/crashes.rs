//! How often a child may be started again (GW-09): at once after the first crash, then with growing pauses.

use std::time::Duration;

/// A child that lived this long has shown that it can.
const HEALTHY: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A pause that a call sits out. A longer one is told to it.
const BEARABLE: Duration = Duration::from_secs(2);

/// The crashes of one seat.
#[derive(Debug, Default)]
pub(crate) struct Crashes {
    in_a_row: u32,
    not_before: Duration,
}

impl Crashes {
    /// A child is gone at `now` after `lived`.
    pub(crate) fn crashed(&mut self, now: Duration, lived: Duration) {
        self.in_a_row = if lived >= HEALTHY {
            1
        } else {
            self.in_a_row.saturating_add(1)
        };
        let pause = match self.in_a_row {
            0 | 1 => Duration::ZERO,
            n => FIRST_PAUSE.saturating_mul(1 << (n - 2).min(10)).min(LONGEST_PAUSE),
        };
        self.not_before = now + pause;
    }

    /// How long until another child may be started.
    fn pause(&self, now: Duration) -> Duration {
        self.not_before.saturating_sub(now)
    }

    /// The pause that a call has to sit out before a child is started again; an error, for the call, if it is too long.
    pub(crate) fn bearable(&self, now: Duration) -> Result<Duration, String> {
        let pause = self.pause(now);
        if pause <= BEARABLE {
            return Ok(pause);
        }
        let (crashes, seconds) = (self.in_a_row, pause.as_secs_f32().ceil());
        Err(format!(
            "it crashed {crashes} times in a row; the next start is in {seconds} seconds"
        ))
    }

    /// How many crashes there were without a healthy life in between.
    #[cfg(test)]
    fn in_a_row(&self) -> u32 {
        self.in_a_row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_09_pauses_grow_with_crashes_and_a_healthy_life_forgives() {
        let mut crashes = Crashes::default();
        let second = Duration::from_secs(1);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            crashes.crashed(100 * second, second);
            pauses.push(crashes.pause(100 * second).as_millis());
        }
        assert_eq!(pauses[..5], [0, 500, 1000, 2000, 4000]);
        assert_eq!(pauses.last(), Some(&30_000));
        assert_eq!(crashes.in_a_row(), 12);
        crashes.crashed(500 * second, 60 * second);
        assert_eq!((crashes.pause(500 * second), crashes.in_a_row()), (Duration::ZERO, 1));
    }
}
