//! The file of static tokens: `[tokens.NAME]` with `sha256`, `scopes` and `expires`.

use crate::date::parse_date;
use crate::policy::scopes;
use crate::static_tokens::{StaticTokens, TokenDigest, TokenEntry};
use rethread_proto::auth::Scopes;
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A token file that cannot be used. The message repeats nothing of a value: somebody may have written a token there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct TokenFileError {
    line: usize,
    message: String,
}

/// Parses the text of a token file.
pub fn parse_token_file(text: &str) -> Result<StaticTokens, TokenFileError> {
    let parser = Parser { text };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        parser.error(at, error.message().lines().next().unwrap_or("invalid TOML"))
    })?;
    let mut entries = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (key, value) in table.get_ref() {
        let at = key.span().start;
        let (true, DeValue::Table(tokens)) = (key.get_ref() == "tokens", value.get_ref()) else {
            return Err(parser.error(at, "only tables [tokens.NAME] are expected"));
        };
        for (name, value) in tokens {
            let at = name.span().start;
            let DeValue::Table(fields) = value.get_ref() else {
                return Err(parser.error(at, "a token is a table: [tokens.NAME]"));
            };
            if name.get_ref().is_empty() || name.get_ref().chars().any(char::is_control) {
                return Err(parser.error(at, "a name is empty or has control characters"));
            }
            let entry = parser.entry(fields, at)?;
            if !entry.digests.iter().all(|digest| seen.insert(*digest)) {
                return Err(parser.error(at, "a digest is in the file twice"));
            }
            entries.insert(name.get_ref().to_string(), entry);
        }
    }
    Ok(StaticTokens::new(entries))
}

struct Parser<'a> {
    text: &'a str,
}

impl Parser<'_> {
    fn error(&self, at: usize, message: &str) -> TokenFileError {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        TokenFileError {
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            message: message.to_owned(),
        }
    }

    fn entry(&self, fields: &DeTable<'_>, at: usize) -> Result<TokenEntry, TokenFileError> {
        let mut entry = TokenEntry {
            digests: Vec::new(),
            scopes: Scopes::new(),
            expires: None,
        };
        for (key, value) in fields {
            match &**key.get_ref() {
                "sha256" => {
                    let texts = self.texts(value, "`sha256` is a list of strings")?;
                    let digests = texts
                        .into_iter()
                        .map(str::parse::<TokenDigest>)
                        .collect::<Result<_, _>>();
                    entry.digests = digests.map_err(|_| {
                        let message = "`sha256` needs 64 hex digits: `rethread token hash` prints them";
                        self.error(value.span().start, message)
                    })?;
                }
                "scopes" => {
                    let names = self.texts(value, "`scopes` is a list of strings")?;
                    entry.scopes = scopes(names)
                        .map_err(|_| self.error(value.span().start, "a scope has a space, a quote or a backslash"))?;
                }
                "expires" => {
                    let date = match value.get_ref() {
                        DeValue::String(text) => parse_date(text),
                        DeValue::Datetime(date) => parse_date(&date.to_string()),
                        _ => None,
                    };
                    let message = "`expires` is a date such as \"2027-01-31T12:00:00Z\"";
                    entry.expires = Some(date.ok_or_else(|| self.error(value.span().start, message))?);
                }
                _ => {
                    return Err(self.error(
                        key.span().start,
                        "unknown key; `sha256`, `scopes` and `expires` are known",
                    ));
                }
            }
        }
        if entry.digests.is_empty() {
            return Err(self.error(at, "a token has no `sha256`"));
        }
        Ok(entry)
    }

    /// A list of strings, or one string.
    fn texts<'v>(&self, value: &'v Spanned<DeValue<'_>>, message: &str) -> Result<Vec<&'v str>, TokenFileError> {
        let texts = match value.get_ref() {
            DeValue::String(one) => Some(vec![&**one]),
            DeValue::Array(list) => list.iter().map(|item| item.get_ref().as_str()).collect(),
            _ => None,
        };
        texts.ok_or_else(|| self.error(value.span().start, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_18_invalid_files_are_refused_with_their_line() {
        let digest = "ab".repeat(32);
        for (text, line) in [
            ("x = 1".to_owned(), 1),
            ("\ntokens = 1".to_owned(), 2),
            ("[tokens]\nada = 1".to_owned(), 2),
            ("[tokens.ada]\n".to_owned(), 1),
            ("[tokens.ada]\nsha256 = []".to_owned(), 1),
            ("[tokens.ada]\nsha256 = [\"abc\"]".to_owned(), 2),
            ("[tokens.ada]\nsha256 = 7".to_owned(), 2),
            (format!("[tokens.ada]\nsha256 = \"{digest}\"\nscopes = [\"a b\"]"), 3),
            (format!("[tokens.ada]\nsha256 = \"{digest}\"\nexpires = \"soon\""), 3),
            (format!("[tokens.ada]\nsha256 = \"{digest}\"\nscope = \"a\""), 3),
            (
                format!("[tokens.ada]\nsha256 = \"{digest}\"\n[tokens.bob]\nsha256 = \"{digest}\""),
                3,
            ),
            ("[tokens.ada".to_owned(), 1),
        ] {
            let error = parse_token_file(&text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line}: ")), "{text}: {error}");
        }
        assert_eq!(parse_token_file("").unwrap().len(), 0);
        let date = format!("[tokens.ada]\nsha256 = \"{digest}\"\nexpires = 2027-01-31T12:00:00Z");
        assert_eq!(parse_token_file(&date).unwrap().len(), 1);
    }

    #[test]
    fn sec_07_error_does_not_repeat_a_token() {
        let text = "[tokens.ada]\nsha256 = [\"rt_secret-secret-secret-secret-secret\"]";
        assert!(!parse_token_file(text).unwrap_err().to_string().contains("secret"));
    }
}
