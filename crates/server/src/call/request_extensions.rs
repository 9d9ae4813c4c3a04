//! The extensions of a request, as its handler sees them.

use http::Extensions;
use rethread_proto::auth::Caller;
use std::sync::OnceLock;

/// The extensions of a request. Its authenticated caller is among them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestExtensions {
    sent: Extensions,
    /// The caller, if `sent` was empty. Only a handler that asks for extensions pays for their table.
    caller: Option<Caller>,
    with_caller: OnceLock<Extensions>,
}

impl RequestExtensions {
    pub(crate) fn new(mut sent: Extensions, caller: Option<&Caller>) -> Self {
        let caller = caller.cloned();
        let caller = match sent.is_empty() {
            true => caller,
            false => {
                caller.map(|caller| sent.insert(caller)); // the table exists
                None
            }
        };
        RequestExtensions {
            sent,
            caller,
            with_caller: OnceLock::new(),
        }
    }

    /// All of them.
    pub(crate) fn get(&self) -> &Extensions {
        let Some(caller) = &self.caller else {
            return &self.sent;
        };
        self.with_caller.get_or_init(|| {
            let mut extensions = Extensions::new();
            extensions.insert(caller.clone());
            extensions
        })
    }

    /// The extensions that came with the request. The caller may be missing.
    pub(crate) fn sent(&self) -> &Extensions {
        &self.sent
    }
}
