//! Delays between the starts of a child that crashes (GW-09): none after the first crash, then growing.

use std::time::Duration;

/// A child that ran this long has not crashed "in a row".
const HEALTHY_UPTIME: Duration = Duration::from_secs(60);
/// The delay after the second crash in a row. Each further crash doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// The longest delay that a call waits for. Beyond: the call fails at once.
const MAX_CALL_WAIT: Duration = Duration::from_secs(2);

/// The crashes of one child in a row. Times are relative to a fixed start.
#[derive(Debug, Default)]
pub(crate) struct RestartBackoff {
    crashes: u32,
    not_before: Duration,
}

impl RestartBackoff {
    /// Records that a child crashed at `now` after it ran for `uptime`. Returns the crashes in a row.
    pub(crate) fn record_crash(&mut self, now: Duration, uptime: Duration) -> u32 {
        self.crashes = if uptime >= HEALTHY_UPTIME {
            1
        } else {
            self.crashes.saturating_add(1)
        };
        let delay = match self.crashes {
            0 | 1 => Duration::ZERO,
            n => FIRST_DELAY.saturating_mul(1 << (n - 2).min(10)).min(MAX_DELAY),
        };
        self.not_before = now + delay;
        self.crashes
    }

    /// The moment of the next start.
    pub(crate) fn not_before(&self) -> Duration {
        self.not_before
    }

    /// The delay before the next start. An error, for the caller, if that is more than [`MAX_CALL_WAIT`].
    pub(crate) fn delay(&self, now: Duration) -> Result<Duration, String> {
        let delay = self.remaining(now);
        if delay <= MAX_CALL_WAIT {
            return Ok(delay);
        }
        let (crashes, seconds) = (self.crashes, delay.as_secs_f32().ceil());
        Err(format!(
            "it crashed {crashes} times in a row; the next start is in {seconds} seconds"
        ))
    }

    fn remaining(&self, now: Duration) -> Duration {
        self.not_before.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_09_delay_grows_with_crashes_and_resets_after_a_healthy_run() {
        let mut backoff = RestartBackoff::default();
        let second = Duration::from_secs(1);
        let mut delays = Vec::new();
        for _ in 0..12 {
            backoff.record_crash(100 * second, second);
            delays.push(backoff.remaining(100 * second).as_millis());
        }
        assert_eq!(delays[..5], [0, 500, 1000, 2000, 4000]);
        assert_eq!(delays.last(), Some(&30_000));
        assert!(backoff.delay(100 * second).unwrap_err().contains("12 times in a row"));
        backoff.record_crash(500 * second, 60 * second);
        assert_eq!(backoff.delay(500 * second), Ok(Duration::ZERO));
    }
}
