//! The cluster part of a store, with faults of leases and mail.

use super::FlakyStore;
use bytes::Bytes;
use rethread_store::{
    BindRequest, Bound, BroadcastId, Broadcasts, ClusterEvents, ClusterStore, Enqueued, Incarnation, MailId,
    MailboxStatus, Membership, OpenViews, Ordinal, OrdinalBlock, Page, Principal, PushMessage, PushQueueLimits,
    ReadLimit, ReaderToken, RemotePosition, Renewal, Seq, SessionCounts, SessionKey, Store, StoreError, StoreFuture,
    StreamKey, StreamStatus,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The faults of the cluster part of a [`FlakyStore`].
#[derive(Debug, Default)]
pub struct ClusterSwitches {
    renewals: AtomicBool,
    mail: AtomicBool,
    claims: AtomicBool,
    lost_mail: Mutex<std::ops::Range<usize>>,
    mail_count: AtomicUsize,
}

impl ClusterSwitches {
    /// Makes joins and renewals fail, so that the lease of this node ends.
    pub fn fail_renewals(&self, fail: bool) {
        self.renewals.store(fail, Ordering::SeqCst);
    }

    /// Makes deliveries of mail fail. The mail is not delivered.
    pub fn fail_mail(&self, fail: bool) {
        self.mail.store(fail, Ordering::SeqCst);
    }

    /// Reports deliveries as successful and loses the mail, as a store that restarts without its last writes. The range
    /// counts all deliveries from the first one of this store on.
    pub fn lose_mail(&self, numbers: std::ops::Range<usize>) {
        *self.lost_mail.lock().unwrap_or_else(PoisonError::into_inner) = numbers;
    }

    /// Reports claims of mail as won and forgets them, as a store that restarts without its last writes.
    pub fn lose_claims(&self, lose: bool) {
        self.claims.store(lose, Ordering::SeqCst);
    }

    /// Number of deliveries of mail that did not fail.
    pub fn mail_count(&self) -> usize {
        self.mail_count.load(Ordering::SeqCst)
    }

    fn loses_next_mail(&self) -> bool {
        let number = self.mail_count.fetch_add(1, Ordering::SeqCst);
        let lost = self.lost_mail.lock().unwrap_or_else(PoisonError::into_inner);
        lost.contains(&number)
    }
}

impl<S: Store> FlakyStore<S> {
    fn inner_cluster(&self) -> &dyn ClusterStore {
        self.inner
            .cluster()
            .expect("the wrapper has a cluster part only if the inner store has one")
    }
}

impl<S: Store> ClusterStore for FlakyStore<S> {
    fn join(&self, previous: Option<&Incarnation>) -> StoreFuture<Result<Membership, StoreError>> {
        let switches = &self.switches;
        switches.fail_if(&switches.cluster.renewals, || self.inner_cluster().join(previous))
    }

    fn renew(&self, member: &Incarnation) -> StoreFuture<Result<Renewal, StoreError>> {
        let switches = &self.switches;
        switches.fail_if(&switches.cluster.renewals, || self.inner_cluster().renew(member))
    }

    fn is_alive(&self, member: &Incarnation) -> StoreFuture<Result<bool, StoreError>> {
        self.inner_cluster().is_alive(member)
    }

    fn leave(&self, member: &Incarnation) -> StoreFuture<Result<(), StoreError>> {
        self.inner_cluster().leave(member)
    }

    fn deliver(&self, to: &Incarnation, mail: Bytes) -> StoreFuture<Result<MailId, StoreError>> {
        let switches = &self.switches;
        switches.fail_if(&switches.cluster.mail, || {
            if switches.cluster.loses_next_mail() {
                return StoreFuture::ready(Ok(MailId("lost".into())));
            }
            self.inner_cluster().deliver(to, mail)
        })
    }

    fn claim_mail(&self, to: &Incarnation, mail: &MailId) -> StoreFuture<Result<bool, StoreError>> {
        if self.switches.cluster.claims.load(Ordering::SeqCst) {
            return StoreFuture::ready(Ok(true));
        }
        self.inner_cluster().claim_mail(to, mail)
    }

    fn remove_mail(&self, of: &Incarnation, mail: Vec<MailId>) -> StoreFuture<Result<(), StoreError>> {
        self.inner_cluster().remove_mail(of, mail)
    }

    fn mailbox(&self, of: &Incarnation) -> StoreFuture<Result<MailboxStatus, StoreError>> {
        self.inner_cluster().mailbox(of)
    }

    fn events(&self) -> ClusterEvents {
        self.inner_cluster().events()
    }

    fn draw_epoch(&self, key: &SessionKey) -> StoreFuture<Result<u64, StoreError>> {
        self.inner_cluster().draw_epoch(key)
    }

    fn draw_ordinals(&self, key: &SessionKey) -> StoreFuture<Result<OrdinalBlock, StoreError>> {
        self.inner_cluster().draw_ordinals(key)
    }

    fn views(&self, key: &SessionKey) -> StoreFuture<Result<OpenViews, StoreError>> {
        self.inner_cluster().views(key)
    }

    fn close_view(&self, key: &SessionKey, epoch: u64) -> StoreFuture<Result<(), StoreError>> {
        self.inner_cluster().close_view(key, epoch)
    }

    fn restore_view(
        &self,
        key: &SessionKey,
        epoch: u64,
        gets: Vec<Ordinal>,
        max: usize,
    ) -> StoreFuture<Result<BroadcastId, StoreError>> {
        self.inner_cluster().restore_view(key, epoch, gets, max)
    }

    fn claim(&self, key: &SessionKey, from: Option<&Incarnation>) -> StoreFuture<Result<Incarnation, StoreError>> {
        self.inner_cluster().claim(key, from)
    }

    fn release(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        self.inner_cluster().release(key)
    }

    fn count_sessions(&self, principal: &Principal) -> StoreFuture<Result<SessionCounts, StoreError>> {
        self.inner_cluster().count_sessions(principal)
    }

    fn attach(&self, key: &StreamKey, token: &ReaderToken) -> StoreFuture<Result<StreamStatus, StoreError>> {
        self.inner_cluster().attach(key, token)
    }

    fn read_as(
        &self,
        key: &StreamKey,
        token: &ReaderToken,
        after: Seq,
        limit: ReadLimit,
    ) -> StoreFuture<Result<Page, StoreError>> {
        self.inner_cluster().read_as(key, token, after, limit)
    }

    fn detach(&self, key: &StreamKey, token: &ReaderToken) -> StoreFuture<Result<(), StoreError>> {
        self.inner_cluster().detach(key, token)
    }

    fn remote_reader(&self, key: &StreamKey, wake: bool) -> StoreFuture<Result<Option<RemotePosition>, StoreError>> {
        self.inner_cluster().remote_reader(key, wake)
    }

    fn enqueue(
        &self,
        key: &SessionKey,
        messages: Vec<PushMessage>,
        limits: PushQueueLimits,
    ) -> StoreFuture<Result<Enqueued, StoreError>> {
        self.inner_cluster().enqueue(key, messages, limits)
    }

    fn listen(&self, key: &StreamKey, max: usize) -> StoreFuture<Result<BroadcastId, StoreError>> {
        self.inner_cluster().listen(key, max)
    }

    fn unlisten(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>> {
        self.inner_cluster().unlisten(key)
    }

    fn demote(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>> {
        self.inner_cluster().demote(key)
    }

    fn remove_listeners(&self, key: &SessionKey, of: &Incarnation) -> StoreFuture<Result<(), StoreError>> {
        self.inner_cluster().remove_listeners(key, of)
    }

    fn bind(&self, key: &StreamKey, request: BindRequest) -> StoreFuture<Result<Bound, StoreError>> {
        self.inner_cluster().bind(key, request)
    }

    fn enqueue_broadcast(
        &self,
        key: &SessionKey,
        last: &BroadcastId,
        messages: Vec<(BroadcastId, PushMessage)>,
        limits: PushQueueLimits,
    ) -> StoreFuture<Result<usize, StoreError>> {
        self.inner_cluster().enqueue_broadcast(key, last, messages, limits)
    }

    fn broadcasts_applied(&self, key: &SessionKey) -> StoreFuture<Result<BroadcastId, StoreError>> {
        self.inner_cluster().broadcasts_applied(key)
    }

    fn last_broadcast(&self) -> StoreFuture<Result<BroadcastId, StoreError>> {
        self.inner_cluster().last_broadcast()
    }

    fn broadcasts_after(&self, id: &BroadcastId) -> StoreFuture<Result<Option<Broadcasts>, StoreError>> {
        self.inner_cluster().broadcasts_after(id)
    }
}
