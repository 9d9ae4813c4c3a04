//! Suggestions for misspelled keys.

/// The most similar of `known`, if it is similar enough.
pub(super) fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let normalize = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let word = normalize(word);
    let (distance, best) = known
        .into_iter()
        .map(|candidate| (distance(&word, &normalize(candidate)), candidate))
        .min()?;
    (distance <= (word.chars().count() / 3).max(2)).then_some(best)
}

/// The Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggest_finds_similar_keys_only() {
        let known = ["listen", "servers", "public_url", "env", "era"];
        let table = [
            ("lisen", Some("listen")),
            ("public-url", Some("public_url")),
            ("publicUrl", Some("public_url")),
            ("server", Some("servers")),
            ("mcpServers", Some("servers")),
            ("environ", None),
            ("whatever", None),
        ];
        for (word, expected) in table {
            assert_eq!(suggest(word, known), expected, "{word}");
        }
    }
}
