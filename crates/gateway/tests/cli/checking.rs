//! `rethread check`, and the errors that `serve` shares with it.

use crate::run::Bench;

/// A program that is there wherever this test is.
const PROGRAM: &str = env!("CARGO_BIN_EXE_rethread");

#[test]
fn every_value_is_listed_with_its_source() {
    let bench = Bench::new().var("RETHREAD_LOG_FORMAT", "json");
    let ran = bench.run(&["check", "--drain", "3s", "--", PROGRAM, "demo-server"]);
    ran.assert_code(0);
    assert!(ran.stderr.is_empty(), "{ran:?}");
    let table = [
        ("config", "(none) (default)"),
        ("listen", "127.0.0.1:8080 (default)"),
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
    let ran = bench.run(&["check", "--listen", "127.0.0.1:1"]);
    ran.assert_code(0);
    let table = [
        ("config", "rethread.toml (env RETHREAD_CONFIG)"),
        ("listen", "127.0.0.1:1 (flag --listen)"),
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
    let ran = bench.run(&["check", "--data", "kept", "--", PROGRAM]);
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
    let ran = bench.run(&["check", "--config", "r.toml"]);
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
    let table: [(&[&str], &str, &str); 6] = [
        (&["--", "no-such-program-here"], "is not on PATH", "install it"),
        (&["--", "npx -y x"], "is not on PATH", r#"command = ["npx", "-y", "x"]"#),
        (&["--", "./nowhere"], "there is no program", "on PATH"),
        (&["--", "./plain"], "cannot be executed", "chmod +x"),
        (
            &["--cwd", "nowhere", "--", PROGRAM],
            "there is no directory",
            "create it",
        ),
        (
            &["--data", "plain/x", "--", PROGRAM],
            "cannot write to the data directory",
            "--memory",
        ),
    ];
    for (args, what, hint) in table {
        let ran = bench.run(&[&["check"], args].concat());
        ran.assert_code(2).assert_says(what).assert_says(hint);
        assert!(!ran.stdout.is_empty(), "the values are listed all the same");
    }
}

#[test]
fn an_open_address_is_a_warning_not_an_error() {
    let ran = Bench::new().run(&["check", "--listen", "0.0.0.0:80", "--", PROGRAM]);
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
