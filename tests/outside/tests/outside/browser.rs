//! A page in headless Chromium that uses the endpoint from another origin (HTTP-14, SEC-01).

mod console;
mod landing_page;

use crate::server::{ServerProcess, root};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(60);

/// Serves the page and waits for its verdict.
async fn verdict(pages: &TcpListener) -> String {
    loop {
        let (mut socket, _) = pages.accept().await.expect("a connection");
        if let Some(word) = serve(&mut socket).await {
            return word;
        }
    }
}

/// Answers one request with the page. Returns the verdict if the request is one.
async fn serve(socket: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    let body_at = loop {
        let read = socket.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&buffer[..read]);
        if let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8_lossy(&request[..body_at]).to_ascii_lowercase();
    let field = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = field.and_then(|value| value.trim().parse().ok()).unwrap_or(0);
    while request.len() < body_at + length {
        let read = socket.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&buffer[..read]);
    }
    let posted = head.starts_with("post ");
    let page = if posted { "" } else { include_str!("page.html") };
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
        page.len()
    );
    let _ = socket.write_all(answer.as_bytes()).await; // the browser may have closed already
    posted.then(|| String::from_utf8_lossy(&request[body_at..]).into_owned())
}

/// The path of Chromium.
pub(crate) fn chromium() -> PathBuf {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
    found
        .find(|program| program.is_file())
        .expect("Chromium is missing; install it with: apt-get install chromium")
}

/// Opens the page under `host` and returns its verdict.
async fn open(host: &str, pages: &TcpListener, server: &ServerProcess, profile: &Path) -> String {
    let port = pages.local_addr().expect("a bound socket").port();
    let url = format!("http://{host}:{port}/?endpoint={}", server.url());
    let browser = Command::new(chromium())
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        // Names that are not loopback names, without a network.
        .arg("--host-resolver-rules=MAP *.example 127.0.0.1")
        .arg("--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests")
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("--remote-debugging-port=0")
        .arg(&url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let mut browser = browser.expect("Chromium starts");
    let word = timeout(LIMIT, verdict(pages))
        .await
        .expect("the page comes to a verdict");
    let _ = browser.kill().await; // it may have exited already
    word
}

#[tokio::test]
async fn page_of_an_allowed_origin_works_and_a_foreign_one_is_refused() {
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let pages = TcpListener::bind(any).await.expect("a free port");
    let port = pages.local_addr().expect("a bound socket").port();
    let origin = format!("http://app.example:{port}");
    let server = ServerProcess::start_with(&["--allow-origin", &origin]);
    let profile = root().join(format!("target/outside/browser-{port}"));

    let allowed = open("app.example", &pages, &server, &profile).await;
    println!("app.example: {allowed}");
    assert_eq!(
        allowed,
        "session ok, stream 5 of 5, resumed ok, stateless ok, deleted 204"
    );

    let foreign = open("evil.example", &pages, &server, &profile).await;
    println!("evil.example: {foreign}");
    assert!(foreign.starts_with("refused:"), "{foreign}");
    let _ = std::fs::remove_dir_all(profile);
}
