//! Who may call: static tokens, scopes and lists of allowed principals.
//!
//! A [`StaticTokens`] table turns a token into an [`Identity`]. A [`ServerPolicy`] decides whether that identity may use one
//! server. Time comes in as an argument, so tables can test every decision.

mod date;
mod identity;
mod policy;
mod static_tokens;
mod token_file;

pub use date::parse_date;
pub use identity::Identity;
pub use policy::{AllowEntry, Endpoint, ServerPolicy, ToolPattern};
pub use static_tokens::{MIN_TOKEN_CHARS, NewToken, STATIC_PROVIDER, StaticTokens, TokenDigest};
pub use token_file::{TokenFileError, parse_token_file};
