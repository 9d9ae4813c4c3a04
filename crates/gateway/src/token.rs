//! `rethread token`: makes static tokens, and hashes existing ones.

use crate::exit::{Exit, Failure};
use rethread_auth::{MIN_TOKEN_CHARS, NewToken, TokenDigest, parse_date};
use rethread_proto::auth::Scope;
use std::io::{self, Read};

/// Longer input is not a token.
const MAX_TOKEN_BYTES: u64 = 64 * 1024;

/// A command below `rethread token`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenJob {
    New {
        name: String,
        scopes: Vec<String>,
        /// In the form of RFC 3339.
        expires: Option<String>,
    },
    Hash,
}

impl TokenJob {
    /// The text for stdout.
    pub(crate) fn run(&self) -> Result<String, Failure> {
        match self {
            TokenJob::New { name, scopes, expires } => {
                let mut bytes = [0; 32];
                getrandom::fill(&mut bytes).map_err(|error| Failure::new(Exit::Failure, error.to_string()))?;
                new_token(&NewToken::from_random(bytes), name, scopes, expires.as_deref())
            }
            TokenJob::Hash => hash(io::stdin().lock()),
        }
    }
}

/// The token, and its lines for the file.
fn new_token(token: &NewToken, name: &str, scopes: &[String], expires: Option<&str>) -> Result<String, Failure> {
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(Failure::new(Exit::Usage, "a name is empty or has control characters"));
    }
    if let Some(scope) = scopes.iter().find(|scope| Scope::parse(scope).is_none()) {
        let failure = Failure::new(Exit::Usage, format!("`{}` cannot be a scope", scope.escape_debug()));
        return Err(failure.hint("visible ASCII without spaces, quotes and backslashes"));
    }
    if expires.is_some_and(|date| parse_date(date).is_none()) {
        let failure = Failure::new(Exit::Usage, "the end of the token is not a date with a time");
        return Err(failure.hint("--expires 2027-01-31T12:00:00Z"));
    }
    let list: Vec<_> = scopes.iter().map(|scope| quoted(scope)).collect();
    let mut text = format!("{}\n\n[tokens.{}]\n", token.reveal(), key(name));
    text.push_str(&format!(
        "sha256 = [\"{}\"]\nscopes = [{}]\n",
        token.digest(),
        list.join(", ")
    ));
    if let Some(expires) = expires {
        text.push_str(&format!("expires = {}\n", quoted(expires)));
    }
    Ok(text)
}

/// The digest of a token on `input`.
fn hash(input: impl Read) -> Result<String, Failure> {
    let mut text = String::new();
    let read = input.take(MAX_TOKEN_BYTES).read_to_string(&mut text);
    // The error has no part of the input.
    read.map_err(|_| Failure::new(Exit::Usage, "the token is not text"))?;
    let token = text.trim_end_matches(['\r', '\n']);
    if token.chars().count() < MIN_TOKEN_CHARS {
        let failure = Failure::new(
            Exit::Usage,
            format!("a token has at least {MIN_TOKEN_CHARS} characters: shorter ones can be guessed"),
        );
        return Err(failure.hint("rethread token new NAME"));
    }
    Ok(format!("{}\n", TokenDigest::of(token)))
}

/// A key of TOML.
fn key(name: &str) -> String {
    let is_bare = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_bare { name.to_owned() } else { quoted(name) }
}

/// A basic string of TOML. `text` has no control characters.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rethread_auth::parse_token_file;

    #[test]
    fn auth_18_printed_lines_are_a_token_file() {
        let token = NewToken::from_random([7; 32]);
        for name in ["ada", "Ada Lovelace", "a\"b\\c", "ä"] {
            let scopes = ["mcp".to_owned(), "files:read".to_owned()];
            let text = new_token(&token, name, &scopes, Some("2027-01-31T12:00:00Z")).unwrap();
            let (first, file) = text.split_once("\n\n").unwrap();
            assert_eq!(first, token.reveal());
            assert!(!file.contains(token.reveal()));
            assert_eq!(parse_token_file(file).unwrap().len(), 1, "{file}");
        }
        assert!(new_token(&token, "", &[], None).is_err());
        assert!(new_token(&token, "a", &["a b".to_owned()], None).is_err());
        assert!(new_token(&token, "a", &[], Some("2027-01-31")).is_err());
    }

    #[test]
    fn auth_18_hash_refuses_short_tokens() {
        let token = "x".repeat(MIN_TOKEN_CHARS);
        let digest = TokenDigest::of(&token).to_string();
        for input in [token.clone(), format!("{token}\n"), format!("{token}\r\n")] {
            assert_eq!(hash(input.as_bytes()).unwrap(), format!("{digest}\n"));
        }
        let short = hash(&token.as_bytes()[1..]).unwrap_err();
        assert_eq!(short.exit, Exit::Usage);
        assert!(!short.message.contains(&token[1..]));
        assert!(hash(&[0xff; 40][..]).is_err());
    }
}
