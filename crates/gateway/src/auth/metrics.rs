//! The metrics of key sets (OPS-05). `rethread_auth_total` is counted by the service, one per request.

use rethread::auth::AuthOutcome;

/// The outcome of a fetch, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    Ok,
    Failed,
}

impl FetchOutcome {
    const ALL: [FetchOutcome; 2] = [FetchOutcome::Ok, FetchOutcome::Failed];

    fn as_str(self) -> &'static str {
        match self {
            FetchOutcome::Ok => "ok",
            FetchOutcome::Failed => "failed",
        }
    }
}

/// Makes every series of a provider, because an alert on a rate needs the zero.
pub(super) fn touch(provider: &str, is_issuer: bool) {
    for outcome in AuthOutcome::ALL {
        let provider = provider.to_owned();
        metrics::counter!("rethread_auth_total", "provider" => provider, "outcome" => outcome.as_str()).increment(0);
    }
    for outcome in FetchOutcome::ALL.into_iter().filter(|_| is_issuer) {
        count_fetches(provider, outcome, 0);
    }
}

/// The keys of a provider were fetched, or could not be.
pub(super) fn fetched(provider: &str, outcome: FetchOutcome) {
    count_fetches(provider, outcome, 1);
}

fn count_fetches(provider: &str, outcome: FetchOutcome, times: u64) {
    let provider = provider.to_owned();
    metrics::counter!("rethread_jwks_fetches_total", "provider" => provider, "outcome" => outcome.as_str())
        .increment(times);
}

/// The number of keys, and the seconds since they were loaded. Nothing for a provider whose keys were never loaded.
pub(super) fn keys(provider: &str, keys: usize, age_seconds: f64) {
    let label = || provider.to_owned();
    metrics::gauge!("rethread_jwks_keys", "provider" => label()).set(keys as f64);
    metrics::gauge!("rethread_jwks_age_seconds", "provider" => label()).set(age_seconds);
}
