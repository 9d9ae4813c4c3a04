use super::*;

fn parsed(text: &str) -> ClientFile {
    parse("mcp.json", text).unwrap()
}

fn layer_of(file: &ClientFile, name: &str) -> Layer {
    let environment = Environment {
        vars: [("TOKEN".to_owned(), "hush".to_owned())].into(),
        ..Environment::default()
    };
    let layer = file.layer(&environment).unwrap();
    let ConfigValue::Table(servers) = &layer[file::SERVERS_KEY].value else {
        panic!("{layer:?}")
    };
    let ConfigValue::Table(server) = &servers[name].value else {
        panic!("{servers:?}")
    };
    server.clone()
}

#[test]
fn json_is_told_from_toml() {
    for json in ["{}", " \n{", "\u{feff}{", "// comment\n{}", "/* x */ {}"] {
        assert!(is_json(json), "{json:?}");
    }
    for toml in ["", "listen = 'x'", "[servers.a]", "# comment\n{}"] {
        assert!(!is_json(toml), "{toml:?}");
    }
}

#[test]
fn values_keep_their_lines_and_secrets_are_masked() {
    let file = parsed(
        "\u{feff}{ \"mcpServers\": {\n \"a\": {\n  \"command\": \"x\", \"args\": [\"-k\", \"b ${TOKEN}\"],\n  \"env\": { \"E\": \"f\" } } } }",
    );
    let server = layer_of(&file, "a");
    assert_eq!(server["command"].source.to_string(), "mcp.json:2");
    let list = ["x", "-k", "b hush"].map(str::to_owned).to_vec();
    let shown = ["x", "-k", "b ******"].map(str::to_owned).to_vec();
    assert_eq!(server["command"].value, ConfigValue::Masked { list, shown });
    let ConfigValue::Table(env) = &server["env"].value else {
        panic!("{server:?}")
    };
    assert_eq!(env["E"].source.to_string(), "mcp.json:4");
    assert_eq!(env["E"].value.to_string(), secret::MASK);
}

#[test]
fn only_json_with_comments_is_accepted() {
    let accepted = "{ /* a */ \"servers\": { // b\n \"a\": { \"command\": \"x\", \"args\": [\"y\",], }, }, }";
    assert_eq!(parsed(accepted).servers.len(), 1);
    for text in [
        "{ servers: {} }",
        "{ 'servers': {} }",
        "{ \"servers\": {} \"inputs\": [] }",
        "{",
        "{} {}",
    ] {
        let problem = parse("mcp.json", text).unwrap_err().remove(0);
        assert!(problem.message.starts_with("invalid JSON: "), "{text}: {problem}");
    }
}

#[test]
fn all_problems_are_reported_at_once_without_values() {
    let text = r#"{ "servers": {
        "a": { "command": 1.5, "args": "hush" },
        "b": { "command": "x", "args": [{}], "env": ["hush"] },
        "c": { "command": "x", "env": { "K": ["hush"], "L": "hush ${input:x}" } },
        "d": 1
    } }"#;
    let problems = parse("mcp.json", text).unwrap_err();
    let shown: Vec<_> = problems.iter().map(Problem::to_string).collect();
    let expected = [
        "mcp.json:2: `a.args` is not a list",
        "mcp.json:3: `b.args` is not a string",
        "mcp.json:3: `b.env` is not an object",
        "mcp.json:4: `c.env.K` is not a string",
        "mcp.json:4: `c.env.L` has `${input:x}`, which only the client can replace",
        "mcp.json:5: `d` is not an object",
    ];
    assert_eq!(shown, expected);
}
