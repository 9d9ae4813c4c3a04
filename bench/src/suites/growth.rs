//! The cost of a call by the number of live sessions. It must not grow.

use super::call::{LoadCounters, measure_load, read_response};
use super::{Case, Environment, RunningServer, Scale, ServerKind, Setup, Suite, run_load};
use crate::load::{Conn, Dialect, Expected, Request};
use crate::measure::{Metric, Sample, grouped};
use anyhow::{Result, ensure};
use serde_json::json;
use std::rc::Rc;
use tokio::task::JoinSet;

const CLIENTS: usize = 10;

pub(super) fn suite(scale: Scale) -> Suite {
    let sizes: &[usize] = if scale.quick { &[10, 1000] } else { &[10, 1000, 10_000] };
    let case = |&sessions: &usize| Case {
        name: format!("{} sessions", grouped(sessions as f64)),
        servers: vec![
            ServerKind::BareHyper,
            ServerKind::Rethread,
            ServerKind::RethreadEmbedded,
            ServerKind::Rmcp,
        ],
        run: Box::new(move |environment, kind| {
            let setup = Setup {
                canned_path: "/json".to_owned(),
                dialect: Dialect::Legacy,
                stream_at_once: false,
                rmcp_json: false,
            };
            let running = setup.start(environment, kind)?;
            run_load(measure(environment, &running, sessions))
        }),
    };
    Suite {
        name: "growth",
        title: "Cost of a call by number of sessions",
        unit: "call",
        about: "10 connections call `echo` in turn in each live session. Bare hyper has no sessions, so its growth shows the \
                effect of the load generator. rmcp answers with a stream.",
        metrics: &[Metric::Cpu, Metric::Rate, Metric::CoreUse],
        cases: sizes.iter().map(case).collect(),
    }
}

/// A connection that calls in many sessions.
struct MultiSessionClient {
    conn: Conn,
    requests: Vec<Request>,
    expected: Option<Expected>,
    canned: bool,
}

async fn measure(environment: &Environment, running: &RunningServer, sessions: usize) -> Result<Sample> {
    let counters = Rc::new(LoadCounters::default());
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(MultiSessionClient::open(running, sessions / CLIENTS).await?);
    }
    for mut client in clients {
        let counters = Rc::clone(&counters);
        tasks.spawn_local(async move {
            while !counters.stop.get() {
                client.call_each(&counters).await?;
            }
            Ok(())
        });
    }
    let (sample, _) = measure_load(environment, running, &counters, tasks).await?;
    Ok(sample)
}

impl MultiSessionClient {
    async fn open(running: &RunningServer, sessions: usize) -> Result<MultiSessionClient> {
        let target = &running.target;
        let mut conn = Conn::open(target.address).await?;
        let mut requests = Vec::new();
        for _ in 0..sessions {
            let session = target.open(&mut conn).await?;
            requests.push(target.call(&session, "echo", &json!({ "message": "hello" }), false));
        }
        Ok(MultiSessionClient {
            conn,
            requests,
            expected: None,
            canned: target.canned,
        })
    }

    /// Calls once in every session.
    async fn call_each(&mut self, counters: &LoadCounters) -> Result<()> {
        for request in &mut self.requests {
            if counters.stop.get() {
                break;
            }
            let (bytes, id) = request.next();
            self.conn.send(bytes).await?;
            read_response(&mut self.conn, &mut self.expected, id, self.canned).await?;
            counters.add(1, 0);
        }
        ensure!(!self.requests.is_empty(), "no sessions");
        Ok(())
    }
}
