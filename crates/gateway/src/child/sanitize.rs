//! Makes output of a child safe for the log.

/// Bytes of a line that are logged. The rest is replaced by `…`.
const MAX_LOGGED_LINE_BYTES: usize = 2048;

/// Escapes control characters and escape sequences of a line, and bounds its length.
pub(super) fn sanitize_line(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(MAX_LOGGED_LINE_BYTES)]);
    let mut safe = String::with_capacity(text.len());
    for c in text.trim_end().chars() {
        match c {
            '\t' => safe.push(' '),
            // Zero-width and bidirectional marks can hide or reorder text.
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                safe.extend(c.escape_unicode());
            }
            c if c.is_control() => safe.extend(c.escape_default()),
            c => safe.push(c),
        }
    }
    if line.len() > MAX_LOGGED_LINE_BYTES {
        safe.push('…');
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_01_sanitized_line_has_no_terminal_escapes() {
        assert_eq!(sanitize_line(b"hello\tworld \r\n"), "hello world");
        assert_eq!(sanitize_line(b"\x1b[31mred\x07"), "\\u{1b}[31mred\\u{7}");
        assert_eq!(sanitize_line("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(sanitize_line(b"\xff\xfeok"), "\u{fffd}\u{fffd}ok");
        let long = sanitize_line(&[b'x'; 5000]);
        assert!(long.ends_with("x…") && long.len() < 2100);
    }
}
