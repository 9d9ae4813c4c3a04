//! Runs the gateway as the Kubernetes manifest describes.

use crate::curl::Curl;
use crate::deploy_file;
use crate::gateway::{Gateway, PROGRAM, command};
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::process::Stdio;

/// The objects of this kind in a file.
pub(crate) fn objects(file: &str, kind: &str) -> Vec<Value> {
    let text = deploy_file(file);
    let objects = serde_norway::Deserializer::from_str(&text).map(|one| Value::deserialize(one).unwrap());
    objects.filter(|object| object["kind"] == kind).collect()
}

/// The only object of this kind.
fn object(kind: &str) -> Value {
    let mut found = objects("kubernetes.yaml", kind);
    assert_eq!(found.len(), 1, "{kind}");
    found.remove(0)
}

fn pod() -> Value {
    object("StatefulSet")["spec"]["template"].take()
}

fn container() -> Value {
    let mut pod = pod();
    let containers = pod["spec"]["containers"].as_array_mut().unwrap();
    assert_eq!(containers.len(), 1);
    containers.remove(0)
}

/// The arguments of the manifest, with the built-in server as command and `data` instead of the volume.
fn args(data: &str) -> Vec<String> {
    let container = container();
    assert_eq!(container["command"], json!(["rethread"]));
    let args = container["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arg| arg.as_str().unwrap());
    let mut args: Vec<String> = args.map(str::to_owned).collect();
    assert_eq!(args.pop().as_deref(), Some("my-mcp-server"));
    args.extend([PROGRAM.to_owned(), "demo-server".to_owned()]);
    let place = args.iter_mut().find(|arg| arg.starts_with("--data=")).unwrap();
    *place = format!("--data={data}");
    args
}

fn flag(name: &str) -> String {
    let start = format!("--{name}=");
    let args = args("/data");
    let value = args.iter().find_map(|arg| arg.strip_prefix(&start));
    value.unwrap_or_else(|| panic!("no {start}")).to_owned()
}

#[test]
fn manifest_is_consistent() {
    let (service, set, container) = (object("Service"), object("StatefulSet"), container());
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    assert_eq!(service["spec"]["selector"], *labels);
    assert_eq!(set["spec"]["selector"]["matchLabels"], *labels);
    assert_eq!(set["spec"]["serviceName"], service["metadata"]["name"]);
    // Only one process may open the store.
    assert_eq!(set["spec"]["replicas"], 1);

    let port = &container["ports"][0];
    assert_eq!(service["spec"]["ports"][0]["targetPort"], port["name"]);
    assert_eq!(flag("listen"), format!("0.0.0.0:{}", port["containerPort"]));
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], port["name"], "{probe}");
    }

    let mounts = container["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["mountPath"] == flag("data")).unwrap();
    assert_eq!(
        set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"],
        mount["name"]
    );
}

/// `rethread check` accepts the arguments, and its values fit the probes and the grace period.
#[test]
fn check_accepts_the_arguments_of_the_manifest() {
    let home = tempfile::tempdir().unwrap();
    let mut args = args(&home.path().join("data").display().to_string());
    assert_eq!(args[0], "serve");
    args[0] = "check".to_owned();
    let ran = command(home.path(), &args).stdout(Stdio::piped()).output().unwrap();
    let (values, errors) = (
        String::from_utf8(ran.stdout).unwrap(),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(ran.status.success(), "{errors}");
    let seconds = |key: &str| -> u64 {
        let line = values.lines().find(|line| line.split_whitespace().next() == Some(key));
        let value = line.unwrap().split_whitespace().nth(2).unwrap();
        value
            .strip_suffix('s')
            .unwrap_or_else(|| panic!("{value}"))
            .parse()
            .unwrap()
    };
    let number = |value: &Value| value.as_u64().unwrap();
    let pod = pod();
    let grace = number(&pod["spec"]["terminationGracePeriodSeconds"]);
    assert!(
        grace >= seconds("drain") + 10,
        "the drain must fit into the grace period"
    );
    let start = &container()["startupProbe"];
    let startup = number(&start["periodSeconds"]) * number(&start["failureThreshold"]);
    assert!(
        startup >= seconds("start_timeout") + 10,
        "the start must fit into the startup probe"
    );
}

/// The gateway answers probes at the address of the pod and clients at the public name, and reports a drain.
#[test]
fn gateway_answers_probes_and_clients_of_the_manifest() {
    let volume = tempfile::tempdir().unwrap();
    let mut args = args(&volume.path().display().to_string());
    let listen = args.iter_mut().find(|arg| arg.starts_with("--listen=")).unwrap();
    *listen = "--listen=0.0.0.0:0".to_owned(); // as in the pod, but on a free port
    let text = args.iter_mut().find(|arg| arg.starts_with("--log-format=")).unwrap();
    assert_eq!(text, "--log-format=json");
    let mut gateway = Gateway::start(&args);
    let port = gateway.port();
    let public = flag("public-url");
    let at = |host: &str, path: &str| Curl {
        curl_options: vec!["-H".to_owned(), format!("host: {host}")],
        url: format!("http://127.0.0.1:{port}{path}"),
    };
    let container = container();
    let path = |probe: &str| container[probe]["httpGet"]["path"].as_str().unwrap().to_owned();
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        assert_eq!(at("10.1.2.3:8080", &path(probe)).status(&[]), "200", "{probe}");
    }
    let client = at(public.strip_prefix("https://").unwrap(), "/mcp");
    let session = client.session();
    let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }).to_string();
    assert_eq!(
        at("10.1.2.3:8080", "/mcp").status(&["-H", &session, "-d", &ping]),
        "403"
    );

    let mut call = client.call(&session, "countdown", json!({ "seconds": 5 }));
    call.events_until("1-1");
    gateway.terminate();
    let ready = at("10.1.2.3:8080", &path("readinessProbe"));
    while ready.status(&[]) == "200" {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(ready.status(&[]), "503", "readiness ends with the drain");
    assert_eq!(at("10.1.2.3:8080", &path("livenessProbe")).status(&[]), "200");
    let rest = call.remaining_events();
    assert!(
        rest.last().unwrap().data["result"].is_object(),
        "the call has completed"
    );
    assert!(gateway.wait().success());
}
