//! Shutdown with parked calls (T-38).

use super::*;

/// T-38: an ended parked call holds no permit, so the shutdown still waits for running calls.
#[tokio::test(start_paused = true)]
async fn t_38_shutdown_waits_for_calls_beside_an_ended_parked_call() {
    let steps = Steps::new();
    let on = steps.clone();
    let handler = ClosureHandler::new(move |cx, params| {
        let steps = on.clone();
        async move {
            if params["arguments"]["slow"] == true {
                tokio::time::sleep(Duration::from_secs(5)).await;
                return Ok(text("slow"));
            }
            steps.ask_until_allowed(&cx).await;
            steps.done();
            Ok(text("ended"))
        }
    });
    let (service, client) = handler.serve();
    park(&client, 1, json!({})).await;
    steps.run().await;
    let slow = tokio::spawn({
        let client = client.clone();
        async move {
            let slow = json!({ "arguments": { "slow": true } });
            call(&client, 2, slow, json!({})).await.json().await
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((service.stats().parked_calls, service.stats().running_calls), (1, 1));
    service.shutdown(Duration::from_secs(60)).await;
    assert_eq!(result_text(&slow.await.unwrap()), "slow", "the shutdown waited for it");
}

/// T-38: the shutdown does not wait for a parked call.
#[tokio::test(start_paused = true)]
async fn t_38_shutdown_ends_when_the_last_call_parks() {
    let handler = ClosureHandler::new(|cx, _| async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        cx.elicit_json(form()).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(text("answered"))
    });
    let (service, client) = handler.serve();
    let first = tokio::spawn({
        let client = client.clone();
        async move { park(&client, 1, json!({})).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let started = tokio::time::Instant::now();
    service.shutdown(Duration::from_secs(60)).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    first.await.unwrap();
    assert_eq!(service.stats().parked_calls, 0);
}

/// T-38: any other request with a state is refused.
#[tokio::test(start_paused = true)]
async fn t_38_shutdown_accepts_only_retries_of_parked_calls() {
    let handler = ClosureHandler::new(|cx, params| async move {
        if params["arguments"]["slow"] == true {
            tokio::time::sleep(Duration::from_secs(9)).await;
        } else {
            cx.elicit_json(form()).await?;
        }
        Ok(text("done"))
    });
    let (service, client) = handler.serve();
    let first = park(&client, 1, json!({})).await;
    let slow = tokio::spawn({
        let client = client.clone();
        async move { call(&client, 2, json!({ "arguments": { "slow": true } }), json!({})).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let draining = tokio::spawn(async move { service.shutdown(Duration::from_secs(60)).await });
    tokio::task::yield_now().await;
    for more in [json!({}), json!({ "inputResponses": {} })] {
        assert_eq!(call(&client, 3, more, json!({})).await.status, 503);
    }
    let params = json!({ "notifications": {}, "requestState": "x" });
    let listening = client.stateless(4, "subscriptions/listen", params, json!({})).await;
    assert_eq!(listening.status, 503);
    let answer = call(&client, 5, retry_params(&first), json!({})).await.json().await;
    assert_eq!(result_text(&answer), "done");
    assert_eq!(slow.await.unwrap().status, 200);
    draining.await.unwrap();
}
