//! Calls that wait for input (design D7): bounded, expiring, and taken up once.

use super::direct::{Asked, Direct, Outcome};
use crate::builder::random;
use crate::call::Running;
use crate::handler::RpcError;
use parking_lot::Mutex;
use rethread_proto::Principal;
use rethread_proto::clock::{Mono, Wall};
use rethread_proto::mrtr::{self, Binding, Claims, InputRequests, Invalid, State};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The calls of this node that wait for input.
#[derive(Default)]
pub(crate) struct Parks(Mutex<HashMap<u128, Park>>);

/// A call that waits for input.
pub(crate) struct Park {
    pub(crate) running: Arc<Running>,
    pub(crate) asked: Vec<Asked>,
    pub(crate) round: u32,
    owner: Principal,
    expires: Mono,
}

impl Parks {
    fn insert(&self, park: Park) -> Option<u128> {
        let limits = &park.running.node.limits;
        let mut table = self.0.lock();
        let owned = || table.values().filter(|other| other.owner == park.owner).count();
        let full = table.len() >= limits.parks || (!park.owner.is_anonymous() && owned() >= limits.parks_per_principal);
        if full {
            return None;
        }
        let id = u128::from_le_bytes(random());
        table.insert(id, park);
        Some(id)
    }

    /// Takes a call out: whoever comes second finds nothing (MRTR-05, T-28).
    pub(crate) fn take(&self, id: u128) -> Option<Park> {
        self.0.lock().remove(&id)
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
        self.0.lock().len()
    }

    fn end(&self, which: impl Fn(&Park) -> bool) {
        let ended: Vec<Park> = self
            .0
            .lock()
            .extract_if(|_, park| which(park))
            .map(|(_, park)| park)
            .collect();
        for park in ended {
            park.running.cancel();
        }
    }
}

impl std::fmt::Debug for Parks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Parks({})", self.len())
    }
}

/// Parks a call with what it asks, and says so to the client that waits on `direct`.
pub(crate) fn park(running: &Arc<Running>, direct: &Direct, asked: Vec<Asked>, round: u32) -> Outcome {
    let node = &running.node;
    if round > node.limits.input_rounds {
        running.cancel();
        return direct.error(&RpcError::internal("this call asked for input too many times")); // MRTR-08
    }
    let mut requests = InputRequests::new();
    for question in &asked {
        if let Err(error) = requests.ask(&question.key, question.method, &question.params) {
            running.cancel();
            return direct.error(&RpcError::internal(error.to_string()));
        }
    }
    let id = node.parks.insert(Park {
        running: Arc::clone(running),
        asked,
        round,
        owner: direct.principal.clone(),
        expires: node.clock.now() + node.timing.question,
    });
    let Some(id) = id else {
        running.cancel();
        return direct.error(&RpcError::internal("too many calls wait for input; try again later"));
    };
    let state = seal(direct, State::Parked { id, round });
    match state.and_then(|state| mrtr::input_required(&requests, Some(&state))) {
        Ok(result) => direct.result(&result),
        Err(error) => direct.error(&error),
    }
}

/// Seals what the client will bring back, for this caller and these arguments only.
pub(crate) fn seal(direct: &Direct, state: State) -> Result<String, RpcError> {
    let node = &direct.node;
    let claims = Claims {
        binding: binding(direct),
        expires: Wall::from_millis(now().as_millis() + node.timing.question.as_millis() as u64),
        state,
    };
    let sealed = node.seal.seal(random(), &claims);
    sealed.map_err(|too_long| RpcError::internal(too_long.to_string()))
}

/// Opens what the client brought back.
pub(crate) fn open(direct: &Direct, text: &str) -> Result<State, RpcError> {
    let opened = direct.node.seal.open(text, &binding(direct), now());
    opened.map_err(refused)
}

/// The log is told why; the client is not.
pub(crate) fn refused(invalid: Invalid) -> RpcError {
    crate::telemetry::state_refused(invalid);
    invalid.into()
}

fn binding(direct: &Direct) -> Binding<'_> {
    Binding {
        principal: &direct.principal,
        method: direct.method.as_str(),
        digest: mrtr::digest(&direct.params),
    }
}

fn now() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall::from_millis(since.as_millis() as u64)
}
