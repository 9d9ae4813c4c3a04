//! Whether a call costs more when there are more sessions. It must not.

use super::call::{Shared, wait};
use super::{Bench, Case, Contender, Running, Scale, Setup, Suite, load};
use crate::load::{Conn, Dialect, Expected, Request};
use crate::measure::{Metric, Sample, Stopwatch};
use anyhow::{Result, ensure};
use serde_json::json;
use std::rc::Rc;
use tokio::task::JoinSet;

const CLIENTS: usize = 10;

pub(super) fn suite(scale: Scale) -> Suite {
    let sizes: &[usize] = if scale.quick { &[10, 1000] } else { &[10, 1000, 10_000] };
    let case = |&sessions: &usize| Case {
        name: format!("{sessions} sessions"),
        contenders: vec![
            Contender::Limit,
            Contender::Memory,
            Contender::Embedded,
            Contender::Rmcp,
        ],
        run: Box::new(move |bench, contender| {
            let setup = Setup {
                limit: "/json".to_owned(),
                dialect: Dialect::Legacy,
                streams: false,
                rmcp_json: false,
            };
            let running = setup.start(bench, contender)?;
            load(measure(bench, &running, sessions))
        }),
    };
    Suite {
        name: "growth",
        unit: "call",
        about: "`echo` called over 10 connections, in turn in each of so many live sessions. The limit has no sessions: its \
                growth is that of the load's memory. rmcp answers with a stream.",
        metrics: &[Metric::Cpu, Metric::Rate, Metric::Busy],
        cases: sizes.iter().map(case).collect(),
    }
}

/// A connection that calls in many sessions.
struct Client {
    conn: Conn,
    requests: Vec<Request>,
    expected: Option<Expected>,
    canned: bool,
}

async fn measure(bench: &Bench, running: &Running, sessions: usize) -> Result<Sample> {
    let shared = Rc::new(Shared::default());
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Client::open(running, sessions / CLIENTS).await?);
    }
    for mut client in clients {
        let shared = Rc::clone(&shared);
        tasks.spawn_local(async move {
            while !shared.stop.get() {
                client.round(&shared).await?;
            }
            Ok(())
        });
    }
    wait(bench.scale.warm, &mut tasks).await?;
    let done = shared.done.get();
    let watch = Stopwatch::start(&running.server)?;
    wait(bench.scale.window, &mut tasks).await?;
    let sample = watch.stop(shared.done.get() - done)?;
    shared.stop.set(true);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(sample)
}

impl Client {
    async fn open(running: &Running, sessions: usize) -> Result<Client> {
        let target = &running.target;
        let mut conn = Conn::open(target.address).await?;
        let mut requests = Vec::new();
        for _ in 0..sessions {
            let session = target.open(&mut conn).await?;
            requests.push(target.call(&session, "echo", &json!({ "message": "hello" }), false));
        }
        Ok(Client {
            conn,
            requests,
            expected: None,
            canned: target.canned,
        })
    }

    /// One call in every session.
    async fn round(&mut self, shared: &Shared) -> Result<()> {
        for request in &mut self.requests {
            if shared.stop.get() {
                break;
            }
            let (bytes, id) = request.next();
            self.conn.send(bytes).await?;
            super::call::answer(&mut self.conn, &mut self.expected, id, self.canned).await?;
            shared.count(1, 0);
        }
        ensure!(!self.requests.is_empty(), "no sessions");
        Ok(())
    }
}
