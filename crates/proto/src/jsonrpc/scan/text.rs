//! Skips the parts of JSON text. Each function gets the index of a part, and returns the index behind it, or `None` if the text
//! is not valid there.

pub(super) fn expect(bytes: &[u8], at: usize, byte: u8) -> Option<usize> {
    (bytes.get(at) == Some(&byte)).then_some(at + 1)
}

/// Skips white space.
pub(super) fn blank(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\t' | b'\r') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Skips a value that nests at most `limit` deep, which is at most [`MAX_SCAN_DEPTH`](super::MAX_SCAN_DEPTH).
pub(super) fn skip(bytes: &[u8], mut at: usize, limit: u32) -> Option<usize> {
    // One bit for every open bracket, the innermost lowest. It is set for an object.
    let (mut objects, mut depth) = (0u64, 0u32);
    loop {
        at = match bytes.get(at)? {
            b'"' => string(bytes, at + 1)?,
            open @ (b'{' | b'[') => {
                let object = *open == b'{';
                let inside = blank(bytes, at + 1);
                if bytes.get(inside) == Some(&if object { b'}' } else { b']' }) {
                    inside + 1
                } else {
                    depth += 1;
                    if depth > limit {
                        return None;
                    }
                    objects = objects << 1 | u64::from(object);
                    at = if object { key(bytes, inside)? } else { inside };
                    continue;
                }
            }
            b't' => literal(bytes, at, b"true")?,
            b'f' => literal(bytes, at, b"false")?,
            b'n' => literal(bytes, at, b"null")?,
            _ => number(bytes, at)?,
        };
        // A value has ended, and so may the arrays and objects around it.
        loop {
            if depth == 0 {
                return Some(at);
            }
            at = blank(bytes, at);
            let object = objects & 1 == 1;
            match bytes.get(at)? {
                b',' => {
                    at = blank(bytes, at + 1);
                    if object {
                        at = key(bytes, at)?;
                    }
                    break;
                }
                b'}' if object => {}
                b']' if !object => {}
                _ => return None,
            }
            at += 1;
            objects >>= 1;
            depth -= 1;
        }
    }
}

/// Skips a key and its colon.
fn key(bytes: &[u8], at: usize) -> Option<usize> {
    let end = string(bytes, expect(bytes, at, b'"')?)?;
    Some(blank(bytes, expect(bytes, blank(bytes, end), b':')?))
}

fn literal(bytes: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    bytes[at..].starts_with(word).then_some(at + word.len())
}

/// Skips a string after its opening quote.
fn string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = until_special(bytes, at);
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => match bytes.get(at + 1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                b'u' if bytes.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit) => at += 6,
                _ => return None,
            },
            _ => return None,
        }
    }
}

/// Skips a string without escapes.
pub(super) fn plain_string(bytes: &[u8], at: usize) -> Option<usize> {
    expect(bytes, until_special(bytes, at), b'"')
}

/// Skips ordinary characters of a string, up to a quote, a backslash or a control character.
fn until_special(bytes: &[u8], mut at: usize) -> usize {
    // Eight bytes at a time: sets the high bit of each byte that is one of them. It may set a bit too many, which costs
    // a second look, but misses none.
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = LOW << 7;
    let zeros = |word: u64| word.wrapping_sub(LOW) & !word & HIGH;
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        let control = word.wrapping_sub(LOW * 0x20) & !word & HIGH;
        let special = zeros(word ^ (LOW * 0x22)) | zeros(word ^ (LOW * 0x5c)) | control;
        if special != 0 {
            at += special.trailing_zeros() as usize / 8;
            break;
        }
        at += 8;
    }
    while let Some(byte) = bytes.get(at) {
        if *byte < 0x20 || *byte == b'"' || *byte == b'\\' {
            break;
        }
        at += 1;
    }
    at
}

fn number(bytes: &[u8], mut at: usize) -> Option<usize> {
    let digits = |mut at: usize| {
        let start = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        (at > start).then_some(at)
    };
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match bytes.get(at)? {
        b'0' => at + 1,
        _ => digits(at)?,
    };
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        at = digits(at)?;
    }
    Some(at)
}
