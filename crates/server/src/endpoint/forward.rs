//! Requests that another node serves: calls of a session whose handler state is there, answers to questions that were asked
//! there, retries of calls that are parked there, and everything while this node drains.
//!
//! A forward is a whole HTTP request in the mailbox of the serving node. That node removes the message from its mailbox before
//! it serves the request, and only one caller can remove it. So a request runs at most once. If the serving node dies, the
//! receiving node tries to remove the message itself: with success the request never ran, and it is routed again.

mod chunk_body;
mod outbox;
pub(crate) mod outgoing;
mod read_mail;
pub(crate) mod receiving;
mod serving;

pub(crate) use serving::ServeForwarded;

use outbox::send;

use crate::endpoint::server::Server;
use crate::node::Node;
use crate::session::Session;
use bytes::Bytes;
use rethread_proto::cluster::mail::{MailHead, named_principal, named_session, principal_names};
use rethread_store::{Incarnation, MailId, SessionKey};
use std::sync::Arc;

/// A message in the mailbox of this node.
pub(crate) fn receive(server: &Arc<Server>, id: MailId, sealed: &Bytes) {
    let node = &server.node;
    let Some(mail) = node.mail_seal().and_then(|seal| seal.open(sealed)) else {
        node.metrics.events.mail_refused();
        return server.forwards.read_mail.remove(node, id);
    };
    let remove = |id| server.forwards.read_mail.remove(node, id);
    match mail.head {
        MailHead::Request(request) => serving::serve(server, id, request, mail.body),
        MailHead::Response {
            request,
            status,
            headers,
            content,
        } => {
            remove(id);
            server
                .forwards
                .replied(request.number, status, headers, content, mail.body);
        }
        MailHead::Chunk {
            request,
            number,
            is_last,
        } => {
            remove(id);
            server.forwards.chunk(request.number, number, mail.body, is_last);
        }
        MailHead::Credit { request, chunks, total } => {
            remove(id);
            server.forwards.credit(&request, chunks, total);
        }
        MailHead::ClientLeft { request } => {
            remove(id);
            server.forwards.client_left(&request);
        }
        MailHead::Ask { request } => {
            remove(id);
            let sent = server.forwards.sent_chunks(&request);
            let (server, to) = (Arc::clone(server), request.node.clone());
            let head = MailHead::Known {
                request,
                is_known: sent.is_some(),
                sent,
            };
            tokio::spawn(async move {
                let _ = send(&server.node, &to, head, Bytes::new()).await; // it asks again
            });
        }
        MailHead::Known {
            request,
            is_known,
            sent,
        } => {
            remove(id);
            server.forwards.answered(request.number, is_known, sent);
        }
        MailHead::Acknowledge {
            principal,
            session,
            revision,
            by,
        } => {
            remove(id);
            if let Some(session) = named_session(&session) {
                let principal = named_principal(&principal);
                let key = SessionKey { principal, session };
                node.acknowledgements.acknowledge(&key, by, revision);
            }
        }
        _ => remove(id),
    }
}

/// Confirms to the node that changed a session that this view has seen the change.
pub(crate) async fn acknowledge(node: &Node, session: &Session, by: &Incarnation) {
    let Some(current) = node.membership.current() else {
        return;
    };
    let head = MailHead::Acknowledge {
        principal: principal_names(&session.key.principal),
        session: session.key.session.as_str().to_owned(),
        revision: session.seen_revision(),
        by: Incarnation::clone(&current),
    };
    let _ = send(node, by, head, Bytes::new()).await; // without it the change waits for its bound
}
