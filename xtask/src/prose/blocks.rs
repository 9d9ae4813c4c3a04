//! The prose of a file: comments of Rust, paragraphs of Markdown, without code.

use crate::lexer::{self, Token};

/// A unit of prose that contains whole sentences: a paragraph, a list item, a table cell or a comment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// The text on one line.
    pub(crate) text: String,
    /// The offset in the text at which each line of the file begins.
    lines: Vec<(usize, usize)>,
}

impl Block {
    /// The line of the file that a byte of the text is on.
    pub(crate) fn line(&self, at: usize) -> usize {
        let before = self.lines.iter().rev().find(|(start, _)| *start <= at);
        before.map_or(1, |(_, line)| *line)
    }

    fn push(&mut self, line: usize, text: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.lines.push((self.text.len(), line));
        self.text.push_str(text.trim());
    }
}

/// The prose of a Rust file. Comments on successive lines are one text, which is read as Markdown.
pub(crate) fn of_rust(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut comment: Vec<(usize, &str)> = Vec::new();
    for (line, token) in lexer::tokens(text) {
        let follows = comment.last().is_some_and(|(last, _)| last + 1 == line);
        let Token::Comment(text) = token else {
            blocks.append(&mut markdown(&std::mem::take(&mut comment)));
            continue;
        };
        if !follows {
            blocks.append(&mut markdown(&std::mem::take(&mut comment)));
        }
        comment.extend(text.lines().enumerate().map(|(after, text)| (line + after, text)));
    }
    blocks.append(&mut markdown(&comment));
    blocks
}

/// The prose of a Markdown file.
pub(crate) fn of_markdown(text: &str) -> Vec<Block> {
    let lines: Vec<(usize, &str)> = text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect();
    markdown(&lines)
}

fn markdown(lines: &[(usize, &str)]) -> Vec<Block> {
    let mut blocks = vec![Block::default()];
    let mut in_code = false;
    for (line, text) in lines {
        let text = text.trim();
        let is_fence = text.starts_with("```") || text.starts_with("~~~");
        in_code ^= is_fence;
        if is_fence || in_code || text.is_empty() || text.starts_with('#') {
            blocks.push(Block::default());
            continue;
        }
        let text = without_code(text);
        if let Some(row) = text.strip_prefix('|') {
            for cell in row.split('|') {
                blocks.push(Block::default());
                add(&mut blocks, *line, cell);
            }
            blocks.push(Block::default());
            continue;
        }
        let item = list_item(&text);
        if item.is_some() {
            blocks.push(Block::default());
        }
        add(&mut blocks, *line, item.unwrap_or(&text));
    }
    blocks.retain(|block| !block.text.is_empty());
    blocks
}

fn add(blocks: &mut [Block], line: usize, text: &str) {
    if let Some(block) = blocks.last_mut() {
        block.push(line, text);
    }
}

/// The text of a list item or a quote without its mark.
fn list_item(text: &str) -> Option<&str> {
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = number.strip_prefix(". ").filter(|_| number.len() < text.len());
    ["- ", "* ", "+ ", "> "]
        .iter()
        .find_map(|mark| text.strip_prefix(mark))
        .or(numbered)
}

/// A line with each code span replaced by `_`, so that code is not read as words.
fn without_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 0 { part } else { "_" }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(blocks: &[Block]) -> Vec<(usize, &str)> {
        blocks
            .iter()
            .map(|block| (block.line(0), block.text.as_str()))
            .collect()
    }

    #[test]
    fn comments_are_joined_and_code_is_omitted() {
        let text = "//! One\n//! two.\n//!\n//! ```\n//! let x;\n//! ```\n//! Three `a b`.\nfn f() {} // four\n// five\n\n// six\n/* seven\neight */";
        let expected = [
            (1, "One two."),
            (7, "Three _."),
            (8, "four five"),
            (11, "six seven eight"),
        ];
        assert_eq!(texts(&of_rust(text)), expected);
    }

    #[test]
    fn paragraphs_items_and_cells_are_blocks() {
        let text = "# What it is\nOne\ntwo.\n\n- three\n  four\n- five\n\n| six | seven |\n|---|---|\n1. eight\n```sh\nnine\n```";
        let expected = [
            (2, "One two."),
            (5, "three four"),
            (7, "five"),
            (9, "six"),
            (9, "seven"),
            (10, "---"),
            (10, "---"),
            (11, "eight"),
        ];
        assert_eq!(texts(&of_markdown(text)), expected);
    }

    #[test]
    fn position_in_a_block_has_a_line() {
        let blocks = of_markdown("one\ntwo\nthree");
        let lines = ["one", "two", "three"].map(|word| blocks[0].line(blocks[0].text.find(word).unwrap()));
        assert_eq!(lines, [1, 2, 3]);
    }
}
