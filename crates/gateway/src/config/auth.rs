//! Resolves `[auth]`, and who may use a server.

use super::auth_options::{
    self, ALLOW, AUTH_SCOPES, FAILURES, IMPLIES, LEEWAY, NO_AUTH, SERVER_SCOPES, TOKENS, TOOL_SCOPES,
};
use super::file::AUTH_KEY;
use super::layer::{Layer, Source};
use super::options;
use super::problem::Problem;
use super::resolver::Resolver;
use super::value;
use crate::settings::{AuthSettings, ServerAccess};
use rethread_auth::STATIC_PROVIDER;
use rethread_proto::auth::ImpliedScopes;
use std::net::SocketAddr;

impl Resolver<'_> {
    /// `[auth]`, or the flags of a provider.
    pub(super) fn auth(&mut self, listen: SocketAddr) -> (Option<AuthSettings>, bool) {
        let table = self.file.get(AUTH_KEY).map(|found| found.source.clone());
        let flag = self.find(None, TOKENS.def.key).map(|found| found.source);
        let flag = flag.or_else(|| self.provider_flag());
        let no_auth = self.value(&NO_AUTH);
        let no_auth_source = self.find(None, NO_AUTH.def.key).map(|found| found.source);
        let Some(source) = flag.or(table) else {
            self.refuse_auth_flags();
            if !listen.ip().is_loopback() && !no_auth {
                self.refuse_open_address(listen);
            }
            return (None, no_auth);
        };
        if let (true, Some(source)) = (no_auth, no_auth_source) {
            let problem = Problem::new("`no_auth` and `[auth]` exclude each other").at(&source);
            self.problems.push(problem.hint("one of the two"));
        }
        let tokens = self.find(None, TOKENS.def.key).and_then(|found| {
            let text = self.parse(&TOKENS, &found)?;
            let path = self.path(&found.source, &text);
            self.add_row(None, TOKENS.def.key, path.display().to_string(), &found.source);
            Some(path)
        });
        let before = self.problems.len();
        let jwt = self.jwt_providers();
        if tokens.is_none() && jwt.is_empty() && self.problems.len() == before {
            let problem = Problem::new("`[auth]` accepts no token").at(&source);
            self.problems
                .push(problem.hint("auth.tokens = \"tokens.toml\", or [auth.jwt.NAME] with an issuer"));
        }
        let auth = AuthSettings {
            tokens,
            scopes: self.value(&AUTH_SCOPES),
            leeway: self.value(&LEEWAY),
            implies: self.implied_scopes(),
            failures: self.value(&FAILURES),
            jwt,
        };
        (Some(auth), no_auth)
    }

    fn implied_scopes(&mut self) -> ImpliedScopes {
        let Some(found) = self.find(None, IMPLIES.key) else {
            self.add_row(None, IMPLIES.key, value::none(), &Source::Default);
            return ImpliedScopes::default();
        };
        let implied = self.record(auth_options::implied_scopes(&found.value), &found.source);
        let shown = implied.as_ref().map_or_else(value::none, ImpliedScopes::to_string);
        self.add_row(None, IMPLIES.key, shown, &found.source);
        implied.unwrap_or_default()
    }

    /// A gateway beyond loopback serves everybody who reaches it. The operator must say that this is intended.
    fn refuse_open_address(&mut self, listen: SocketAddr) {
        let source = self.find(None, options::LISTEN.def.key).map(|found| found.source);
        let problem = Problem::new(format!("{listen} is open to the network, and no caller needs a token"));
        let problem = problem.at(&source.unwrap_or(Source::Default));
        self.problems.push(problem.hint(
            "--tokens FILE, --issuer URL or [auth], --listen 127.0.0.1:8080 behind a proxy, or --no-auth if everybody may call",
        ));
    }

    /// A flag that means nothing without a provider.
    fn refuse_auth_flags(&mut self) {
        let found = self.input.layer.get(AUTH_SCOPES.def.key);
        if let Some(source) = found.map(|found| &found.source).filter(|source| !source.is_env()) {
            let problem = Problem::new("a scope needs a provider of tokens").at(source);
            self.problems.push(problem.hint("--tokens FILE or --issuer URL, too"));
        }
    }

    /// The callers of one server.
    pub(super) fn server_access(&mut self, server: &str, section: &Layer, providers: &[&str]) -> ServerAccess {
        let scopes = self.server_value(server, section, &SERVER_SCOPES);
        let allow = section.get(ALLOW.def.key).and_then(|found| {
            let entries = self.parse(&ALLOW, found)?;
            self.add_row(Some(server), ALLOW.def.key, (ALLOW.show)(&entries), &found.source);
            for entry in &entries {
                if !providers.contains(&entry.provider()) {
                    let problem = Problem::new(format!("`{entry}` names no provider of [auth]")).at(&found.source);
                    self.problems
                        .push(problem.hint(format!("one of {}", providers.join(", "))));
                }
            }
            Some(entries)
        });
        let tool_scopes = section.get(TOOL_SCOPES.key).and_then(|found| {
            let table = self.record(auth_options::tool_scopes(&found.value), &found.source)?;
            let shown: Vec<_> = table.iter().map(|(tool, scopes)| format!("{tool}: {scopes}")).collect();
            self.add_row(Some(server), TOOL_SCOPES.key, value::show_list(&shown), &found.source);
            Some(table)
        });
        ServerAccess {
            scopes,
            allow,
            tool_scopes: tool_scopes.unwrap_or_default(),
        }
    }
}

/// The names of all providers.
pub(super) fn providers(auth: Option<&AuthSettings>) -> Vec<&str> {
    let tokens = auth.and_then(|auth| auth.tokens.as_ref()).map(|_| STATIC_PROVIDER);
    let issuers = auth.into_iter().flat_map(|auth| &auth.jwt).map(|jwt| &*jwt.rules.name);
    tokens.into_iter().chain(issuers).collect()
}
