//! Three gateways on one Redis, as the files for several nodes describe them.

use crate::curl::Curl;
use crate::deploy_file;
use crate::gateway::{Gateway, PROGRAM, command};
use crate::kubernetes::objects;
use crate::nginx::{Nginx, program};
use rethread_testkit::redis_server::RedisServer;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Stdio;

const MANIFEST: &str = "kubernetes-nodes.yaml";

/// The object of this kind and name.
fn object(kind: &str, name: &str) -> Value {
    let found = objects(MANIFEST, kind)
        .into_iter()
        .find(|object| object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn container(object: &Value) -> &Value {
    &object["spec"]["template"]["spec"]["containers"][0]
}

fn compose() -> Value {
    serde_norway::from_str(&deploy_file("compose.yaml")).unwrap()
}

fn texts(list: &Value) -> Vec<String> {
    let texts = list
        .as_array()
        .unwrap()
        .iter()
        .map(|text| text.as_str().unwrap().to_owned());
    texts.collect()
}

/// The arguments of `rethread` in both files, without the program itself.
fn arguments() -> [Vec<String>; 2] {
    let deployment = object("Deployment", "mcp");
    assert_eq!(container(&deployment)["command"], json!(["rethread"]));
    let composed = texts(&compose()["services"]["node1"]["command"]);
    assert_eq!(composed[0], "rethread");
    [texts(&container(&deployment)["args"]), composed[1..].to_vec()]
}

fn flag<'a>(arguments: &'a [String], name: &str) -> &'a str {
    let start = format!("--{name}=");
    let value = arguments.iter().find_map(|argument| argument.strip_prefix(&start));
    value.unwrap_or_else(|| panic!("no {start}"))
}

/// The settings of Redis in both files.
fn redis_settings() -> [Vec<String>; 2] {
    let set = object("StatefulSet", "mcp-redis");
    assert_eq!(container(&set)["command"], json!(["redis-server"]));
    let composed = texts(&compose()["services"]["redis"]["command"]);
    assert_eq!(composed[0], "redis-server");
    [texts(&container(&set)["args"]), composed[1..].to_vec()]
}

/// A Redis with the settings of a file. `None` without the program.
fn redis(settings: &[String]) -> Option<RedisServer> {
    let pairs: Vec<(&str, &str)> = settings
        .chunks(2)
        .map(|pair| (pair[0].strip_prefix("--").unwrap(), pair[1].as_str()))
        .collect();
    RedisServer::start_with(&pairs)
}

/// The arguments with the built-in server as command and another store.
fn with_store(arguments: &[String], url: &str) -> Vec<String> {
    let mut arguments = arguments.to_vec();
    assert_eq!(arguments.pop().as_deref(), Some("my-mcp-server"));
    arguments.extend([PROGRAM.to_owned(), "demo-server".to_owned()]);
    let store = arguments
        .iter_mut()
        .find(|argument| argument.starts_with("--store="))
        .unwrap();
    *store = format!("--store={url}");
    arguments
}

#[test]
fn manifest_for_nodes_is_consistent() {
    let (service, deployment) = (object("Service", "mcp"), object("Deployment", "mcp"));
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(service["spec"]["selector"], *labels);
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], *labels);
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(service["spec"]["sessionAffinity"], "None");
    let budget = object("PodDisruptionBudget", "mcp");
    assert_eq!(budget["spec"]["selector"]["matchLabels"], *labels);
    let [arguments, _] = arguments();
    let port = &container(&deployment)["ports"][0];
    assert_eq!(service["spec"]["ports"][0]["targetPort"], port["name"]);
    assert_eq!(flag(&arguments, "listen"), format!("0.0.0.0:{}", port["containerPort"]));
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        assert_eq!(
            container(&deployment)[probe]["httpGet"]["port"],
            port["name"],
            "{probe}"
        );
    }

    let (store, set) = (object("Service", "mcp-redis"), object("StatefulSet", "mcp-redis"));
    assert_eq!(store["spec"]["selector"], set["spec"]["template"]["metadata"]["labels"]);
    assert_eq!(set["spec"]["serviceName"], store["metadata"]["name"]);
    let port = &store["spec"]["ports"][0];
    assert_eq!(port["targetPort"], container(&set)["ports"][0]["name"]);
    let url = format!("redis://mcp-redis:{}", port["port"]);
    assert_eq!(flag(&arguments, "store"), url);
    assert_eq!(
        set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"],
        container(&set)["volumeMounts"][0]["name"]
    );
}

#[test]
fn compose_file_is_consistent() {
    let compose = compose();
    let services = &compose["services"];
    let [_, arguments] = arguments();
    assert_eq!(flag(&arguments, "store"), "redis://redis:6379");
    let (_, port) = flag(&arguments, "listen").rsplit_once(':').unwrap();
    let nginx = deploy_file("nginx-nodes.conf");
    for node in ["node1", "node2", "node3"] {
        assert_eq!(services[node], services["node1"], "{node}");
        assert!(nginx.contains(&format!("server {node}:{port} ")), "{node}");
        assert!(texts(&services["nginx"]["depends_on"]).contains(&node.to_owned()));
    }
    let mounted = texts(&services["nginx"]["volumes"]);
    assert!(mounted[0].starts_with("./nginx-nodes.conf:"), "{mounted:?}");
    let volume = texts(&services["redis"]["volumes"]);
    let (volume, _) = volume[0].split_once(':').unwrap();
    assert!(compose["volumes"].get(volume).is_some());
    let public = flag(&arguments, "public-url").strip_prefix("http://").unwrap();
    assert!(nginx.contains(&format!("server_name {public};")));
}

/// `rethread check` accepts the arguments with a Redis that has the settings of the file, and the drain fits.
#[test]
fn check_accepts_the_arguments_for_nodes() {
    for (arguments, settings) in arguments().iter().zip(redis_settings()) {
        let Some(redis) = redis(&settings) else { return };
        let home = tempfile::tempdir().unwrap();
        let mut arguments = with_store(arguments, &redis.url());
        assert_eq!(arguments[0], "serve");
        arguments[0] = "check".to_owned();
        let mut check = command(home.path(), &arguments);
        let ran = check.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        let said = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(ran.status.success(), "{said:?}");
        assert!(
            said[0].contains("survives a crash of the server"),
            "the row in docs/stores.md: {said:?}"
        );
        assert!(!said[1].contains("has no name"), "{said:?}");
    }
    let grace = &object("Deployment", "mcp")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"];
    let [arguments, composed] = arguments();
    let seconds = |text: &str| text.strip_suffix('s').unwrap().parse::<u64>().unwrap();
    assert!(grace.as_u64().unwrap() >= seconds(flag(&arguments, "drain")) + 10);
    let grace = compose()["services"]["node1"]["stop_grace_period"]
        .as_str()
        .map(seconds);
    assert!(grace.unwrap() >= seconds(flag(&composed, "drain")) + 10);
}

/// Every request goes to the next node. Sessions work on each of them, also after the death of one.
#[test]
fn nginx_with_the_file_for_nodes_serves_a_session_on_all_of_them() {
    let Some(nginx) = program() else { return };
    let [_, settings] = redis_settings();
    let Some(redis) = redis(&settings) else { return };
    let [_, composed] = arguments();
    let mut arguments = with_store(&composed, &redis.url());
    for argument in &mut arguments {
        if argument.starts_with("--listen=") {
            *argument = "--listen=127.0.0.1:0".to_owned();
        } else if argument.starts_with("--lease=") {
            *argument = "--lease=2s".to_owned(); // the death of a node is known soon
        }
    }
    let mut gateways: Vec<Gateway> = (0..3).map(|_| Gateway::start(&arguments)).collect();
    let addresses: Vec<String> = gateways.iter().map(|gateway| gateway.address.clone()).collect();
    let names = ["node1:8080", "node2:8080", "node3:8080"];
    let nodes: Vec<(&str, &str)> = names.into_iter().zip(addresses.iter().map(String::as_str)).collect();
    let nginx = Nginx::in_front_of_nodes(&nginx, &nodes);
    let curl = Curl {
        curl_options: vec!["--unix-socket".to_owned(), nginx.socket().display().to_string()],
        url: "http://mcp.example.com/mcp".to_owned(),
    };
    let session = curl.session();
    let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }).to_string();
    for _ in 0..6 {
        assert_eq!(curl.status(&["-H", &session, "-d", &ping]), "200");
    }
    let served: BTreeSet<String> = nginx.upstreams().into_iter().collect();
    assert_eq!(served, addresses.into_iter().collect(), "every node served the session");

    let mut call = curl.call(&session, "countdown", json!({ "seconds": 2 }));
    let first = call.next_event().unwrap();
    drop(call);
    let rest = curl.resume(&session, &first.id).remaining_events();
    assert!(rest.last().unwrap().data["result"].is_object(), "{rest:?}");

    drop(gateways.remove(0)); // killed
    for _ in 0..4 {
        assert_eq!(
            curl.status(&["-H", &session, "-d", &ping]),
            "200",
            "after the death of a node"
        );
    }
    let call = curl.call(&session, "countdown", json!({ "seconds": 1 }));
    let events = call.remaining_events();
    assert!(events.last().unwrap().data["result"].is_object(), "{events:?}");
}
