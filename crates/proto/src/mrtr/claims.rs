//! The content of a `requestState`, its binding to a call, and the reasons to refuse it.

use super::Seal;
use crate::clock::Wall;
use crate::cluster::Incarnation;
use crate::jsonrpc::RpcError;
use crate::principal::Principal;
use sha2::{Digest, Sha256};

/// The principal and the call that a request state is bound to.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// The principal of the call.
    pub principal: &'a Principal,
    /// The method of the call.
    pub method: &'a str,
    /// The [`digest`](super::digest()) of its params.
    pub digest: [u8; 32],
}

impl Binding<'_> {
    pub(super) fn principal_digest(&self) -> [u8; 32] {
        principal_digest(self.principal)
    }

    /// The call in fixed size. The digest has a fixed length, so it goes first.
    pub(super) fn call_digest(&self) -> [u8; 32] {
        Sha256::new()
            .chain_update(self.digest)
            .chain_update(self.method)
            .finalize()
            .into()
    }
}

/// A principal in fixed size. The length separates issuer and subject.
pub(super) fn principal_digest(principal: &Principal) -> [u8; 32] {
    let issuer = principal.issuer();
    Sha256::new()
        .chain_update((issuer.len() as u64).to_be_bytes())
        .chain_update(issuer)
        .chain_update(principal.subject())
        .finalize()
        .into()
}

/// The content of a sealed state.
#[derive(Clone, Debug)]
pub struct Claims<'a> {
    /// The principal and the call for which it is valid.
    pub binding: Binding<'a>,
    /// The moment from which it is invalid (MRTR-07).
    pub expires: Wall,
    /// The state.
    pub state: State,
}

/// The state of a retry. Both kinds count the rounds of their call, which are limited (MRTR-08).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The call is parked on the server. The table of parked calls removes it when it is claimed: single use (T-28).
    Parked {
        /// The id of the parked call.
        id: u128,
        /// The number of input rounds so far.
        round: u32,
        /// The node that has the call. `None` if there is only one node.
        node: Option<Incarnation>,
    },
    /// No call is parked: the handler starts again with its own bytes.
    Own {
        /// The number of input rounds so far.
        round: u32,
        /// The handler's bytes.
        bytes: Vec<u8>,
    },
}

/// Why a request state is refused. The log has the reason. The client gets the same text for all of them, so that a forger
/// learns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// Not sealed under this key, or changed since.
    #[error("the request state was not sealed here or was changed")]
    Malformed,
    /// Sealed for another principal.
    #[error("the request state belongs to another principal")]
    NotYours,
    /// Sealed for another method, or for other arguments.
    #[error("the request state belongs to another call")]
    OtherRequest,
    /// Expired.
    #[error("the request state has expired")]
    Expired,
    /// The call is not parked any more: claimed before, expired, or lost in a restart (RST-05). Returned by the table of
    /// parked calls, not by [`Seal::open`].
    #[error("the call that the request state names waits no more")]
    Gone,
}

impl Invalid {
    /// All reasons.
    pub const ALL: [Invalid; 5] = [
        Invalid::Malformed,
        Invalid::NotYours,
        Invalid::OtherRequest,
        Invalid::Expired,
        Invalid::Gone,
    ];

    /// The reason in one word, for metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Invalid::Malformed => "malformed",
            Invalid::NotYours => "not_yours",
            Invalid::OtherRequest => "other_request",
            Invalid::Expired => "expired",
            Invalid::Gone => "gone",
        }
    }
}

impl From<Invalid> for RpcError {
    fn from(_: Invalid) -> Self {
        RpcError::invalid_params(
            "requestState is invalid, expired or already used (a waiting call does not survive a restart of the \
             server); make the call again without it",
        )
    }
}

/// The state is too long to be sealed. The retry would be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request state is longer than {} bytes", Seal::MAX_OWN_BYTES)]
pub struct StateTooLong;
