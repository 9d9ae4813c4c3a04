//! Help, completions, manual pages.

use crate::program::ProgramRunner;

#[test]
fn long_help_adds_examples_and_exit_codes_to_short_help() {
    let runner = ProgramRunner::new();
    for command in [&[][..], &["serve"], &["check"], &["demo"], &["export"]] {
        let with = |flag| runner.run(&[command, &[flag]].concat());
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
fn help_fits_in_100_columns() {
    // clap wraps a line that is too wide, and the rest starts without an indent.
    let help = ProgramRunner::new().run(&["serve", "--help"]).stdout;
    let examples = help.split_once("Examples:").unwrap().1;
    for line in examples.lines().filter(|line| !line.is_empty()) {
        assert!(line.starts_with("  ") || line.ends_with(':'), "{line:?}");
        assert!(line.chars().count() <= 100, "{line:?}");
    }
}

#[test]
fn long_help_of_serve_shows_every_option() {
    let help = ProgramRunner::new().run(&["serve", "--help"]).stdout;
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
fn usage_error_exits_with_2_and_advice() {
    let runner = ProgramRunner::new();
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
        let output = runner.run(args);
        output.assert_code(2).assert_stderr_contains(words);
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn options_of_other_programs_get_advice() {
    let runner = ProgramRunner::new();
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
        runner.run(args).assert_code(2).assert_stderr_contains(words);
    }
}

#[test]
fn completions_exist_for_every_shell_without_hidden_commands() {
    let runner = ProgramRunner::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = runner.run(&["completions", shell]);
        output.assert_code(0);
        assert!(
            output.stdout.contains("allow-origin") && output.stdout.contains("completions"),
            "{shell}"
        );
        assert!(
            !output.stdout.contains("guardian") && !output.stdout.contains("demo-server"),
            "{shell}"
        );
    }
}

#[test]
fn man_prints_a_page_for_every_command() {
    let runner = ProgramRunner::new();
    let root = runner.run(&["man"]);
    root.assert_code(0);
    assert!(root.stdout.contains(".TH rethread 1"), "{}", root.stdout);
    assert!(!root.stdout.contains("guardian"));
    for command in ["serve", "check", "demo", "import", "export", "completions", "man"] {
        let page = runner.run(&["man", command]);
        page.assert_code(0);
        assert!(
            page.stdout.contains(&format!(".TH rethread-{command} 1")),
            "{}",
            page.stdout
        );
    }
    let serve = runner.run(&["man", "serve"]).stdout;
    assert!(
        serve.contains("How long running calls may take"),
        "the page has options that `-h` hides"
    );
}

#[test]
fn closed_stdout_is_not_a_failure() {
    let mut child = ProgramRunner::new()
        .command(&["man", "serve"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
