//! When the keys of an issuer are fetched, and how long they are used (AUTH-13, AUTH-19).

use crate::key_set::KeySet;
use rethread_proto::clock::Mono;
use std::sync::Arc;
use std::time::Duration;

/// How often keys are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTiming {
    /// The interval between regular fetches.
    pub refresh: Duration,
    /// The minimum time between fetches that unknown key ids cause.
    pub cooldown: Duration,
    /// How long loaded keys stay valid while the issuer cannot be reached.
    pub max_stale: Duration,
}

/// The keys of one issuer, and when they were fetched.
#[derive(Clone, Debug, Default)]
pub struct KeyState {
    keys: Option<Arc<KeySet>>,
    loaded: Mono,
    /// The last fetch for an unknown key id.
    asked: Option<Mono>,
    last_fetch_failed: bool,
}

/// The answer to a token whose key id is not in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownKid {
    /// Fetch the set, and look again.
    Fetch,
    /// The set was fetched within the cooldown, and has no such key.
    Refuse,
    /// The last fetch failed, so the key may exist.
    Unavailable,
}

impl KeyState {
    /// The keys, unless there are none or they are too old.
    pub fn current(&self, timing: &KeyTiming, now: Mono) -> Option<&Arc<KeySet>> {
        let is_valid = now.since(self.loaded) <= timing.max_stale;
        self.keys.as_ref().filter(|_| is_valid)
    }

    /// The number of keys and the time at which they were loaded, unless they never were.
    pub fn loaded_keys(&self) -> Option<(usize, Mono)> {
        self.keys.as_ref().map(|keys| (keys.len(), self.loaded))
    }

    /// Whether keys were loaded at least once.
    pub fn is_loaded(&self) -> bool {
        self.keys.is_some()
    }

    /// A token has a key id that is not in the set, or there is no set. [`UnknownKid::Fetch`] is returned once per cooldown.
    pub fn unknown_kid(&mut self, timing: &KeyTiming, now: Mono) -> UnknownKid {
        let is_cool = self.asked.is_none_or(|asked| now.since(asked) >= timing.cooldown);
        if is_cool {
            self.asked = Some(now);
            return UnknownKid::Fetch;
        }
        match self.last_fetch_failed || self.current(timing, now).is_none() {
            true => UnknownKid::Unavailable,
            false => UnknownKid::Refuse,
        }
    }

    /// A fetch has brought keys. Returns whether they differ from the earlier ones: verified tokens must then be verified again.
    pub fn loaded(&mut self, keys: KeySet, now: Mono) -> bool {
        self.loaded = now;
        self.last_fetch_failed = false;
        let has_changed = self.keys.as_deref() != Some(&keys);
        if has_changed {
            self.keys = Some(Arc::new(keys));
        }
        has_changed
    }

    /// A fetch has failed. The keys stay.
    pub fn failed(&mut self) {
        self.last_fetch_failed = true;
    }

    /// Whether the last fetch has failed.
    pub fn has_failed(&self) -> bool {
        self.last_fetch_failed
    }

    /// The time until a retry may succeed, in seconds.
    pub fn retry_after(&self, timing: &KeyTiming, now: Mono) -> u32 {
        let asked = self.asked.map_or(Duration::ZERO, |asked| now.since(asked));
        let left = timing.cooldown.saturating_sub(asked);
        u32::try_from(left.as_millis().div_ceil(1000))
            .unwrap_or(u32::MAX)
            .max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: KeyTiming = KeyTiming {
        refresh: Duration::from_secs(300),
        cooldown: Duration::from_secs(10),
        max_stale: Duration::from_secs(3600),
    };

    fn at(seconds: u64) -> Mono {
        Mono::from_millis(seconds * 1000)
    }

    fn keys(x: &str) -> KeySet {
        let x = x.repeat(43);
        let json = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"a","x":"{x}"}}]}}"#);
        KeySet::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn auth_13_unknown_kids_cause_one_fetch_per_cooldown() {
        let mut state = KeyState::default();
        assert!(state.loaded(keys("A"), at(0)));
        assert_eq!(state.unknown_kid(&TIMING, at(1)), UnknownKid::Fetch);
        for second in 1..11 {
            assert_eq!(state.unknown_kid(&TIMING, at(second)), UnknownKid::Refuse, "{second}");
        }
        assert_eq!(state.unknown_kid(&TIMING, at(11)), UnknownKid::Fetch);
    }

    #[test]
    fn auth_13_regular_fetch_does_not_count() {
        let mut state = KeyState::default();
        state.loaded(keys("A"), at(0));
        assert_eq!(state.unknown_kid(&TIMING, at(0)), UnknownKid::Fetch);
        let mut state = KeyState::default();
        state.loaded(keys("A"), at(0));
        assert!(!state.loaded(keys("A"), at(5)), "the same keys");
        assert!(state.loaded(keys("E"), at(6)), "other keys");
        assert_eq!(state.unknown_kid(&TIMING, at(6)), UnknownKid::Fetch);
    }

    #[test]
    fn auth_19_failed_fetch_is_unavailable_and_loaded_keys_stay() {
        let mut state = KeyState::default();
        assert!(state.current(&TIMING, at(0)).is_none() && !state.is_loaded());
        assert_eq!(state.unknown_kid(&TIMING, at(0)), UnknownKid::Fetch);
        assert_eq!(
            state.unknown_kid(&TIMING, at(1)),
            UnknownKid::Unavailable,
            "never loaded"
        );
        assert_eq!(state.retry_after(&TIMING, at(1)), 9);
        state.loaded(keys("A"), at(2));
        assert_eq!(state.unknown_kid(&TIMING, at(12)), UnknownKid::Fetch);
        state.failed();
        assert_eq!(state.unknown_kid(&TIMING, at(13)), UnknownKid::Unavailable);
        assert!(state.current(&TIMING, at(2 + 3600)).is_some());
        assert!(state.current(&TIMING, at(3 + 3600)).is_none(), "too old");
    }
}
