//! Calls that wait for input (D7). The table is bounded; a call expires, and one retry continues it.

use super::call_scope::{CallScope, ParkingTable, StatelessScope};
use super::input::Question;
use super::json_response::JsonResponse;
use super::request_state;
use crate::call::active_call::ActiveCall;
use crate::node::random;
use parking_lot::Mutex;
use rethread_proto::auth::PrincipalCounts;
use rethread_proto::clock::Mono;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::mrtr::{self, InputRequests, State};
use rethread_store::Incarnation;
use std::collections::HashMap;
use std::sync::Arc;

/// The calls of this node that wait for input.
#[derive(Default)]
pub(crate) struct ParkedCalls(Mutex<Table>);

#[derive(Default)]
struct Table {
    calls: HashMap<u128, ParkedCall>,
    /// Bytes that they keep.
    bytes: usize,
    per_principal: PrincipalCounts,
}

impl Table {
    fn remove(&mut self, id: u128) -> Option<ParkedCall> {
        let park = self.calls.remove(&id)?;
        self.bytes -= park.bytes;
        self.per_principal.leave(park.running.exchange.principal());
        Some(park)
    }
}

/// A call that waits for input.
pub(crate) struct ParkedCall {
    pub(crate) running: Arc<ActiveCall>,
    expires: Mono,
    /// Bytes that it keeps: its arguments, and what waits for the retry.
    bytes: usize,
}

impl ParkedCalls {
    /// Adds a call. False if the table is full.
    fn insert(&self, id: u128, park: ParkedCall) -> bool {
        let (limits, principal) = (&park.running.exchange.node.limits, park.running.exchange.principal());
        let mut table = self.0.lock();
        let full = table.calls.len() >= limits.parks()
            || (!table.calls.is_empty() && table.bytes + park.bytes > limits.parked_bytes())
            || !table.per_principal.enter(principal, limits.parks_per_principal());
        if !full {
            table.bytes += park.bytes;
            table.calls.insert(id, park);
        }
        !full
    }

    /// Removes a call. A second retry finds nothing (MRTR-05, T-28).
    pub(crate) fn take(&self, id: u128) -> Option<ParkedCall> {
        self.0.lock().remove(id)
    }

    /// Ends the calls whose client did not come back (MRTR-07).
    pub(crate) fn sweep(&self, now: Mono) {
        self.end(|park| park.expires <= now);
    }

    /// Ends every waiting call.
    pub(crate) fn clear(&self) {
        self.end(|_| true);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().calls.len()
    }

    fn end(&self, which: impl Fn(&ParkedCall) -> bool) {
        let ended: Vec<ParkedCall> = {
            let mut table = self.0.lock();
            let ids = table.calls.iter().filter(|(_, park)| which(park)).map(|(id, _)| *id);
            let ids: Vec<_> = ids.collect();
            ids.into_iter().filter_map(|id| table.remove(id)).collect()
        };
        for park in ended {
            park.running.cancel();
        }
    }
}

impl ParkingTable for ParkedCalls {
    fn forget(&self, id: u128) {
        self.take(id);
    }

    fn grow(&self, id: u128, bytes: usize) {
        let mut table = self.0.lock();
        if let Some(park) = table.calls.get_mut(&id) {
            park.bytes += bytes;
            table.bytes += bytes;
        }
    }
}

impl std::fmt::Debug for ParkedCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ParkedCalls({})", self.len())
    }
}

/// Parks a call with its open questions. Returns the message that ends the request of the client that waits. `None` if
/// there is something else to send first.
pub(crate) fn park(table: &ParkedCalls, running: &Arc<ActiveCall>) -> Option<JsonResponse> {
    let exchange = &running.exchange;
    let CallScope::Stateless(scope) = &exchange.scope else {
        return None;
    };
    let id = u128::from_le_bytes(random());
    let questions = exchange.park(id)?;
    let request = running.id();
    let json = match enter(table, running, scope, id, &questions) {
        Ok(result) => JsonResponse::result(&request, &result, scope.method.as_str(), &exchange.node),
        Err(error) => {
            running.cancel();
            JsonResponse::error(&request, &error)
        }
    };
    exchange.node.notify_drain();
    Some(json)
}

/// Enters a parked call into the table. Returns the result that asks `questions` and names the call.
fn enter(
    table: &ParkedCalls,
    running: &Arc<ActiveCall>,
    scope: &StatelessScope,
    id: u128,
    questions: &[Question],
) -> Result<Vec<u8>, RpcError> {
    let node = &running.exchange.node;
    let (round, kept_bytes) = running.exchange.parked_facts();
    if round > node.limits.input_rounds() {
        return Err(RpcError::internal("this call asked for input too many times")); // MRTR-08
    }
    let mut requests = InputRequests::new();
    for question in questions {
        let asked = requests.ask(&question.key, question.method, &question.params);
        asked.map_err(|error| RpcError::internal(error.to_string()))?;
    }
    let parked_on = node.membership.current().map(|node| Incarnation::clone(&node));
    let parked = State::Parked {
        id,
        round,
        node: parked_on,
    };
    let state = request_state::seal(node, scope, parked)?;
    let result = mrtr::input_required(&requests, Some(&state))?;
    let park = ParkedCall {
        running: Arc::clone(running),
        expires: node.clock.now() + node.timing.question,
        bytes: scope.params.raw().len() + kept_bytes,
    };
    let full = || RpcError::internal("too many calls wait for input; try again later");
    table.insert(id, park).then_some(result).ok_or_else(full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, Context, Handler, McpService, Reply};
    use rethread_testkit::client::Client;
    use serde_json::{Value, json};
    use std::time::Duration;

    struct Asking;

    impl Handler for Asking {
        async fn handle(&self, _: Call, cx: &Context) -> Result<Reply, RpcError> {
            cx.roots_json().await?;
            Ok(Reply::empty())
        }
    }

    async fn call(client: &Client, id: u64, state: Option<&Value>) -> Value {
        let mut params = json!({ "name": "t" });
        if let Some(state) = state {
            params["requestState"] = state.clone();
        }
        let answer = async { client.stateless(id, "tools/call", params, json!({})).await.json().await };
        let answer = tokio::time::timeout(Duration::from_secs(5), answer).await;
        answer.expect("an answer comes in time")
    }

    /// MRTR-07: a parked call that is cancelled leaves the table, and its retry is refused, also if the retry has found the
    /// call before.
    #[tokio::test]
    async fn mrtr_07_cancelled_call_leaves_the_table_and_its_retry_is_refused() {
        let service = McpService::builder(Asking).build();
        let (client, node) = (Client::new(service.clone()), &service.inner.node);
        let parked = &service.inner.parked;
        let first = call(&client, 1, None).await;
        let park = parked
            .0
            .lock()
            .calls
            .values()
            .next()
            .map(|park| Arc::clone(&park.running));
        park.unwrap().cancel();
        assert_eq!(service.stats().parked_calls, 0);
        let refused = call(&client, 2, Some(&first["result"]["requestState"])).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");

        call(&client, 3, None).await;
        let id = *parked.0.lock().calls.keys().next().unwrap();
        let park = parked.take(id).unwrap();
        park.running.cancel();
        let exchange = &park.running.exchange;
        let meta = exchange.request(0, Clone::clone);
        assert!(!exchange.retry(meta, &mrtr::InputResponses::default()));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!((node.calls.now(), node.calls.at_work()), (0, 0), "every permit is back");
    }
}
