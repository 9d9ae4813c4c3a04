//! The four official clients: every feature once, and many calls over connections that break.

use crate::script;
use crate::server::Everything;
use rethread_testkit::proxy::{BreakingProxy, CutPlan, CutStyle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many connections must have been cut for a run to mean something.
const CUTS: usize = 50;

/// Enough calls for that: most are cut several times.
const CALLS: &str = "60";

/// An official client: the program that runs it, and what its scripts want to hear before the URL.
pub(crate) struct Client {
    pub(crate) program: &'static str,
    pub(crate) features: &'static [&'static str],
    cuts: &'static [&'static str],
}

pub(crate) const SDK1: Client = Client {
    program: "node",
    features: &["ts/features.mjs", "sdk1"],
    cuts: &["ts/cuts.mjs", "sdk1"],
};
pub(crate) const CLIENT2: Client = Client {
    program: "node",
    features: &["ts/features.mjs", "client2"],
    cuts: &["ts/cuts.mjs", "client2"],
};
pub(crate) const PY1: Client = Client {
    program: "py1/bin/python",
    features: &["py/features.py"],
    cuts: &["py/cuts.py"],
};
pub(crate) const PY2: Client = Client {
    program: "py2/bin/python",
    features: &["py/features.py"],
    cuts: &["py/cuts.py"],
};

impl Client {
    async fn uses_every_feature(&self) {
        let server = Everything::start();
        script::run(self.program, &[self.features, &[server.url()]].concat()).await;
    }

    async fn survives_cuts(&self) {
        self.survives_cuts_on(&Everything::start()).await;
    }

    pub(crate) async fn survives_cuts_on(&self, server: &Everything) {
        let seed = seed();
        println!("seed {seed}; RETHREAD_SEED={seed} repeats the run");
        let plan = CutPlan {
            chance: 1.0,
            max_idle: Duration::from_millis(300),
            style: CutStyle::Mixed,
            seed,
            ..CutPlan::default()
        };
        let proxy = BreakingProxy::start(server.addr(), plan).await.expect("a free port");
        let (url, seed) = (format!("{}/mcp", proxy.url()), seed.to_string());
        script::run(self.program, &[self.cuts, &[&url, CALLS, &seed]].concat()).await;
        println!("{} cuts", proxy.cuts());
        assert!(proxy.cuts() >= CUTS, "only {} cuts, {CUTS} are needed", proxy.cuts());
        proxy.stop().await;
    }
}

/// From the environment to repeat a run, otherwise from the clock. Small enough for every script's numbers.
fn seed() -> u64 {
    let given = std::env::var("RETHREAD_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::from(now.subsec_nanos()) % 1_000_000
    })
}

#[tokio::test]
async fn typescript_sdk_1_uses_every_feature() {
    SDK1.uses_every_feature().await;
}

#[tokio::test]
async fn typescript_client_2_uses_every_feature() {
    CLIENT2.uses_every_feature().await;
}

#[tokio::test]
async fn python_1_uses_every_feature() {
    PY1.uses_every_feature().await;
}

#[tokio::test]
async fn python_2_uses_every_feature() {
    PY2.uses_every_feature().await;
}

#[tokio::test]
async fn typescript_sdk_1_loses_nothing_to_cuts() {
    SDK1.survives_cuts().await;
}

#[tokio::test]
async fn typescript_client_2_loses_nothing_to_cuts() {
    CLIENT2.survives_cuts().await;
}

#[tokio::test]
async fn python_1_loses_nothing_to_cuts() {
    PY1.survives_cuts().await;
}

#[tokio::test]
async fn python_2_loses_nothing_to_cuts() {
    PY2.survives_cuts().await;
}

/// 2026-07-28 with the clients that speak it: rounds of input, subscriptions, cancellation by disconnect.
#[tokio::test]
async fn typescript_client_2_uses_the_stateless_revision() {
    let server = Everything::start();
    script::run("node", &["ts/modern.mjs", server.url()]).await;
}

#[tokio::test]
async fn python_2_uses_the_stateless_revision() {
    let server = Everything::start();
    script::run("py2/bin/python", &["py/modern.py", server.url()]).await;
}

/// One process, both eras at once: stateless clients work while the streams of session clients are cut and resumed.
#[tokio::test]
async fn both_eras_are_served_at_once() {
    let server = Everything::start();
    let stateless = async {
        script::run_beside_others("node", &["ts/modern.mjs", server.url()]).await;
        script::run_beside_others("py2/bin/python", &["py/modern.py", server.url()]).await;
    };
    tokio::join!(stateless, SDK1.survives_cuts_on(&server), PY1.survives_cuts_on(&server));
}
