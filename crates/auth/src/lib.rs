//! Authentication of callers: static tokens, JWTs, key sets, scopes and lists of allowed principals.
//!
//! A [`StaticTokens`] table or an [`UnverifiedJwt`] turns a token into an [`Identity`]. A [`ServerPolicy`] decides whether that identity may use one
//! server. Time comes in as an argument, so tables can test every decision.

mod accepted_tokens;
mod algorithm;
mod date;
mod discovery;
mod failures;
mod identity;
mod jwt;
mod key_set;
mod key_state;
mod policy;
mod static_tokens;
mod token_file;
mod token_tag;

pub use accepted_tokens::{AcceptedIdentity, AcceptedTokens, TokenEpoch};
pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use date::parse_date;
pub use discovery::{key_set_url, metadata_urls};
pub use failures::Failures;
pub use identity::{Audience, Identity};
pub use jwt::{JwtRules, UnverifiedJwt, Verification};
pub use key_set::{KeySet, NotAKeySet};
pub use key_state::{KeyState, KeyTiming, UnknownKid};
pub use policy::{AllowEntry, Endpoint, ServerPolicy, ToolPattern};
pub use static_tokens::{MIN_TOKEN_CHARS, NewToken, NotADigest, STATIC_PROVIDER, StaticTokens, TokenDigest};
pub use token_file::{TokenFileError, parse_token_file};
pub use token_tag::{TagKey, TokenTag};
