//! The phrases to avoid and the search for them.

use super::blocks::Block;

/// One use of a phrase.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) line: usize,
    pub(crate) phrase: &'static str,
    pub(crate) instead: &'static str,
}

/// A sentence does not start with these words. A question may.
const STARTS: &[(&str, &str)] = &[
    ("What", "name the subject"),
    ("Who", "anyone who .., a client that .."),
    ("Whoever", "anyone who .., the caller that .."),
    ("Those", "name the subject"),
    ("So much", "name the quantity"),
    ("One that", "a .. that .."),
];

/// Phrases that are avoided everywhere, in lower case.
const PHRASES: &[(&str, &str)] = &[
    ("through that of", "relative to"),
    ("stands before", "is in front of"),
    ("stand before", "are in front of"),
    ("proxy before", "a proxy in front of"),
    ("gateway before", "a gateway in front of"),
    ("as good as", "say what holds"),
    ("takes note", "records"),
    ("take note", "record"),
    ("of which that", "name the subject"),
    ("those of which", "name the subject"),
    ("no longer than", "at most"),
    ("speaks for", "covers"),
    ("speak for", "cover"),
    ("whoever", "anyone who .., the caller that .."),
    ("is no", "is not a .., or: invalid"),
    ("told", "notified, or: gets"),
    ("tells", "notifies, reports, shows"),
    ("hears", "gets, handles"),
    ("hangs up", "disconnects"),
    ("hang up", "disconnect"),
    ("the fate of", "the policy for, the decision about"),
    ("earlier life", "previous process"),
    ("is away", "is unreachable"),
    ("was away", "was unreachable"),
    ("in its own words", "name the bytes"),
    ("in their own words", "name the bytes"),
    ("talks to", "calls, uses, sends to"),
];

/// Allowed uses of a phrase: the word before it, the phrase, and the word after it.
const ALLOWED: &[(&str, &str, &str)] = &[("there", "is no", ""), ("", "is no", "longer"), ("", "is no", "more")];

/// All phrases to avoid in a block.
pub(crate) fn find(block: &Block) -> Vec<Finding> {
    let mut findings = Vec::new();
    let words = words(&block.text);
    for (at, _) in words.iter().enumerate() {
        let starts_sentence = at == 0 || words[at - 1].ends_sentence;
        let starts = STARTS
            .iter()
            .filter(|(phrase, _)| starts_sentence && matches(&words[at..], phrase, Case::Sensitive))
            .filter(|_| !is_question(&words[at..]));
        let anywhere = PHRASES
            .iter()
            .filter(|(phrase, _)| matches(&words[at..], phrase, Case::Insensitive))
            .filter(|(phrase, _)| !is_allowed(&words, at, phrase));
        // `Whoever` at the start of a sentence is one finding.
        if let Some((phrase, instead)) = starts.chain(anywhere).next() {
            findings.push(Finding {
                line: block.line(words[at].start),
                phrase,
                instead,
            });
        }
    }
    findings
}

/// A word of a block, without the punctuation around it.
struct Word<'a> {
    text: &'a str,
    start: usize,
    /// Punctuation of any kind follows.
    ends_clause: bool,
    ends_sentence: bool,
    ends_question: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Case {
    Sensitive,
    Insensitive,
}

fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut at = 0;
    for piece in text.split(' ') {
        let is_inner = |c: char| c.is_alphanumeric() || c == '_';
        let word = piece.trim_matches(|c| !is_inner(c));
        let tail = piece.trim_start_matches(|c| !is_inner(c)).trim_start_matches(word);
        if !word.is_empty() {
            words.push(Word {
                text: word,
                start: at,
                ends_clause: !tail.is_empty(),
                ends_sentence: tail.contains(['.', '!', '?']),
                ends_question: tail.contains('?'),
            });
        }
        at += piece.len() + 1;
    }
    words
}

/// Whether the words begin with a phrase, with no punctuation inside it.
fn matches(words: &[Word<'_>], phrase: &str, case: Case) -> bool {
    let mut length = 0;
    let all = phrase.split(' ').enumerate().all(|(at, expected)| {
        length = at + 1;
        words.get(at).is_some_and(|word| match case {
            Case::Sensitive => word.text == expected,
            Case::Insensitive => word.text.eq_ignore_ascii_case(expected),
        })
    });
    all && !words[..length - 1].iter().any(|word| word.ends_clause)
}

fn is_question(words: &[Word<'_>]) -> bool {
    let end = words.iter().find(|word| word.ends_sentence);
    end.is_some_and(|word| word.ends_question)
}

fn is_allowed(words: &[Word<'_>], at: usize, phrase: &str) -> bool {
    let is = |word: Option<&Word<'_>>, expected: &str| {
        expected.is_empty() || word.is_some_and(|word| word.text.eq_ignore_ascii_case(expected))
    };
    let before = at.checked_sub(1).and_then(|before| words.get(before));
    let after = words.get(at + phrase.split(' ').count());
    let mut allowed = ALLOWED.iter().filter(|(_, allowed, _)| *allowed == phrase);
    allowed.any(|(first, _, last)| is(before, first) && is(after, last))
}

#[cfg(test)]
mod tests {
    use super::super::blocks;
    use super::*;

    #[test]
    fn phrases_are_found() {
        let table: [(&str, &[(usize, &str)]); 16] = [
            ("What is stored goes there.", &[(1, "What")]),
            ("It goes. **What is stored** stays.", &[(1, "What")]),
            ("See what is stored. It says What.", &[]),
            ("What is stored? A message.", &[]),
            ("Whatever it is.", &[]),
            (
                "Whoever comes first wins; whoever is late waits.",
                &[(1, "Whoever"), (1, "whoever")],
            ),
            (
                "It stops.\nThose that wait go on. So much\nis sent. One that waits.",
                &[(2, "Those"), (2, "So much"), (3, "One that")],
            ),
            ("- Who asks, waits\n- anyone who asks", &[(1, "Who")]),
            (
                "A proxy stands\nbefore it. It is as\ngood as new.",
                &[(1, "stands before"), (2, "as good as")],
            ),
            ("p99, through that of the limit", &[(1, "through that of")]),
            (
                "This is no error. There is no error. It is no longer so.",
                &[(1, "is no")],
            ),
            ("The answer is. No error.", &[]),
            ("`What is no` code", &[]),
            ("| What it is | so |", &[(1, "What")]),
            ("The client is told, and hangs\nup.", &[(1, "told"), (1, "hangs up")]),
            ("The server restarts. The store\nis away.", &[(2, "is away")]),
        ];
        for (text, expected) in table {
            let blocks = blocks::of_markdown(text);
            let findings: Vec<Finding> = blocks.iter().flat_map(find).collect();
            let found: Vec<(usize, &str)> = findings.iter().map(|finding| (finding.line, finding.phrase)).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
