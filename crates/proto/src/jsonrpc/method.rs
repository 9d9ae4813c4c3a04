//! Method names. The standard ones are constants, which cost nothing to store and compare.

use crate::inline_str::InlineStr;
use std::fmt;

/// The name of a method.
#[derive(Clone, PartialEq, Eq)]
pub struct Method(Form);

#[derive(Clone, PartialEq, Eq)]
enum Form {
    Known(&'static str),
    /// Never one of the known methods.
    Other(InlineStr),
}

/// The methods of all revisions that clients call.
const KNOWN: [&str; 27] = [
    "tools/call",
    "tools/list",
    "resources/read",
    "resources/list",
    "resources/templates/list",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/get",
    "prompts/list",
    "completion/complete",
    "initialize",
    "ping",
    "logging/setLevel",
    "server/discover",
    "subscriptions/listen",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tasks/cancel",
    "tasks/update",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/roots/list_changed",
    "notifications/tasks/status",
    "notifications/elicitation/complete",
    "notifications/message",
];

impl Method {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Form::Known(name) => name,
            Form::Other(name) => name.as_str(),
        }
    }

    /// The name if some revision has the method, otherwise `other`: a client cannot invent a label (OPS-06).
    pub fn label(&self) -> &'static str {
        match &self.0 {
            Form::Known(name) => name,
            Form::Other(_) => "other",
        }
    }

    /// Whether some revision of the protocol has this method.
    pub fn is_standard(&self) -> bool {
        matches!(self.0, Form::Known(_))
    }
}

impl From<&str> for Method {
    fn from(name: &str) -> Self {
        Method(match KNOWN.into_iter().find(|known| *known == name) {
            Some(known) => Form::Known(known),
            None => Form::Other(name.into()),
        })
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_length_round_trip() {
        for name in KNOWN
            .into_iter()
            .chain(["", "tools/calls", "a/method/that/nobody/has/ever/heard/of"])
        {
            let method = Method::from(name);
            assert_eq!(method.as_str(), name);
            assert_eq!(method, Method::from(name));
            assert_ne!(method, Method::from("x"));
            assert_eq!(method.is_standard(), KNOWN.contains(&name), "{name}");
        }
    }
}
