//! Calls in a session that belongs to a node: on that node, and on another one, which forwards them.

use super::call::{EchoClient, LoadCounters, measure_load};
use super::{Case, Environment, RunningServer, ServerKind, Setup, Suite, run_load};
use crate::load::{Conn, Dialect};
use crate::measure::{Metric, Sample, percentile};
use anyhow::{Context as _, Result};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;
use tokio::task::JoinSet;

pub(super) fn suite() -> Suite {
    let cases = [1, 16].map(|clients| Case {
        name: if clients == 1 {
            "1 client".to_owned()
        } else {
            format!("{clients} clients")
        },
        servers: vec![
            ServerKind::BareHyper,
            ServerKind::Rethread,
            ServerKind::OwnerNode,
            ServerKind::ForwardingNode,
        ],
        run: Box::new(move |environment, kind| {
            let running = start(environment, kind)?;
            run_load(measure(environment, &running, kind, clients))
        }),
    });
    Suite {
        name: "forward",
        title: "Call in a session of another node",
        unit: "call",
        about: "Clients call `echo` of a handler that keeps state of a session, so each session belongs to the node that opened it. \
                The clients call that node, or another one that forwards each call through Redis. Both nodes share one core, and \
                CPU is that of both. Redis shares the core of the load.",
        metrics: &[
            Metric::P50,
            Metric::P99,
            Metric::Rate,
            Metric::Cpu,
            Metric::RedisCpu,
            Metric::RedisScripts,
        ],
        cases: cases.into(),
    }
}

fn start(environment: &Environment, kind: ServerKind) -> Result<RunningServer> {
    match kind {
        ServerKind::OwnerNode | ServerKind::ForwardingNode => RunningServer::start_nodes(environment, 2, true),
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

async fn measure(
    environment: &Environment,
    running: &RunningServer,
    kind: ServerKind,
    clients: usize,
) -> Result<Sample> {
    let called = match kind {
        ServerKind::ForwardingNode => running.targets().nth(1).context("two nodes")?,
        _ => &running.target,
    };
    let counters = Rc::new(LoadCounters::default());
    let latencies: Rc<RefCell<Vec<(Instant, f64)>>> = Rc::default();
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..clients {
        let mut owner = Conn::open(running.target.address).await?;
        let session = running.target.open(&mut owner).await?;
        let mut client = EchoClient::in_session(called, Conn::open(called.address).await?, &session);
        let (counters, latencies) = (Rc::clone(&counters), Rc::clone(&latencies));
        tasks.spawn_local(async move {
            while !counters.stop.get() {
                let sent = Instant::now();
                client.call().await?;
                latencies.borrow_mut().push((sent, sent.elapsed().as_secs_f64() * 1e3));
                counters.add(1, 0);
            }
            Ok(())
        });
    }
    let measured_from = Instant::now() + environment.scale.warmup;
    let (sample, _) = measure_load(environment, running, &counters, tasks).await?;
    let latencies = latencies.borrow();
    let measured = latencies.iter().filter(|(sent, _)| *sent >= measured_from);
    let mut millis: Vec<f64> = measured.map(|(_, millis)| *millis).collect();
    millis.sort_by(f64::total_cmp);
    Ok(sample
        .with(Metric::P50, percentile(&millis, 0.5))
        .with(Metric::P99, percentile(&millis, 0.99)))
}
