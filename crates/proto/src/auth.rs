//! Authentication of callers: the form of a token in a request, scopes, challenges, rates and the outcomes of authentication.
//!
//! Nothing here knows a key. `rethread-auth` verifies tokens, and the `rethread` crate asks it.

mod audience;
mod bearer;
mod caller;
mod challenge;
mod outcome;
mod rate;
mod scope;
mod usage;

pub use audience::{accepts_audience, normalized_url};
pub use bearer::{Credentials, MalformedAuthorization, PresentedToken, credentials, presented_token};
pub use caller::{Caller, CallerFacts};
pub use challenge::{Challenge, ChallengeError};
pub use outcome::{AuthOutcome, AuthRefusal};
pub use rate::{Bucket, Rate};
pub use scope::{ImpliedScopes, Scope, Scopes};
pub use usage::{MessageRates, PrincipalCounts};
