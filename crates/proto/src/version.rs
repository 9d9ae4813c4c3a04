//! The protocol revisions, and every behaviour that differs between them.
//!
//! Only this module compares versions. Other code calls one of the predicates below. Each is a pure function of the version
//! (VER-10), and the truth table at the end of this file tests all of them.

use crate::jsonrpc::code;
use std::fmt;
use std::str::FromStr;

/// A protocol revision of MCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// `2024-11-05`: HTTP+SSE on two endpoints. Its handshake also appears on the single endpoint (T-23).
    V2024_11_05,
    /// `2025-03-26`: the first Streamable HTTP, the only revision with JSON-RPC batches.
    V2025_03_26,
    /// `2025-06-18`: batches removed, the version is in a header.
    V2025_06_18,
    /// `2025-11-25`: priming events, `retry:`, connections that may close before their stream ends.
    V2025_11_25,
    /// `2026-07-28`: stateless requests, no sessions, no event ids.
    V2026_07_28,
}

/// The two families of revisions. [`gate::body`](crate::gate::body) decides the era of a request, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Sessions opened by `initialize`: every revision up to 2025-11-25.
    Legacy,
    /// Metadata in each request, no sessions: 2026-07-28.
    Modern,
}

impl Version {
    /// Every revision, oldest first.
    pub const ALL: [Version; 5] = [
        Version::V2024_11_05,
        Version::V2025_03_26,
        Version::V2025_06_18,
        Version::V2025_11_25,
        Version::V2026_07_28,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Version::V2024_11_05 => "2024-11-05",
            Version::V2025_03_26 => "2025-03-26",
            Version::V2025_06_18 => "2025-06-18",
            Version::V2025_11_25 => "2025-11-25",
            Version::V2026_07_28 => "2026-07-28",
        }
    }

    /// The family this revision belongs to.
    pub const fn era(self) -> Era {
        match self {
            Version::V2026_07_28 => Era::Modern,
            _ => Era::Legacy,
        }
    }

    /// A stream starts with an event that has an id and no data, so that the client can reconnect (SSE-05, SSE-06).
    pub const fn sends_priming_event(self) -> bool {
        matches!(self, Version::V2025_11_25)
    }

    /// A `retry:` block is sent before a connection is closed while its stream continues (SSE-06, SSE-07).
    pub const fn sends_retry_before_close(self) -> bool {
        matches!(self, Version::V2025_11_25)
    }

    /// A connection may be closed before its stream has ended (SSE-08, SSE-09).
    pub const fn may_close_early(self) -> bool {
        matches!(self, Version::V2025_11_25)
    }

    /// JSON-RPC batches are accepted (HTTP-09, HTTP-10).
    pub const fn accepts_batches(self) -> bool {
        matches!(self, Version::V2025_03_26)
    }

    /// A dropped connection cancels its call (CAN-02, CAN-03).
    pub const fn disconnect_cancels(self) -> bool {
        matches!(self.era(), Era::Modern)
    }

    /// There are sessions with an id (SES-01).
    pub const fn has_sessions(self) -> bool {
        matches!(self.era(), Era::Legacy)
    }

    /// SSE responses have `X-Accel-Buffering: no` by default (SSE-03).
    pub const fn disables_proxy_buffering(self) -> bool {
        matches!(self.era(), Era::Modern)
    }

    /// Progress notifications may have a `message` (feature table, section 1).
    pub const fn progress_has_message(self) -> bool {
        !matches!(self, Version::V2024_11_05)
    }

    /// The server may ask the user through `elicitation/create` (feature table, section 1).
    pub const fn has_elicitation(self) -> bool {
        matches!(self, Version::V2025_06_18 | Version::V2025_11_25 | Version::V2026_07_28)
    }

    /// `elicitation/create` has a `mode`, `form` or `url` (feature table, section 1).
    pub const fn has_elicitation_modes(self) -> bool {
        matches!(self, Version::V2025_11_25 | Version::V2026_07_28)
    }

    /// Forms of `elicitation/create` may have defaults of any type, titles of choices, and lists of choices (schema of the
    /// revision).
    pub const fn has_elicitation_choices(self) -> bool {
        matches!(self, Version::V2025_11_25 | Version::V2026_07_28)
    }

    /// Tools may have `annotations` (schema of the revision).
    pub const fn has_tool_annotations(self) -> bool {
        !matches!(self, Version::V2024_11_05)
    }

    /// Tools, resources and prompts may have a `title` and a `_meta` (schema of the revision).
    pub const fn has_titles(self) -> bool {
        matches!(self, Version::V2025_06_18 | Version::V2025_11_25 | Version::V2026_07_28)
    }

    /// Tools, resources and prompts may have `icons` (schema of the revision).
    pub const fn has_icons(self) -> bool {
        matches!(self, Version::V2025_11_25 | Version::V2026_07_28)
    }

    /// Tools may have an `outputSchema`, and their results a `structuredContent` (schema of the revision).
    pub const fn has_structured_content(self) -> bool {
        matches!(self, Version::V2025_06_18 | Version::V2025_11_25 | Version::V2026_07_28)
    }

    /// `structuredContent` may be any JSON value. Earlier revisions restrict it to objects (schema of the revision).
    pub const fn has_any_structured_content(self) -> bool {
        matches!(self, Version::V2026_07_28)
    }

    /// Arguments that violate a tool's input schema are answered with a tool result that has `isError`, so that the model
    /// can correct itself. Earlier revisions list invalid arguments among the protocol errors.
    pub const fn reports_invalid_arguments_as_result(self) -> bool {
        matches!(self, Version::V2025_11_25 | Version::V2026_07_28)
    }

    /// The code for a resource that does not exist (feature table, section 1; VER-12).
    pub const fn resource_not_found_code(self) -> i64 {
        match self.era() {
            Era::Legacy => code::RESOURCE_NOT_FOUND,
            Era::Modern => code::INVALID_PARAMS,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A string that is not a known revision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown protocol version")]
pub struct UnknownVersion;

impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Version::ALL.into_iter().find(|v| v.as_str() == s).ok_or(UnknownVersion)
    }
}

/// The set of revisions that an endpoint serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revisions {
    served: [bool; Version::ALL.len()],
}

impl Revisions {
    /// Every session-era revision.
    pub const LEGACY: Revisions = Revisions {
        served: [true, true, true, true, false],
    };
    /// Every revision of both eras.
    pub const BOTH: Revisions = Revisions { served: [true; 5] };
    /// The stateless revisions only.
    pub const MODERN: Revisions = Revisions {
        served: [false, false, false, false, true],
    };

    /// Whether `version` is served.
    pub const fn serves(self, version: Version) -> bool {
        self.served[version as usize]
    }

    /// Whether any revision of `era` is served.
    pub fn serves_era(self, era: Era) -> bool {
        self.newest_first().any(|v| v.era() == era)
    }

    /// The served revisions, newest first (VER-07).
    pub fn newest_first(self) -> impl Iterator<Item = Version> {
        Version::ALL.into_iter().rev().filter(move |v| self.serves(*v))
    }

    /// The revision in the response to an `initialize` with `requested` (VER-01): the same if it is a served legacy revision,
    /// otherwise the newest served one. `None` if no legacy revision is served.
    pub fn negotiate(self, requested: &str) -> Option<Version> {
        let legacy = |v: &Version| v.era() == Era::Legacy;
        requested
            .parse()
            .ok()
            .filter(|v| self.serves(*v) && legacy(v))
            .or_else(|| self.newest_first().find(legacy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VER-10, SSE-03, SSE-05, SSE-06, SSE-07, SSE-08, SSE-09, CAN-02, CAN-03, HTTP-09, HTTP-10.
    #[test]
    fn ver_10_truth_table() {
        type Predicate = fn(Version) -> bool;
        let names: [(&str, Predicate); 17] = [
            ("sends_priming_event", Version::sends_priming_event),
            ("sends_retry_before_close", Version::sends_retry_before_close),
            ("may_close_early", Version::may_close_early),
            ("accepts_batches", Version::accepts_batches),
            ("disconnect_cancels", Version::disconnect_cancels),
            ("has_sessions", Version::has_sessions),
            ("disables_proxy_buffering", Version::disables_proxy_buffering),
            ("progress_has_message", Version::progress_has_message),
            ("has_elicitation", Version::has_elicitation),
            ("has_elicitation_modes", Version::has_elicitation_modes),
            ("has_elicitation_choices", Version::has_elicitation_choices),
            ("has_tool_annotations", Version::has_tool_annotations),
            ("has_titles", Version::has_titles),
            ("has_icons", Version::has_icons),
            ("has_structured_content", Version::has_structured_content),
            ("has_any_structured_content", Version::has_any_structured_content),
            (
                "reports_invalid_arguments_as_result",
                Version::reports_invalid_arguments_as_result,
            ),
        ];
        // One column per revision: A 2024-11-05, B 2025-03-26, C 2025-06-18, D 2025-11-25, E 2026-07-28.
        let table = [
            "...D.", // sends_priming_event
            "...D.", // sends_retry_before_close
            "...D.", // may_close_early
            ".B...", // accepts_batches
            "....E", // disconnect_cancels
            "ABCD.", // has_sessions
            "....E", // disables_proxy_buffering
            ".BCDE", // progress_has_message
            "..CDE", // has_elicitation
            "...DE", // has_elicitation_modes
            "...DE", // has_elicitation_choices
            ".BCDE", // has_tool_annotations
            "..CDE", // has_titles
            "...DE", // has_icons
            "..CDE", // has_structured_content
            "....E", // has_any_structured_content
            "...DE", // reports_invalid_arguments_as_result
        ];
        for ((name, predicate), row) in names.into_iter().zip(table) {
            let found: String = Version::ALL
                .into_iter()
                .zip("ABCDE".chars())
                .map(|(v, letter)| if predicate(v) { letter } else { '.' })
                .collect();
            assert_eq!(found, row, "{name}");
        }
    }

    #[test]
    fn names_round_trip() {
        for v in Version::ALL {
            assert_eq!(v.as_str().parse(), Ok(v));
            assert_eq!(v.to_string(), v.as_str());
        }
        for bad in ["", "2025-11-26", "2025-11-25 ", "draft", "２０２５-11-25"] {
            assert_eq!(bad.parse::<Version>(), Err(UnknownVersion), "{bad:?}");
        }
    }

    #[test]
    fn ver_01_initialize_negotiates_down_and_never_to_the_modern_era() {
        for (asked, answer) in [
            ("2024-11-05", Version::V2024_11_05),
            ("2025-03-26", Version::V2025_03_26),
            ("2025-06-18", Version::V2025_06_18),
            ("2025-11-25", Version::V2025_11_25),
            ("2026-07-28", Version::V2025_11_25), // T-09
            ("1999-01-01", Version::V2025_11_25),
            ("", Version::V2025_11_25),
        ] {
            for served in [Revisions::LEGACY, Revisions::BOTH] {
                assert_eq!(served.negotiate(asked), Some(answer), "{asked}");
            }
        }
        assert_eq!(Revisions::MODERN.negotiate("2025-11-25"), None);
    }

    #[test]
    fn ver_07_served_revisions_are_listed_newest_first() {
        let names: Vec<_> = Revisions::BOTH.newest_first().map(Version::as_str).collect();
        assert_eq!(
            names,
            ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
        );
    }
}
