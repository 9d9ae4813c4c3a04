//! The sealed `requestState` that a client carries for a call (MRTR-05).

use crate::call::call_scope::StatelessScope;
use crate::node::clock::wall_now;
use crate::node::{Node, random};
use bytes::Bytes;
use rethread_proto::Principal;
use rethread_proto::clock::Wall;
use rethread_proto::cluster::Incarnation;
use rethread_proto::jsonrpc::{Params, RpcError};
use rethread_proto::mrtr::{self, Binding, Claims, Invalid, RelayedState, State};

/// Seals what the client will bring back, for this caller and these arguments only.
pub(crate) fn seal(node: &Node, scope: &StatelessScope, state: State) -> Result<String, RpcError> {
    let claims = Claims {
        binding: binding(&scope.principal, scope.method.as_str(), &scope.params),
        expires: now(node) + node.timing.question,
        state,
    };
    let sealed = node.seal().seal(random(), &claims);
    sealed.map_err(|too_long| RpcError::internal(too_long.to_string()))
}

/// Opens what the client brought back with a call.
pub(crate) fn open(
    node: &Node,
    text: &str,
    principal: &Principal,
    method: &str,
    params: &Params,
) -> Result<State, RpcError> {
    let opened = node.seal().open(text, &binding(principal, method, params), now(node));
    opened.map_err(|invalid| refused(node, invalid))
}

/// The result of a relay for the client. A state of the server behind it gets the name of this node, so that a retry finds the
/// process that wrote it (GW-19). Without other nodes the result stays as it is.
pub(crate) fn name_node(node: &Node, principal: &Principal, result: Bytes) -> Bytes {
    if !node.relays_in_cluster() || !mrtr::may_have_state(&result) {
        return result;
    }
    let (Some(here), Some(text)) = (node.membership.current(), mrtr::state_of_result(&result)) else {
        return result;
    };
    let state = RelayedState {
        node: Incarnation::clone(&here),
        text,
    };
    mrtr::replace_state(&result, &node.seal().add_node(random(), principal, &state))
}

/// Opens a state that [names](name_node) a node. `None` for any other state, and if there are no other nodes.
pub(crate) fn open_relayed(node: &Node, text: &str, principal: &Principal) -> Option<Result<RelayedState, RpcError>> {
    let opened = node
        .relays_in_cluster()
        .then(|| node.seal().remove_node(text, principal))??;
    Some(opened.map_err(|invalid| refused(node, invalid)))
}

/// The log gets the reason, the client does not.
pub(crate) fn refused(node: &Node, invalid: Invalid) -> RpcError {
    node.metrics.events.state_refused(invalid);
    invalid.into()
}

fn binding<'a>(principal: &'a Principal, method: &'a str, params: &Params) -> Binding<'a> {
    Binding {
        principal,
        method,
        digest: mrtr::digest(params),
    }
}

/// Nodes open the states of each other, so the time is that of the store. Their own clocks may differ.
fn now(node: &Node) -> Wall {
    node.membership.store_time().unwrap_or_else(wall_now)
}
