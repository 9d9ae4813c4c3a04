//! The picture of the README: the real output of `rethread demo` as SVG.

use crate::run;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const PICTURE: &str = "docs/demo.svg";
/// The picture ends before the line with this text.
const END: &str = "Now you:";
/// Pixels.
const LINE_HEIGHT: usize = 19;
const CHARACTER_WIDTH: f64 = 7.85;
const MARGIN: usize = 22;

/// Runs the demo and draws its output. `program` is a built gateway; without it, one is built.
pub(crate) fn run(program: Option<&str>) -> Result<(), String> {
    let mut command = match program {
        Some(program) => Command::new(program),
        None => {
            let mut cargo = run::cargo(&["run", "--release", "-p", "rethread-gateway", "--"]);
            cargo.current_dir(run::root());
            cargo
        }
    };
    let started = command
        .args(["demo", "--color", "always"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut demo = started.map_err(|error| format!("cannot start the demo: {error}"))?;
    let output = demo.stderr.take().ok_or("the demo has no output")?;
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    let is_story = |line: &String| !line.contains(END);
    let story: Vec<String> = lines
        .take_while(is_story)
        .filter(|line| !is_build_output(line))
        .collect();
    let _ = demo.kill().and_then(|()| demo.wait().map(drop));
    if story.len() < 20 {
        return Err(format!("the demo printed {} lines", story.len()));
    }
    let path = run::root().join(PICTURE);
    fs::write(&path, draw(&story)).map_err(|error| format!("{PICTURE}: {error}"))?;
    println!("{PICTURE}: {} lines", story.len());
    Ok(())
}

fn is_build_output(line: &str) -> bool {
    let first = line.split_whitespace().next();
    matches!(
        first,
        Some("Compiling" | "Finished" | "Running" | "Downloading" | "Downloaded" | "Updating" | "Locking")
    )
}

/// The lines of a terminal as SVG, with their colors.
fn draw(story: &[String]) -> String {
    let story: Vec<&str> = story.iter().map(|line| line.trim_end()).collect();
    let end = story
        .iter()
        .rposition(|line| !line.is_empty())
        .map_or(0, |last| last + 1);
    let columns = story.iter().map(|line| width_of(line)).max().unwrap_or(0);
    let width = 2 * MARGIN + (columns as f64 * CHARACTER_WIDTH) as usize;
    let height = 2 * MARGIN + end * LINE_HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"rethread demo\">\n\
         <style>text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d6deeb;white-space:pre}}\
         .bold{{font-weight:600;fill:#fff}}.dim{{fill:#8392a5}}.red{{font-weight:600;fill:#ff7b72}}\
         .green{{fill:#7ee787}}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"10\" fill=\"#0f1720\"/>\n"
    );
    for (row, line) in story[..end].iter().enumerate() {
        let y = MARGIN + (row + 1) * LINE_HEIGHT - 5;
        let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"{y}\">{}</text>", spans(line)); // writing to a string cannot fail
    }
    svg.push_str("</svg>\n");
    svg
}

/// A line with the styles of its escape sequences.
fn spans(line: &str) -> String {
    let styled = styled_texts(line);
    styled.map(|(style, text)| span(style, text)).collect()
}

fn span(style: &str, text: &str) -> String {
    let class = match style {
        "1" => "bold",
        "2" => "dim",
        "1;31" => "red",
        "32" => "green",
        _ => return escape(text),
    };
    format!("<tspan class=\"{class}\">{}</tspan>", escape(text))
}

/// The texts between escape sequences, each with the numbers of the preceding sequence.
fn styled_texts(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let texts = line.split("\x1b[").enumerate().map(|(index, part)| match index {
        0 => ("", part),
        _ => part.split_once('m').unwrap_or(("", part)),
    });
    texts.filter(|(_, text)| !text.is_empty())
}

/// Visible characters.
fn width_of(line: &str) -> usize {
    styled_texts(line).map(|(_, text)| text.chars().count()).sum()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_of_the_terminal_become_classes() {
        assert_eq!(
            spans("\x1b[1m2. A <cut>\x1b[0m"),
            "<tspan class=\"bold\">2. A &lt;cut&gt;</tspan>"
        );
        let event = "\x1b[2m   1.7 s\x1b[0m  event \x1b[1m1-0\x1b[0m open & \x1b[1;31mcut\x1b[0m \x1b[32mgood\x1b[0m";
        assert_eq!(
            spans(event),
            "<tspan class=\"dim\">   1.7 s</tspan>  event <tspan class=\"bold\">1-0</tspan> open &amp; \
             <tspan class=\"red\">cut</tspan> <tspan class=\"green\">good</tspan>"
        );
        assert_eq!(width_of(event), "   1.7 s  event 1-0 open & cut good".len());
        assert_eq!(spans("plain"), "plain");
    }

    #[test]
    fn trailing_empty_lines_are_omitted() {
        let story = [
            "A call that survives".to_owned(),
            String::new(),
            "x".to_owned(),
            String::new(),
        ];
        assert_eq!(draw(&story).matches("<text ").count(), 3);
    }
}
