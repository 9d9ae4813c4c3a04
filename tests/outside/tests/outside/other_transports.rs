//! The official clients over HTTP+SSE of 2024-11-05, and over stdio in both eras.

use crate::script;
use crate::server::ServerProcess;

const TYPESCRIPT: (&str, &str) = ("node", "ts/old.mjs");
const PYTHON_1: (&str, &str) = ("py1/bin/python", "py/old.py");
const PYTHON_2: (&str, &str) = ("py2/bin/python", "py/old.py");

/// `rest` are additional arguments of the script.
async fn over_sse((program, script): (&str, &str), rest: &[&str]) {
    let server = ServerProcess::start();
    let url = format!("{}/sse", server.base_url());
    script::run(program, &[&[script, "sse", &url], rest].concat()).await;
}

/// The client starts the server itself.
async fn over_stdio((program, script): (&str, &str), how: &str, rest: &[&str]) {
    let server = ServerProcess::program();
    let server = server.to_str().expect("a path in UTF-8");
    script::run(program, &[&[script, how, server], rest].concat()).await;
}

#[tokio::test]
async fn typescript_sdk_1_over_sse() {
    over_sse(TYPESCRIPT, &["sdk1"]).await;
}

#[tokio::test]
async fn typescript_client_2_over_sse() {
    over_sse(TYPESCRIPT, &["client2"]).await;
}

#[tokio::test]
async fn python_1_over_sse() {
    over_sse(PYTHON_1, &[]).await;
}

#[tokio::test]
async fn python_2_over_sse() {
    over_sse(PYTHON_2, &[]).await;
}

#[tokio::test]
async fn typescript_sdk_1_over_stdio() {
    over_stdio(TYPESCRIPT, "stdio", &["sdk1"]).await;
}

#[tokio::test]
async fn typescript_client_2_over_stdio() {
    over_stdio(TYPESCRIPT, "stdio", &["client2"]).await;
}

#[tokio::test]
async fn python_1_over_stdio() {
    over_stdio(PYTHON_1, "stdio", &[]).await;
}

#[tokio::test]
async fn python_2_over_stdio() {
    over_stdio(PYTHON_2, "stdio", &[]).await;
}

#[tokio::test]
async fn typescript_client_2_over_stdio_without_sessions() {
    over_stdio(TYPESCRIPT, "stdio-modern", &[]).await;
}

#[tokio::test]
async fn python_2_over_stdio_without_sessions() {
    over_stdio(PYTHON_2, "stdio-modern", &[]).await;
}
