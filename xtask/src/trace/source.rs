//! The comments of a Rust file and the names of its tests, each with the test or code that it belongs to.
//!
//! Not a parser: it distinguishes strings, comments and code, and tracks which braces belong to a test. That is enough
//! to distinguish a comment in a test from a comment in code.

use crate::lexer::{self, Token};

/// The owner of an excerpt: a test by name, or code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Code,
    Test(String),
}

/// One comment, or the name of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Excerpt {
    Comment(String),
    TestName(String),
}

/// Reads a file. `base` owns everything outside of tests. `is_test` gets the name of each function and whether it has a
/// test attribute.
pub(crate) fn read(text: &str, base: Origin, is_test: impl Fn(&str, bool) -> bool) -> Vec<(Origin, Excerpt)> {
    let mut reader = Reader {
        scopes: vec![Some(base)],
        ..Reader::default()
    };
    for (line, token) in lexer::tokens(text) {
        reader.take(line, token, &is_test);
    }
    reader.settle();
    reader.excerpts
}

#[derive(Default)]
struct Reader {
    excerpts: Vec<(Origin, Excerpt)>,
    /// The origin inside each open brace; `None` inherits.
    scopes: Vec<Option<Origin>>,
    /// Comments that may belong to the item that follows.
    leading: Vec<String>,
    /// The keyword whose name follows.
    keyword: Option<Keyword>,
    /// The item whose brace follows.
    opening: Option<Origin>,
    attributes: Attributes,
    parentheses: usize,
    last_code_line: usize,
}

#[derive(Clone, Copy)]
enum Keyword {
    Fn,
    Mod,
}

#[derive(Clone, Copy, Default)]
struct Attributes {
    test: bool,
    cfg_test: bool,
}

impl Reader {
    fn take(&mut self, line: usize, token: Token<'_>, is_test: &impl Fn(&str, bool) -> bool) {
        if let Token::Comment(text) = token {
            return self.comment(line, text);
        }
        self.last_code_line = line;
        match token {
            Token::Word(word) => match self.keyword.take() {
                Some(keyword) => self.item(keyword, word, is_test),
                None => self.word(word),
            },
            Token::Attribute(text) => self.attribute(text),
            Token::Mark(mark) => {
                self.keyword = None;
                self.mark(mark);
            }
            Token::Comment(_) => {}
        }
    }

    fn comment(&mut self, line: usize, text: &str) {
        let is_inside = self.opening.is_some() || self.last_code_line == line;
        if is_inside {
            let origin = self.opening.clone().unwrap_or_else(|| self.origin());
            self.excerpts.push((origin, Excerpt::Comment(text.to_owned())));
        } else {
            self.leading.push(text.to_owned());
        }
    }

    fn attribute(&mut self, text: &str) {
        let path = text.split(['(', '=', ' ']).next().unwrap_or(text);
        self.attributes.test |= path.rsplit("::").next() == Some("test");
        self.attributes.cfg_test |= path == "cfg" && text.contains("test");
    }

    fn word(&mut self, word: &str) {
        match word {
            "fn" => self.keyword = Some(Keyword::Fn),
            "mod" if self.opening.is_none() => self.keyword = Some(Keyword::Mod),
            // These words may appear between attributes and keyword.
            "pub" | "crate" | "super" | "in" | "async" | "const" | "unsafe" | "extern" => {}
            _ if self.opening.is_none() => self.settle(),
            _ => {}
        }
    }

    fn item(&mut self, keyword: Keyword, name: &str, is_test: &impl Fn(&str, bool) -> bool) {
        let attributes = std::mem::take(&mut self.attributes);
        let starts_test = match keyword {
            Keyword::Fn => is_test(name, attributes.test),
            Keyword::Mod => attributes.cfg_test,
        };
        let origin = if starts_test {
            Origin::Test(name.to_owned())
        } else {
            self.origin()
        };
        if starts_test && matches!(keyword, Keyword::Fn) {
            self.excerpts.push((origin.clone(), Excerpt::TestName(name.to_owned())));
        }
        let leading = self
            .leading
            .drain(..)
            .map(|text| (origin.clone(), Excerpt::Comment(text)));
        self.excerpts.extend(leading);
        self.opening = Some(origin);
    }

    fn mark(&mut self, mark: char) {
        match mark {
            '(' | '[' => self.parentheses += 1,
            ')' | ']' => self.parentheses = self.parentheses.saturating_sub(1),
            '{' => {
                self.settle();
                let opening = self.opening.take();
                self.scopes.push(opening);
            }
            '}' => {
                self.settle();
                if self.scopes.len() > 1 {
                    self.scopes.pop();
                }
            }
            ';' if self.parentheses == 0 => {
                self.settle();
                self.opening = None;
            }
            _ => {}
        }
    }

    /// Assigns comments without an item to the surrounding test or code.
    fn settle(&mut self) {
        self.attributes = Attributes::default();
        let origin = self.origin();
        let leading = self
            .leading
            .drain(..)
            .map(|text| (origin.clone(), Excerpt::Comment(text)));
        self.excerpts.extend(leading);
    }

    fn origin(&self) -> Origin {
        let innermost = self.scopes.iter().rev().flatten().next();
        innermost.cloned().unwrap_or(Origin::Code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comments(text: &str) -> Vec<(String, String)> {
        let excerpts = read(text, Origin::Code, |_, attribute| attribute);
        let named = excerpts.into_iter().filter_map(|(origin, excerpt)| {
            let origin = match origin {
                Origin::Code => "code".to_owned(),
                Origin::Test(name) => name,
            };
            match excerpt {
                Excerpt::Comment(text) => Some((origin, text.trim().to_owned())),
                Excerpt::TestName(_) => None,
            }
        });
        named.collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    }

    #[test]
    fn comments_belong_to_the_enclosing_or_following_test() {
        let text = r##"
//! file
/// on code
pub(crate) fn code(x: [u8; 3]) -> bool { true } // after code
const STORY: &str = "// no comment { \" "; // trailing
const RAW: &str = r#"" // no "#;
#[cfg(test)]
mod tests {
    use super::*;
    // in the module
    fn helper<'a>(x: &'a str) -> char { '"' /* helping */ }

    /// on a test
    #[tokio::test(start_paused = true)]
    async fn waits() {
        // in a test
        if true { /* deeper /* nested */ */ }
    }

    proptest! {
        /// on a property
        #[test]
        fn holds(x in 0..5) { x; }
    }
    // last
}
// after all
"##;
        let expected = [
            ("code", "file"),
            ("code", "on code"),
            ("code", "after code"),
            ("code", "trailing"),
            ("tests", "in the module"),
            ("tests", "helping"),
            ("waits", "on a test"),
            ("waits", "in a test"),
            ("waits", "deeper /* nested */"),
            ("holds", "on a property"),
            ("tests", "last"),
            ("code", "after all"),
        ];
        assert_eq!(comments(text), pairs(&expected));
    }

    #[test]
    fn comments_on_other_items_belong_to_code() {
        let text = "/// on a type\nstruct A { /* field */ f: fn(u8) -> u8 }\n#[test]\nfn t() {}\n/// on a trait\n\
                    trait B { /// on a method\n fn m(&self); /* behind */ }\n\
                    #[cfg(test)]\nmod tests;\n/// x\nfn y() {}";
        let expected = [
            ("code", "on a type"),
            ("code", "field"),
            ("code", "on a trait"),
            ("code", "on a method"),
            ("code", "behind"),
            ("code", "x"),
        ];
        assert_eq!(comments(text), pairs(&expected));
    }

    #[test]
    fn names_of_tests_are_reported() {
        let text = "fn a() {}\n#[test]\nfn b() {}\nfn c() {}";
        let names = |is_test: fn(&str, bool) -> bool| -> Vec<Excerpt> {
            read(text, Origin::Code, is_test)
                .into_iter()
                .map(|(_, excerpt)| excerpt)
                .collect()
        };
        assert_eq!(names(|_, attribute| attribute), [Excerpt::TestName("b".into())]);
        assert_eq!(
            names(|name, _| name != "b"),
            [Excerpt::TestName("a".into()), Excerpt::TestName("c".into())]
        );
    }
}
