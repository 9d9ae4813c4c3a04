//! `rethread check`, and the errors that `serve` shares with it.

use crate::run::Bench;

/// A program that is there wherever this test is.
const PROGRAM: &str = env!("CARGO_BIN_EXE_rethread");

#[test]
fn every_value_is_listed_with_its_source() {
    let bench = Bench::new().var("RETHREAD_LOG_FORMAT", "json");
    let args = [
        "check",
        "--listen",
        "127.0.0.1:0",
        "--drain",
        "3s",
        "--",
        PROGRAM,
        "demo-server",
    ];
    let ran = bench.run(&args);
    ran.assert_code(0);
    assert!(ran.stderr.is_empty(), "{ran:?}");
    let table = [
        ("config", "(none) (default)"),
        ("listen", "127.0.0.1:0 (flag --listen)"),
        ("color", "auto (default)"),
        ("log_format", "json (env RETHREAD_LOG_FORMAT)"),
        ("public_url", "(none) (default)"),
        ("allow_hosts", "(none) (default)"),
        ("allow_origins", "(none) (default)"),
        ("memory", "false (default)"),
        ("sync", "interval (default)"),
        ("drain", "3s (flag --drain)"),
        ("retry_ms", "1000 (default)"),
        ("session_idle", "30m (default)"),
        ("max_connections_per_peer", "1024 (default)"),
        ("name", "rethread (from the command)"),
        ("era", "probe (default)"),
        ("restore", "replay (default)"),
        ("start_timeout", "30s (default)"),
        ("max_children", "100 (default)"),
    ];
    for (key, expected) in table {
        assert_eq!(ran.line(key), format!("{key} = {expected}"));
    }
    assert!(ran.line("data").ends_with("/.local/state/rethread (default)"));
    assert!(ran.line("folder").starts_with("folder = rethread-"));
    assert!(ran.stdout.contains("[servers.rethread] at /mcp and /sse\n"), "{ran:?}");
}

#[test]
fn flags_beat_variables_beat_the_file() {
    let file = format!("listen = '127.0.0.1:3'\ndrain = '3s'\nretry_ms = 3\n[servers.a]\ncommand = '{PROGRAM}'\n");
    let bench = Bench::new()
        .file("rethread.toml", &file)
        .var("RETHREAD_CONFIG", "rethread.toml")
        .var("RETHREAD_LISTEN", "127.0.0.1:2")
        .var("RETHREAD_DRAIN", "2s")
        .var("RETHREAD_SESSION_IDLE", "")
        .var("RETHREAD_MEMORY", "1")
        .var("RETHREAD_ALLOW_HOST", "a.example,b.example");
    let ran = bench.run(&["check", "--listen", "127.0.0.1:0"]);
    ran.assert_code(0);
    let table = [
        ("config", "rethread.toml (env RETHREAD_CONFIG)"),
        ("listen", "127.0.0.1:0 (flag --listen)"),
        ("drain", "2s (env RETHREAD_DRAIN)"),
        ("retry_ms", "3 (rethread.toml:3)"),
        ("session_idle", "30m (default)"),
        ("memory", "true (env RETHREAD_MEMORY)"),
        ("allow_hosts", "a.example, b.example (env RETHREAD_ALLOW_HOST)"),
    ];
    for (key, expected) in table {
        assert_eq!(ran.line(key), format!("{key} = {expected}"));
    }
    assert!(
        ran.stdout
            .contains("[servers.a] at /servers/a/mcp and /servers/a/sse\n"),
        "{ran:?}"
    );
}

#[test]
fn a_flag_for_the_store_beats_the_other_kind_in_the_environment() {
    let bench = Bench::new().var("RETHREAD_MEMORY", "true");
    let ran = bench.run(&["check", "--listen", "127.0.0.1:0", "--data", "kept", "--", PROGRAM]);
    ran.assert_code(0);
    assert!(ran.line("data").ends_with("/kept (flag --data)"), "{ran:?}");
    let ran = bench.run(&["check", "--data", "kept", "--memory", "--", PROGRAM]);
    ran.assert_code(2).assert_says("exclude each other");
}

#[test]
fn secrets_are_masked() {
    let file = format!(
        "[servers.a]\ncommand = ['{PROGRAM}', '--api-key', 'hush-1', 'postgres://me:hush-2@db/x']\n\
         [servers.a.env]\nGITHUB_TOKEN = 'hush-3'\nHEADER = 'Bearer ${{OUTSIDE}}'\nREGION = 'eu'\n"
    );
    let bench = Bench::new().file("r.toml", &file).var("OUTSIDE", "hush-4");
    let ran = bench.run(&["check", "--listen", "127.0.0.1:0", "--config", "r.toml"]);
    ran.assert_code(0);
    assert!(!format!("{ran:?}").contains("hush"), "{ran:?}");
    assert_eq!(ran.line("env.GITHUB_TOKEN"), "env.GITHUB_TOKEN = ****** (r.toml:4)");
    assert_eq!(ran.line("env.HEADER"), "env.HEADER = ****** (r.toml:5)");
    assert_eq!(ran.line("env.REGION"), "env.REGION = eu (r.toml:6)");
    assert!(
        ran.line("command")
            .contains("--api-key ****** postgres://me:******@db/x")
    );
}

#[test]
fn unknown_keys_and_other_slips_are_named_with_line_and_advice() {
    let table = [
        ("lisen = 'x'\n", "r.toml:1: unknown key `lisen`", "`listen`"),
        (
            "[servers.a]\ncommand = 'x'\nenvs = {}\n",
            "r.toml:3: unknown key `servers.a.envs`",
            "`servers.a.env`",
        ),
        ("a = \n", "r.toml:1: ", ""),
        (
            "[servers.a]\ncommand = 'x'\nenv = { A = '${NOWHERE}' }\n",
            "needs the variable NOWHERE",
            "export NOWHERE=",
        ),
        (
            "listen = '127.0.0.1:1'\n",
            "there is no server to serve",
            "[servers.NAME]",
        ),
    ];
    for (file, what, hint) in table {
        let bench = Bench::new().file("r.toml", file);
        for command in ["check", "serve"] {
            let ran = bench.run(&[command, "--config", "r.toml"]);
            ran.assert_code(2).assert_says(what).assert_says(hint);
        }
    }
    let ran = Bench::new().run(&["serve", "--config", "nowhere.toml"]);
    ran.assert_code(2)
        .assert_says("flag --config: cannot read nowhere.toml");
}

#[test]
fn what_is_missing_in_the_world_is_found() {
    let bench = Bench::new().file("plain", "");
    let table: [(&[&str], i32, &str, &str); 7] = [
        (&["--", "no-such-program-here"], 2, "is not on PATH", "install it"),
        (&["--", "npx -y x"], 2, "is not on PATH", "rethread serve -- npx -y x\n"),
        (
            &["--", "npx -y @scope/x", "--flag"],
            2,
            "there is no program",
            "rethread serve -- npx -y @scope/x --flag\n",
        ),
        (&["--", "./nowhere"], 2, "there is no program", "on PATH"),
        (&["--", "./plain"], 2, "cannot be executed", "chmod +x"),
        (
            &["--cwd", "nowhere", "--", PROGRAM],
            2,
            "there is no directory",
            "create it",
        ),
        (
            &["--data", "plain/x", "--", PROGRAM],
            4,
            "cannot write to the data directory",
            "--memory",
        ),
    ];
    for (args, code, what, hint) in table {
        for command in ["check", "serve"] {
            let ran = bench.run(&[&[command, "--listen", "127.0.0.1:0"], args].concat());
            ran.assert_code(code).assert_says(what).assert_says(hint);
            assert_eq!(
                ran.stdout.is_empty(),
                command == "serve",
                "check lists the values all the same"
            );
        }
    }
}

#[test]
fn likely_mistakes_in_a_file_are_answered_with_what_to_write() {
    let table = [
        (
            "[servers.a]\ncommand = 'npx -y @scope/x'\n",
            "there is no program 'npx -y @scope/x'",
            r#"try: a list: command = ["npx", "-y", "@scope/x"]"#,
        ),
        (
            "[servers.a]\ncommand = 'npx -y x'\n",
            "is not on PATH",
            r#"try: a list: command = ["npx", "-y", "x"]"#,
        ),
        (
            r#"{ "mcpServers": { "files": { "command": "npx", "args": ["-y", "x"] } } }"#,
            "this file is JSON; rethread reads TOML",
            "[servers.files]\n       command = [\"npx\", \"-y\", \"x\"]\n",
        ),
        (
            "[servers.a]\ncommand = 'x'\n[servers.a]\ncommand = 'y'\n",
            "r.toml:3: the server `a` is in this file twice; line 1 has it too",
            "[servers.a-2]",
        ),
    ];
    for (file, what, hint) in table {
        let bench = Bench::new().file("r.toml", file);
        for command in ["check", "serve"] {
            let ran = bench.run(&[command, "--memory", "--listen", "127.0.0.1:0", "--config", "r.toml"]);
            ran.assert_code(2).assert_says(what).assert_says(hint);
        }
    }
}

#[test]
fn a_server_that_starts_too_slowly_is_answered_with_the_option_for_it() {
    let bench = Bench::new().file(
        "r.toml",
        "memory = true\n[servers.a]\ncommand = ['sleep', '60']\nstart_timeout = '1s'\n",
    );
    let of_file = bench.run(&["serve", "--listen", "127.0.0.1:0", "--config", "r.toml"]);
    of_file.assert_code(1).assert_says("within 1 seconds");
    of_file.assert_says("try: start_timeout = \"60s\" below [servers.a]");
    let args = [
        "serve",
        "--memory",
        "--listen",
        "127.0.0.1:0",
        "--start-timeout",
        "1s",
        "--",
        "sleep",
        "60",
    ];
    let of_flag = bench.run(&args);
    of_flag.assert_code(1).assert_says("try: --start-timeout 60s if");
}

#[test]
fn an_open_address_is_a_warning_not_an_error() {
    let ran = Bench::new().run(&["check", "--listen", "0.0.0.0:0", "--", PROGRAM]);
    ran.assert_code(0)
        .assert_says("open to the network")
        .assert_says("--allow-host");
}

#[test]
fn colours_come_only_when_asked_for() {
    let args = ["check", "--", PROGRAM];
    assert!(!Bench::new().run(&args).stdout.contains('\x1b'));
    let forced = Bench::new()
        .var("NO_COLOR", "1")
        .run(&["--color", "always", "check", "--", PROGRAM]);
    assert!(
        forced.stdout.contains("\x1b[2m(default)\x1b[0m"),
        "a flag beats NO_COLOR"
    );
    let wrong = Bench::new().run(&["--color", "always", "check"]);
    wrong.assert_code(2).assert_says("\x1b[1;31merror:\x1b[0m");
}
