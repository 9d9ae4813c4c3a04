//! `rethread check`, and the errors that it shares with `serve`.

use crate::program::ProgramRunner;

/// A program that always exists.
const PROGRAM: &str = env!("CARGO_BIN_EXE_rethread");

#[test]
fn check_lists_every_value_with_its_source() {
    let runner = ProgramRunner::new().var("RETHREAD_LOG_FORMAT", "json");
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
    let output = runner.run(&args);
    output.assert_code(0);
    assert!(output.stderr.is_empty(), "{output:?}");
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
        ("eras", "not probed yet (`serve` asks the server)"),
        ("restore", "replay (default)"),
        ("start_timeout", "30s (default)"),
        ("max_children", "100 (default)"),
    ];
    for (key, expected) in table {
        assert_eq!(output.value_line(key), format!("{key} = {expected}"));
    }
    assert!(output.value_line("data").ends_with("/.local/state/rethread (default)"));
    assert!(output.value_line("folder").starts_with("folder = rethread-"));
    assert!(
        output.stdout.contains("[servers.rethread] at /mcp and /sse\n"),
        "{output:?}"
    );
}

/// GW-15: `check` prints the revisions of a server, and those of its clients.
#[test]
fn gw_15_check_shows_the_eras_of_each_server() {
    let served = "served as 2024-11-05 to 2026-07-28 (from era)";
    for (era, upstream) in [
        ("legacy", "2025-11-25"),
        ("modern", "2026-07-28"),
        ("dual", "2025-11-25 and 2026-07-28"),
    ] {
        let args = [
            "check",
            "--listen",
            "127.0.0.1:0",
            "--era",
            era,
            "--",
            PROGRAM,
            "demo-server",
        ];
        let output = ProgramRunner::new().run(&args);
        output.assert_code(0);
        assert_eq!(
            output.value_line("eras"),
            format!("eras = {upstream} upstream, {served}")
        );
    }
}

#[test]
fn flags_override_variables_override_the_file() {
    let file = format!("listen = '127.0.0.1:3'\ndrain = '3s'\nretry_ms = 3\n[servers.a]\ncommand = '{PROGRAM}'\n");
    let runner = ProgramRunner::new()
        .file("rethread.toml", &file)
        .var("RETHREAD_CONFIG", "rethread.toml")
        .var("RETHREAD_LISTEN", "127.0.0.1:2")
        .var("RETHREAD_DRAIN", "2s")
        .var("RETHREAD_SESSION_IDLE", "")
        .var("RETHREAD_MEMORY", "1")
        .var("RETHREAD_ALLOW_HOST", "a.example,b.example");
    let output = runner.run(&["check", "--listen", "127.0.0.1:0"]);
    output.assert_code(0);
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
        assert_eq!(output.value_line(key), format!("{key} = {expected}"));
    }
    assert!(
        output
            .stdout
            .contains("[servers.a] at /servers/a/mcp and /servers/a/sse\n"),
        "{output:?}"
    );
}

#[test]
fn store_flag_overrides_the_other_store_in_the_environment() {
    let runner = ProgramRunner::new().var("RETHREAD_MEMORY", "true");
    let output = runner.run(&["check", "--listen", "127.0.0.1:0", "--data", "kept", "--", PROGRAM]);
    output.assert_code(0);
    assert!(output.value_line("data").ends_with("/kept (flag --data)"), "{output:?}");
    let output = runner.run(&["check", "--data", "kept", "--memory", "--", PROGRAM]);
    output.assert_code(2).assert_stderr_contains("exclude each other");
}

#[test]
fn check_masks_secrets() {
    let file = format!(
        "[servers.a]\ncommand = ['{PROGRAM}', '--api-key', 'hush-1', 'postgres://me:hush-2@db/x']\n\
         [servers.a.env]\nGITHUB_TOKEN = 'hush-3'\nHEADER = 'Bearer ${{OUTSIDE}}'\nREGION = 'eu'\n"
    );
    let runner = ProgramRunner::new().file("r.toml", &file).var("OUTSIDE", "hush-4");
    let output = runner.run(&["check", "--listen", "127.0.0.1:0", "--config", "r.toml"]);
    output.assert_code(0);
    assert!(!format!("{output:?}").contains("hush"), "{output:?}");
    assert_eq!(
        output.value_line("env.GITHUB_TOKEN"),
        "env.GITHUB_TOKEN = ****** (r.toml:4)"
    );
    assert_eq!(output.value_line("env.HEADER"), "env.HEADER = ****** (r.toml:5)");
    assert_eq!(output.value_line("env.REGION"), "env.REGION = eu (r.toml:6)");
    assert!(
        output
            .value_line("command")
            .contains("--api-key ****** postgres://me:******@db/x")
    );
}

#[test]
fn invalid_file_is_reported_with_line_and_advice() {
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
        let runner = ProgramRunner::new().file("r.toml", file);
        for command in ["check", "serve"] {
            let output = runner.run(&[command, "--config", "r.toml"]);
            output
                .assert_code(2)
                .assert_stderr_contains(what)
                .assert_stderr_contains(hint);
        }
    }
    let output = ProgramRunner::new().run(&["serve", "--config", "nowhere.toml"]);
    output
        .assert_code(2)
        .assert_stderr_contains("flag --config: cannot read nowhere.toml");
}

#[test]
fn missing_programs_and_directories_are_reported() {
    let runner = ProgramRunner::new().file("plain", "");
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
            let output = runner.run(&[&[command, "--listen", "127.0.0.1:0"], args].concat());
            output
                .assert_code(code)
                .assert_stderr_contains(what)
                .assert_stderr_contains(hint);
            assert_eq!(
                output.stdout.is_empty(),
                command == "serve",
                "check lists the values in any case"
            );
        }
    }
}

#[test]
fn likely_mistakes_in_a_file_get_advice() {
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
            "[servers.a]\ncommand = 'x'\n[servers.a]\ncommand = 'y'\n",
            "r.toml:3: the server `a` is in this file twice; line 1 has it too",
            "[servers.a-2]",
        ),
    ];
    for (file, what, hint) in table {
        let runner = ProgramRunner::new().file("r.toml", file);
        for command in ["check", "serve"] {
            let output = runner.run(&[command, "--memory", "--listen", "127.0.0.1:0", "--config", "r.toml"]);
            output
                .assert_code(2)
                .assert_stderr_contains(what)
                .assert_stderr_contains(hint);
        }
    }
}

#[test]
fn start_timeout_names_the_option() {
    let runner = ProgramRunner::new().file(
        "r.toml",
        "memory = true\n[servers.a]\ncommand = ['sleep', '60']\nstart_timeout = '1s'\n",
    );
    let of_file = runner.run(&["serve", "--listen", "127.0.0.1:0", "--config", "r.toml"]);
    of_file.assert_code(1).assert_stderr_contains("within 1 seconds");
    of_file.assert_stderr_contains("try: start_timeout = \"60s\" below [servers.a]");
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
    let of_flag = runner.run(&args);
    of_flag
        .assert_code(1)
        .assert_stderr_contains("try: --start-timeout 60s if");
}

/// OPS-21.
#[test]
fn open_address_needs_auth_or_the_flag() {
    let runner = ProgramRunner::new();
    for command in ["check", "serve"] {
        let refused = runner.run(&[command, "--listen", "0.0.0.0:0", "--memory", "--", PROGRAM]);
        refused
            .assert_code(2)
            .assert_stderr_contains("flag --listen: 0.0.0.0:0 is open to the network")
            .assert_stderr_contains("--no-auth");
    }
    let confirmed = runner.run(&["check", "--listen", "0.0.0.0:0", "--no-auth", "--", PROGRAM]);
    confirmed
        .assert_code(0)
        .assert_stderr_contains("open to the network")
        .assert_stderr_contains("--allow-host");
}

#[test]
fn auth_of_a_file_is_shown_with_its_sources() {
    let digest = "ab".repeat(32);
    let tokens = format!("[tokens.ada]\nsha256 = '{digest}'\n");
    let config = "listen = '0.0.0.0:0'\n[auth]\ntokens = 't.toml'\nscopes = ['mcp']\nimplies = { w = ['r'] }\n\
                  [servers.a]\ncommand = 'sh'\nscopes = ['files']\nallow = ['tokens:ada', 'tokens:*']\n\
                  tool_scopes = { 'write_*' = ['w'] }\n";
    let runner = ProgramRunner::new().file("t.toml", &tokens).file("r.toml", config);
    let output = runner.run(&["check", "--config", "r.toml"]);
    output.assert_code(0);
    let rows: Vec<_> = output
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for expected in [
        "auth.scopes = mcp (r.toml:4)",
        "auth.leeway = 30s (default)",
        "auth.implies = w: r (r.toml:5)",
        "no_auth = false (default)",
        "scopes = files (r.toml:8)",
        "allow = tokens:ada, tokens:* (r.toml:9)",
        "tool_scopes = write_*: w (r.toml:10)",
    ] {
        assert!(rows.iter().any(|row| row == expected), "{expected}\n{}", output.stdout);
    }
    assert!(!output.stdout.contains(&digest) && !output.stderr.contains(&digest));
}

#[test]
fn invalid_auth_is_a_usage_error() {
    for (config, message) in [
        ("[auth]\n", "r.toml:1: `[auth]` accepts no token"),
        ("auth = 1\n", "r.toml:1: `auth` is not a table"),
        ("[auth]\ntoken = 't.toml'\n", "r.toml:2: unknown key `auth.token`"),
        (
            "no_auth = true\n[auth]\ntokens = 't.toml'\n",
            "r.toml:1: `no_auth` and `[auth]` exclude each other",
        ),
        (
            "[auth]\ntokens = 't.toml'\nleeway = '6m'\n",
            "r.toml:3: a leeway of `6m` is more than 5m",
        ),
        (
            "[auth]\ntokens = 't.toml'\nscopes = ['a b']\n",
            "r.toml:3: `a b` cannot be a scope",
        ),
        (
            "[auth]\ntokens = 't.toml'\nimplies = { a = 1 }\n",
            "r.toml:3: 1 is not a list of strings",
        ),
        ("[auth]\ntokens = 'missing.toml'\n", "cannot read the token file"),
        (
            "[auth]\ntokens = 'r.toml'\n",
            "r.toml: line 1: only tables [tokens.NAME] are expected",
        ),
    ] {
        let config = format!("{config}[servers.a]\ncommand = 'sh'\n");
        let runner = ProgramRunner::new().file("t.toml", "").file("r.toml", &config);
        let output = runner.run(&["check", "--config", "r.toml"]);
        output.assert_code(2).assert_stderr_contains(message);
    }
    let foreign = "[auth]\ntokens = 't.toml'\n[servers.a]\ncommand = 'sh'\nallow = ['corp:ada']\n";
    let runner = ProgramRunner::new().file("t.toml", "").file("r.toml", foreign);
    let output = runner.run(&["check", "--config", "r.toml"]);
    output
        .assert_code(2)
        .assert_stderr_contains("r.toml:5: `corp:ada` names no provider of [auth]");
    let scope = ProgramRunner::new().run(&["check", "--scope", "mcp", "--", PROGRAM]);
    scope
        .assert_code(2)
        .assert_stderr_contains("a scope needs a provider of tokens");
}

/// AUTH-18: the printed lines are a token file, and the token appears once.
#[test]
fn token_new_prints_a_token_and_its_lines() {
    let runner = ProgramRunner::new();
    let output = runner.run(&[
        "token",
        "new",
        "ada",
        "--scope",
        "mcp",
        "--expires",
        "2099-01-31T12:00:00Z",
    ]);
    output.assert_code(0);
    let (token, file) = output.stdout.split_once("\n\n").unwrap();
    assert!(token.starts_with("rt_") && !file.contains(token), "{}", output.stdout);
    let runner = runner.file("t.toml", file);
    runner
        .run(&["check", "--tokens", "t.toml", "--", PROGRAM])
        .assert_code(0);
    let again = runner.run(&["token", "new", "ada"]);
    assert!(!again.stdout.contains(token), "every token is another one");
    let wrong = runner.run(&["token", "new", "ada", "--expires", "soon"]);
    wrong
        .assert_code(2)
        .assert_stderr_contains("--expires 2027-01-31T12:00:00Z");
}

#[test]
fn colors_need_a_terminal_or_the_flag() {
    let args = ["check", "--", PROGRAM];
    assert!(!ProgramRunner::new().run(&args).stdout.contains('\x1b'));
    let forced = ProgramRunner::new()
        .var("NO_COLOR", "1")
        .run(&["--color", "always", "check", "--", PROGRAM]);
    assert!(
        forced.stdout.contains("\x1b[2m(default)\x1b[0m"),
        "the flag overrides NO_COLOR"
    );
    let wrong = ProgramRunner::new().run(&["--color", "always", "check"]);
    wrong.assert_code(2).assert_stderr_contains("\x1b[1;31merror:\x1b[0m");
}

/// Every limit is listed with its source, and an unknown one is named with its line.
#[test]
fn check_lists_limits_and_refuses_unknown_ones() {
    let with_limits = |limits: &str| format!("[limits]\n{limits}\n[servers.a]\ncommand = '{PROGRAM}'\n");
    let run = |limits: &str, more: &[&str]| {
        let runner = ProgramRunner::new().file("rethread.toml", &with_limits(limits));
        runner.run(&[&["check", "--config", "rethread.toml"], more].concat())
    };
    let output = run("rate = '50/s'\ncalls_per_principal = 8\nconnections_per_peer = 5", &[]);
    output.assert_code(0);
    for (key, expected) in [
        ("limits.rate", "50/s (rethread.toml:2)"),
        ("limits.calls_per_principal", "8 (rethread.toml:3)"),
        ("limits.connections_per_peer", "5 (rethread.toml:4)"),
        ("limits.sessions_per_principal", "1024 (default)"),
        ("limits.body_bytes", "4194304 (default)"),
    ] {
        assert_eq!(output.value_line(key), format!("{key} = {expected}"));
    }
    let flag = run("connections_per_peer = 5", &["--max-connections-per-peer", "7"]);
    assert_eq!(
        flag.value_line("max_connections_per_peer"),
        "max_connections_per_peer = 7 (flag --max-connections-per-peer)"
    );
    for (limits, expected) in [
        ("calls_per_principle = 8", "`limits.calls_per_principal`"),
        ("rate = 'often'", "is not a rate"),
        ("calls = 0", "is not an integer of at least 1"),
        ("input_rounds = 99999999999", "too large"),
    ] {
        let output = run(limits, &[]);
        output.assert_code(2);
        assert!(output.stderr.contains(expected), "{limits}: {output:?}");
    }
}
