//! Results that ask for input (2026-07-28, "multi round-trip requests"): the call ends with questions, and the client repeats
//! it with the answers.
//!
//! Only `requestState` links the two requests (MRTR-04), and the client holds it in between. So it is sealed: only this
//! server can make one, and it is valid only for its principal, its call and a short time ([`Seal`]). The seal does not
//! enforce single use. The table of parked calls does: it removes each call when it is claimed (T-28).

mod claims;
mod digest;
mod input;
mod relayed_state;
mod seal;

pub use claims::{Binding, Claims, Invalid, State, StateTooLong};
pub use digest::digest;
pub use input::{
    BadInputRequest, InputMethod, InputRequest, InputRequests, InputResponses, input_required, request_state,
};
pub use relayed_state::{RelayedState, may_have_state, replace_state, state_of_result, with_state};
pub use seal::Seal;

/// Whether a call of `method` may be answered with a result that asks for input (MRTR-01).
pub fn allows_input_required(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mrtr_01_three_methods_may_ask_for_input() {
        for method in ["tools/call", "prompts/get", "resources/read"] {
            assert!(allows_input_required(method), "{method}");
        }
        for method in [
            "",
            "tools/list",
            "resources/list",
            "completion/complete",
            "subscriptions/listen",
            "server/discover",
            "Tools/call",
        ] {
            assert!(!allows_input_required(method), "{method}");
        }
    }
}
