//! Scopes: names of permissions (RFC 6749, section 3.3).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// One scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(Arc<str>);

impl Scope {
    /// Reads a scope: visible ASCII without `"` and `\`, so that a challenge can quote it.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        (!text.is_empty() && text.bytes().all(fits)).then(|| Scope(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Some scopes, each once, in the order in which they were added. Cheap to clone: every authenticated request does it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes(Option<Arc<Vec<Scope>>>); // `None` if there are none, so that equal sets compare as equal

impl Scopes {
    /// No scopes.
    pub const fn new() -> Self {
        Scopes(None)
    }

    /// Reads names that are separated by spaces. Names that cannot be scopes are left out: they can grant nothing.
    pub fn from_words(text: &str) -> Self {
        text.split(' ').filter_map(Scope::parse).collect()
    }

    /// Adds a scope, unless it is there.
    pub fn insert(&mut self, scope: Scope) {
        if !self.contains(&scope) {
            Arc::make_mut(self.0.get_or_insert_default()).push(scope);
        }
    }

    /// Whether `scope` is among them.
    pub fn contains(&self, scope: &Scope) -> bool {
        self.as_slice().contains(scope)
    }

    /// Whether every scope of `needed` is among them.
    pub fn contain_all<'a>(&self, needed: impl IntoIterator<Item = &'a Scope>) -> bool {
        needed.into_iter().all(|scope| self.contains(scope))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// The scopes in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Scope> {
        self.as_slice().iter()
    }

    /// The scopes in order.
    pub fn as_slice(&self) -> &[Scope] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl<'a> IntoIterator for &'a Scopes {
    type Item = &'a Scope;
    type IntoIter = std::slice::Iter<'a, Scope>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        let mut set = Scopes::new();
        set.extend(scopes);
        set
    }
}

impl Extend<Scope> for Scopes {
    fn extend<I: IntoIterator<Item = Scope>>(&mut self, scopes: I) {
        for scope in scopes {
            self.insert(scope);
        }
    }
}

/// The names, separated by spaces.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, scope) in self.iter().enumerate() {
            let space = if n == 0 { "" } else { " " };
            write!(f, "{space}{}", scope.as_str())?;
        }
        Ok(())
    }
}

/// Broader scopes, each with the narrower ones that it grants (AUTH-16).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImpliedScopes(BTreeMap<Scope, Scopes>);

impl ImpliedScopes {
    /// Lets `broader` grant `narrower`.
    pub fn insert(&mut self, broader: Scope, narrower: &Scopes) {
        self.0.entry(broader).or_default().extend(narrower.iter().cloned());
    }

    /// The granted scopes and everything that they imply, also over several steps.
    #[must_use]
    pub fn extend(&self, mut granted: Scopes) -> Scopes {
        let mut next = 0;
        // The list grows while it is read. It ends, because each scope is in it once.
        while let Some(scope) = granted.as_slice().get(next) {
            if let Some(narrower) = self.0.get(scope) {
                granted.extend(narrower.iter().cloned());
            }
            next += 1;
        }
        granted
    }
}

/// The scopes with those that they grant: `write: read list`.
impl fmt::Display for ImpliedScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (broader, narrower)) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{}: {narrower}", broader.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_14_scopes_are_visible_ascii_that_a_challenge_can_quote() {
        for good in ["mcp", "files:write", "https://example.com/a.b", "!#[]~"] {
            assert!(Scope::parse(good).is_some(), "{good}");
        }
        for bad in ["", "a b", "a\"b", "a\\b", "ä", "a\tb", "a\r\nb"] {
            assert_eq!(Scope::parse(bad), None, "{bad:?}");
        }
        let scopes = Scopes::from_words("b a  b \"x\" a");
        assert_eq!(scopes.to_string(), "b a");
    }

    #[test]
    fn auth_16_broader_scope_grants_narrower_ones_over_several_steps() {
        let mut implied = ImpliedScopes::default();
        for (broader, narrower) in [("admin", "write"), ("write", "read list"), ("read", "admin")] {
            implied.insert(Scope::parse(broader).unwrap(), &Scopes::from_words(narrower));
        }
        for (granted, all) in [
            ("admin", "admin write read list"),
            ("read", "read admin write list"),
            ("list", "list"),
            ("", ""),
        ] {
            assert_eq!(
                implied.extend(Scopes::from_words(granted)).to_string(),
                all,
                "{granted}"
            );
        }
    }
}
