//! The one who uses `sleep`, whose runs the server counts: none begins without a POST, so none is run again (RST-03).

use super::raw::Session;
use super::record::field;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How many calls of `sleep` one life of the server was sent.
#[derive(Default)]
struct Sent {
    surely: u64,
    perhaps: u64,
}

pub(super) fn start(session: &Arc<Session>, work: &mut JoinSet<()>) {
    let session = Arc::clone(session);
    work.spawn(async move { keep_sleeping(&session).await });
}

async fn keep_sleeping(session: &Session) {
    let mut dice = session.dice(400);
    let mut sent: BTreeMap<usize, Sent> = BTreeMap::new();
    let mut checks = 0;
    while !session.server.survived() {
        let before = session.server.life();
        // Long enough to become a stream, and left at once: a server that runs calls again has something to run.
        let ms = 150 + dice.below(400);
        let arguments = format!(r#"{{"ms":{ms}}}"#);
        let answer = session.tool(session.new_id(), "sleep", &arguments).await;
        match (before, session.server.life()) {
            (Some(life), after) if after == Some(life) && answer.is_some() => sent.entry(life).or_default().surely += 1,
            (before, after) => {
                for life in before.into_iter().chain(after) {
                    sent.entry(life).or_default().perhaps += 1;
                }
            }
        }
        drop(answer);
        sleep(Duration::from_millis(dice.below(100))).await;
        checks += usize::from(check(session, &sent).await);
    }
    assert!(check(session, &sent).await, "the server is alive for good");
    let runs: u64 = sent.values().map(|sent| sent.surely).sum();
    assert!(runs > 0 && checks > 0, "nothing was counted");
    println!("raw, sleeping: {runs} runs, none of them twice; counted {checks} times");
}

/// Compares with the server's own count. False if it cannot be asked.
async fn check(session: &Session, sent: &BTreeMap<usize, Sent>) -> bool {
    let before = session.server.life();
    let Some(counters) = session.json(session.new_id(), "counters", "{}").await else {
        return false;
    };
    let Some(life) = before.filter(|life| session.server.life() == Some(*life)) else {
        return false; // another life may have answered
    };
    // Its JSON is a text in JSON.
    let counters = counters.replace('\\', "");
    let started = field(&counters, "started").and_then(|n| n.parse::<u64>().ok());
    let started = started.unwrap_or_else(|| panic!("no counters: {counters}"));
    let (least, most) = sent
        .get(&life)
        .map_or((0, 0), |sent| (sent.surely, sent.surely + sent.perhaps));
    assert!(
        (least..=most).contains(&started),
        "life {life} was sent {least} to {most} calls of sleep and began {started}"
    );
    true
}
