//! The picture of the README: the real output of `rethread demo` as SVG.

use crate::run;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const PICTURE: &str = "docs/demo.svg";
/// The story ends in front of the line that begins so.
const END: &str = "Now you:";
/// Pixels.
const LINE_HEIGHT: usize = 19;
const CHARACTER_WIDTH: f64 = 7.85;
const MARGIN: usize = 22;

/// Runs the demo and draws its story. `program` is a built gateway, or none to build one.
pub(crate) fn run(program: Option<&str>) -> Result<(), String> {
    let mut command = match program {
        Some(program) => Command::new(program),
        None => {
            let mut cargo = run::cargo(&["run", "--release", "-p", "rethread-gateway", "--"]);
            cargo.current_dir(run::root());
            cargo
        }
    };
    let started = command.arg("demo").stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut demo = started.map_err(|error| format!("cannot start the demo: {error}"))?;
    let output = demo.stderr.take().ok_or("the demo has no output")?;
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    let is_story = |line: &String| !line.starts_with(END);
    let story: Vec<String> = lines
        .take_while(is_story)
        .filter(|line| !is_build_output(line))
        .collect();
    let _ = demo.kill().and_then(|()| demo.wait().map(drop));
    if story.len() < 20 {
        return Err(format!("the demo told {} lines", story.len()));
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

/// The lines of a terminal as SVG. Headings are bold, ids of events are coloured.
fn draw(story: &[String]) -> String {
    let story: Vec<&str> = story.iter().map(|line| line.trim_end()).collect();
    let end = story
        .iter()
        .rposition(|line| !line.is_empty())
        .map_or(0, |last| last + 1);
    let columns = story.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = 2 * MARGIN + (columns as f64 * CHARACTER_WIDTH) as usize;
    let height = 2 * MARGIN + end * LINE_HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"rethread demo\">\n\
         <style>text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d6deeb;white-space:pre}}\
         .h{{font-weight:600;fill:#fff}}.e{{fill:#7fdbca}}.t{{fill:#8392a5}}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"10\" fill=\"#0f1720\"/>\n"
    );
    for (row, line) in story[..end].iter().enumerate() {
        let y = MARGIN + (row + 1) * LINE_HEIGHT - 5;
        let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"{y}\">{}</text>", spans(line)); // writing to a string cannot fail
    }
    svg.push_str("</svg>\n");
    svg
}

fn spans(line: &str) -> String {
    let span = |class: &str, text: &str| format!("<tspan class=\"{class}\">{}</tspan>", escape(text));
    if is_heading(line) {
        return span("h", line);
    }
    let Some((time, rest)) = line.split_once(" s  ") else {
        return escape(line);
    };
    let time = span("t", &format!("{time} s  "));
    match rest.strip_prefix("event ") {
        Some(event) => {
            let (id, text) = event.split_at(event.find(' ').unwrap_or(event.len()));
            format!("{time}{}{}", span("e", &format!("event {id}")), escape(text))
        }
        None => format!("{time}{}", escape(rest)),
    }
}

/// The title, or the line of a step: `3. The client returns`.
fn is_heading(line: &str) -> bool {
    let numbered = line
        .split_once(". ")
        .is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    numbered || line.starts_with("A call that survives")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_text_and_get_classes() {
        assert_eq!(spans("2. A <cut>"), "<tspan class=\"h\">2. A &lt;cut&gt;</tspan>");
        let event = spans("   1.7 s  event 1-0      open & ready");
        assert_eq!(
            event,
            "<tspan class=\"t\">   1.7 s  </tspan><tspan class=\"e\">event 1-0</tspan>      open &amp; ready"
        );
        assert_eq!(spans("plain"), "plain");
    }

    #[test]
    fn empty_lines_at_the_end_are_left_out() {
        let story = [
            "A call that survives".to_owned(),
            String::new(),
            "x".to_owned(),
            String::new(),
        ];
        assert_eq!(draw(&story).matches("<text ").count(), 3);
    }
}
