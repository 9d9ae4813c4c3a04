//! Help, completions, manual pages.

use crate::run::Bench;

#[test]
fn short_help_is_short_and_full_help_has_examples_and_exit_codes() {
    let bench = Bench::new();
    for command in [&[][..], &["serve"], &["check"], &["demo"]] {
        let with = |flag| bench.run(&[command, &[flag]].concat());
        let (short, full) = (with("-h"), with("--help"));
        short.assert_code(0);
        full.assert_code(0);
        assert!(short.stdout.lines().count() < 60, "{}", short.stdout);
        assert!(full.stdout.len() > short.stdout.len(), "{command:?}");
        for section in ["Examples:", "Exit codes:", "  3  the address is in use"] {
            assert!(full.stdout.contains(section), "{command:?} lacks {section}");
        }
        assert!(!full.stdout.contains('\x1b'), "colours without a terminal");
        assert!(!full.stdout.contains("guardian") && !full.stdout.contains("demo-server"));
        assert!(full.stderr.is_empty());
    }
}

#[test]
fn no_line_of_the_help_is_broken_by_its_width() {
    // A line of our own that is too wide is wrapped, and then a word stands alone at the left.
    let help = Bench::new().run(&["serve", "--help"]).stdout;
    let examples = help.split_once("Examples:").unwrap().1;
    for line in examples.lines().filter(|line| !line.is_empty()) {
        assert!(line.starts_with("  ") || line.ends_with(':'), "{line:?}");
        assert!(line.chars().count() <= 100, "{line:?}");
    }
}

#[test]
fn every_option_of_serve_is_in_the_full_help() {
    let help = Bench::new().run(&["serve", "--help"]).stdout;
    for option in [
        "listen",
        "config",
        "data",
        "memory",
        "sync",
        "public-url",
        "allow-host",
        "allow-origin",
        "retry-ms",
        "session-idle",
        "drain",
        "max-connections-per-peer",
        "name",
        "env",
        "cwd",
        "era",
        "restore",
        "start-timeout",
        "max-children",
        "log-format",
        "color",
        "verbose",
        "quiet",
    ] {
        assert!(help.contains(&format!("--{option}")), "{option}");
    }
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_to_try() {
    let bench = Bench::new();
    let table: [(&[&str], &str); 7] = [
        (&[], "Usage: rethread"),
        (&["serv"], "'serve'"),
        (&["serve", "--lisen", "x"], "'--listen'"),
        (&["serve"], "rethread serve -- npx -y some-server"),
        (&["serve", "--listen", "8080", "--", "x"], "127.0.0.1:8080"),
        (&["serve", "--drain", "10", "--", "x"], "500ms, 90s"),
        (&["serve", "--era", "old", "--", "x"], "probe, legacy, modern, dual"),
    ];
    for (args, words) in table {
        let ran = bench.run(args);
        ran.assert_code(2).assert_says(words);
        assert!(ran.stdout.is_empty(), "{ran:?}");
    }
}

#[test]
fn options_of_other_programs_are_answered_with_ours() {
    let bench = Bench::new();
    let table: [(&[&str], &str); 11] = [
        (
            &["serve", "npx", "-y", "some-server"],
            "rethread serve -- npx -y some-server\n",
        ),
        (
            &["serve", "--memory", "./server", "x"],
            "rethread serve --memory -- ./server x\n",
        ),
        (&["check", "npx", "-y", "x"], "rethread check -- npx -y x\n"),
        (&["npx", "-y", "some-server"], "rethread serve -- npx -y some-server\n"),
        (&["serve", "--port", "9000", "--", "x"], "--listen 127.0.0.1:9000\n"),
        (
            &["serve", "--port=9000", "--host", "0.0.0.0", "--", "x"],
            "--listen 0.0.0.0:9000\n",
        ),
        (
            &["serve", "--host", "0.0.0.0", "--", "x", "--port", "1"],
            "--listen 0.0.0.0:8080\n",
        ),
        (&["serve", "--cors", "--", "x"], "--allow-origin https://app.example\n"),
        (
            &["serve", "--cors", "*", "--", "x"],
            "--allow-origin https://app.example\n",
        ),
        (
            &["serve", "--stdio", "npx -y x"],
            "rethread serve -- npx -y some-server\n",
        ),
        (&["serve", "--lisen", "x"], "'--listen'"),
    ];
    for (args, words) in table {
        bench.run(args).assert_code(2).assert_says(words);
    }
}

#[test]
fn completions_are_there_for_every_shell_and_hide_what_is_hidden() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = bench.run(&["completions", shell]);
        ran.assert_code(0);
        assert!(
            ran.stdout.contains("allow-origin") && ran.stdout.contains("completions"),
            "{shell}"
        );
        assert!(
            !ran.stdout.contains("guardian") && !ran.stdout.contains("demo-server"),
            "{shell}"
        );
    }
}

#[test]
fn manual_pages_are_there_for_every_command() {
    let bench = Bench::new();
    let root = bench.run(&["man"]);
    root.assert_code(0);
    assert!(root.stdout.contains(".TH rethread 1"), "{}", root.stdout);
    assert!(!root.stdout.contains("guardian"));
    for command in ["serve", "check", "demo", "completions", "man"] {
        let page = bench.run(&["man", command]);
        page.assert_code(0);
        assert!(
            page.stdout.contains(&format!(".TH rethread-{command} 1")),
            "{}",
            page.stdout
        );
    }
    let serve = bench.run(&["man", "serve"]).stdout;
    assert!(
        serve.contains("How long running calls may take"),
        "help that `-h` hides is in the page"
    );
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = Bench::new()
        .command(&["man", "serve"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
