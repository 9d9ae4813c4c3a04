//! Translation between the two eras, for a relay whose client and server speak different ones (requirements 4).
//!
//! | module | translates |
//! |---|---|
//! | [`up`] | a modern client in front of a legacy server |
//! | [`down`] | a legacy client in front of a modern server |
//! | [`fingerprint`] | client capabilities to the key of a lease |
//!
//! Values stay the bytes that were sent. Only lists, contents and questions are looked into.

pub mod down;
pub mod fingerprint;
mod members;
pub mod up;

use crate::version::{Era, Revisions};

/// Keys of `_meta` that belong to the modern era.
const MODERN_META: &str = "io.modelcontextprotocol/";
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The translation between a client and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Translation {
    /// Both speak the same era.
    None,
    /// A modern client in front of a legacy server.
    Up,
    /// A legacy client in front of a modern server.
    Down,
}

impl Translation {
    /// The translation for a client of the era `client`, if the relay speaks `spoken` to the server. A server that
    /// speaks both eras gets the era of the client (GW-04).
    pub fn between(client: Era, spoken: Revisions) -> Self {
        match client {
            _ if spoken.serves_era(client) => Translation::None,
            Era::Modern => Translation::Up,
            Era::Legacy => Translation::Down,
        }
    }

    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Translation::None => "none",
            Translation::Up => "up",
            Translation::Down => "down",
        }
    }
}

/// The kinds of messages that a translation cannot carry, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// A question of the server that no client can get.
    Question,
    /// A log message that names no call.
    Log,
    /// A progress report.
    Progress,
    /// Another notification.
    Notification,
    /// Content that the client's revision does not have.
    Content,
    /// State of a call.
    State,
}

impl Dropped {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Dropped::Question => "question",
            Dropped::Log => "log",
            Dropped::Progress => "progress",
            Dropped::Notification => "notification",
            Dropped::Content => "content",
            Dropped::State => "state",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GW-04, GW-15: the era spoken to the server decides the translation, and every client is served.
    #[test]
    fn gw_15_translation_follows_from_the_era_of_the_client_and_the_spoken_one() {
        for (client, spoken, expected) in [
            (Era::Legacy, Revisions::LEGACY, Translation::None),
            (Era::Legacy, Revisions::BOTH, Translation::None),
            (Era::Legacy, Revisions::MODERN, Translation::Down),
            (Era::Modern, Revisions::MODERN, Translation::None),
            (Era::Modern, Revisions::BOTH, Translation::None),
            (Era::Modern, Revisions::LEGACY, Translation::Up),
        ] {
            assert_eq!(Translation::between(client, spoken), expected, "{client:?} {spoken:?}");
        }
    }
}
