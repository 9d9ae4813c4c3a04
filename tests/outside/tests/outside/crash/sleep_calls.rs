//! Calls of `sleep`. The server counts their runs, and every run needs a POST, so no call is executed twice (RST-03).

use super::raw::Session;
use super::received::field;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Number of `sleep` calls sent to one lifetime of the server.
#[derive(Default)]
struct SentCalls {
    certain: u64,
    possible: u64,
}

pub(super) fn start(session: &Arc<Session>, work: &mut JoinSet<()>) {
    let session = Arc::clone(session);
    work.spawn(async move { sleep_until_end(&session).await });
}

async fn sleep_until_end(session: &Session) {
    let mut random = session.random(400);
    let mut sent: BTreeMap<usize, SentCalls> = BTreeMap::new();
    let mut checks = 0;
    while !session.server.kills_are_over() {
        let before = session.server.current();
        // Long enough to become a stream, then disconnect. A server that repeats calls would repeat this one.
        let ms = 150 + random.below(400);
        let arguments = format!(r#"{{"ms":{ms}}}"#);
        let answer = session.tool(session.new_id(), "sleep", &arguments).await;
        match (before, session.server.current()) {
            (Some(life), after) if after == Some(life) && answer.is_some() => {
                sent.entry(life).or_default().certain += 1;
            }
            (before, after) => {
                for life in before.into_iter().chain(after) {
                    sent.entry(life).or_default().possible += 1;
                }
            }
        }
        drop(answer);
        sleep(Duration::from_millis(random.below(100))).await;
        checks += usize::from(check(session, &sent).await);
    }
    assert!(check(session, &sent).await, "no more kills");
    let runs: u64 = sent.values().map(|sent| sent.certain).sum();
    assert!(runs > 0 && checks > 0, "at least one run and one check");
    println!("raw, sleep: {runs} runs, none repeated; {checks} checks");
}

/// Compares with the counter of the server. False if the server did not answer.
async fn check(session: &Session, sent: &BTreeMap<usize, SentCalls>) -> bool {
    let before = session.server.current();
    let Some(counters) = session.json(session.new_id(), "counters", "{}").await else {
        return false;
    };
    let Some(life) = before.filter(|life| session.server.current() == Some(*life)) else {
        return false; // another lifetime may have answered
    };
    // The counters are a JSON string inside JSON.
    let counters = counters.replace('\\', "");
    let started = field(&counters, "started").and_then(|n| n.parse::<u64>().ok());
    let started = started.unwrap_or_else(|| panic!("no counters: {counters}"));
    let (least, most) = sent
        .get(&life)
        .map_or((0, 0), |sent| (sent.certain, sent.certain + sent.possible));
    assert!(
        (least..=most).contains(&started),
        "lifetime {life}: {least} to {most} calls of sleep were sent, {started} were started"
    );
    true
}
