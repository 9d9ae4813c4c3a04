//! The token of the admin listener: a file that only its owner reads.

use crate::exit::{Exit, Failure};
use http::{HeaderMap, header};
use rethread_auth::{MIN_TOKEN_CHARS, NewToken};
use sha2::{Digest as _, Sha256};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// The digest of the token. The token itself stays in its file.
#[derive(Clone)]
pub(crate) struct AdminToken([u8; 32]);

impl AdminToken {
    /// Reads the token, or creates its file.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        match create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => created.map_err(|error| failure(path, &error.to_string()))?,
        }
        Ok(AdminToken(digest(&read(path)?)))
    }

    /// Whether a request carries the token in its one `Authorization` header. Compares digests in constant time.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let value = values.next().filter(|_| values.next().is_none());
        let Some((scheme, token)) = value.and_then(|value| value.to_str().ok()?.split_once(' ')) else {
            return false;
        };
        let difference = digest(token.trim())
            .iter()
            .zip(self.0)
            .fold(0, |all, (a, b)| all | (a ^ b));
        scheme.eq_ignore_ascii_case("bearer") && difference == 0
    }
}

/// The token in the file, for the URL of `rethread console`.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).map_err(|error| failure(path, &error.to_string()))?;
    let token = text.trim();
    if token.chars().count() < MIN_TOKEN_CHARS || token.contains(char::is_whitespace) {
        let reason = format!("it needs one token with at least {MIN_TOKEN_CHARS} characters");
        return Err(failure(path, &reason));
    }
    let is_open = fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0);
    if is_open {
        tracing::warn!(file = %path.display(), "other users can read the admin token: chmod 600");
    }
    Ok(token.to_owned())
}

fn create(path: &Path) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    writeln!(file, "{}", NewToken::from_random(bytes).reveal())
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn failure(path: &Path, reason: &str) -> Failure {
    let message = format!("cannot use the admin token file {}: {reason}", path.display());
    Failure::new(Exit::Failure, message).hint("`token_file` below [admin], in a directory that the gateway can write")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for value in values {
            map.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    #[test]
    fn ops_07_token_file_is_private_and_only_its_token_is_admitted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/admin.token");
        let token = AdminToken::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = read(&path).unwrap();
        assert!(text.len() >= MIN_TOKEN_CHARS);
        for scheme in ["Bearer", "bearer", "BEARER"] {
            assert!(token.admits(&headers(&[&format!("{scheme} {text}")])));
        }
        let right = format!("Bearer {text}");
        for wrong in [
            &[][..],
            &["Bearer"],
            &["Bearer "],
            &[&text],
            &[&format!("Basic {text}")],
            &[&format!("Bearer {}", &text[1..])],
            &[&format!("Bearer {text}x")],
            &[&format!("Bearer {}", text.to_uppercase())],
            &[&right, &right],
        ] {
            assert!(!token.admits(&headers(wrong)), "{wrong:?}");
        }
        let again = AdminToken::open(&path).unwrap();
        assert!(again.admits(&headers(&[&right])), "a restart keeps the token");
    }

    #[test]
    fn ops_07_short_token_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.token");
        for text in ["", "short", "two words that are long enough to be a token"] {
            fs::write(&path, text).unwrap();
            let failed = AdminToken::open(&path).err().unwrap();
            assert!(text.is_empty() || !failed.message.contains(text), "{}", failed.message);
        }
    }
}
