//! Progress and log messages of a parked call reach its retry.

use super::*;

/// A handler that asks a question and runs `emit` before the answer arrives.
fn handler_that_emits<W>(steps: &Steps, emit: impl Fn(Context) -> W + Send + Sync + Clone + 'static) -> ClosureHandler
where
    W: Future<Output = Result<(), rethread::CallEnded>> + Send + 'static,
{
    let steps = steps.clone();
    ClosureHandler::new(move |cx, _| {
        let (steps, emit) = (steps.clone(), emit.clone());
        async move {
            let (answer, emitted) = tokio::join!(cx.elicit_json(form()), async {
                steps.allowed().await;
                let emitted = emit(cx.clone()).await;
                steps.done();
                emitted
            });
            emitted?;
            let answer: Value = answer?.json()?;
            Ok(text(answer["action"].as_str().unwrap_or_default()))
        }
    })
}

/// MRTR-04, PRG-01: only the latest progress is sent.
#[tokio::test]
async fn mrtr_04_progress_while_parked_reaches_the_retry_under_its_token() {
    let steps = Steps::new();
    let handler = handler_that_emits(&steps, |cx| async move {
        cx.progress(1.0, "one").await?;
        cx.progress_of(2.0, 4.0, "two").await
    });
    let (service, client) = handler.serve();
    let first = park(&client, 1, json!({ "progressToken": "first" })).await;
    steps.run().await;
    assert_eq!(service.stats().parked_calls, 1, "progress does not cancel the call");
    let reply = call(&client, 2, retry_params(&first), json!({ "progressToken": "second" })).await;
    let messages = messages(reply).await;
    let params = json!({ "progressToken": "second", "progress": 2, "total": 4, "message": "two" });
    assert_eq!(messages[0].data["params"], params);
    assert_eq!(messages.len(), 2, "only the latest");
    assert_eq!(
        (&messages[1].data["id"], result_text(&messages[1].data)),
        (&json!(2), "accept")
    );
}

/// PRG-01: also if the first request had a token.
#[tokio::test]
async fn prg_01_progress_while_parked_is_dropped_for_a_retry_without_a_token() {
    let steps = Steps::new();
    let (_, client) = handler_that_emits(&steps, |cx| async move { cx.progress(1.0, None).await }).serve();
    let first = park(&client, 1, json!({ "progressToken": 1 })).await;
    steps.run().await;
    let reply = call(&client, 2, retry_params(&first), json!({})).await;
    assert!(!reply.is_stream());
    assert_eq!(result_text(&reply.json().await), "accept");
}

/// LOG-02, D13: a parked call buffers 64 log messages. The level of the retry filters them.
#[tokio::test]
async fn log_02_logs_while_parked_are_bounded_and_follow_the_level_of_the_retry() {
    let steps = Steps::new();
    let handler = handler_that_emits(&steps, |cx| async move {
        for n in 0..100 {
            let level = if n % 2 == 0 { LogLevel::Info } else { LogLevel::Error };
            cx.log(level, None, n).await?;
        }
        Ok(())
    });
    for (level, expected) in [
        ("debug", (0..64).collect::<Vec<u64>>()),
        ("error", (0..64).filter(|n| n % 2 == 1).collect()),
    ] {
        let (_, client) = handler.serve();
        let first = park(&client, 1, json!({ LOG_LEVEL_KEY: "debug" })).await;
        steps.run().await;
        let reply = call(&client, 2, retry_params(&first), json!({ LOG_LEVEL_KEY: level })).await;
        let mut messages = messages(reply).await;
        assert_eq!(result_text(&messages.pop().unwrap().data), "accept");
        let received: Vec<_> = messages
            .iter()
            .filter_map(|m| m.data["params"]["data"].as_u64())
            .collect();
        assert_eq!(received, expected, "{level}");
    }
}

/// D13.
#[tokio::test]
async fn d13_logs_while_parked_are_bounded_in_bytes() {
    let steps = Steps::new();
    let handler = handler_that_emits(&steps, |cx| async move {
        for size in [100_000, 1_000_000, 100_000, 100_000] {
            cx.log(LogLevel::Info, None, "x".repeat(size)).await?;
        }
        cx.log(LogLevel::Info, None, "small").await
    });
    let (_, client) = handler.serve();
    let first = park(&client, 1, json!({ LOG_LEVEL_KEY: "debug" })).await;
    steps.run().await;
    let reply = call(&client, 2, retry_params(&first), json!({ LOG_LEVEL_KEY: "debug" })).await;
    let sizes: Vec<_> = messages(reply)
        .await
        .iter()
        .filter_map(|m| m.data["params"]["data"].as_str().map(str::len))
        .collect();
    assert_eq!(sizes, [100_000, 100_000, 5], "256 KiB are buffered");
}

/// LOG-02: a log message of a parked call is kept whatever the first request wanted. The retry chooses.
#[tokio::test]
async fn log_02_retry_alone_chooses_among_logs_of_a_parked_call() {
    for first_level in [None, Some("error")] {
        let steps = Steps::new();
        let handler = handler_that_emits(&steps, |cx| async move {
            cx.log(LogLevel::Info, None, "while parked").await
        });
        let (_, client) = handler.serve();
        let meta = first_level.map_or(json!({}), |level| json!({ LOG_LEVEL_KEY: level }));
        let asked = park(&client, 1, meta).await;
        steps.run().await;
        let retry = call(&client, 2, retry_params(&asked), json!({ LOG_LEVEL_KEY: "debug" })).await;
        let got = messages(retry).await;
        assert_eq!(got[0].data["params"]["data"], "while parked", "{got:?}");
    }
}
