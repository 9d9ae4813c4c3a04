//! The head of the HTTP request that carried a message.

use crate::call::request_extensions::RequestExtensions;
use crate::session::Session;
use http::request::Parts;
use http::{Extensions, HeaderMap, header};
use rethread_proto::Principal;
use rethread_proto::auth::Caller;
use rethread_proto::clock::Wall;

/// Marks a request that another node has forwarded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forwarded;

/// The headers and extensions of a request; the whole head for handlers that asked for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestHead {
    headers: HeaderMap,
    extensions: RequestExtensions,
    caller: Option<Caller>,
    /// Everything, and then nothing is in the other two.
    parts: Option<Box<Parts>>,
}

impl RequestHead {
    /// The same for an authenticated caller. The token ends here: no handler and no other node sees it (AUTH-22).
    pub(crate) fn authenticated(mut parts: Parts, wanted: bool, caller: &Caller) -> (Self, Principal) {
        parts.headers.remove(header::AUTHORIZATION);
        let principal = caller.principal.clone();
        if wanted {
            parts.extensions.insert(caller.clone());
            parts.extensions.insert(principal.clone());
        } else {
            parts.extensions.remove::<Principal>(); // that of a layer: the authenticator decides
        }
        (Self::with_parts(parts, wanted, Some(caller)), principal)
    }

    /// Takes what is needed from a request's head, and who sent it.
    pub(crate) fn new(mut parts: Parts, wanted: bool) -> (Self, Principal) {
        let principal = match wanted {
            true => parts.extensions.get::<Principal>().cloned(),
            false => parts.extensions.remove::<Principal>(),
        };
        (Self::with_parts(parts, wanted, None), principal.unwrap_or_default())
    }

    fn with_parts(parts: Parts, wanted: bool, caller: Option<&Caller>) -> Self {
        match wanted {
            true => RequestHead {
                caller: caller.cloned(),
                parts: Some(Box::new(parts)),
                ..RequestHead::default()
            },
            false => RequestHead {
                headers: parts.headers,
                extensions: RequestExtensions::new(parts.extensions, caller),
                caller: caller.cloned(),
                parts: None,
            },
        }
    }

    /// The expiry of the caller's token, if the endpoint has an authenticator. The inner value is `None` if it has no end.
    pub(crate) fn expiry(&self) -> Option<Option<Wall>> {
        self.caller.as_ref().map(|caller| caller.expires)
    }

    /// Passes the expiry of the caller's token to its session.
    pub(crate) fn present_to(&self, session: &Session) {
        if let Some(expires) = self.expiry() {
            session.present(expires);
        }
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.parts.as_ref().map_or(&self.headers, |parts| &parts.headers)
    }

    pub(crate) fn extensions(&self) -> &Extensions {
        match &self.parts {
            Some(parts) => &parts.extensions,
            None => self.extensions.get(),
        }
    }

    /// The parts that a call needs: the extensions, or the whole head.
    pub(crate) fn open(self) -> (RequestExtensions, Option<Box<Parts>>) {
        (self.extensions, self.parts)
    }

    /// Whether another node has forwarded the request: it is served here or sent back.
    pub(crate) fn is_forwarded(&self) -> bool {
        let extensions = match &self.parts {
            Some(parts) => &parts.extensions,
            None => self.extensions.sent(),
        };
        extensions.get::<Forwarded>().is_some()
    }

    /// The whole head, for handlers that asked for it.
    pub(crate) fn parts(&self) -> Option<Box<Parts>> {
        self.parts.clone()
    }
}
