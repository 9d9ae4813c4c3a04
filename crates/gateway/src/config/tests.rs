//! Tests of the resolver with all sources.

use super::resolver::resolve as resolve_layers;
use super::*;
use crate::settings::{EraSetting, InheritedEnv, RestoreSetting, StoreSettings, SyncMode};
use std::time::Duration;

const FLAG: fn(&'static str) -> Source = Source::Flag;
const ENV: fn(&'static str) -> Source = Source::Env;

fn environment(vars: &[(&str, &str)]) -> Environment {
    let vars = [("HOME", "/home/me")].iter().chain(vars);
    Environment {
        cwd: "/here".into(),
        vars: vars.map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
    }
}

fn text(value: &str) -> ConfigValue {
    ConfigValue::Text(value.to_owned())
}

fn list(values: &[&str]) -> ConfigValue {
    ConfigValue::List(values.iter().map(|&value| value.to_owned()).collect())
}

/// A command, and values of flags or variables.
fn input(command: &str, values: &[(&str, ConfigValue, Source)]) -> CliInput {
    let layer = values.iter().map(|(key, value, source)| {
        let (value, source) = (value.clone(), source.clone());
        ((*key).to_owned(), SourcedValue { value, source })
    });
    CliInput {
        config_file: None,
        layer: layer.collect(),
        command: command.split_whitespace().map(str::to_owned).collect(),
    }
}

fn resolved_in(input: &CliInput, file: &str, environment: &Environment) -> ResolvedConfig {
    let file = file::parse("r.toml", file, environment).unwrap();
    resolve_layers(input, &file, Path::new("/etc/r"), environment)
}

fn resolved(input: &CliInput, file: &str) -> ResolvedConfig {
    resolved_in(input, file, &environment(&[]))
}

fn valid_settings(resolved: &ResolvedConfig) -> &Settings {
    assert_eq!(resolved.problems, []);
    &resolved.settings
}

/// `value (source)` of a key.
fn row(resolved: &ResolvedConfig, key: &str) -> String {
    let row = resolved.rows.iter().find(|row| row.key == key).expect(key);
    format!("{} ({})", row.value, row.source)
}

fn problems(resolved: &ResolvedConfig) -> String {
    let shown: Vec<_> = resolved.problems.iter().map(Problem::to_string).collect();
    shown.join(" | ")
}

#[test]
fn resolve_without_input_uses_defaults() {
    let resolved = resolved(&input("my-server --x", &[]), "");
    let settings = valid_settings(&resolved);
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
    let is_default = |row: &&ValueRow| row.source == "default";
    assert_eq!(resolved.rows.iter().filter(is_default).count(), resolved.rows.len() - 3);
}

#[test]
fn flag_overrides_variable_overrides_file_overrides_default() {
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
        assert_eq!(row(&resolved(&input("s", &values), file), "listen"), expected);
    }
}

#[test]
fn first_source_with_memory_or_data_selects_the_store() {
    let memory = |on, source| ("memory", ConfigValue::Bool(on), source);
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
        let resolved = resolved(&input("s", &values), file);
        assert_eq!(valid_settings(&resolved).store, expected, "{values:?} {file}");
    }
    for both in [
        resolved(&input("s", &[data(flag.clone()), memory(true, flag)]), ""),
        resolved(&input("s", &[]), "data = 'f'\nmemory = true"),
    ] {
        assert!(problems(&both).contains("exclude each other"), "{}", problems(&both));
    }
}

#[test]
fn shared_store_has_a_node_with_a_lease() {
    let store = |url: &str, source| ("store", text(url), source);
    let (flag, env) = (FLAG("--store"), ENV("RETHREAD_STORE"));
    let file = "store = 'redis://user7:hush@db/2'\nlease = 5\nnode_id = 'a'\nsecret_file = 'key'";
    let found = resolved(&input("s", &[]), file);
    let redis = valid_settings(&found).store.redis().unwrap();
    assert_eq!(
        (redis.lease, redis.node_id.as_deref()),
        (Duration::from_secs(5), Some("a"))
    );
    assert_eq!(redis.secret_file.as_deref(), Some(Path::new("/etc/r/key")));
    for (key, expected) in [
        ("store", "redis://db:6379/2 (r.toml:1)"),
        ("node_id", "a (r.toml:3)"),
        ("lease", "5s (r.toml:2)"),
        ("secret_file", "/etc/r/key (r.toml:4)"),
        ("memory", "false (default)"),
    ] {
        assert_eq!(row(&found, key), expected);
    }
    let shown = format!("{:?}", (&found.rows, &found.settings));
    assert!(!shown.contains("hush") && !shown.contains("user7"), "{shown}");

    let found = resolved(&input("s", &[store("redis://db", env.clone())]), "data = 'f'");
    let redis = valid_settings(&found).store.redis().unwrap();
    assert_eq!((redis.lease, &redis.node_id), (Duration::from_secs(10), &None));
    assert_eq!(row(&found, "secret_file"), "(none) (default)");

    let in_memory = ("memory", ConfigValue::Bool(true), FLAG("--memory"));
    let found = resolved(&input("s", &[store("redis://db", env), in_memory.clone()]), "");
    assert_eq!(valid_settings(&found).store, StoreSettings::Memory);
    let data = ("data", text("d"), FLAG("--data"));
    for other in [in_memory, data] {
        let both = resolved(&input("s", &[store("redis://db", flag.clone()), other]), "");
        assert!(problems(&both).contains("exclude each other"), "{}", problems(&both));
    }
}

#[test]
fn shared_store_problems_have_no_password() {
    for (file, expected) in [
        (
            "store = 'redis://me:hush@db:x'",
            "invalid store URL: the URL has no valid host",
        ),
        (
            "store = 'postgres://me:hush@db'",
            "invalid store URL: the scheme is not redis",
        ),
        ("store = 'memory'", "the store is not a URL"),
        ("store = 3", "the store is not a string"),
        (
            "store = 'redis://db'\nlease = 0",
            "a lease of `0` is not between 1s and 10m",
        ),
        (
            "store = 'redis://db'\nlease = '900ms'",
            "a lease of `900ms` is not between",
        ),
        ("store = 'redis://db'\nlease = '1x'", "`1x` is not a duration"),
        (
            "store = 'redis://db'\nnode_id = 'a b'",
            "`a b` cannot be the name of a node",
        ),
    ] {
        let found = resolved(&input("s", &[]), file);
        assert!(problems(&found).contains(expected), "{file}: {}", problems(&found));
        assert!(
            !format!("{:?}", (&found.rows, &found.problems)).contains("hush"),
            "{file}"
        );
    }
    for (key, flag) in [
        ("node_id", "--node-id"),
        ("lease", "--lease"),
        ("secret_file", "--secret-file"),
    ] {
        let found = resolved(&input("s", &[(key, text("9"), FLAG(flag))]), "");
        let expected = format!("flag {flag}: this is for a store that several gateways share");
        assert_eq!(problems(&found), expected);
        let found = resolved(&input("s", &[(key, text("9"), ENV("X"))]), "");
        valid_settings(&found);
    }
}

#[test]
fn default_data_directory_follows_xdg() {
    let table: [(&[(&str, &str)], &str); 3] = [
        (&[("XDG_STATE_HOME", "/state")], "/state/rethread"),
        (&[("XDG_STATE_HOME", "relative")], "/home/me/.local/state/rethread"),
        (&[("XDG_STATE_HOME", "")], "/home/me/.local/state/rethread"),
    ];
    for (vars, expected) in table {
        assert_eq!(environment(vars).state_dir(), Some(expected.into()), "{vars:?}");
    }
    let homeless = resolved_in(&input("s", &[]), "", &environment(&[("HOME", "")]));
    assert!(problems(&homeless).contains("no home directory"));
    let in_memory = input("s", &[("memory", ConfigValue::Bool(true), FLAG("--memory"))]);
    valid_settings(&resolved_in(&in_memory, "", &environment(&[("HOME", "")])));
}

#[test]
fn file_servers_override_the_top_of_the_file() {
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
    let resolved = resolved(&input("", &[]), file);
    let [a, b] = valid_settings(&resolved).servers.as_slice() else {
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
    let servers = &resolve_layers(
        &input("", &[flag]),
        &file::parse("r.toml", file, &environment(&[])).unwrap(),
        Path::new("/"),
        &environment(&[]),
    );
    assert!(
        valid_settings(servers)
            .servers
            .iter()
            .all(|server| server.max_children == 1)
    );
}

#[test]
fn file_variables_are_expanded_and_masked() {
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
    let outside = environment(&[("OUTSIDE", "s3cret"), ("NOTHING", "")]);
    let found = resolved_in(&input("", &[]), file, &outside);
    let env = &valid_settings(&found).servers[0].env;
    assert_eq!(env["FROM_OUTSIDE"], "Bearer s3cret");
    assert_eq!((env["LITERAL"].as_str(), env["EMPTY"].as_str()), ("${OUTSIDE}", ""));
    assert_eq!(row(&found, "env.FROM_OUTSIDE"), "****** (r.toml:6)");
    assert_eq!(row(&found, "env.API_KEY"), "****** (r.toml:7)");
    assert_eq!(row(&found, "env.REGION"), "eu (r.toml:5)");
    let shown = format!("{:?}", found.rows);
    assert!(!shown.contains("s3cret") && !shown.contains("abc"), "{shown}");

    let missing = resolved(&input("", &[]), file);
    assert!(problems(&missing).contains("r.toml:6: `FROM_OUTSIDE` needs the variable OUTSIDE, which is not set"));
}

#[test]
fn flag_variables_are_not_expanded() {
    let found = resolved(
        &input("s", &[("env", list(&["A=${B}=c", "TOKEN=x"]), FLAG("--env"))]),
        "",
    );
    assert_eq!(valid_settings(&found).servers[0].env["A"], "${B}=c");
    assert_eq!(row(&found, "env.TOKEN"), "****** (flag --env)");
    let wrong = resolved(&input("s", &[("env", list(&["hushhush"]), FLAG("--env"))]), "");
    assert_eq!(problems(&wrong), "flag --env: a variable has no `=`");
}

#[test]
fn allowed_hosts_include_listen_address_and_public_url() {
    let table = [
        ("", &[][..]),
        ("public_url = 'https://mcp.example/x'", &["mcp.example"][..]),
        ("no_auth = true\nlisten = '192.168.1.2:80'", &["192.168.1.2"][..]),
        ("no_auth = true\nlisten = '[fd00::1]:80'", &["[fd00::1]"][..]),
        ("no_auth = true\nlisten = '0.0.0.0:80'", &[][..]),
        (
            "allow_hosts = ['a', 'mcp.example']\npublic_url = 'https://mcp.example'",
            &["a", "mcp.example"][..],
        ),
    ];
    for (file, expected) in table {
        assert_eq!(
            valid_settings(&resolved(&input("s", &[]), file)).allow_hosts,
            expected,
            "{file}"
        );
    }
}

#[test]
fn explicit_name_is_the_folder() {
    let named = [("name", text("mine"), FLAG("--name"))];
    let found = resolved(&input("s a", &named), "");
    assert_eq!(valid_settings(&found).servers[0].folder, "mine");
    for bad in ["a/b", "..", "a b"] {
        let found = resolved(&input("s", &[("name", text(bad), FLAG("--name"))]), "");
        assert!(problems(&found).contains("cannot be a server's name"), "{bad}");
    }
}

#[test]
fn problems_carry_their_location() {
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
            "r.toml:3: a list with values other than strings",
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
        ("s", "max_children = 0", "r.toml:1: `0` is not an integer of at least 1"),
        ("s", "memory = 'yes'", "r.toml:1: `yes` is neither true nor false"),
        (
            "s",
            "allow_origins = ['app.example']",
            "r.toml:1: `app.example` is not an origin",
        ),
        ("s", "sync = 'never'", "r.toml:1: `never` is not among the choices"),
        ("s", "session_idle = '0s'", "r.toml:1: the value cannot be zero"),
    ];
    for (command, file, expected) in table {
        let found = resolved(&input(command, &[]), file);
        assert!(problems(&found).contains(expected), "{file}: {}", problems(&found));
    }
    let flags = [("cwd", text("/x"), FLAG("--cwd"))];
    let found = resolved(&input("", &flags), one);
    assert!(problems(&found).contains("flag --cwd: this is for a command after `--`"));
}

#[test]
fn all_problems_are_reported_at_once() {
    let found = resolved(&input("s", &[]), "listen = 'x'\ndrain = 'y'\nretry_ms = 'z'");
    assert_eq!(found.problems.len(), 3);
}

#[test]
fn gw_10_server_inherits_all_or_named_variables() {
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
        let resolved = resolved(&input("", &[]), &file(value));
        assert_eq!(valid_settings(&resolved).servers[0].inherit_env, expected, "{value}");
        assert_eq!(row(&resolved, "inherit_env"), shown);
    }
    for (value, wrong) in [
        ("inherit_env = false", "false is neither true nor a list of variables"),
        ("inherit_env = \"PATH\"", "PATH is neither true nor a list of variables"),
        (
            "inherit_env = [\"A\", \"RETHREAD_DATA\"]",
            "`RETHREAD_DATA` is the gateway's own: no server inherits it",
        ),
    ] {
        let resolved = resolved(&input("", &[]), &file(value));
        assert_eq!(problems(&resolved), format!("r.toml:3: {wrong}"));
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

/// The table alone turns the listener on, at its default address.
#[test]
fn metrics_table_without_an_address_has_the_default() {
    let metrics = |file: &str| valid_settings(&resolved(&input("x", &[]), file)).operation.metrics;
    assert_eq!(
        metrics("[metrics]\ntools = true\n"),
        Some("127.0.0.1:9464".parse().unwrap())
    );
    assert_eq!(
        metrics("[metrics]\nlisten = '127.0.0.1:7'\n"),
        Some("127.0.0.1:7".parse().unwrap())
    );
    assert_eq!(metrics(""), None);
}
