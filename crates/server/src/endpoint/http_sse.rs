//! The 2024-11-05 transport, HTTP+SSE: a GET opens a stream that carries everything, POSTs to another path are only
//! acknowledged (LEG-01 to LEG-05). The session lives as long as its stream; nothing has an id, nothing can be resumed.

use crate::endpoint::authenticate::{self, Authenticate, Authentication, CheckedCaller};
use crate::endpoint::bound_session;
use crate::endpoint::forward::outgoing::Outgoing;
use crate::endpoint::forward::receiving::ForwardError;
use crate::endpoint::legacy;
use crate::endpoint::read_body::{WholeBody, read_body};
use crate::endpoint::request_head::RequestHead;
use crate::endpoint::respond;
use crate::endpoint::server::Server;
use crate::endpoint::service::McpService;
use crate::endpoint::watched_request::WatchedRequest;
use crate::session::Transport;
use crate::stream::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body::Body as HttpBody;
use rethread_proto::cluster::mail::ForwardEndpoint;
use rethread_proto::gate::{self, HeadPolicy, SessionHeader, Verb};
use rethread_proto::jsonrpc;
use rethread_proto::refusal::Reason;
use rethread_proto::sse::Draft;
use rethread_proto::{Principal, Refusal, SessionId, Version};
use rethread_store::{SessionKey, StoreError};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The 2024-11-05 transport of an [`McpService`]: see [`McpService::http_sse`]. Cheap to clone.
pub struct HttpSse {
    inner: Arc<Server>,
    messages: Arc<str>,
    policy: Arc<HeadPolicy>,
    authenticator: Option<Arc<dyn Authenticate>>,
}

impl McpService {
    /// The 2024-11-05 transport, HTTP+SSE, before the same handler: mount it at the path that clients GET (such as `/sse`)
    /// and at the one they POST to (such as `/messages`), and say here how the latter looks from outside, prefix included.
    /// Any session-era revision may be negotiated inside.
    pub fn http_sse(&self, messages_path: impl Into<String>) -> HttpSse {
        HttpSse::new(self, messages_path.into())
    }
}

impl HttpSse {
    pub(crate) fn new(service: &McpService, messages: String) -> Self {
        let inner = Arc::clone(&service.inner);
        let mut policy = HeadPolicy::clone(&service.policy);
        policy.delete = false;
        policy.push = true;
        HttpSse {
            inner,
            messages: messages.into(),
            policy: Arc::new(policy),
            authenticator: service.authenticator.clone(),
        }
    }

    async fn serve<B: HttpBody>(self, request: Request<B>) -> Response<Body> {
        self.inner.start_background();
        let origin = request.headers().get(header::ORIGIN).cloned();
        let mut watched = WatchedRequest::new(&self.inner.node, request.extensions());
        match self.admit(request, watched.as_deref_mut()).await {
            Ok(response) => respond::for_origin(response, origin),
            Err(refusal) => {
                // A page at a refused origin must not read even the refusal.
                let hidden = matches!(refusal.reason, Reason::Origin { .. } | Reason::Host { .. });
                if let Some(watched) = watched {
                    watched.refused(&refusal);
                }
                respond::for_origin(respond::refusal(&refusal), origin.filter(|_| !hidden))
            }
        }
    }

    async fn admit<B: HttpBody>(
        &self,
        request: Request<B>,
        mut watched: Option<&mut WatchedRequest>,
    ) -> Result<Response<Body>, Refusal> {
        let (mut parts, body) = request.into_parts();
        if parts.method == Method::POST {
            // Clients of that time do not say what they accept: the answer is only ever an acknowledgement.
            parts.headers.remove(header::ACCEPT);
        }
        let head = gate::head::admit(&parts.method, &parts.uri, &parts.headers, &self.policy)?;
        let named = named_session(parts.uri.query());
        if let Some(watched) = &mut watched {
            watched.named(&named, &head.version);
        }
        let outgoing = self.inner.node.cluster().map(|_| Outgoing::new(&parts));
        let caller = match &self.authenticator {
            Some(authenticator) if head.verb != Verb::Options => {
                let caller = match authenticator.caller(&parts) {
                    Authentication::Done(caller) => caller,
                    Authentication::Pending(caller) => caller.await,
                };
                let caller = caller.map_err(authenticate::refused)?;
                let counters = &self.inner.node.metrics.admitted_callers;
                Some(CheckedCaller::new(caller, authenticator, counters))
            }
            _ => None,
        };
        let wanted = self.inner.node.handler.wants_request_head;
        let (request_head, principal) = match &caller {
            Some(caller) => RequestHead::authenticated(parts, wanted, caller.caller()),
            None => RequestHead::new(parts, wanted),
        };
        if let Some(watched) = &mut watched {
            watched.identified(&principal);
        }
        match head.verb {
            Verb::Get => self.open(principal, &request_head).await,
            Verb::Post => {
                let inner = &self.inner;
                inner.node.check_lease()?;
                let node = &inner.node;
                // The session is looked up last, so that that of another principal is like one that never existed.
                let body = read_body(body, node.limits.body_bytes(), node.timing.body).await?;
                if let Some(watched) = watched {
                    watched.read(&body);
                }
                let payload = jsonrpc::parse(&body, &node.limits.envelope())?;
                if let Some(mut caller) = caller {
                    caller.authorize(&payload)?;
                }
                if !request_head.is_forwarded() {
                    node.take_messages(&principal, payload.messages().len())?;
                }
                let Some(session) = inner.sessions.find(&named, &principal, Transport::HttpSse)? else {
                    let outgoing = outgoing.filter(|_| !request_head.is_forwarded());
                    return self.forward(&named, principal, outgoing, body).await;
                };
                request_head.present_to(&session);
                bound_session::take(inner, &session, payload, request_head).await?;
                Ok(respond::accepted())
            }
            Verb::Options => {
                let requested = request_head.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS);
                Ok(respond::preflight(requested, "GET, POST"))
            }
            Verb::Delete => Err(Reason::Method { allow: "GET, POST" }.into()),
        }
    }

    /// A POST of a session that is not here: the node of its connection takes it.
    async fn forward(
        &self,
        named: &SessionHeader,
        principal: Principal,
        outgoing: Option<Outgoing>,
        body: Bytes,
    ) -> Result<Response<Body>, Refusal> {
        let (SessionHeader::Id(session), Some(outgoing)) = (named, outgoing) else {
            return Err(Reason::UnknownSession.into());
        };
        let key = SessionKey {
            principal: principal.clone(),
            session: session.clone(),
        };
        let (node, forwards) = (&self.inner.node, &self.inner.forwards);
        let owner = match node.store.load(&key).await {
            Ok(stored) => stored.owner,
            Err(StoreError::SessionGone) => None,
            Err(_) => return Err(Reason::StoreUnavailable.into()),
        };
        let owner = owner.filter(|owner| !node.membership.is_this_process(owner));
        let owner = owner.ok_or(Reason::UnknownSession)?;
        let request = (&outgoing, &principal);
        let forwarded = forwards
            .forward(node, &owner, request, ForwardEndpoint::Messages, body, None)
            .await;
        forwarded.map_err(|error| match error {
            ForwardError::Refused(reason) => reason.into(),
            ForwardError::LeaseEnded => Reason::StoreUnavailable.into(),
            ForwardError::NotRun | ForwardError::Died => Reason::UnknownSession.into(), // its connection is gone with it
        })
    }

    /// A GET: a session begins, and the first event says where to POST (LEG-01).
    async fn open(&self, principal: Principal, request_head: &RequestHead) -> Result<Response<Body>, Refusal> {
        let inner = &self.inner;
        let node = &inner.node;
        if node.is_draining() {
            return Err(Reason::ShuttingDown.into());
        }
        if node.connections.now() >= node.limits.connections() {
            return Err(Reason::Overloaded("open streams").into());
        }
        legacy::check_stored_sessions(node, &principal).await?;
        let separator = if self.messages.contains('?') { '&' } else { '?' };
        let connection = bound_session::open(inner, principal, Transport::HttpSse, |id| {
            let endpoint = format!("{}{separator}sessionId={}", self.messages, id.as_str());
            Some(Draft::copy_of(endpoint.as_bytes()).named("endpoint").wire)
        })?;
        request_head.present_to(&connection.session);
        if node.cluster().is_some() {
            node.check_lease()?;
            let session = &connection.session;
            let created = node.store.create(&session.key, session.record(), true).await;
            created.map_err(|_| Reason::StoreUnavailable)?;
        }
        Ok(respond::stream(Box::new(connection), Version::V2024_11_05, node))
    }
}

/// Serves a POST of a 2024-11-05 session that another node has forwarded.
pub(crate) async fn serve_forwarded(server: &Arc<Server>, request: Request<Bytes>) -> Response<Body> {
    let service = HttpSse {
        inner: Arc::clone(server),
        messages: "".into(),
        policy: Arc::new(server.forwarded_policy.clone()),
        authenticator: None, // the receiving node has authenticated
    };
    service.serve(request.map(WholeBody::new)).await
}

/// LEG-03: the session that a POST's query names.
fn named_session(query: Option<&str>) -> SessionHeader {
    let value = query
        .unwrap_or_default()
        .split('&')
        .find_map(|pair| pair.strip_prefix("sessionId="));
    match value {
        None => SessionHeader::Absent,
        Some(text) => SessionId::parse(text).map_or(SessionHeader::Malformed, SessionHeader::Id),
    }
}

impl Clone for HttpSse {
    fn clone(&self) -> Self {
        HttpSse {
            inner: Arc::clone(&self.inner),
            messages: Arc::clone(&self.messages),
            policy: Arc::clone(&self.policy),
            authenticator: self.authenticator.clone(),
        }
    }
}

impl std::fmt::Debug for HttpSse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpSse")
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

impl<B> tower_service::Service<Request<B>> for HttpSse
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.serve(request).await) })
    }
}
