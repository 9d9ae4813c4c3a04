//! Layering, table by table.

use super::*;
use crate::settings::{EraSetting, InheritedEnv, RestoreSetting, StoreSettings, SyncMode};
use std::time::Duration;

const FLAG: fn(&'static str) -> Source = Source::Flag;
const ENV: fn(&'static str) -> Source = Source::Env;

fn world(vars: &[(&str, &str)]) -> Environment {
    let vars = [("HOME", "/home/me")].iter().chain(vars);
    Environment {
        cwd: "/here".into(),
        vars: vars.map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
    }
}

fn text(value: &str) -> Raw {
    Raw::Text(value.to_owned())
}

fn list(values: &[&str]) -> Raw {
    Raw::List(values.iter().map(|&value| value.to_owned()).collect())
}

/// A command, and flags or variables.
fn given(command: &str, values: &[(&str, Raw, Source)]) -> CliInput {
    let layer = values.iter().map(|(key, raw, source)| {
        let (raw, source) = (raw.clone(), source.clone());
        ((*key).to_owned(), Found { raw, source })
    });
    CliInput {
        config: None,
        layer: layer.collect(),
        command: command.split_whitespace().map(str::to_owned).collect(),
    }
}

fn settled_in(given: &CliInput, file: &str, world: &Environment) -> Settled {
    let file = file::parse("r.toml", file).unwrap();
    settle(given, &file, Path::new("/etc/r"), world)
}

fn settled(given: &CliInput, file: &str) -> Settled {
    settled_in(given, file, &world(&[]))
}

fn fine(settled: &Settled) -> &Settings {
    assert_eq!(settled.problems, []);
    &settled.settings
}

/// `value (source)` of a key.
fn row(settled: &Settled, key: &str) -> String {
    let row = settled.rows.iter().find(|row| row.key == key).expect(key);
    format!("{} ({})", row.value, row.source)
}

fn problem(settled: &Settled) -> String {
    let shown: Vec<_> = settled.problems.iter().map(Problem::to_string).collect();
    shown.join(" | ")
}

#[test]
fn without_a_word_there_are_defaults() {
    let settled = settled(&given("my-server --x", &[]), "");
    let settings = fine(&settled);
    assert_eq!(settings.listen, ([127, 0, 0, 1], 8080).into());
    assert_eq!(
        settings.store,
        StoreSettings::Embedded {
            data: "/home/me/.local/state/rethread".into(),
            sync: SyncMode::Interval
        }
    );
    assert_eq!(settings.session_idle, Duration::from_secs(1800));
    let server = &settings.servers[0];
    assert_eq!((server.name.as_str(), server.at_root), ("my-server", true));
    assert!(server.folder.starts_with("my-server-"), "{}", server.folder);
    assert_eq!(server.args, ["--x"]);
    assert_eq!(
        (server.era, server.restore),
        (EraSetting::Probe, RestoreSetting::Replay)
    );
    let from_nowhere = |row: &&Row| row.source == "default";
    assert_eq!(settled.rows.iter().filter(from_nowhere).count(), settled.rows.len() - 3);
}

#[test]
fn a_flag_beats_a_variable_beats_a_file_beats_the_default() {
    let file = "listen = '127.0.0.1:3'";
    let flag = ("listen", text("127.0.0.1:1"), FLAG("--listen"));
    let env = ("listen", text("127.0.0.1:2"), ENV("RETHREAD_LISTEN"));
    let table = [
        (vec![flag], file, "127.0.0.1:1 (flag --listen)"),
        (vec![env], file, "127.0.0.1:2 (env RETHREAD_LISTEN)"),
        (vec![], file, "127.0.0.1:3 (r.toml:1)"),
        (vec![], "", "127.0.0.1:8080 (default)"),
    ];
    for (values, file, expected) in table {
        assert_eq!(row(&settled(&given("s", &values), file), "listen"), expected);
    }
}

#[test]
fn the_layer_that_says_most_chooses_the_store() {
    let memory = |on, source| ("memory", Raw::Bool(on), source);
    let data = |source| ("data", text("d"), source);
    let (flag, env) = (FLAG("--x"), ENV("X"));
    let kept = |path: &str| StoreSettings::Embedded {
        data: path.into(),
        sync: SyncMode::Interval,
    };
    let usual = || kept("/home/me/.local/state/rethread");
    let table = [
        (vec![memory(true, flag.clone())], "data = 'f'", StoreSettings::Memory),
        (vec![data(flag.clone())], "memory = true", kept("/here/d")),
        (vec![data(flag.clone()), memory(true, env.clone())], "", kept("/here/d")),
        (vec![memory(true, env.clone())], "data = 'f'", StoreSettings::Memory),
        (vec![memory(false, env.clone())], "memory = true", usual()),
        (vec![], "memory = true", StoreSettings::Memory),
        (vec![], "data = 'f'", kept("/etc/r/f")),
        (vec![], "data = '~/f'", kept("/home/me/f")),
        (vec![], "data = '/f'", kept("/f")),
        (vec![], "memory = false", usual()),
    ];
    for (values, file, expected) in table {
        let settled = settled(&given("s", &values), file);
        assert_eq!(fine(&settled).store, expected, "{values:?} {file}");
    }
    for both in [
        settled(&given("s", &[data(flag.clone()), memory(true, flag)]), ""),
        settled(&given("s", &[]), "data = 'f'\nmemory = true"),
    ] {
        assert!(problem(&both).contains("exclude each other"), "{}", problem(&both));
    }
}

#[test]
fn state_is_kept_where_the_user_keeps_it() {
    let table: [(&[(&str, &str)], &str); 3] = [
        (&[("XDG_STATE_HOME", "/state")], "/state/rethread"),
        (&[("XDG_STATE_HOME", "relative")], "/home/me/.local/state/rethread"),
        (&[("XDG_STATE_HOME", "")], "/home/me/.local/state/rethread"),
    ];
    for (vars, expected) in table {
        assert_eq!(world(vars).state_dir(), Some(expected.into()), "{vars:?}");
    }
    let homeless = settled_in(&given("s", &[]), "", &world(&[("HOME", "")]));
    assert!(problem(&homeless).contains("no home directory"));
    let in_memory = given("s", &[("memory", Raw::Bool(true), FLAG("--memory"))]);
    fine(&settled_in(&in_memory, "", &world(&[("HOME", "")])));
}

#[test]
fn servers_of_a_file_have_settings_of_their_own() {
    let file = "
        max_children = 7
        era = 'legacy'
        [servers.a]
        command = ['npx', '-y', 'x']
        args = ['--more']
        cwd = 'sub'
        [servers.b]
        command = './b'
        max_children = 3
        restore = 'expire'
        start_timeout = '5s'
        env = { PORT = 3000, ON = true, S = 'x' }
    ";
    let settled = settled(&given("", &[]), file);
    let [a, b] = fine(&settled).servers.as_slice() else {
        panic!()
    };
    assert_eq!((a.name.as_str(), a.folder.as_str(), a.at_root), ("a", "a", false));
    assert_eq!(
        (a.command.as_path(), a.cwd.as_deref()),
        (Path::new("npx"), Some(Path::new("/etc/r/sub")))
    );
    assert_eq!(a.args, ["-y", "x", "--more"]);
    assert_eq!(
        (a.max_children, a.era, a.restore),
        (7, EraSetting::Legacy, RestoreSetting::Replay)
    );
    assert_eq!(
        (b.max_children, b.era, b.restore),
        (3, EraSetting::Legacy, RestoreSetting::Expire)
    );
    assert_eq!(b.command, Path::new("/etc/r/b"));
    assert_eq!(b.start_timeout, Duration::from_secs(5));
    assert_eq!(b.env["PORT"], "3000");
    assert_eq!(b.env["ON"], "true");

    let flag = ("max_children", text("1"), FLAG("--max-children"));
    let servers = &super::settle(
        &given("", &[flag]),
        &file::parse("r.toml", file).unwrap(),
        Path::new("/"),
        &world(&[]),
    );
    assert!(fine(servers).servers.iter().all(|server| server.max_children == 1));
}

#[test]
fn variables_are_expanded_and_masked() {
    let file = "
[servers.a]
command = 'x'
[servers.a.env]
REGION = 'eu'
FROM_OUTSIDE = 'Bearer ${OUTSIDE}'
API_KEY = 'abc'
LITERAL = '$${OUTSIDE}'
EMPTY = '${NOTHING}'
";
    let outside = world(&[("OUTSIDE", "s3cret"), ("NOTHING", "")]);
    let found = settled_in(&given("", &[]), file, &outside);
    let env = &fine(&found).servers[0].env;
    assert_eq!(env["FROM_OUTSIDE"], "Bearer s3cret");
    assert_eq!((env["LITERAL"].as_str(), env["EMPTY"].as_str()), ("${OUTSIDE}", ""));
    assert_eq!(row(&found, "env.FROM_OUTSIDE"), "****** (r.toml:6)");
    assert_eq!(row(&found, "env.API_KEY"), "****** (r.toml:7)");
    assert_eq!(row(&found, "env.REGION"), "eu (r.toml:5)");
    let shown = format!("{:?}", found.rows);
    assert!(!shown.contains("s3cret") && !shown.contains("abc"), "{shown}");

    let missing = settled(&given("", &[]), file);
    assert!(problem(&missing).contains("r.toml:6: `FROM_OUTSIDE` needs the variable OUTSIDE, which is not set"));
}

#[test]
fn variables_of_a_flag_are_taken_as_they_are() {
    let found = settled(
        &given("s", &[("env", list(&["A=${B}=c", "TOKEN=x"]), FLAG("--env"))]),
        "",
    );
    assert_eq!(fine(&found).servers[0].env["A"], "${B}=c");
    assert_eq!(row(&found, "env.TOKEN"), "****** (flag --env)");
    let wrong = settled(&given("s", &[("env", list(&["hushhush"]), FLAG("--env"))]), "");
    assert_eq!(problem(&wrong), "flag --env: a variable has no `=`");
}

#[test]
fn hosts_follow_from_the_address_and_the_public_url() {
    let table = [
        ("", &[][..]),
        ("public_url = 'https://mcp.example/x'", &["mcp.example"][..]),
        ("listen = '192.168.1.2:80'", &["192.168.1.2"][..]),
        ("listen = '[fd00::1]:80'", &["[fd00::1]"][..]),
        ("listen = '0.0.0.0:80'", &[][..]),
        (
            "allow_hosts = ['a', 'mcp.example']\npublic_url = 'https://mcp.example'",
            &["a", "mcp.example"][..],
        ),
    ];
    for (file, expected) in table {
        assert_eq!(fine(&settled(&given("s", &[]), file)).allow_hosts, expected, "{file}");
    }
}

#[test]
fn a_name_makes_the_folder() {
    let named = [("name", text("mine"), FLAG("--name"))];
    let found = settled(&given("s a", &named), "");
    assert_eq!(fine(&found).servers[0].folder, "mine");
    for bad in ["a/b", "..", "a b"] {
        let found = settled(&given("s", &[("name", text(bad), FLAG("--name"))]), "");
        assert!(problem(&found).contains("cannot be a server's name"), "{bad}");
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let one = "[servers.a]\ncommand = 'x'\n";
    let table = [
        ("", "", "there is no server to serve"),
        ("", "listen = 'x'", "r.toml:1: `x` is not an address"),
        ("s", one, "there are servers in the file and a command after `--`"),
        (
            "",
            "[servers.a]\nargs = ['x']",
            "r.toml:1: the server `a` has no command",
        ),
        ("", "[servers.a]\ncommand = []", "r.toml:2: the command of `a` is empty"),
        ("", "[servers.a]\ncommand = ''", "r.toml:2: the command of `a` is empty"),
        (
            "",
            "[servers.a]\ncommand = 'x'\nargs = 'y z'",
            "r.toml:3: `args` is not a list",
        ),
        (
            "",
            "[servers.a]\ncommand = 'x'\nargs = ['y', 1]",
            "r.toml:3: a list with something else than texts",
        ),
        (
            "",
            "[servers.a]\ncommand = 'x'\nera = 'old'",
            "r.toml:3: `old` is not among the choices",
        ),
        (
            "",
            "[servers.a]\ncommand = 'x'\nenv = 'y'",
            "r.toml:3: `env` is not a table",
        ),
        (
            "",
            "[servers.'a/b']\ncommand = 'x'",
            "r.toml:1: `a/b` cannot be a server's name",
        ),
        ("s", "drain = 5", "r.toml:1: `5` is not a duration"),
        ("s", "max_children = 0", "r.toml:1: `0` is not a whole number from 1 on"),
        ("s", "memory = 'yes'", "r.toml:1: `yes` is neither true nor false"),
        (
            "s",
            "allow_origins = ['app.example']",
            "r.toml:1: `app.example` is not an origin",
        ),
        ("s", "sync = 'never'", "r.toml:1: `never` is not among the choices"),
        ("s", "session_idle = '0s'", "r.toml:1: this cannot be zero"),
    ];
    for (command, file, expected) in table {
        let found = settled(&given(command, &[]), file);
        assert!(problem(&found).contains(expected), "{file}: {}", problem(&found));
    }
    let flags = [("cwd", text("/x"), FLAG("--cwd"))];
    let found = settled(&given("", &flags), one);
    assert!(problem(&found).contains("flag --cwd: this is for a command after `--`"));
}

#[test]
fn everything_wrong_is_told_at_once() {
    let found = settled(&given("s", &[]), "listen = 'x'\ndrain = 'y'\nretry_ms = 'z'");
    assert_eq!(found.problems.len(), 3);
}

#[test]
fn gw_10_a_server_inherits_all_variables_or_those_that_are_named() {
    let file = |value: &str| format!("[servers.x]\ncommand = \"a\"\n{value}");
    let names = |names: &[&str]| InheritedEnv::Names(names.iter().map(|&name| name.to_owned()).collect());
    for (value, expected, shown) in [
        ("", InheritedEnv::All, "true (default)"),
        ("inherit_env = true", InheritedEnv::All, "true (r.toml:3)"),
        (
            "inherit_env = [\"PATH\", \"A\"]",
            names(&["PATH", "A"]),
            "PATH, A (r.toml:3)",
        ),
        ("inherit_env = []", names(&[]), "(none) (r.toml:3)"),
    ] {
        let settled = settled(&given("", &[]), &file(value));
        assert_eq!(fine(&settled).servers[0].inherit_env, expected, "{value}");
        assert_eq!(row(&settled, "inherit_env"), shown);
    }
    for (value, wrong) in [
        ("inherit_env = false", "false is neither true nor a list of variables"),
        ("inherit_env = \"PATH\"", "PATH is neither true nor a list of variables"),
        (
            "inherit_env = [\"A\", \"RETHREAD_DATA\"]",
            "`RETHREAD_DATA` is the gateway's own: no server inherits it",
        ),
    ] {
        let settled = settled(&given("", &[]), &file(value));
        assert_eq!(problem(&settled), format!("r.toml:3: {wrong}"));
    }
    let all = InheritedEnv::All;
    for (name, inherited) in [
        ("PATH", true),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", true),
        ("OTEL_EXPORTER_OTLP_HEADERS", false),
        ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", false),
        ("RETHREAD_DATA", false),
    ] {
        assert_eq!(all.includes(name.as_ref()), inherited, "{name}");
        assert_eq!(names(&[name]).includes(name.as_ref()), inherited, "{name}");
    }
    assert!(!names(&["PATH"]).includes("HOME".as_ref()));
}
