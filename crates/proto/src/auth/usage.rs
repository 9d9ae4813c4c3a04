//! The use of each principal: things that it has now, and messages that it has sent recently.
//!
//! The anonymous principal is never counted: it may be many callers.

use super::rate::{Bucket, Rate};
use crate::Principal;
use crate::clock::Mono;
use foldhash::quality::RandomState;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

/// Buckets that are kept. Beyond: those that are full of permits are forgotten, and then all.
const MAX_BUCKETS: usize = 16_384;

/// How many things of one kind each principal has now, such as sessions. A principal without any takes no memory.
#[derive(Clone, Debug, Default)]
pub struct PrincipalCounts(HashMap<Principal, usize, RandomState>);

impl PrincipalCounts {
    /// Counts one more. False if `principal` has `limit` already.
    pub fn enter(&mut self, principal: &Principal, limit: usize) -> bool {
        if principal.is_anonymous() {
            return true;
        }
        match self.0.entry(principal.clone()) {
            Entry::Occupied(count) if *count.get() >= limit => return false,
            Entry::Occupied(mut count) => *count.get_mut() += 1,
            Entry::Vacant(_) if limit == 0 => return false,
            Entry::Vacant(count) => {
                count.insert(1);
            }
        }
        true
    }

    /// One has ended.
    pub fn leave(&mut self, principal: &Principal) {
        if principal.is_anonymous() {
            return;
        }
        // One lookup: a principal with a single call is removed after each of them.
        if let Entry::Occupied(mut count) = self.0.entry(principal.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// The number of principals with at least one.
    pub fn principals(&self) -> usize {
        self.0.len()
    }
}

/// The recent messages of each principal.
#[derive(Clone, Debug, Default)]
pub struct MessageRates(HashMap<Principal, Bucket, RandomState>);

impl MessageRates {
    /// Takes permits for `messages` that come together. The error is the time until there are enough. More messages than a
    /// whole burst need a whole burst: no batch is too large for ever.
    pub fn take(&mut self, principal: &Principal, messages: usize, rate: Rate, now: Mono) -> Result<(), Duration> {
        if principal.is_anonymous() {
            return Ok(());
        }
        if let Some(bucket) = self.0.get_mut(principal) {
            return bucket.take_many(messages, rate, now);
        }
        if self.0.len() >= MAX_BUCKETS {
            self.0.retain(|_, bucket| !bucket.is_full(now));
            if self.0.len() >= MAX_BUCKETS {
                self.0.clear();
            }
        }
        self.0
            .entry(principal.clone())
            .or_default()
            .take_many(messages, rate, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_16_counts_end_at_the_limit_and_leave_nothing_behind() {
        let (alice, bob) = (Principal::new("i", "alice"), Principal::new("i", "bob"));
        let mut counts = PrincipalCounts::default();
        assert!(counts.enter(&alice, 2) && counts.enter(&alice, 2) && !counts.enter(&alice, 2));
        assert!(counts.enter(&bob, 2), "another principal");
        assert!(!counts.enter(&Principal::new("j", "bob"), 0));
        counts.leave(&alice);
        assert!(counts.enter(&alice, 2));
        for principal in [&alice, &alice, &bob] {
            counts.leave(principal);
        }
        counts.leave(&alice);
        assert_eq!(counts.principals(), 0);
        for _ in 0..10 {
            assert!(counts.enter(&Principal::anonymous(), 1));
        }
        assert_eq!(counts.principals(), 0);
    }

    #[test]
    fn ops_16_rates_are_per_principal_and_a_large_batch_needs_a_whole_burst() {
        let rate = Rate::new(10, Duration::from_secs(1)).unwrap();
        let at = |ms: u64| Mono::from_millis(10_000 + ms);
        let (alice, bob) = (Principal::new("i", "alice"), Principal::new("i", "bob"));
        let mut rates = MessageRates::default();
        for (principal, messages, ms, expected) in [
            (&alice, 4, 0, Ok(())),
            (&alice, 6, 0, Ok(())),
            (&alice, 1, 0, Err(100)),
            (&alice, 3, 0, Err(300)),
            (&bob, 1, 0, Ok(())),
            (&alice, 1, 100, Ok(())),
            (&alice, 100, 500, Err(600)),
            (&alice, 100, 1100, Ok(())),
            (&alice, 1, 1100, Err(100)),
        ] {
            let taken = rates.take(principal, messages, rate, at(ms));
            assert_eq!(taken, expected.map_err(Duration::from_millis), "{messages} at {ms}");
        }
        for _ in 0..100 {
            assert_eq!(rates.take(&Principal::anonymous(), 1, rate, at(1100)), Ok(()));
        }
    }

    #[test]
    fn ops_16_table_of_rates_is_bounded() {
        let rate = Rate::new(1, Duration::from_secs(60)).unwrap();
        let mut rates = MessageRates::default();
        for n in 0..2 * MAX_BUCKETS {
            let principal = Principal::new("i", n.to_string());
            let _ = rates.take(&principal, 1, rate, Mono::from_millis(1000));
        }
        assert!(rates.0.len() <= MAX_BUCKETS);
    }
}
