//! A minimal lexer for Rust. It omits literals.

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// The text of a comment, without the slashes.
    Comment(&'a str),
    /// The text between `#[` and `]`.
    Attribute(&'a str),
    /// A name or a keyword.
    Word(&'a str),
    /// Anything else.
    Mark(char),
}

/// The tokens of a file, each with its line.
pub(crate) fn tokens(text: &str) -> Vec<(usize, Token<'_>)> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (length, token) = next(rest, first);
        if let Some(token) = token {
            tokens.push((line, token));
        }
        let (piece, tail) = rest.split_at(length);
        line += piece.matches('\n').count();
        rest = tail;
    }
    tokens
}

/// The length of the next piece, and its token if it has one.
fn next(rest: &str, first: char) -> (usize, Option<Token<'_>>) {
    if rest.starts_with("//") {
        let end = rest.find('\n').unwrap_or(rest.len());
        let text = rest[..end].trim_start_matches(['/', '!']);
        return (end, Some(Token::Comment(text)));
    }
    if rest.starts_with("/*") {
        let end = block_comment(rest);
        let text = rest[2..end].strip_suffix("*/").unwrap_or(&rest[2..end]);
        return (end, Some(Token::Comment(text)));
    }
    if let Some(end) = literal(rest) {
        return (end, None);
    }
    if first == '_' || first.is_alphanumeric() {
        let end = rest
            .find(|c: char| c != '_' && !c.is_alphanumeric())
            .unwrap_or(rest.len());
        return (end, Some(Token::Word(&rest[..end])));
    }
    if let Some(inner) = rest.strip_prefix("#[") {
        let end = attribute(inner);
        return ((end + 3).min(rest.len()), Some(Token::Attribute(&inner[..end])));
    }
    let token = (!first.is_whitespace()).then_some(Token::Mark(first));
    (first.len_utf8(), token)
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += char_length(&rest[at..]);
        }
    }
    rest.len()
}

/// The length of a string, a raw string or a character at the start of `rest`. `None` if there is none.
fn literal(rest: &str) -> Option<usize> {
    let body = ["br", "cr", "r", "b", "c"]
        .iter()
        .find_map(|prefix| rest.strip_prefix(prefix));
    let is_raw = rest.starts_with('r') || rest.starts_with("br") || rest.starts_with("cr");
    let start = |body: &str| rest.len() - body.len();
    if let Some(body) = body.filter(|_| is_raw) {
        let quoted = body.trim_start_matches('#');
        let hashes = body.len() - quoted.len();
        if let Some(inner) = quoted.strip_prefix('"') {
            let closing = format!("\"{}", "#".repeat(hashes));
            let end = inner.find(&closing).map_or(inner.len(), |at| at + closing.len());
            return Some(start(inner) + end);
        }
    }
    let body = body.filter(|body| body.starts_with(['"', '\''])).unwrap_or(rest);
    if let Some(inner) = body.strip_prefix('"') {
        return Some(start(inner) + quoted(inner, '"'));
    }
    let inner = body.strip_prefix('\'')?;
    // `'a'` and `'\n'` are characters, `'a` is a lifetime.
    let is_character = inner.starts_with('\\') || inner.get(char_length(inner)..)?.starts_with('\'');
    is_character.then(|| start(inner) + quoted(inner, '\''))
}

/// The length up to and including the closing quote.
fn quoted(inner: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    inner.len()
}

/// The length of the text of an attribute, up to the bracket that ends it.
fn attribute(inner: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < inner.len() {
        let rest = &inner[at..];
        if let Some(length) = literal(rest) {
            at += length;
            continue;
        }
        match rest.as_bytes()[0] {
            b'[' => depth += 1,
            b']' if depth == 0 => return at,
            b']' => depth -= 1,
            _ => {}
        }
        at += char_length(rest);
    }
    inner.len()
}

fn char_length(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Vec<Token<'_>> {
        tokens(text).into_iter().map(|(_, token)| token).collect()
    }

    #[test]
    fn literals_are_left_out() {
        for literal in [
            r#""a // b""#,
            r#""\"{""#,
            r##"r#"" {"#"##,
            r#"b"x""#,
            r#"br"\""#,
            "'{'",
            r"'\''",
            r"'\u{7b}'",
            r"b'\\'",
        ] {
            let text = format!("a {literal} b");
            assert_eq!(only(&text), [Token::Word("a"), Token::Word("b")], "{literal}");
        }
        assert_eq!(
            only("&'a str"),
            [
                Token::Mark('&'),
                Token::Mark('\''),
                Token::Word("a"),
                Token::Word("str")
            ]
        );
        assert_eq!(
            only("rest bare crab"),
            [Token::Word("rest"), Token::Word("bare"), Token::Word("crab")]
        );
    }

    #[test]
    fn comments_and_attributes_have_text_and_line() {
        let text = "//! top\n#[cfg(any(test, x = \"]\"))]\n/* a\nb */ fn";
        let expected = [
            (1, Token::Comment(" top")),
            (2, Token::Attribute("cfg(any(test, x = \"]\"))")),
            (3, Token::Comment(" a\nb ")),
            (4, Token::Word("fn")),
        ];
        assert_eq!(tokens(text), expected);
    }

    #[test]
    fn lexing_of_unfinished_text_terminates() {
        for text in ["\"", "r#\"", "/*", "#[", "#[a", "'", "'\\", "b'"] {
            let _ = tokens(text);
        }
    }
}
