//! How long a call may be silent before its response becomes a stream (D5).

use crate::version::Version;
use std::time::Duration;

/// When a silent call becomes a stream (D5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SseUpgradeDelay {
    /// For a version whose streams are primed, with a store: the sooner a call has an id, the sooner it can be resumed.
    pub resumable: Duration,
    /// For everything else: only to keep proxies from closing a silent connection (HTTP-08, T-37).
    pub fallback: Duration,
}

impl Default for SseUpgradeDelay {
    fn default() -> Self {
        SseUpgradeDelay {
            resumable: Duration::from_millis(100),
            fallback: Duration::from_secs(10),
        }
    }
}

impl SseUpgradeDelay {
    /// The delay of resumable calls, and the delay of all other calls.
    pub const fn new(resumable: Duration, fallback: Duration) -> Self {
        SseUpgradeDelay { resumable, fallback }
    }

    /// How long a call on `version` may be silent. `resumable` if its streams are stored.
    pub fn delay(&self, version: Version, resumable: bool) -> Duration {
        if resumable && version.sends_priming_event() {
            self.resumable
        } else {
            self.fallback
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d5_upgrade_delays() {
        let after = SseUpgradeDelay::default();
        for version in Version::ALL {
            let soon = version == Version::V2025_11_25;
            assert_eq!(after.delay(version, true).as_millis(), if soon { 100 } else { 10_000 });
            assert_eq!(after.delay(version, false).as_secs(), 10, "no store, nothing to gain");
        }
    }
}
