//! The figures, for people: tables, plots, and whether the targets hold.

mod about;
mod plots;
mod svg;
mod tables;
mod targets;

use crate::round::Results;
use anyhow::{Context as _, Result};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// What a terminal gets; it is Markdown, too.
pub(crate) fn text(results: &Results) -> String {
    let mut out = String::new();
    for suite in &results.suites {
        let _ = write!(out, "\n### {}\n\n{}", suite.name, tables::of(suite));
    }
    let _ = write!(out, "\n### Targets\n\n{}", targets::table(results));
    out + &left_out(results)
}

/// Writes the report and its plots into a folder.
pub(crate) fn write(results: &Results, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let heading = about::heading(results); // it names the commit, and whether the tree differs from it
    let plots = plots::of(results);
    for plot in &plots {
        fs::write(folder.join(plot.file), &plot.svg)?;
    }
    let mut out = String::from("# Benchmarks\n\n");
    out += &heading;
    let _ = write!(out, "\n## Targets\n\n{}", targets::table(results));
    for plot in &plots {
        let _ = write!(out, "\n![{}]({})\n", plot.title, plot.file);
    }
    for suite in &results.suites {
        let _ = write!(out, "\n## {}\n\n{}\n\n{}", suite.name, suite.about, tables::of(suite));
    }
    out += &left_out(results);
    out += &about::how_to(results);
    fs::write(folder.join("README.md"), out)?;
    fs::write(folder.join("figures.csv"), tables::csv(results))?;
    eprintln!("the report is {}", folder.join("README.md").display());
    Ok(())
}

fn left_out(results: &Results) -> String {
    let mut out = String::from("\n## Not measured\n\n");
    if results.left_out.is_empty() {
        out += "Everything was.\n";
    }
    for text in &results.left_out {
        let _ = writeln!(out, "* {text}");
    }
    out
}
