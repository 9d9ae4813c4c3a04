//! Messages of this node's mailbox that were read. Only requests are claimed, one by one. All others are removed together, so that a
//! forwarded call costs the store three steps: the request, its claim and the response.

use crate::node::Node;
use parking_lot::Mutex;
use rethread_store::MailId;
use std::sync::Arc;
use std::time::Duration;

/// A message stays in the mailbox at most about this long after it was read.
const REMOVAL_DELAY: Duration = Duration::from_millis(250);
/// This many messages are removed without the delay. A mailbox has room for 10,000.
const MAX_REMOVED_MESSAGES: usize = 256;

/// Messages that were read and are still in the mailbox, which bounds them.
#[derive(Default)]
pub(super) struct ReadMail(Mutex<Vec<MailId>>);

impl ReadMail {
    /// Removes a message that was read, soon.
    pub(super) fn remove(self: &Arc<Self>, node: &Arc<Node>, id: MailId) {
        let count = {
            let mut read = self.0.lock();
            read.push(id);
            read.len()
        };
        let delay = match count {
            1 => REMOVAL_DELAY,
            MAX_REMOVED_MESSAGES => Duration::ZERO,
            _ => return,
        };
        let (read, node) = (Arc::clone(self), Arc::clone(node));
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            read.remove_all(&node).await;
        });
    }

    async fn remove_all(&self, node: &Node) {
        loop {
            let mail = std::mem::take(&mut *self.0.lock());
            let Some((cluster, current)) = node.cluster().zip(node.membership.current()) else {
                return; // the mailbox of an earlier membership expires
            };
            if mail.is_empty() {
                return;
            }
            match cluster.remove_mail(&current, mail.clone()).await {
                Err(error) if error.is_outage() => {
                    self.0.lock().extend(mail);
                    tokio::time::sleep(REMOVAL_DELAY).await;
                }
                _ => return,
            }
        }
    }
}
