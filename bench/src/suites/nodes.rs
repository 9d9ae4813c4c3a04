//! Calls on one, two and three nodes that share one core. A session has no owner, so each node runs the calls it receives.

use super::call::{EchoClient, LoadCounters, measure_load};
use super::{Case, Environment, RunningServer, ServerKind, Setup, Suite, run_load};
use crate::load::{Conn, Dialect};
use crate::measure::{Metric, Sample};
use anyhow::Result;
use std::rc::Rc;
use tokio::task::JoinSet;

const CLIENTS: usize = 16;

pub(super) fn suite() -> Suite {
    Suite {
        name: "nodes",
        title: "Call by number of nodes",
        unit: "call",
        about: "16 clients call `echo`. Each has one session and a connection to each node, and sends each call to the next node. \
                The nodes share one core, so their rates do not add up here. If the CPU time per call stays the same, and Redis does \
                nothing for a call, nodes with cores of their own add up. CPU is that of all nodes together.",
        metrics: &[
            Metric::Rate,
            Metric::Cpu,
            Metric::CoreUse,
            Metric::RedisCpu,
            Metric::RedisScripts,
            Metric::WireBytes,
        ],
        cases: vec![Case {
            name: format!("{CLIENTS} clients"),
            servers: vec![
                ServerKind::BareHyper,
                ServerKind::Rethread,
                ServerKind::RethreadRedis,
                ServerKind::TwoNodes,
                ServerKind::ThreeNodes,
            ],
            run: Box::new(|environment, kind| {
                let running = start(environment, kind)?;
                run_load(measure(environment, &running))
            }),
        }],
    }
}

fn start(environment: &Environment, kind: ServerKind) -> Result<RunningServer> {
    match kind {
        ServerKind::RethreadRedis => RunningServer::start_nodes(environment, 1, false),
        ServerKind::TwoNodes => RunningServer::start_nodes(environment, 2, false),
        ServerKind::ThreeNodes => RunningServer::start_nodes(environment, 3, false),
        kind => {
            let setup = Setup {
                canned_path: "/json".to_owned(),
                dialect: Dialect::Legacy,
                stream_at_once: false,
                rmcp_json: false,
            };
            setup.start(environment, kind)
        }
    }
}

async fn measure(environment: &Environment, running: &RunningServer) -> Result<Sample> {
    let counters = Rc::new(LoadCounters::default());
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for first in 0..CLIENTS {
        let mut clients = connect_to_all(running).await?;
        let counters = Rc::clone(&counters);
        tasks.spawn_local(async move {
            let mut at = first;
            while !counters.stop.get() {
                let nodes = clients.len();
                let client = &mut clients[at % nodes];
                client.call().await?;
                counters.add(1, client.take_received());
                at += 1;
            }
            Ok(())
        });
    }
    let (sample, _) = measure_load(environment, running, &counters, tasks).await?;
    Ok(sample)
}

/// One session with a connection to each node.
async fn connect_to_all(running: &RunningServer) -> Result<Vec<EchoClient>> {
    let mut opening = Conn::open(running.target.address).await?;
    let session = running.target.open(&mut opening).await?;
    let mut clients = Vec::new();
    for target in running.targets() {
        let mut client = EchoClient::in_session(target, Conn::open(target.address).await?, &session);
        client.call().await?; // the node opens its view of the session
        client.take_received();
        clients.push(client);
    }
    Ok(clients)
}
