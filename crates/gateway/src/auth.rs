//! Authentication of callers: reads token files and keys, and asks `rethread-auth` for every request.

pub(crate) mod fetch;
mod key_source;
pub(crate) mod metadata;
mod metrics;
mod peer;

pub(crate) use key_source::ProviderKeys;
pub(crate) use peer::{ClientAddress, Network, PeerAddress};

use crate::config::Problem;
use crate::mount::path_prefix;
use crate::settings::{AuthSettings, ServerSettings, Settings};
use crate::start_message;
use http::Request;
use http::request::Parts;
use key_source::KeySource;
use metadata::{MetadataDocuments, MetadataServer, document_url};
use parking_lot::{Mutex, RwLock};
use rethread::auth::{AuthOutcome, AuthRefusal, Caller, Scopes, presented_token};
use rethread::{Authenticate, Authentication, Params, Principal, Wall};
use rethread_auth::{
    AcceptedTokens, Endpoint, Failures, Identity, STATIC_PROVIDER, ServerPolicy, StaticTokens, TagKey, TokenDigest,
    TokenTag, UnverifiedJwt, Verification, parse_token_file,
};
use rethread_proto::clock::Mono;
use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// A larger file is not a token file.
const MAX_TOKEN_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The address of the client of a request, if a proxy may have named it. Otherwise it is that of the socket.
pub(crate) fn forwarded_address<B>(request: &Request<B>, trusted: &[Network]) -> Option<ClientAddress> {
    if trusted.is_empty() {
        return None;
    }
    peer::of_request(request.headers(), request.extensions(), trusted).map(ClientAddress)
}

/// The providers of identities, shared by all servers.
pub(crate) struct Providers {
    settings: AuthSettings,
    trusted_proxies: Vec<Network>,
    tokens: RwLock<Arc<StaticTokens>>,
    issuers: Vec<Arc<KeySource>>,
    /// Shared with the providers that replace these, because issuers that stay empty it.
    accepted: Arc<RwLock<AcceptedTokens>>,
    /// Not shared: a token that these providers accept has another tag in the providers that replace them.
    tags: TagKey,
    /// Shared with the providers that replace these: a reload must not forget the failures of a peer.
    failures: Arc<Mutex<Failures>>,
    start: Instant,
}

impl Providers {
    /// Reads the files of `settings`, and begins to fetch keys. Keys of `earlier` providers with equal settings stay.
    pub(crate) fn open(
        settings: &Settings,
        auth: &AuthSettings,
        earlier: Option<&Providers>,
    ) -> Result<Arc<Self>, Problem> {
        let tokens = read_tokens(auth)?;
        metrics::touch("", false); // a request without a usable token has no provider
        auth.tokens.iter().for_each(|_| metrics::touch(STATIC_PROVIDER, false));
        auth.jwt.iter().for_each(|jwt| metrics::touch(&jwt.rules.name, true));
        let accepted = earlier.map_or_else(Arc::default, |earlier| Arc::clone(&earlier.accepted));
        accepted.write().clear(); // scopes may mean something else now
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(|error| Problem::new(format!("the system has no random bytes: {error}")))?;
        let issuers = auth.jwt.iter().map(|jwt| {
            let same = earlier.and_then(|earlier| earlier.issuers.iter().find(|source| source.settings == *jwt));
            same.cloned().unwrap_or_else(|| {
                let accepted = Arc::clone(&accepted);
                KeySource::start(jwt.clone(), move || accepted.write().clear())
            })
        });
        Ok(Arc::new(Providers {
            settings: auth.clone(),
            trusted_proxies: settings.trusted_proxies.clone(),
            tokens: RwLock::new(Arc::new(tokens)),
            issuers: issuers.collect(),
            accepted,
            tags: TagKey::from_random(key),
            failures: earlier.map_or_else(Arc::default, |earlier| Arc::clone(&earlier.failures)),
            start: earlier.map_or_else(Instant::now, |earlier| earlier.start),
        }))
    }

    /// Whether these are the providers of `settings`.
    pub(crate) fn are_those_of(&self, settings: &Settings) -> bool {
        settings.auth.as_ref() == Some(&self.settings) && self.trusted_proxies == settings.trusted_proxies
    }

    pub(crate) fn settings(&self) -> &AuthSettings {
        &self.settings
    }

    /// Reads the token file again, and fetches keys. An invalid file changes nothing. Returns the principals that have lost a token.
    pub(crate) fn reload(&self) -> Result<BTreeSet<Principal>, Problem> {
        let newer = Arc::new(read_tokens(&self.settings)?);
        for source in &self.issuers {
            source.fetch_now();
        }
        let earlier = std::mem::replace(&mut *self.tokens.write(), Arc::clone(&newer));
        self.accepted.write().clear();
        Ok(earlier.revoked_in(&newer))
    }

    /// The principals that have lost a token in the providers that replace these.
    pub(crate) fn revoked_in(&self, newer: &Providers) -> BTreeSet<Principal> {
        let newer = Arc::clone(&newer.tokens.read());
        self.tokens.read().revoked_in(&newer)
    }

    /// Sets the gauges of all issuers. A scrape of the metrics calls this first.
    pub(crate) fn record_gauges(&self) {
        self.issuers.iter().for_each(|source| source.record_gauges());
    }

    /// Whether the keys of every issuer were loaded at least once.
    pub(crate) fn has_keys(&self) -> bool {
        self.issuers.iter().all(|source| source.is_loaded())
    }

    /// The keys of all issuers, for operators.
    pub(crate) fn keys(&self) -> Vec<ProviderKeys> {
        self.issuers.iter().map(|source| source.status()).collect()
    }

    /// Authenticates callers of one server.
    pub(crate) fn for_server(self: &Arc<Self>, policy: ServerPolicy) -> Arc<dyn Authenticate> {
        Arc::new(ServerAuthenticator(Arc::new(ServerCallers {
            providers: Arc::clone(self),
            policy: Arc::new(policy),
            no_provider: "".into(),
        })))
    }

    fn now(&self) -> Mono {
        Mono::from_start(self.start.elapsed())
    }
}

/// The metadata of all servers.
pub(crate) fn documents(settings: &Settings, bound: SocketAddr) -> MetadataDocuments {
    let Some(auth) = &settings.auth else {
        return MetadataDocuments::default();
    };
    let issuers: Vec<_> = auth.jwt.iter().map(|jwt| &*jwt.rules.issuer).collect();
    let servers = settings.servers.iter();
    let policies: Vec<_> = servers
        .map(|server| (path_prefix(server), policy(settings, auth, server, bound)))
        .collect();
    let servers = policies.iter().map(|(prefix, policy)| MetadataServer {
        prefix: prefix.clone(),
        policy,
    });
    let base = start_message::base_url(settings, bound);
    MetadataDocuments::new(&base, &issuers, &servers.collect::<Vec<_>>())
}

/// Reads the token file, if there is one.
pub(crate) fn read_tokens(settings: &AuthSettings) -> Result<StaticTokens, Problem> {
    let Some(path) = &settings.tokens else {
        return Ok(StaticTokens::default());
    };
    let shown = path.display();
    let text = read_limited(path).map_err(|error| {
        let problem = Problem::new(format!("cannot read the token file {shown}: {error}"));
        problem.hint("`rethread token new NAME` prints a token and its lines for the file")
    })?;
    parse_token_file(&text).map_err(|error| Problem::new(format!("{shown}: {error}")))
}

fn read_limited(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    let read = file.take(MAX_TOKEN_FILE_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_TOKEN_FILE_BYTES {
        return Err(std::io::Error::other("it is too large"));
    }
    Ok(text)
}

/// The policy of a server. `bound` is the address of the listener.
pub(crate) fn policy(
    settings: &Settings,
    auth: &AuthSettings,
    server: &ServerSettings,
    bound: SocketAddr,
) -> ServerPolicy {
    let mut scopes = auth.scopes.clone();
    scopes.extend(server.access.scopes.iter().cloned());
    let (base, prefix) = (start_message::base_url(settings, bound), path_prefix(server));
    let (mcp, sse) = (format!("{prefix}/mcp"), format!("{prefix}/sse"));
    // Without an authorization server there is nothing to discover.
    let metadata = (!auth.jwt.is_empty()).then(|| (document_url(&base, &mcp), document_url(&base, &sse)));
    ServerPolicy::new(scopes)
        .with_allowed(server.access.allow.clone())
        .with_tools(server.access.tool_scopes.clone())
        .with_urls(&format!("{base}{mcp}"), &format!("{base}{sse}"), metadata)
}

/// The [`Authenticate`] of one server.
struct ServerAuthenticator(Arc<ServerCallers>);

struct ServerCallers {
    providers: Arc<Providers>,
    policy: Arc<ServerPolicy>,
    no_provider: Arc<str>,
}

/// A token that needs a key of an issuer.
struct PendingToken {
    token: String,
    tag: TokenTag,
    source: Arc<KeySource>,
    endpoint: Endpoint,
    peer: IpAddr,
}

impl ServerCallers {
    /// The order: header, accepted tokens, form, static tokens, failures of the peer, JWT. So a peer that is slowed can still use good
    /// tokens. A token that was accepted before costs one keyed hash of all its bytes, and no allocation: its form was right.
    fn identify(self: &Arc<Self>, head: &Parts, endpoint: Endpoint) -> Authentication {
        let refuse = |outcome| Authentication::Done(Err(self.policy.refuse(outcome, &self.no_provider, endpoint)));
        let presented = match presented_token(&head.uri, &head.headers) {
            Ok(Some(token)) => token,
            Ok(None) => return refuse(AuthOutcome::Missing),
            Err(_) => return refuse(AuthOutcome::Malformed),
        };
        let providers = &self.providers;
        let AuthSettings {
            implies,
            leeway,
            failures,
            ..
        } = &providers.settings;
        let (tag, now) = (providers.tags.tag(presented.as_bytes()), wall_now());
        let accepted = providers.accepted.read();
        if let Some(identity) = accepted.get(tag, now).filter(|identity| self.has_valid_keys(identity)) {
            return Authentication::Done(identity.admit(&self.policy, endpoint));
        }
        let epoch = accepted.epoch();
        drop(accepted);
        let Ok(token) = presented.check() else {
            return refuse(AuthOutcome::Malformed);
        };
        let tokens = Arc::clone(&providers.tokens.read());
        let digest = TokenDigest::of(token);
        match tokens.look_up(&digest, implies, *leeway, now) {
            Some(Ok(identity)) => {
                let admitted = self.policy.admit(&identity, endpoint);
                providers.accepted.write().insert(tag, identity, epoch);
                return Authentication::Done(admitted);
            }
            Some(Err(outcome)) => {
                let refusal = self.policy.refuse(outcome, &self.no_provider, endpoint);
                return Authentication::Done(Err(refusal.with_principal(tokens.owner(&digest).cloned())));
            }
            None => {}
        }
        let peer = peer::of_request(&head.headers, &head.extensions, &providers.trusted_proxies)
            .unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        let admitted = providers.failures.lock().admit(peer, *failures, providers.now());
        if let Err(wait) = admitted {
            let seconds = u32::try_from(wait.as_millis().div_ceil(1000))
                .unwrap_or(u32::MAX)
                .max(1);
            let refusal = AuthRefusal::retry_later(AuthOutcome::Slowed, Arc::clone(&self.no_provider), seconds);
            return Authentication::Done(Err(refusal));
        }
        let parsed = UnverifiedJwt::parse(token).and_then(|jwt| {
            let mut issuers = providers.issuers.iter();
            let source = issuers.find(|source| Some(&*source.settings.rules.issuer) == jwt.issuer());
            Ok((source.ok_or(AuthOutcome::Issuer)?, jwt))
        });
        let (source, jwt) = match parsed {
            Ok(found) => found,
            Err(outcome) => {
                return Authentication::Done(Err(self.refuse_token(outcome, &self.no_provider, endpoint, peer)));
            }
        };
        let pending = PendingToken {
            token: token.to_owned(),
            tag,
            source: Arc::clone(source),
            endpoint,
            peer,
        };
        match self.verify(&jwt, &pending) {
            Some(done) => Authentication::Done(done),
            None => {
                let callers = Arc::clone(self);
                Authentication::pending(async move { callers.verify_with_new_keys(&pending).await })
            }
        }
    }

    /// Accepted tokens of an issuer whose keys are too old must not pass for ever. Static tokens need no keys.
    fn has_valid_keys(&self, identity: &Identity) -> bool {
        if identity.audience.is_none() {
            return true;
        }
        let mut issuers = self.providers.issuers.iter();
        let source = issuers.find(|source| source.settings.rules.name == identity.provider);
        source.is_some_and(|source| source.has_valid_keys())
    }

    /// `None` if the keys of the issuer must be fetched first.
    fn verify(&self, jwt: &UnverifiedJwt<'_>, pending: &PendingToken) -> Option<Result<Caller, AuthRefusal>> {
        let PendingToken { source, endpoint, .. } = pending;
        let AuthSettings { implies, leeway, .. } = &self.providers.settings;
        let rules = &source.settings.rules;
        let epoch = self.providers.accepted.read().epoch();
        let keys = source.current()?;
        match jwt.verify(rules, &keys, implies, *leeway, wall_now()) {
            Verification::Done(Ok(identity)) => {
                let admitted = self.policy.admit(&identity, *endpoint);
                let mut accepted = self.providers.accepted.write();
                accepted.insert(pending.tag, *identity, epoch);
                Some(admitted)
            }
            Verification::Done(Err(outcome)) => {
                let refusal = self.refuse_token(outcome, &rules.name, *endpoint, pending.peer);
                Some(Err(refusal.with_principal(jwt.verified_principal(rules, outcome))))
            }
            Verification::UnknownKid => None,
        }
    }

    /// Waits for newer keys, and looks again.
    async fn verify_with_new_keys(&self, pending: &PendingToken) -> Result<Caller, AuthRefusal> {
        let provider = &pending.source.settings.rules.name;
        let is_known = pending.source.ask_again().await;
        let jwt = UnverifiedJwt::parse(&pending.token);
        if let Some(done) = jwt.ok().and_then(|jwt| self.verify(&jwt, pending)) {
            return done;
        }
        if is_known && pending.source.current().is_some() {
            return Err(self.refuse_token(AuthOutcome::Key, provider, pending.endpoint, pending.peer));
        }
        // 401 would make clients throw good tokens away (AUTH-19).
        let seconds = pending.source.retry_after();
        Err(AuthRefusal::retry_later(
            AuthOutcome::Unavailable,
            Arc::clone(provider),
            seconds,
        ))
    }

    /// Refuses a bad token, and counts it (AUTH-24).
    fn refuse_token(&self, outcome: AuthOutcome, provider: &Arc<str>, endpoint: Endpoint, peer: IpAddr) -> AuthRefusal {
        if outcome.is_bad_token() {
            let rate = self.providers.settings.failures;
            self.providers.failures.lock().count(peer, rate, self.providers.now());
        }
        self.policy.refuse(outcome, provider, endpoint)
    }
}

impl Authenticate for ServerAuthenticator {
    fn caller(&self, head: &Parts) -> Authentication {
        let endpoint = match head.uri.path().ends_with("/mcp") {
            true => Endpoint::Mcp,
            false => Endpoint::Sse,
        };
        self.0.identify(head, endpoint)
    }

    fn needs(&self, method: &str, params: &Params) -> Scopes {
        if method != "tools/call" || !self.0.policy.has_tools() {
            return Scopes::new();
        }
        self.0.policy.tool_scopes(&params.name().unwrap_or_default())
    }
}

/// The time of the day.
pub(crate) fn wall_now() -> Wall {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall::from_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
