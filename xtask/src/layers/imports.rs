//! The modules that one Rust file declares, and the paths that it names.
//!
//! A scanner over tokens, not a parser. It ignores comments and literals, and skips items under `#[cfg(test)]`.

use crate::lexer::{self, Token};
use std::collections::BTreeSet;

/// The imports of a source file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Imports {
    /// Modules that the file declares with `mod name;`.
    pub(crate) children: Vec<Child>,
    /// One entry per imported name, with groups expanded.
    pub(crate) uses: Vec<Use>,
    /// Paths with at least two segments outside of `use`.
    pub(crate) paths: Vec<PathUse>,
    /// Every word outside of `use`.
    pub(crate) words: BTreeSet<String>,
}

/// A module in its own file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) name: String,
    pub(crate) is_test: bool,
}

/// One imported name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// Inline modules around the statement.
    pub(crate) scope: Vec<String>,
    pub(crate) path: Vec<String>,
    /// The name in this module; `None` for a glob.
    pub(crate) name: Option<String>,
    pub(crate) is_reexport: bool,
    pub(crate) line: usize,
}

/// One path in code, such as `crate::limits::Limits`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PathUse {
    /// Inline modules around the path.
    pub(crate) scope: Vec<String>,
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// Reads a file.
pub(crate) fn read(text: &str) -> Imports {
    let tokens = lexer::tokens(text)
        .into_iter()
        .filter(|(_, token)| !matches!(token, Token::Comment(_)))
        .collect();
    let mut scanner = Scanner {
        tokens,
        at: 0,
        depth: 0,
        scopes: Vec::new(),
        imports: Imports::default(),
    };
    while scanner.at < scanner.tokens.len() {
        scanner.step();
    }
    scanner.imports
}

struct Scanner<'a> {
    tokens: Vec<(usize, Token<'a>)>,
    at: usize,
    /// Open braces.
    depth: usize,
    /// Open inline modules, each with the depth outside of it.
    scopes: Vec<(usize, String)>,
    imports: Imports,
}

impl<'a> Scanner<'a> {
    fn step(&mut self) {
        match self.token(0) {
            Some(Token::Attribute(text)) if is_test_only(text) => {
                self.at += 1;
                self.skip_item();
            }
            Some(Token::Word("pub")) if self.token(1) == Some(Token::Mark('(')) => {
                self.at += 1;
                self.skip_group(); // `pub(in crate::a)` names a module without using it
            }
            Some(Token::Word("use")) => self.read_use(),
            Some(Token::Word("mod")) => self.read_mod(),
            Some(Token::Word(word)) => self.read_path(word),
            Some(Token::Mark('{')) => {
                self.depth += 1;
                self.at += 1;
            }
            Some(Token::Mark('}')) => {
                self.depth = self.depth.saturating_sub(1);
                if self.scopes.last().is_some_and(|(outside, _)| *outside == self.depth) {
                    self.scopes.pop();
                }
                self.at += 1;
            }
            _ => self.at += 1,
        }
    }

    fn read_mod(&mut self) {
        if let (Some(Token::Word(name)), after) = (self.token(1), self.token(2)) {
            match after {
                Some(Token::Mark(';')) => self.declare(name, false),
                Some(Token::Mark('{')) => {
                    self.scopes.push((self.depth, name.to_owned()));
                    self.depth += 1;
                    self.at += 1;
                }
                _ => {}
            }
            self.at += 1;
        }
        self.at += 1;
    }

    fn declare(&mut self, name: &str, is_test: bool) {
        self.imports.children.push(Child {
            name: name.to_owned(),
            is_test,
        });
    }

    fn read_use(&mut self) {
        let is_reexport = self.follows_visibility();
        self.at += 1;
        self.skip_double_colon();
        self.read_use_tree(&mut Vec::new(), is_reexport);
    }

    /// Reads one branch of a `use` tree up to the `,`, `}` or `;` that ends it.
    fn read_use_tree(&mut self, prefix: &mut Vec<String>, is_reexport: bool) {
        let length = prefix.len();
        while let Some(&(line, token)) = self.tokens.get(self.at) {
            self.at += 1;
            match token {
                Token::Word("as") => {}
                Token::Word(word) => {
                    prefix.push(word.to_owned());
                    if self.skip_double_colon() {
                        continue;
                    }
                    let alias = match (self.token(0), self.token(1)) {
                        (Some(Token::Word("as")), Some(Token::Word(alias))) => {
                            self.at += 2;
                            Some(alias)
                        }
                        _ => None,
                    };
                    self.add_use(prefix, alias, is_reexport, line);
                    break;
                }
                Token::Mark('*') => {
                    self.imports.uses.push(Use {
                        scope: self.scope(),
                        path: prefix.clone(),
                        name: None,
                        is_reexport,
                        line,
                    });
                    break;
                }
                Token::Mark('{') => {
                    while !matches!(self.token(0), None | Some(Token::Mark('}' | ';'))) {
                        self.read_use_tree(prefix, is_reexport);
                        if self.token(0) == Some(Token::Mark(',')) {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    break;
                }
                _ => break,
            }
        }
        prefix.truncate(length);
    }

    fn add_use(&mut self, path: &[String], alias: Option<&str>, is_reexport: bool, line: usize) {
        let mut path = path.to_vec();
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop(); // `a::{self}` imports `a`
        }
        let name = alias.map(str::to_owned).or_else(|| path.last().cloned());
        self.imports.uses.push(Use {
            scope: self.scope(),
            path,
            name,
            is_reexport,
            line,
        });
    }

    fn read_path(&mut self, first: &str) {
        let line = self.tokens[self.at].0;
        let mut path = vec![first.to_owned()];
        self.imports.words.insert(first.to_owned());
        let is_continued = self.at >= 2
            && self.tokens[self.at - 1].1 == Token::Mark(':')
            && self.tokens[self.at - 2].1 == Token::Mark(':');
        self.at += 1;
        while self.token(0) == Some(Token::Mark(':')) && self.token(1) == Some(Token::Mark(':')) {
            let Some(Token::Word(word)) = self.token(2) else { break };
            path.push(word.to_owned());
            self.imports.words.insert(word.to_owned());
            self.at += 3;
        }
        if path.len() > 1 && !is_continued {
            let scope = self.scope();
            self.imports.paths.push(PathUse { scope, path, line });
        }
    }

    /// Skips the item, field or match arm after a `#[cfg(test)]`.
    fn skip_item(&mut self) {
        while let Some(Token::Attribute(_)) = self.token(0) {
            self.at += 1;
        }
        if self.token(0) == Some(Token::Word("pub")) {
            self.at += 1;
            if self.token(0) == Some(Token::Mark('(')) {
                self.skip_group();
            }
        }
        if let (Some(Token::Word("mod")), Some(Token::Word(name)), Some(Token::Mark(';'))) =
            (self.token(0), self.token(1), self.token(2))
        {
            self.declare(name, true);
        }
        let end = match self.token(0) {
            Some(Token::Word("use" | "let" | "static" | "type")) => ItemEnd::Semicolon,
            Some(Token::Word("const")) if self.token(1) != Some(Token::Word("fn")) => ItemEnd::Semicolon,
            Some(Token::Word(
                "fn" | "mod" | "impl" | "struct" | "enum" | "trait" | "unsafe" | "async" | "const" | "extern"
                | "macro_rules",
            )) => ItemEnd::SemicolonOrBlock,
            _ => ItemEnd::CommaOrBlock,
        };
        while let Some(token) = self.token(0) {
            match token {
                Token::Mark('{') => {
                    self.skip_group();
                    if end != ItemEnd::Semicolon {
                        return;
                    }
                }
                Token::Mark('(' | '[') => self.skip_group(),
                Token::Mark('}' | ')' | ']') => return, // the end of the enclosing group
                _ => {
                    self.at += 1;
                    let ends = match token {
                        Token::Mark(';') => true,
                        Token::Mark(',') => end == ItemEnd::CommaOrBlock,
                        _ => false,
                    };
                    if ends {
                        return;
                    }
                }
            }
        }
    }

    /// Skips a bracketed group.
    fn skip_group(&mut self) {
        let mut depth = 0;
        while let Some(token) = self.token(0) {
            self.at += 1;
            match token {
                Token::Mark('(' | '[' | '{') => depth += 1,
                Token::Mark(')' | ']' | '}') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn skip_double_colon(&mut self) -> bool {
        let is_there = self.token(0) == Some(Token::Mark(':')) && self.token(1) == Some(Token::Mark(':'));
        if is_there {
            self.at += 2;
        }
        is_there
    }

    /// Whether `pub` or `pub(..)` precedes the current token.
    fn follows_visibility(&self) -> bool {
        let before = &self.tokens[..self.at];
        match before.last() {
            Some((_, Token::Word("pub"))) => true,
            Some((_, Token::Mark(')'))) => {
                let open = before.iter().rposition(|(_, token)| *token == Token::Mark('('));
                open.is_some_and(|open| open > 0 && before[open - 1].1 == Token::Word("pub"))
            }
            _ => false,
        }
    }

    fn token(&self, ahead: usize) -> Option<Token<'a>> {
        self.tokens.get(self.at + ahead).map(|(_, token)| *token)
    }

    fn scope(&self) -> Vec<String> {
        self.scopes.iter().map(|(_, name)| name.clone()).collect()
    }
}

/// The token that ends a skipped item.
#[derive(Clone, Copy, PartialEq)]
enum ItemEnd {
    Semicolon,
    SemicolonOrBlock,
    CommaOrBlock,
}

/// Whether an attribute limits its item to tests. `any(test, ..)` and `not(test)` do not.
fn is_test_only(attribute: &str) -> bool {
    let text: String = attribute.split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let imports = read(text);
        let uses = imports.uses.iter().map(|import| {
            let path = import.path.join("::");
            let last = import.path.last();
            match &import.name {
                None => format!("use {path}::*"),
                name if name.as_ref() == last => format!("use {path}"),
                Some(name) => format!("use {path} as {name}"),
            }
        });
        let paths = imports.paths.iter().map(|path| path.path.join("::"));
        uses.chain(paths).collect()
    }

    #[test]
    fn paths_are_read() {
        let table: [(&str, &[&str]); 16] = [
            ("use crate::a::B;", &["use crate::a::B"]),
            (
                "use crate::{a, b::{C, d::E}};",
                &["use crate::a", "use crate::b::C", "use crate::b::d::E"],
            ),
            ("use crate::a::{self, B};", &["use crate::a", "use crate::a::B"]),
            (
                "use super::A as B;\nuse super::super::C;",
                &["use super::A as B", "use super::super::C"],
            ),
            (
                "use super::*;\nuse a::{b::*, c,};",
                &["use super::*", "use a::b::*", "use a::c"],
            ),
            ("use ::std::a;", &["use std::a"]),
            (
                "fn f(x: crate::a::B) -> super::C { crate::d::e() }",
                &["crate::a::B", "super::C", "crate::d::e"],
            ),
            ("let x = Vec::<crate::a::B>::new();", &["crate::a::B"]),
            (
                "// use crate::a;\n/// [`crate::b::C`]\nconst S: &str = \"crate::d\";",
                &[],
            ),
            ("pub(in crate::a) fn f() {}\npub(crate) fn g() {}", &[]),
            (
                "#[cfg(test)]\nmod tests { use crate::a::B; }\nuse crate::c;",
                &["use crate::c"],
            ),
            ("#[cfg(test)]\nuse crate::a::{B, C};\nuse crate::d;", &["use crate::d"]),
            (
                "impl A { #[cfg(test)]\n#[inline]\npub(crate) fn f<A, B>(x: A) { crate::a::b() }\nfn g() { crate::c::d() } }",
                &["crate::c::d"],
            ),
            (
                "struct A { #[cfg(test)]\nx: crate::a::B, y: crate::c::D }",
                &["crate::c::D"],
            ),
            (
                "struct A { y: crate::c::D, #[cfg(test)]\nx: crate::a::B }\nuse super::E;",
                &["use super::E", "crate::c::D"],
            ),
            (
                "#[cfg(not(test))]\nuse crate::a;\n#[cfg(any(test, x))]\nuse crate::b;",
                &["use crate::a", "use crate::b"],
            ),
        ];
        for (text, expected) in table {
            assert_eq!(paths(text), expected, "{text}");
        }
    }

    #[test]
    fn modules_are_read() {
        let imports =
            read("mod a;\npub(crate) mod b;\n#[cfg(test)]\nmod c;\nmod d { mod_e!(); use super::F; }\nuse g::H;");
        let children: Vec<(&str, bool)> = imports
            .children
            .iter()
            .map(|child| (child.name.as_str(), child.is_test))
            .collect();
        assert_eq!(children, [("a", false), ("b", false), ("c", true)]);
        let scopes: Vec<&[String]> = imports.uses.iter().map(|import| import.scope.as_slice()).collect();
        assert_eq!(scopes, [&["d".to_owned()][..], &[]]);
    }

    #[test]
    fn reexports_and_lines_are_read() {
        let imports =
            read("use a::A;\npub use b::B;\npub(crate) use c::C;\npub(in crate::x) use d::D;\nfn f() { A::new() }");
        let reexports: Vec<(usize, bool)> = imports
            .uses
            .iter()
            .map(|import| (import.line, import.is_reexport))
            .collect();
        assert_eq!(reexports, [(1, false), (2, true), (3, true), (4, true)]);
        assert!(imports.words.contains("A") && !imports.words.contains("B"));
        assert_eq!(imports.paths[0].line, 5);
    }

    #[test]
    fn scan_of_unfinished_text_terminates() {
        for text in [
            "use",
            "use a::",
            "use a::{",
            "use a::{b,",
            "mod",
            "pub(",
            "#[cfg(test)]",
            "#[cfg(test)] mod a {",
            "a::",
            "}",
        ] {
            let _ = read(text);
        }
    }
}
