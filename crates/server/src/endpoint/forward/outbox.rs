//! Messages to other nodes.

use crate::node::{Node, random};
use bytes::Bytes;
use rethread_proto::cluster::mail::{Mail, MailHead};
use rethread_store::{Incarnation, MailId, StoreError};
use std::time::Duration;

/// Bytes of one part of a forwarded body.
pub(super) const MAX_CHUNK_BYTES: usize = 64 << 10;
/// The pause before a step is repeated that the store could not take.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Parts of a body that may be on their way to a client that does not read.
pub(super) const MAX_UNREAD_CHUNKS: usize = 16;

/// Puts a message into the mailbox of another node.
pub(super) async fn send(node: &Node, to: &Incarnation, head: MailHead, body: Bytes) -> Result<MailId, StoreError> {
    let (Some(cluster), Some(seal)) = (node.cluster(), node.mail_seal()) else {
        return Err(StoreError::LeaseEnded);
    };
    let sealed = seal.seal(random(), &Mail { head, body });
    let sealed = sealed.map_err(StoreError::unavailable)?;
    cluster.deliver(to, sealed).await
}
