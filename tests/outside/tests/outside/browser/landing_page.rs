//! The gateway's page in headless Chromium.

use crate::browser::chromium;
use crate::gateway::process::Gateway;
use crate::server::root;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(60);

/// Opens a URL. Returns the document after loading, and the log with the messages of the console.
async fn open(url: &str) -> (String, String) {
    let profile = root().join(format!("target/outside/landing-{}", std::process::id()));
    let browser = Command::new(chromium())
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--enable-logging=stderr",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .arg("--host-resolver-rules=MAP *.example 127.0.0.1")
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--dump-dom", url])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(LIMIT, browser)
        .await
        .expect("Chromium ends in time")
        .expect("Chromium starts");
    let _ = std::fs::remove_dir_all(profile);
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn page_opens_in_a_browser_and_follows_its_own_policy() {
    let gateway = Gateway::for_example();
    let url = gateway.url();
    let base = url.trim_end_matches("mcp");
    for opened in [base, &url] {
        let (document, log) = open(opened).await;
        assert!(document.contains("<h1>This is an MCP endpoint</h1>"), "{document}");
        assert!(document.contains(&format!("<code>{url}</code>")), "{document}");
        // Chromium reports a blocked style in the console.
        assert!(!log.contains("Content Security Policy"), "{log}");
    }
    // Another name for the same address is that of an attack by DNS rebinding.
    let foreign = base.replace("127.0.0.1", "evil.example");
    let (document, _) = open(&foreign).await;
    assert!(
        !document.contains("MCP endpoint") && document.contains("nothing here"),
        "{document}"
    );
}
