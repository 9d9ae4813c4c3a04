//! The subscriptions that are relayed now, so that the end of a caller's token can end them (AUTH-18, AUTH-21).

use parking_lot::Mutex;
use rethread::Principal;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// All relayed subscriptions of a server. The calls of the server bound their number.
#[derive(Default)]
pub(super) struct OpenSubscriptions(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    open: HashMap<u64, (Principal, Arc<Notify>)>,
}

/// One relayed subscription. Dropping it removes it.
pub(super) struct OpenSubscription<'a> {
    all: &'a OpenSubscriptions,
    number: u64,
    revoked: Arc<Notify>,
}

impl OpenSubscriptions {
    pub(super) fn add(&self, caller: Principal) -> OpenSubscription<'_> {
        let revoked = Arc::new(Notify::new());
        let mut table = self.0.lock();
        table.next += 1;
        let number = table.next;
        table.open.insert(number, (caller, Arc::clone(&revoked)));
        OpenSubscription {
            all: self,
            number,
            revoked,
        }
    }

    /// Ends the subscriptions of a caller.
    pub(super) fn revoke(&self, caller: &Principal) {
        for (owner, revoked) in self.0.lock().open.values() {
            if owner == caller {
                revoked.notify_one(); // kept until the subscription looks
            }
        }
    }
}

impl OpenSubscription<'_> {
    /// Resolves when a token of the caller was revoked.
    pub(super) async fn revoked(&self) {
        self.revoked.notified().await;
    }
}

impl Drop for OpenSubscription<'_> {
    fn drop(&mut self) {
        self.all.0.lock().open.remove(&self.number);
    }
}
