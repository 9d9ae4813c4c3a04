//! Who may call the gateway: reads the token file, and asks `rethread-auth` for every request.

use crate::config::Problem;
use crate::mount::path_prefix;
use crate::settings::{AuthSettings, ServerSettings, Settings};
use crate::start_message;
use http::request::Parts;
use parking_lot::RwLock;
use rethread::auth::{AuthOutcome, AuthRefusal, Caller, Credentials, Scopes, credentials};
use rethread::{Authenticate, Authentication, Params, Principal, Wall};
use rethread_auth::{Endpoint, ServerPolicy, StaticTokens, TokenDigest, parse_token_file};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// A larger file is not a token file.
const MAX_TOKEN_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The providers of identities, shared by all servers.
pub(crate) struct Providers {
    settings: AuthSettings,
    tokens: RwLock<Arc<StaticTokens>>,
}

impl Providers {
    /// Reads the files of `settings`.
    pub(crate) fn open(settings: &AuthSettings) -> Result<Arc<Self>, Problem> {
        Ok(Arc::new(Providers {
            tokens: RwLock::new(Arc::new(read_tokens(settings)?)),
            settings: settings.clone(),
        }))
    }

    pub(crate) fn settings(&self) -> &AuthSettings {
        &self.settings
    }

    /// Reads the token file again. An invalid one changes nothing. Returns the principals that have lost a token.
    pub(crate) fn reload_tokens(&self) -> Result<BTreeSet<Principal>, Problem> {
        let newer = Arc::new(read_tokens(&self.settings)?);
        let mut tokens = self.tokens.write();
        let revoked = tokens.revoked_in(&newer);
        *tokens = newer;
        Ok(revoked)
    }

    /// The tokens in force, for the providers that replace these.
    pub(crate) fn revoked_in(&self, newer: &Providers) -> BTreeSet<Principal> {
        let newer = Arc::clone(&newer.tokens.read());
        self.tokens.read().revoked_in(&newer)
    }

    /// Authenticates callers of one server.
    pub(crate) fn for_server(self: &Arc<Self>, policy: ServerPolicy) -> Arc<dyn Authenticate> {
        Arc::new(ServerAuthenticator {
            providers: Arc::clone(self),
            policy,
            no_provider: "".into(),
        })
    }
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
    let url = format!("{}{}", start_message::base_url(settings, bound), path_prefix(server));
    ServerPolicy::new(scopes)
        .with_allowed(server.access.allow.clone())
        .with_tools(server.access.tool_scopes.clone())
        .with_urls(&format!("{url}/mcp"), &format!("{url}/sse"), None)
}

/// The [`Authenticate`] of one server.
struct ServerAuthenticator {
    providers: Arc<Providers>,
    policy: ServerPolicy,
    no_provider: Arc<str>,
}

impl ServerAuthenticator {
    fn identify(&self, head: &Parts, endpoint: Endpoint) -> Result<Caller, AuthRefusal> {
        let refuse = |outcome| self.policy.refuse(outcome, &self.no_provider, endpoint);
        let token = match credentials(&head.uri, &head.headers) {
            Ok(Credentials::Token(token)) => token,
            Ok(Credentials::Absent) => return Err(refuse(AuthOutcome::Missing)),
            Err(_) => return Err(refuse(AuthOutcome::Malformed)),
        };
        let AuthSettings { implies, leeway, .. } = &self.providers.settings;
        let digest = TokenDigest::of(token);
        let tokens = Arc::clone(&self.providers.tokens.read());
        match tokens.look_up(&digest, implies, *leeway, wall_now()) {
            Some(Ok(identity)) => self.policy.admit(&identity, endpoint),
            Some(Err(outcome)) => Err(refuse(outcome)),
            None => Err(refuse(AuthOutcome::Unknown)),
        }
    }
}

impl Authenticate for ServerAuthenticator {
    fn caller(&self, head: &Parts) -> Authentication {
        let endpoint = match head.uri.path().ends_with("/mcp") {
            true => Endpoint::Mcp,
            false => Endpoint::Sse,
        };
        Authentication::Done(self.identify(head, endpoint))
    }

    fn needs(&self, method: &str, params: &Params) -> Scopes {
        if method != "tools/call" || !self.policy.has_tools() {
            return Scopes::new();
        }
        self.policy.tool_scopes(&params.name().unwrap_or_default())
    }
}

fn wall_now() -> Wall {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall::from_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
