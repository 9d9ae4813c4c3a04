//! Whether an identity may use one server (AUTH-09, AUTH-14, AUTH-15, AUTH-17).

use crate::identity::Identity;
use rethread_proto::Principal;
use rethread_proto::auth::{
    AuthOutcome, AuthRefusal, Caller, Challenge, Scope, Scopes, accepts_audience, normalized_url,
};
use std::fmt;
use std::sync::Arc;

/// The endpoint that a request called. Its metadata is in the challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/mcp`.
    Mcp,
    /// `/sse` and `/messages`.
    Sse,
}

/// The rules for callers of one server, and its challenge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerPolicy {
    scopes: Scopes,
    allow: Option<Vec<AllowEntry>>,
    tools: Vec<(ToolPattern, Scopes)>,
    /// Normalized.
    urls: Vec<String>,
    mcp_metadata: Option<Arc<str>>,
    sse_metadata: Option<Arc<str>>,
}

impl ServerPolicy {
    /// A policy that admits every caller with these scopes.
    pub fn new(scopes: Scopes) -> Self {
        ServerPolicy {
            scopes,
            ..ServerPolicy::default()
        }
    }

    /// Admits only these principals.
    #[must_use]
    pub fn with_allowed(mut self, allow: Option<Vec<AllowEntry>>) -> Self {
        self.allow = allow;
        self
    }

    /// Calls of tools with matching names need further scopes.
    #[must_use]
    pub fn with_tools(mut self, tools: Vec<(ToolPattern, Scopes)>) -> Self {
        self.tools = tools;
        self
    }

    /// The public URLs of `/mcp` and `/sse`, and the URLs of their metadata if there are authorization servers.
    #[must_use]
    pub fn with_urls(mut self, mcp: &str, sse: &str, metadata: Option<(String, String)>) -> Self {
        self.urls = vec![normalized_url(mcp), normalized_url(sse)];
        let (mcp, sse) = metadata.unzip();
        self.mcp_metadata = mcp.map(Into::into);
        self.sse_metadata = sse.map(Into::into);
        self
    }

    /// The scopes that every request needs.
    pub fn scopes(&self) -> &Scopes {
        &self.scopes
    }

    /// All scopes that some request needs, for the metadata.
    pub fn all_scopes(&self) -> Scopes {
        let mut all = self.scopes.clone();
        for (_, scopes) in &self.tools {
            all.extend(scopes.iter().cloned());
        }
        all
    }

    /// The challenge of a refused request.
    pub fn challenge(&self, endpoint: Endpoint) -> Challenge {
        let metadata = match endpoint {
            Endpoint::Mcp => &self.mcp_metadata,
            Endpoint::Sse => &self.sse_metadata,
        };
        Challenge::new(self.scopes.clone(), metadata.clone())
    }

    /// Refuses a request.
    pub fn refuse(&self, outcome: AuthOutcome, provider: &Arc<str>, endpoint: Endpoint) -> AuthRefusal {
        AuthRefusal::challenge(outcome, Arc::clone(provider), self.challenge(endpoint))
    }

    /// Whether an identity may use the server. Every server decides for itself: a token that was verified at one server must
    /// not pass at another.
    pub fn admit(&self, identity: &Identity, endpoint: Endpoint) -> Result<Caller, AuthRefusal> {
        let refused = |refusal: AuthRefusal| Err(refusal.with_principal(Some(identity.principal.clone())));
        let refuse = |outcome| refused(self.refuse(outcome, &identity.provider, endpoint));
        if let Some(audience) = &identity.audience {
            let accepted = audience.accepted.as_deref().unwrap_or(&self.urls);
            if !accepts_audience(accepted, audience.claimed.iter().map(String::as_str)) {
                return refuse(AuthOutcome::Audience);
            }
        }
        if !identity.scopes.contain_all(&self.scopes) {
            return refuse(AuthOutcome::Scope);
        }
        let is_allowed = |entry: &AllowEntry| entry.admits(&identity.provider, &identity.principal);
        if !self.allow.as_ref().is_none_or(|allow| allow.iter().any(is_allowed)) {
            return refused(AuthRefusal::principal(Arc::clone(&identity.provider)));
        }
        let caller = Caller::new(identity.principal.clone(), Arc::clone(&identity.provider));
        Ok(caller
            .with_scopes(identity.scopes.clone())
            .with_expiry(identity.expires)
            .with_challenge(self.challenge(endpoint)))
    }

    /// Whether calls of some tool need further scopes.
    pub fn has_tools(&self) -> bool {
        !self.tools.is_empty()
    }

    /// The scopes that a call of `tool` needs besides those of the server.
    pub fn tool_scopes(&self, tool: &str) -> Scopes {
        let matching = self.tools.iter().filter(|(pattern, _)| pattern.matches(tool));
        matching.flat_map(|(_, scopes)| scopes.iter().cloned()).collect()
    }
}

/// A principal that may use a server: `PROVIDER:SUBJECT`, or `PROVIDER:*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowEntry {
    provider: Box<str>,
    /// `None`: every subject.
    subject: Option<Box<str>>,
}

impl AllowEntry {
    /// Reads an entry. A subject may contain colons, a provider does not.
    pub fn parse(text: &str) -> Option<Self> {
        let (provider, subject) = text.split_once(':')?;
        (!provider.is_empty() && !subject.is_empty()).then(|| AllowEntry {
            provider: provider.into(),
            subject: (subject != "*").then(|| subject.into()),
        })
    }

    /// The provider.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    fn admits(&self, provider: &str, principal: &Principal) -> bool {
        let subject = self.subject.as_deref();
        *self.provider == *provider && subject.is_none_or(|subject| subject == principal.subject())
    }
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.subject.as_deref().unwrap_or("*"))
    }
}

/// Names of tools: one name, or all that begin with the text in front of a final `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolPattern {
    text: Box<str>,
    is_prefix: bool,
}

impl ToolPattern {
    /// Reads a pattern. `*` is allowed at the end only.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, is_prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        let fits = !name.contains('*') && !text.is_empty();
        fits.then(|| ToolPattern {
            text: name.into(),
            is_prefix,
        })
    }

    fn matches(&self, tool: &str) -> bool {
        match self.is_prefix {
            true => tool.starts_with(&*self.text),
            false => *self.text == *tool,
        }
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.is_prefix { "*" } else { "" })
    }
}

/// Reads scopes. The error is the first name that cannot be one.
pub(crate) fn scopes<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Scopes, &'a str> {
    names.into_iter().map(|name| Scope::parse(name).ok_or(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Audience;
    use rethread_proto::Refusal;

    fn identity(scopes: &str) -> Identity {
        Identity::new(
            Principal::new("https://idp", "ada"),
            "corp".into(),
            Scopes::from_words(scopes),
            None,
        )
    }

    fn metadata() -> Option<(String, String)> {
        Some(("https://m/x/mcp".to_owned(), "https://m/x/sse".to_owned()))
    }

    fn answer(refused: AuthRefusal) -> (u16, Option<String>) {
        let refusal = Refusal::from(refused);
        let header = refusal.www_authenticate();
        let header = header.map(|header| header.to_str().unwrap().to_owned());
        (refusal.status().as_u16(), header)
    }

    #[test]
    fn auth_14_missing_scope_is_refused_with_everything_that_is_needed() {
        let policy = ServerPolicy::new(Scopes::from_words("mcp files"));
        for granted in ["", "mcp", "files", "mcp files:write"] {
            let refused = policy.admit(&identity(granted), Endpoint::Mcp).unwrap_err();
            assert_eq!(refused.outcome, AuthOutcome::Scope);
            let header = r#"Bearer error="insufficient_scope", scope="mcp files""#;
            assert_eq!(answer(refused), (403, Some(header.to_owned())), "{granted}");
        }
        assert!(policy.admit(&identity("x files mcp"), Endpoint::Mcp).is_ok());
    }

    #[test]
    fn auth_17_principal_that_is_not_allowed_gets_no_challenge() {
        for (allow, fits) in [
            (&["corp:ada"][..], true),
            (&["corp:*"], true),
            (&["corp:bob", "corp:ada"], true),
            (&["corp:ad"], false),
            (&["corp:ada2"], false),
            (&["tokens:ada"], false),
            (&["tokens:*"], false),
            (&["corp:ADA"], false),
            (&[], false),
        ] {
            let allowed = allow.iter().map(|entry| AllowEntry::parse(entry).unwrap()).collect();
            let policy = ServerPolicy::new(Scopes::new()).with_allowed(Some(allowed));
            match policy.admit(&identity(""), Endpoint::Mcp) {
                Ok(caller) => assert!(fits, "{allow:?}: {caller:?}"),
                Err(refused) => {
                    assert!(!fits, "{allow:?}");
                    assert_eq!(answer(refused), (403, None));
                }
            }
        }
        let colons = AllowEntry::parse("corp:auth0|a:b").unwrap();
        assert!(colons.admits("corp", &Principal::new("i", "auth0|a:b")));
        for bad in ["", "corp", "corp:", ":ada", ":"] {
            assert_eq!(AllowEntry::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn auth_09_token_for_another_server_is_refused() {
        let policy = |path: &str| {
            let (mcp, sse) = (format!("https://m/{path}/mcp"), format!("https://m/{path}/sse"));
            ServerPolicy::new(Scopes::new()).with_urls(&mcp, &sse, metadata())
        };
        let with = |claimed: &str, accepted: Option<&str>| Identity {
            audience: Some(Audience {
                claimed: vec![claimed.to_owned()],
                accepted: accepted.map(|url| [normalized_url(url)].into()),
            }),
            ..identity("")
        };
        for (claimed, accepted, files, mail) in [
            ("https://m/files/mcp", None, true, false),
            ("https://m/files/sse", None, true, false),
            ("https://m/mail/mcp/", None, false, true),
            ("api://mcp", Some("api://mcp"), true, true),
            ("https://m/files/mcp", Some("api://mcp"), false, false),
            ("https://m", None, false, false),
        ] {
            let identity = with(claimed, accepted);
            assert_eq!(
                policy("files").admit(&identity, Endpoint::Sse).is_ok(),
                files,
                "{claimed}"
            );
            assert_eq!(
                policy("mail").admit(&identity, Endpoint::Mcp).is_ok(),
                mail,
                "{claimed}"
            );
        }
        let refused = policy("files").admit(&with("x", None), Endpoint::Sse).unwrap_err();
        let header = r#"Bearer error="invalid_token", resource_metadata="https://m/x/sse""#;
        assert_eq!(answer(refused), (401, Some(header.to_owned())));
    }

    #[test]
    fn auth_15_scopes_of_a_tool_are_those_of_all_matching_patterns() {
        let tools = [
            ("write_*", "files:write"),
            ("write_all", "files:all"),
            ("*", "any"),
            ("x", "y"),
        ];
        let tools = tools.map(|(name, scopes)| (ToolPattern::parse(name).unwrap(), Scopes::from_words(scopes)));
        let policy = ServerPolicy::new(Scopes::from_words("mcp")).with_tools(tools.into());
        for (tool, scopes) in [
            ("write_all", "files:write files:all any"),
            ("write_", "files:write any"),
            ("write", "any"),
            ("Write_all", "any"),
            ("x", "any y"),
            ("xx", "any"),
        ] {
            assert_eq!(policy.tool_scopes(tool).to_string(), scopes, "{tool}");
        }
        assert_eq!(policy.all_scopes().to_string(), "mcp files:write files:all any y");
        for bad in ["", "a*b", "**", "*a"] {
            assert_eq!(ToolPattern::parse(bad), None, "{bad}");
        }
    }
}
