//! One HTTP request, from its head to its response. The steps are those of the table in ARCHITECTURE.md.

use crate::endpoint::authenticate::{self, Authenticate, Authentication, CheckedCaller};
use crate::endpoint::forward::outgoing::Outgoing;
use crate::endpoint::pending_response::PendingResponse;
use crate::endpoint::read_body::read_body;
use crate::endpoint::request_head::{Forwarded, RequestHead};
use crate::endpoint::restore::restore;
use crate::endpoint::route::{self, Routing};
use crate::endpoint::server::Server;
use crate::endpoint::watched_request::WatchedRequest;
use crate::endpoint::{legacy, modern, respond, sessionless, shutdown};
use crate::node::stats::Stats;
use crate::session::admission::Admission;
use crate::session::notifier::Notifier;
use crate::session::{Session, Transport};
use crate::stream::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, header};
use http_body::Body as HttpBody;
use rethread_proto::gate::{self, Admitted, Head, HeadPolicy, SessionHeader, Verb};
use rethread_proto::refusal::Reason;
use rethread_proto::{Principal, Refusal, jsonrpc};
use rethread_store::SessionKey;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// An MCP endpoint: a `tower::Service` that never fails. Cheap to clone; clones are the same endpoint.
///
/// Mount it at one path. [`Builder::authenticate`](crate::Builder::authenticate) identifies callers. A layer of your own that
/// knows the caller can put a [`Principal`] into the request's extensions instead. TLS is the listener's work.
pub struct McpService {
    pub(crate) inner: Arc<Server>,
    /// The rules for request heads. They are not in `inner`: endpoints that differ only in them share the rest.
    pub(crate) policy: Arc<HeadPolicy>,
    pub(crate) authenticator: Option<Arc<dyn Authenticate>>,
}

/// The future of a response.
type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl McpService {
    /// Raises change notifications from outside of calls.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.inner.node))
    }

    /// Joins the cluster of the store, and waits until this node is a member. Returns at once if the store has one member.
    ///
    /// Requests of sessions get 503 before that, so a program waits for this before it listens.
    pub async fn join(&self) {
        self.inner.start_background();
        self.inner.node.membership.when_joined().await;
    }

    /// Waits until a newer process has joined the cluster under the name of this one. This process must end then.
    pub async fn replaced(&self) {
        self.inner.node.membership.when_replaced().await;
    }

    /// Counts what this endpoint serves now.
    pub fn stats(&self) -> Stats {
        let node = &self.inner.node;
        let mut stats = Stats::default();
        stats.sessions = self.inner.sessions.len();
        stats.running_calls = node.calls.now();
        stats.parked_calls = self.inner.parked.len();
        stats.subscriptions = self.inner.sessions.subscriptions.len();
        stats.retained_bytes = node.store.retained_bytes();
        stats.store_up = node.metrics.is_store_up();
        node.connections.fill(&mut stats);
        stats
    }

    /// Sets the gauges of this endpoint to the values of this moment. A program calls it before it renders its metrics.
    pub fn record_gauges(&self) {
        self.inner.node.metrics.record_gauges(&self.stats());
    }

    /// Drains: no new sessions and calls (503), GET streams are closed after a `retry:` that spreads their return, calls
    /// may finish until `deadline`. Then the rest is closed too, in a way that can be resumed elsewhere if the store is
    /// shared. Returns when all is quiet, or shortly after the deadline. Dropping the future leaves the service draining.
    pub async fn shutdown(&self, deadline: Duration) {
        let started = Instant::now();
        self.drain(deadline).await;
        self.finish_forwards(deadline.saturating_sub(started.elapsed())).await;
        self.leave().await;
    }

    /// The first part of [`shutdown`](Self::shutdown): the end of the work of this node. Until [`leave`](Self::leave), it
    /// passes the requests that still reach it on to other nodes of a cluster. A program calls this, closes its listener,
    /// [waits for the forwarded requests](Self::finish_forwards), and then leaves.
    pub async fn drain(&self, deadline: Duration) {
        let inner = &self.inner;
        shutdown::drain(&inner.node, &inner.sessions, &inner.parked, &inner.forwards, deadline).await;
    }

    /// Waits until the requests that this node has passed on to other nodes have their responses, at most for `deadline`. Then
    /// closes what is left, in a way that can be resumed. Returns at once if the store has one member.
    pub async fn finish_forwards(&self, deadline: Duration) {
        let inner = &self.inner;
        shutdown::finish_forwards(&inner.node, &inner.sessions, &inner.forwards, deadline).await;
    }

    /// Leaves the cluster of the store for good, so that no other node waits for the end of a lease. Requests of sessions get
    /// 503 from then on. Does nothing if the store has one member.
    pub async fn leave(&self) {
        let inner = &self.inner;
        shutdown::leave_cluster(&inner.node, &inner.sessions, &inner.forwards).await;
    }

    /// Changes [`Builder::disable_proxy_buffering`](crate::Builder::disable_proxy_buffering) for streams to come.
    pub fn set_proxy_buffering_disabled(&self, disabled: bool) {
        self.inner
            .node
            .disable_proxy_buffering
            .store(disabled, Ordering::Relaxed);
    }

    /// The tokens that `principal` has presented so far are no longer valid: its connections end, as at the expiry of a token. A
    /// request with another token continues its sessions.
    pub fn revoke(&self, principal: &Principal) {
        self.inner.sessions.for_each(|session| {
            if session.key.principal == *principal {
                session.revoke();
            }
        });
        self.inner.sessions.subscriptions.close_those_of(principal);
    }

    /// The same endpoint with another [`Builder::authenticate`](crate::Builder::authenticate), or without one: for a
    /// configuration that is read again while clients are served.
    #[must_use]
    pub fn with_authenticator(&self, authenticator: Option<Arc<dyn Authenticate>>) -> Self {
        McpService {
            authenticator,
            ..self.clone()
        }
    }
}

impl Clone for McpService {
    fn clone(&self) -> Self {
        McpService {
            inner: Arc::clone(&self.inner),
            policy: Arc::clone(&self.policy),
            authenticator: self.authenticator.clone(),
        }
    }
}

impl std::fmt::Debug for McpService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpService")
            .field("sessions", &self.inner.sessions.len())
            .field("calls", &self.inner.node.calls.now())
            .finish_non_exhaustive()
    }
}

impl<B> tower_service::Service<Request<B>> for McpService
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Arc::clone(&self.inner).serve(request, &self.policy, self.authenticator.as_ref())
    }
}

impl Server {
    /// Decides at once what needs no body. The future begins where the request may have to wait.
    pub(crate) fn serve<B>(
        self: Arc<Self>,
        request: Request<B>,
        policy: &HeadPolicy,
        authenticator: Option<&Arc<dyn Authenticate>>,
    ) -> ResponseFuture
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
    {
        self.start_background();
        let (mut parts, body) = request.into_parts();
        let mut watched = WatchedRequest::new(&self.node, &parts.extensions);
        let head = gate::head::admit(&parts.method, &parts.uri, &parts.headers, policy);
        let head = match head {
            Ok(head) => head,
            Err(refusal) => {
                // A page at a refused origin must not read even the refusal.
                let hidden = matches!(refusal.reason, Reason::Origin { .. } | Reason::Host { .. });
                let origin = parts.headers.remove(header::ORIGIN).filter(|_| !hidden);
                report(watched.as_deref(), &refusal);
                let response = respond::for_origin(respond::refusal(&refusal), origin);
                return Box::pin(std::future::ready(Ok(response)));
            }
        };
        if let Some(watched) = &mut watched {
            watched.named(&head.session, &head.version);
        }
        let authenticator = authenticator.filter(|_| head.verb != Verb::Options);
        let Some(authenticator) = authenticator else {
            return self.serve_admitted(head, parts, body, None, watched);
        };
        let refuse = |refusal, origin, watched: Option<&WatchedRequest>| {
            let refusal = authenticate::refused(refusal);
            report(watched, &refusal);
            Ok(respond::for_origin(respond::refusal(&refusal), origin))
        };
        let counters = &self.node.metrics.admitted_callers;
        let checked = |caller| CheckedCaller::new(caller, authenticator, counters);
        match authenticator.caller(&parts) {
            Authentication::Done(Ok(caller)) => {
                let caller = checked(caller);
                self.serve_admitted(head, parts, body, Some(caller), watched)
            }
            Authentication::Done(Err(refusal)) => {
                Box::pin(std::future::ready(refuse(refusal, head.origin, watched.as_deref())))
            }
            Authentication::Pending(caller) => {
                let authenticator = Arc::clone(authenticator);
                Box::pin(async move {
                    match caller.await {
                        Ok(caller) => {
                            let counters = &self.node.metrics.admitted_callers;
                            let caller = CheckedCaller::new(caller, &authenticator, counters);
                            self.serve_admitted(head, parts, body, Some(caller), watched).await
                        }
                        Err(refusal) => refuse(refusal, head.origin, watched.as_deref()),
                    }
                })
            }
        }
    }

    /// Serves a request whose head is admitted.
    fn serve_admitted<B>(
        self: Arc<Self>,
        head: Head,
        parts: Parts,
        body: B,
        caller: Option<CheckedCaller>,
        mut watched: Option<Box<WatchedRequest>>,
    ) -> ResponseFuture
    where
        B: HttpBody + Send + 'static,
        B::Data: Send,
    {
        // Only in a cluster, and only for a request of a client: it may be served by another node.
        let outgoing = match self.node.cluster() {
            Some(_) if parts.extensions.get::<Forwarded>().is_none() => Some(Box::new(Outgoing::new(&parts))),
            _ => None,
        };
        let counted = self.node.cluster().map(|_| self.node.begin_request());
        let wanted = self.node.handler.wants_request_head;
        let (request_head, principal) = match &caller {
            Some(caller) => RequestHead::authenticated(parts, wanted, caller.caller()),
            None => RequestHead::new(parts, wanted),
        };
        if let Some(watched) = &mut watched {
            watched.identified(&principal);
        }
        // This future is made for every request: what is rare in it is boxed, and nothing is handed through it twice.
        Box::pin(async move {
            let _counted = counted; // a drain waits for the response
            let mut admission = None;
            let posted = match head.verb {
                Verb::Post => match read_body(body, self.node.limits.body_bytes(), self.node.timing.body).await {
                    Ok(body) => {
                        if let Some(watched) = &mut watched {
                            watched.read(&body);
                        }
                        let caller = (principal, caller);
                        self.post(&head, request_head, caller, &body, outgoing, &mut admission)
                    }
                    Err(refusal) => Err(refusal),
                },
                _ => Ok(self.bodyless(&head, request_head, principal, outgoing)),
            };
            let answered = match posted {
                Ok(PendingResponse::Done(response)) => Ok(response),
                Ok(PendingResponse::Call(mut response)) => {
                    let answer = (&mut response).await;
                    Ok(respond::answer(answer, &response.call().exchange))
                }
                Ok(PendingResponse::Later(response)) => response.await,
                Err(refusal) => Err(refusal),
            };
            let response = answered.unwrap_or_else(|refusal| {
                report(watched.as_deref(), &refusal);
                respond::refusal(&refusal)
            });
            Ok(respond::for_origin(response, head.origin))
        })
    }

    fn post(
        &self,
        head: &Head,
        request_head: RequestHead,
        (principal, caller): (Principal, Option<CheckedCaller>),
        body: &Bytes,
        outgoing: Option<Box<Outgoing>>,
        admission: &mut Option<Admission>,
    ) -> Result<PendingResponse<'_>, Refusal> {
        let payload = jsonrpc::parse(body, &self.node.limits.envelope())?;
        if let Some(mut caller) = caller {
            caller.authorize(&payload)?;
        }
        if self.node.limits.rate().is_some() && !request_head.is_forwarded() {
            let taken = self.node.take_messages(&principal, payload.messages().len());
            taken.map_err(|reason| Refusal::new(reason).about(only_request(&payload)))?;
        }
        let routing = outgoing.map(|outgoing| Routing::new(*outgoing, &principal, body));
        match gate::body::admit(head, payload, self.node.revisions)? {
            Admitted::Initialize(request) => Ok(PendingResponse::later(async move {
                if self.node.is_draining() && request_head.is_forwarded() {
                    return Ok(respond::misdirected());
                }
                if let Some(routing) = routing.filter(|_| self.node.is_draining()) {
                    let served = route::while_draining(self, &routing, None).await;
                    let no_node = || Err(Refusal::new(Reason::ShuttingDown).about(Some(&request.id)));
                    return served.unwrap_or_else(no_node);
                }
                legacy::initialize(self, principal, request, &request_head).await
            })),
            Admitted::Legacy(payload) if self.node.sessionless && head.session == SessionHeader::Absent => {
                sessionless::post(self, principal, payload, request_head)
            }
            Admitted::Legacy(payload) => {
                let about = |payload: &_, reason| Refusal::new(reason).about(only_request(payload));
                match self.find(&head.session, principal) {
                    Ok(SessionLookup::Registered(session, admitted)) => {
                        *admission = Some(admitted);
                        request_head.present_to(&session);
                        match routing {
                            Some(routing) if route::may_leave(&session, &payload) => Ok(PendingResponse::later(
                                route::post(self, session, payload, request_head, routing),
                            )),
                            None if request_head.is_forwarded() => Ok(PendingResponse::later(route::post_forwarded(
                                self,
                                session,
                                payload,
                                request_head,
                            ))),
                            _ => legacy::post(self, session, payload, request_head),
                        }
                    }
                    Ok(SessionLookup::StoreOnly(_)) if request_head.is_forwarded() && self.node.is_draining() => {
                        Ok(PendingResponse::Done(respond::misdirected()))
                    }
                    Ok(SessionLookup::StoreOnly(key)) => Ok(PendingResponse::later(async move {
                        let restored = restore(self, key, &request_head).await;
                        let (session, _admission) = restored.map_err(|reason| about(&payload, reason))?;
                        request_head.present_to(&session);
                        match routing {
                            Some(routing) => route::post(self, session, payload, request_head, routing).await,
                            None if request_head.is_forwarded() => {
                                route::post_forwarded(self, session, payload, request_head).await
                            }
                            None => legacy::post(self, session, payload, request_head)?.response().await,
                        }
                    })),
                    Err(reason) => Err(about(&payload, reason)),
                }
            }
            Admitted::Modern {
                version,
                request,
                parts,
            } => match routing {
                None if request_head.is_forwarded() && route::goes_back(self, &request, &principal) => {
                    Ok(PendingResponse::Done(respond::misdirected()))
                }
                Some(routing) if self.node.is_draining() || parts.as_ref().is_ok_and(|parts| parts.is_retry()) => {
                    Ok(PendingResponse::later(async move {
                        if let Some(response) = route::stateless(self, &request, &principal, &routing).await {
                            return response;
                        }
                        let served = modern::post(self, principal, version, request, parts, request_head);
                        served?.response().await
                    }))
                }
                _ => modern::post(self, principal, version, request, parts, request_head),
            },
            Admitted::Notification(note) => modern::notified(request_head.headers(), &note).map(PendingResponse::Done),
        }
    }

    fn bodyless<'a>(
        &'a self,
        head: &Head,
        request_head: RequestHead,
        principal: Principal,
        outgoing: Option<Box<Outgoing>>,
    ) -> PendingResponse<'a> {
        let head = head.clone();
        PendingResponse::later(async move {
            if head.verb == Verb::Options {
                let requested = request_head.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS);
                return Ok(respond::preflight(requested, "GET, POST, DELETE"));
            }
            gate::body::admit_bodyless(&head, self.node.revisions)?;
            let routing = outgoing.map(|outgoing| Routing::new(*outgoing, &principal, &Bytes::new()));
            let is_draining = self.node.is_draining();
            if is_draining && head.verb == Verb::Get && request_head.is_forwarded() {
                return Ok(respond::misdirected());
            }
            let (session, _admission) = match self.find(&head.session, principal)? {
                SessionLookup::Registered(session, admission) => (session, admission),
                SessionLookup::StoreOnly(key) => restore(self, key, &request_head).await?,
            };
            request_head.present_to(&session);
            match head.verb {
                Verb::Get => {
                    if let Some(routing) = routing.filter(|_| is_draining)
                        && let Some(response) = route::while_draining(self, &routing, Some(&session)).await
                    {
                        return response;
                    }
                    legacy::get(self, session, (&head, &request_head), is_draining).await
                }
                _ => legacy::delete(self, &session).await,
            }
        })
    }

    /// The session that a request names.
    fn find(&self, header: &SessionHeader, principal: Principal) -> Result<SessionLookup, Reason> {
        self.node.check_lease()?;
        let found = self.sessions.find(header, &principal, Transport::Streamable)?;
        // Without wake-ups a view may be out of date: it is read again.
        let found = found.filter(|_| self.node.membership.has_wake_ups());
        match (found.and_then(|session| session.admit().zip(Some(session))), header) {
            (Some((admission, session)), _) => Ok(SessionLookup::Registered(session, admission)),
            (None, SessionHeader::Id(id)) => {
                let session = id.clone();
                Ok(SessionLookup::StoreOnly(SessionKey { principal, session }))
            }
            (None, _) => Err(Reason::UnknownSession),
        }
    }
}

/// Reports a refusal to the log and the observer.
fn report(watched: Option<&WatchedRequest>, refusal: &Refusal) {
    if let Some(watched) = watched {
        watched.refused(refusal);
    }
}

/// Where a session is.
enum SessionLookup {
    Registered(Arc<Session>, Admission),
    /// Only the store may have it, or its view here is being closed: it must be restored.
    StoreOnly(SessionKey),
}

fn only_request(payload: &jsonrpc::Payload) -> Option<&jsonrpc::RequestId> {
    match payload {
        jsonrpc::Payload::One(message) => message.request_id(),
        jsonrpc::Payload::Batch(_) => None,
    }
}
