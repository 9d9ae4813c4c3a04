//! Rates such as `60/1m`, and the buckets that enforce them.

use crate::clock::Mono;
use std::fmt;
use std::time::Duration;

/// A number of events in a period, and a burst of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "(u32, Duration)", into = "(u32, Duration)")]
pub struct Rate {
    count: u32,
    period: Duration,
}

impl Rate {
    /// `count` events in each `period`. `None` if one of them is zero.
    pub const fn new(count: u32, period: Duration) -> Option<Self> {
        if count == 0 || period.is_zero() {
            return None;
        }
        Some(Rate { count, period })
    }

    /// The events of one period, and of a burst.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// The period.
    pub const fn period(self) -> Duration {
        self.period
    }

    /// The time that one event uses up.
    fn cost(self) -> Duration {
        self.period / self.count
    }
}

impl TryFrom<(u32, Duration)> for Rate {
    type Error = &'static str;

    fn try_from((count, period): (u32, Duration)) -> Result<Self, Self::Error> {
        Rate::new(count, period).ok_or("a rate needs a positive count and a positive period")
    }
}

impl From<Rate> for (u32, Duration) {
    fn from(rate: Rate) -> Self {
        (rate.count, rate.period)
    }
}

/// In seconds or milliseconds: `60/60s`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:?}", self.count, self.period)
    }
}

/// How much of a [`Rate`] is used. An unused bucket is full of permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// The moment at which every permit is back.
    full_at: Mono,
}

impl Bucket {
    /// Takes a permit, or returns the time until there is one.
    pub fn take(&mut self, rate: Rate, now: Mono) -> Result<(), Duration> {
        self.take_many(1, rate, now)
    }

    /// Takes permits for events that come together, at most a whole burst, or returns the time until there are enough.
    pub fn take_many(&mut self, events: usize, rate: Rate, now: Mono) -> Result<(), Duration> {
        let cost = rate.cost() * u32::try_from(events).unwrap_or(u32::MAX).min(rate.count);
        self.wait_for(cost, rate, now)?;
        self.full_at = self.full_at.max(now) + cost;
        Ok(())
    }

    /// Whether there is a permit, without taking it; otherwise the time until there is one.
    pub fn wait(&self, rate: Rate, now: Mono) -> Result<(), Duration> {
        self.wait_for(rate.cost(), rate, now)
    }

    fn wait_for(&self, cost: Duration, rate: Rate, now: Mono) -> Result<(), Duration> {
        let used = self.full_at.since(now) + cost;
        match used.checked_sub(rate.cost() * rate.count) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => Ok(()),
        }
    }

    /// Whether the bucket has all its permits, so that nobody needs to remember it.
    pub fn is_full(&self, now: Mono) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_24_bucket_has_a_burst_and_refills() {
        let rate = Rate::new(3, Duration::from_secs(3)).unwrap();
        let at = |ms: u64| Mono::from_millis(10_000 + ms);
        let mut bucket = Bucket::default();
        for _ in 0..3 {
            assert_eq!(bucket.take(rate, at(0)), Ok(()));
        }
        assert_eq!(bucket.take(rate, at(0)), Err(Duration::from_secs(1)));
        assert_eq!(bucket.wait(rate, at(400)), Err(Duration::from_millis(600)));
        assert_eq!(bucket.take(rate, at(1000)), Ok(()), "one permit per second");
        assert!(bucket.take(rate, at(1000)).is_err());
        assert!(!bucket.is_full(at(3999)) && bucket.is_full(at(4000)));
        for _ in 0..3 {
            assert_eq!(bucket.take(rate, at(60_000)), Ok(()), "never more than one burst");
        }
        assert!(bucket.take(rate, at(60_000)).is_err());
    }

    #[test]
    fn rates_are_positive() {
        assert_eq!(Rate::new(0, Duration::from_secs(1)), None);
        assert_eq!(Rate::new(1, Duration::ZERO), None);
    }
}
