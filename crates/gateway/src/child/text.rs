//! What a child prints is not ours: it is shown, never trusted.

/// As much of a line as is shown.
const SHOWN: usize = 2048;

/// A line of a child made fit for a log: control characters and escape sequences are spelled out, and it ends somewhere.
pub(crate) fn sanitised(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
    let mut shown = String::with_capacity(text.len());
    for c in text.trim_end().chars() {
        match c {
            '\t' => shown.push(' '),
            // Marks that turn text around or hide it are as good as control characters.
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                shown.extend(c.escape_unicode());
            }
            c if c.is_control() => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    if line.len() > SHOWN {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_01_a_line_cannot_play_tricks_on_the_terminal() {
        assert_eq!(sanitised(b"hello\tworld \r\n"), "hello world");
        assert_eq!(sanitised(b"\x1b[31mred\x07"), "\\u{1b}[31mred\\u{7}");
        assert_eq!(sanitised("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(sanitised(b"\xff\xfeok"), "\u{fffd}\u{fffd}ok");
        let long = sanitised(&[b'x'; 5000]);
        assert!(long.ends_with("x…") && long.len() < 2100);
    }
}
