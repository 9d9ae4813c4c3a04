//! The four official clients: every feature once, and many calls over connections that are cut.

use crate::official_clients::{CLIENT2, Client, PY1, PY2, SDK1, assert_enough_cuts, cutting_proxy, seed};
use crate::script;
use crate::server::ServerProcess;

/// Minimum number of cuts for a meaningful run.
const MIN_CUTS: usize = 50;

/// Calls per run. Most are cut several times.
const CALLS: &str = "60";

impl Client {
    async fn assert_every_feature(&self) {
        let server = ServerProcess::start();
        script::run(self.program, &[self.features, &[server.url()]].concat()).await;
    }

    async fn assert_cuts_lose_nothing(&self) {
        self.assert_cuts_lose_nothing_on(&ServerProcess::start()).await;
    }

    pub(crate) async fn assert_cuts_lose_nothing_on(&self, server: &ServerProcess) {
        let seed = seed();
        let proxy = cutting_proxy(server.addr(), seed).await;
        let (url, seed) = (format!("{}/mcp", proxy.url()), seed.to_string());
        script::run(self.program, &[self.cuts, &[&url, CALLS, &seed]].concat()).await;
        assert_enough_cuts(proxy, MIN_CUTS).await;
    }
}

#[tokio::test]
async fn typescript_sdk_1_uses_every_feature() {
    SDK1.assert_every_feature().await;
}

#[tokio::test]
async fn typescript_client_2_uses_every_feature() {
    CLIENT2.assert_every_feature().await;
}

#[tokio::test]
async fn python_1_uses_every_feature() {
    PY1.assert_every_feature().await;
}

#[tokio::test]
async fn python_2_uses_every_feature() {
    PY2.assert_every_feature().await;
}

#[tokio::test]
async fn typescript_sdk_1_loses_nothing_to_cuts() {
    SDK1.assert_cuts_lose_nothing().await;
}

#[tokio::test]
async fn typescript_client_2_loses_nothing_to_cuts() {
    CLIENT2.assert_cuts_lose_nothing().await;
}

#[tokio::test]
async fn python_1_loses_nothing_to_cuts() {
    PY1.assert_cuts_lose_nothing().await;
}

#[tokio::test]
async fn python_2_loses_nothing_to_cuts() {
    PY2.assert_cuts_lose_nothing().await;
}

/// 2026-07-28: input rounds, subscriptions, cancellation by disconnect.
#[tokio::test]
async fn typescript_client_2_uses_the_stateless_revision() {
    let server = ServerProcess::start();
    script::run("node", &["ts/modern.mjs", server.url()]).await;
}

#[tokio::test]
async fn python_2_uses_the_stateless_revision() {
    let server = ServerProcess::start();
    script::run("py2/bin/python", &["py/modern.py", server.url()]).await;
}

/// Stateless clients work while the streams of session clients are cut and resumed.
#[tokio::test]
async fn both_eras_are_served_at_once() {
    let server = ServerProcess::start();
    let stateless = async {
        script::run_concurrently("node", &["ts/modern.mjs", server.url()]).await;
        script::run_concurrently("py2/bin/python", &["py/modern.py", server.url()]).await;
    };
    tokio::join!(
        stateless,
        SDK1.assert_cuts_lose_nothing_on(&server),
        PY1.assert_cuts_lose_nothing_on(&server)
    );
}
