//! The keys of one issuer while the gateway runs: fetched regularly, and for a key id that is not known.

use super::fetch::{self, FetchError};
use super::metrics::{self, FetchOutcome};
use crate::settings::{JwtSettings, KeyLocation};
use crate::task;
use parking_lot::Mutex;
use rethread_auth::{KeySet, KeyState, UnknownKid, key_set_url, metadata_urls};
use rethread_proto::clock::Mono;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The pause after a failed regular fetch, unless `refresh` is shorter.
const RETRY_PAUSE: Duration = Duration::from_secs(15);

/// A key set could not be read.
#[derive(Debug, thiserror::Error)]
enum KeysError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("cannot read the file: {0}")]
    File(#[from] std::io::Error),
    #[error(transparent)]
    Parse(#[from] rethread_auth::NotAKeySet),
    #[error("the issuer has no metadata with a key set")]
    Discovery,
}

/// The state of a provider's keys, for operators.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct ProviderKeys {
    name: Arc<str>,
    keys: usize,
    /// Seconds since they were loaded. `None`: never.
    age: Option<u64>,
    /// How the last fetch ended: `ok` or `failed`. `None` before the first one.
    outcome: Option<&'static str>,
}

/// The keys of one provider.
pub(super) struct KeySource {
    pub(super) settings: JwtSettings,
    state: Mutex<KeyState>,
    /// The end of the fetch that is under way. All callers that need it wait for the same one.
    fetching: Mutex<Option<watch::Receiver<()>>>,
    /// Called when the keys have changed.
    changed: Box<dyn Fn() + Send + Sync>,
    start: Instant,
}

impl KeySource {
    /// Begins to fetch keys. The task ends with the source.
    pub(super) fn start(settings: JwtSettings, changed: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let source = Arc::new(KeySource {
            settings,
            state: Mutex::default(),
            fetching: Mutex::default(),
            changed: Box::new(changed),
            start: Instant::now(),
        });
        task::spawn(refresh(Arc::downgrade(&source), source.settings.timing.refresh));
        source
    }

    fn now(&self) -> Mono {
        Mono::from_start(self.start.elapsed())
    }

    /// The keys, unless there are none or they are too old.
    pub(super) fn current(&self) -> Option<Arc<KeySet>> {
        self.state.lock().current(&self.settings.timing, self.now()).cloned()
    }

    /// Whether there are keys that are not too old. Every request with an accepted token asks.
    pub(super) fn has_valid_keys(&self) -> bool {
        self.state.lock().current(&self.settings.timing, self.now()).is_some()
    }

    pub(super) fn status(&self) -> ProviderKeys {
        let state = self.state.lock();
        let keys = state.current(&self.settings.timing, self.now());
        let outcome = match (state.has_failed(), state.is_loaded()) {
            (true, _) => Some("failed"),
            (false, true) => Some("ok"),
            (false, false) => None,
        };
        ProviderKeys {
            name: Arc::clone(&self.settings.rules.name),
            keys: keys.map_or(0, |keys| keys.len()),
            age: state.loaded_keys().map(|(_, at)| self.now().since(at).as_secs()),
            outcome,
        }
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.state.lock().is_loaded()
    }

    /// Seconds until a retry may succeed.
    pub(super) fn retry_after(&self) -> u32 {
        self.state.lock().retry_after(&self.settings.timing, self.now())
    }

    /// A token needs a key that is not here. Fetches the set, or waits for the fetch that is under way. Returns whether the
    /// current set is the answer; otherwise the key may exist.
    pub(super) async fn ask_again(self: &Arc<Self>) -> bool {
        let fetched = {
            // One lock for the decision and its fetch: a caller that is refused must not overtake the fetch that another caller begins.
            let mut fetching = self.fetching.lock();
            match &*fetching {
                Some(under_way) => under_way.clone(),
                None => match self.state.lock().unknown_kid(&self.settings.timing, self.now()) {
                    UnknownKid::Fetch => self.begin_fetch(&mut fetching),
                    UnknownKid::Refuse => return true,
                    UnknownKid::Unavailable => return false,
                },
            }
        };
        wait(fetched).await;
        !self.state.lock().has_failed()
    }

    /// The fetch that is under way, or a new one.
    fn fetch(self: &Arc<Self>) -> watch::Receiver<()> {
        let mut fetching = self.fetching.lock();
        match &*fetching {
            Some(under_way) => under_way.clone(),
            None => self.begin_fetch(&mut fetching),
        }
    }

    /// Starts a fetch in a task of its own, so that it does not end with the request of one caller.
    fn begin_fetch(self: &Arc<Self>, fetching: &mut Option<watch::Receiver<()>>) -> watch::Receiver<()> {
        let (done, fetched) = watch::channel(());
        *fetching = Some(fetched.clone());
        let source = Arc::clone(self);
        task::spawn(async move {
            let read = read_keys(&source.settings).await;
            source.finish(read);
            *source.fetching.lock() = None;
            drop(done);
        });
        fetched
    }

    /// Starts a fetch, unless one is under way.
    pub(super) fn fetch_now(self: &Arc<Self>) {
        drop(self.fetch());
    }

    /// Sets the gauges of this provider. Their age is that of the moment, so a scrape calls this first.
    pub(super) fn record_gauges(&self) {
        let (loaded, now) = (self.state.lock().loaded_keys(), self.now());
        if let Some((keys, since)) = loaded {
            metrics::keys(&self.settings.rules.name, keys, now.since(since).as_secs_f64());
        }
    }

    fn finish(&self, read: Result<KeySet, KeysError>) {
        let provider = &*self.settings.rules.name;
        let outcome = if read.is_ok() {
            FetchOutcome::Ok
        } else {
            FetchOutcome::Failed
        };
        metrics::fetched(provider, outcome);
        match read {
            Ok(keys) => {
                let count = keys.len();
                let has_changed = self.state.lock().loaded(keys, self.now());
                if has_changed {
                    (self.changed)();
                    tracing::info!(provider, keys = count, "keys of the issuer loaded");
                }
                self.record_gauges();
            }
            Err(error) => {
                self.state.lock().failed();
                tracing::warn!(provider, %error, "keys of the issuer not loaded");
            }
        }
    }
}

/// Waits until a fetch has ended.
async fn wait(mut fetched: watch::Receiver<()>) {
    while fetched.changed().await.is_ok() {}
}

/// Fetches the keys now and then. Ends with the source.
async fn refresh(source: Weak<KeySource>, interval: Duration) {
    loop {
        let Some(strong) = source.upgrade() else { return };
        let fetched = strong.fetch();
        drop(strong);
        wait(fetched).await;
        let Some(strong) = source.upgrade() else { return };
        let pause = if strong.state.lock().has_failed() {
            RETRY_PAUSE.min(interval)
        } else {
            interval
        };
        drop(strong);
        tokio::time::sleep(pause).await;
    }
}

async fn read_keys(settings: &JwtSettings) -> Result<KeySet, KeysError> {
    let json = match &settings.keys {
        KeyLocation::Url(url) => fetch::get(url).await?,
        KeyLocation::File(path) => {
            let path = path.clone();
            let reading = tokio::task::spawn_blocking(move || std::fs::read(path));
            reading.await.map_err(std::io::Error::other)??.into()
        }
        KeyLocation::Discover => {
            let url = discover(&settings.rules.issuer).await?;
            fetch::get(&url).await?
        }
    };
    Ok(KeySet::parse(&json)?)
}

/// The URL of the key set, from the first metadata document that is the issuer's.
async fn discover(issuer: &str) -> Result<String, KeysError> {
    let mut last = KeysError::Discovery;
    for url in metadata_urls(issuer) {
        match fetch::get(&url).await {
            Ok(metadata) => match key_set_url(issuer, &metadata) {
                Some(url) => return Ok(url),
                None => last = KeysError::Discovery,
            },
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}
