//! The four official clients, and the conditions of a run with them.

use rethread_testkit::proxy::{BreakingProxy, CutPlan, CutStyle};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An official client: its program, and for each kind of script the arguments before the URL.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    pub(crate) program: &'static str,
    pub(crate) features: &'static [&'static str],
    pub(crate) cuts: &'static [&'static str],
    /// Features of a server behind a gateway, and cuts in front of it.
    pub(crate) behind_gateway: &'static [&'static str],
    pub(crate) crash: &'static [&'static str],
}

pub(crate) const SDK1: Client = Client {
    program: "node",
    features: &["ts/features.mjs", "sdk1"],
    cuts: &["ts/cuts.mjs", "sdk1"],
    behind_gateway: &["ts/behind.mjs", "sdk1"],
    crash: &["ts/crash.mjs", "sdk1"],
};
pub(crate) const CLIENT2: Client = Client {
    program: "node",
    features: &["ts/features.mjs", "client2"],
    cuts: &["ts/cuts.mjs", "client2"],
    behind_gateway: &["ts/behind.mjs", "client2"],
    crash: &["ts/crash.mjs", "client2"],
};
pub(crate) const PY1: Client = Client {
    program: "py1/bin/python",
    features: &["py/features.py"],
    cuts: &["py/cuts.py"],
    behind_gateway: &["py/behind.py"],
    crash: &["py/crash.py"],
};
pub(crate) const PY2: Client = Client {
    program: "py2/bin/python",
    features: &["py/features.py"],
    cuts: &["py/cuts.py"],
    behind_gateway: &["py/behind.py"],
    crash: &["py/crash.py"],
};
pub(crate) const CLIENTS: [Client; 4] = [SDK1, CLIENT2, PY1, PY2];

/// `RETHREAD_SEED`, or a value from the clock. Small enough for the numbers of every script language. Prints the seed.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("RETHREAD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::from(now.subsec_nanos()) % 1_000_000
    });
    println!("seed {seed}; RETHREAD_SEED={seed} repeats the random choices");
    seed
}

/// A proxy that cuts every SSE response.
pub(crate) async fn cutting_proxy(upstream: SocketAddr, seed: u64) -> BreakingProxy {
    let mut plan = CutPlan::default();
    plan.chance = 1.0;
    plan.max_idle = Duration::from_millis(300);
    plan.style = CutStyle::Mixed;
    plan.seed = seed;
    BreakingProxy::start(upstream, plan).await.expect("a free port")
}

/// Stops the proxy and asserts that it has cut often enough for a meaningful run.
pub(crate) async fn assert_enough_cuts(proxy: BreakingProxy, min_cuts: usize) {
    let cuts = proxy.cuts();
    println!("{cuts} cuts");
    assert!(cuts >= min_cuts, "only {cuts} cuts, {min_cuts} are needed");
    proxy.stop().await;
}
