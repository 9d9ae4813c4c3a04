//! Every client reaches every server: official clients of both eras through one gateway, in front of stdio servers of both
//! eras. Each script runs all checks that a server supports, and two clients at once whose questions must never cross.

mod official_suite;

use crate::gateway::kills::assert_kills_lose_nothing;
use crate::gateway::loses_nothing_to_cuts;
use crate::gateway::process::{Gateway, STATELESS};
use crate::official_clients::CLIENTS;
use crate::script;
use crate::server::{fresh_folder, root, target};
use serde_json::json;
use std::path::Path;

/// The servers in the file of the gateway. The scripts know their tools by these names.
const SERVERS: [&str; 7] = [
    "everything",
    "stateless",
    "python1",
    "python2",
    "python2-stateless",
    "rmcp",
    "rmcp-stateless",
];

/// Program, script and client. Three scripts at a time: most of their time is waiting.
const CLIENTS_AT_ONCE: [[[&str; 3]; 3]; 2] = [
    [
        ["node", "ts/bridge.mjs", "modern"],
        ["py2/bin/python", "py/bridge.py", "modern"],
        ["node", "ts/bridge.mjs", "sdk1"],
    ],
    [
        ["node", "ts/bridge.mjs", "client2"],
        ["py1/bin/python", "py/bridge.py", "legacy"],
        ["py2/bin/python", "py/bridge.py", "legacy"],
    ],
];

/// One gateway in front of all servers. Python 2.x and rmcp speak both eras, so the file chooses one for them.
fn start(folder: &Path) -> Gateway {
    let clients = root().join("target/outside");
    let absolute = |path: &str| clients.join(path).display().to_string();
    let rmcp = target().join("debug/rmcp-everything").display().to_string();
    let rmcp = [&*rmcp, "--transport", "stdio"].map(str::to_owned).to_vec();
    let python = |release: &str, script: &str| vec![absolute(&format!("{release}/bin/python")), absolute(script)];
    let from_npm = vec![
        absolute("ts/node_modules/.bin/mcp-server-everything"),
        "stdio".to_owned(),
    ];
    let node = script::node().display().to_string();
    let commands = [
        (from_npm, None),
        (vec![node, absolute("ts/stateless_server.mjs")], None),
        (python("py1", "py/server.py"), None),
        (python("py2", "py/server.py"), Some("legacy")),
        (python("py2", "py/stateless_server.py"), Some("modern")),
        (rmcp.clone(), Some("legacy")),
        (rmcp, Some("modern")),
    ];
    let mut text = "memory = true\nlisten = '127.0.0.1:0'\nretry_ms = 100\n".to_owned();
    for (name, (command, era)) in SERVERS.iter().zip(commands) {
        text += &format!("[servers.{name}]\ncommand = {}\n", json!(command));
        text += &era.map(|era| format!("era = '{era}'\n")).unwrap_or_default();
    }
    let file = folder.join("gateway.toml");
    std::fs::write(&file, text).expect("the configuration can be written");
    Gateway::with_config(&file)
}

async fn run(base: &str, [program, script, client]: [&str; 3]) {
    script::run(program, &[&[script, client, base], &SERVERS[..]].concat()).await;
}

/// GW-04, GW-06, GW-13, GW-15: two clients of an era at once use the same processes.
#[tokio::test]
async fn every_client_uses_every_server() {
    let gateway = start(&fresh_folder("bridge"));
    let base = &format!("http://{}", gateway.addr());
    for [first, second, third] in CLIENTS_AT_ONCE {
        tokio::join!(run(base, first), run(base, second), run(base, third));
    }
}

/// Sessions in front of a server without sessions resume like any other.
#[tokio::test]
async fn clients_of_a_stateless_server_lose_nothing_to_cuts() {
    loses_nothing_to_cuts(STATELESS).await;
}

/// RST-01 to RST-03: the record of a session has all that its server needs.
#[tokio::test]
async fn clients_of_a_stateless_server_lose_nothing_to_kills() {
    assert_kills_lose_nothing("stateless", STATELESS, &CLIENTS).await;
}
