//! The head of the HTTP request that carried a message.

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
    extensions: Extensions,
    /// Everything, and then nothing is in the other two.
    parts: Option<Box<Parts>>,
}

impl RequestHead {
    /// The same for an authenticated caller. The token ends here: no handler and no other node sees it (AUTH-22).
    pub(crate) fn authenticated(mut parts: Parts, wanted: bool, caller: &Caller) -> (Self, Principal) {
        parts.headers.remove(header::AUTHORIZATION);
        parts.extensions.insert(caller.clone());
        let principal = caller.principal.clone();
        if wanted {
            parts.extensions.insert(principal.clone());
        } else {
            parts.extensions.remove::<Principal>(); // that of a layer: the authenticator decides
        }
        (Self::with_parts(parts, wanted), principal)
    }

    /// Takes what is needed from a request's head, and who sent it.
    pub(crate) fn new(mut parts: Parts, wanted: bool) -> (Self, Principal) {
        let principal = match wanted {
            true => parts.extensions.get::<Principal>().cloned(),
            false => parts.extensions.remove::<Principal>(),
        };
        (Self::with_parts(parts, wanted), principal.unwrap_or_default())
    }

    fn with_parts(parts: Parts, wanted: bool) -> Self {
        match wanted {
            true => RequestHead {
                parts: Some(Box::new(parts)),
                ..RequestHead::default()
            },
            false => RequestHead {
                headers: parts.headers,
                extensions: parts.extensions,
                parts: None,
            },
        }
    }

    /// The expiry of the caller's token, if the endpoint has an authenticator. The inner value is `None` if it has no end.
    pub(crate) fn expiry(&self) -> Option<Option<Wall>> {
        self.extensions().get::<Caller>().map(|caller| caller.expires)
    }

    /// Tells a session the expiry of its owner's token.
    pub(crate) fn present_to(&self, session: &Session) {
        if let Some(expires) = self.expiry() {
            session.present(expires);
        }
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.parts.as_ref().map_or(&self.headers, |parts| &parts.headers)
    }

    pub(crate) fn extensions(&self) -> &Extensions {
        self.parts.as_ref().map_or(&self.extensions, |parts| &parts.extensions)
    }

    /// The parts that a call needs: the extensions, or the whole head.
    pub(crate) fn open(self) -> (Extensions, Option<Box<Parts>>) {
        (self.extensions, self.parts)
    }

    /// Whether another node has forwarded the request: it is served here or sent back.
    pub(crate) fn is_forwarded(&self) -> bool {
        self.extensions().get::<Forwarded>().is_some()
    }

    /// The whole head, for handlers that asked for it.
    pub(crate) fn parts(&self) -> Option<Box<Parts>> {
        self.parts.clone()
    }
}
