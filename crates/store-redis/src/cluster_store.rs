//! The cluster part of the store.

use crate::broadcasts;
use crate::cluster::random_token;
use crate::reply::unexpected;
use crate::scripts::SCRIPTS;
use crate::sessions::draw_ordinals;
use crate::store::{RedisStore, StoreInner, check_number, digest};
use bytes::Bytes;
use redis::cmd;
use rethread_store::{
    BindRequest, Bound, BroadcastId, ClusterEvents, ClusterStore, Enqueued, Incarnation, MailId, MailboxStatus,
    Membership, OpenViews, Ordinal, OrdinalBlock, Page, Principal, PushMessage, PushQueueLimits, ReadLimit,
    ReaderToken, RemotePosition, Renewal, Seq, SessionCounts, SessionKey, Signal, StoreError, StoreFuture, StreamKey,
    StreamStatus,
};
use std::time::Duration;

/// Limits of one mailbox. Beyond them the sender gets [`StoreError::Full`].
const MAX_MAILBOX_MESSAGES: usize = 10_000;
const MAX_MAILBOX_BYTES: usize = 64 << 20;

impl StoreInner {
    async fn deliver(&self, to: &Incarnation, mail: &[u8]) -> Result<MailId, StoreError> {
        let token = random_token();
        let mut call = SCRIPTS.deliver.call(&self.cluster.keys.mailbox(to.as_str()));
        call.arg(&token).arg(&*self.keys.subject).arg(mail);
        call.arg(MAX_MAILBOX_MESSAGES)
            .arg(MAX_MAILBOX_BYTES)
            .arg(self.cluster.mailbox_millis());
        self.run(&SCRIPTS.deliver, &call).await?;
        Ok(MailId(token.into()))
    }

    async fn claim_mail(&self, to: &Incarnation, mail: &MailId) -> Result<bool, StoreError> {
        let mut call = SCRIPTS.claim_mail.call(&self.cluster.keys.mailbox(to.as_str()));
        call.arg(self.cluster.claim_memory_millis()).arg(&*mail.0);
        Ok(self.run(&SCRIPTS.claim_mail, &call).await?.number()? == 1)
    }

    async fn remove_mail(&self, of: &Incarnation, mail: &[MailId]) -> Result<(), StoreError> {
        let mut call = SCRIPTS.remove_mail.call(&self.cluster.keys.mailbox(of.as_str()));
        call.arg(self.cluster.claim_memory_millis());
        for MailId(token) in mail {
            call.arg(&**token);
        }
        self.run(&SCRIPTS.remove_mail, &call).await.map(drop)
    }

    async fn mailbox(&self, of: &Incarnation) -> Result<MailboxStatus, StoreError> {
        let call = SCRIPTS.mailbox.call(&self.cluster.keys.mailbox(of.as_str()));
        let mut reply = self.run(&SCRIPTS.mailbox, &call).await?;
        let messages = reply.number()? as usize;
        Ok(MailboxStatus::new(messages, Duration::from_millis(reply.number()?)))
    }

    async fn views_of(&self, key: &SessionKey) -> Result<OpenViews, StoreError> {
        let call = self.call(&SCRIPTS.views, digest(key));
        let mut reply = self.run(&SCRIPTS.views, &call).await?;
        let last_epoch = reply.number()?;
        let mut fields = reply.array()?;
        let mut open = Vec::new();
        while !fields.is_empty() {
            open.push((fields.number()?, fields.member()?.ok_or_else(unexpected)?));
        }
        open.sort_unstable();
        Ok(OpenViews::new(last_epoch, open))
    }

    async fn close_view(&self, key: &SessionKey, epoch: u64) -> Result<(), StoreError> {
        let session = digest(key);
        self.views.closed(session, epoch);
        let mut remove = cmd("HDEL");
        remove.arg(format!("{}:v", self.keys.session(session))).arg(epoch);
        self.cluster.connection.command(&remove).await.map(drop)
    }

    async fn restore_view(
        &self,
        key: &SessionKey,
        epoch: u64,
        gets: &[Ordinal],
        max: usize,
    ) -> Result<BroadcastId, StoreError> {
        let mut call = self.call(&SCRIPTS.restore_view, digest(key));
        call.arg(check_number(epoch)?).arg(max.max(1));
        for ordinal in gets {
            call.arg(ordinal.0);
        }
        let mut reply = self.run(&SCRIPTS.restore_view, &call).await?;
        Ok(BroadcastId(reply.text()?.into()))
    }

    async fn draw_epoch(&self, key: &SessionKey) -> Result<u64, StoreError> {
        let mut call = self.call(&SCRIPTS.draw, digest(key));
        call.arg("");
        self.run(&SCRIPTS.draw, &call).await?.number()
    }

    async fn change_owner(
        &self,
        key: &SessionKey,
        action: &str,
        from: Option<&Incarnation>,
    ) -> Result<Option<Incarnation>, StoreError> {
        let mut call = self.call(&SCRIPTS.owner, digest(key));
        call.arg(action).arg(from.map_or("", Incarnation::as_str));
        self.run(&SCRIPTS.owner, &call).await?.member()
    }
}

impl ClusterStore for RedisStore {
    fn join(&self, previous: Option<&Incarnation>) -> StoreFuture<Result<Membership, StoreError>> {
        let previous = previous.cloned();
        self.later(|store| async move { store.cluster.join(previous.as_ref()).await })
    }

    fn renew(&self, member: &Incarnation) -> StoreFuture<Result<Renewal, StoreError>> {
        let member = member.clone();
        self.later(|store| async move { store.cluster.renew(&member).await })
    }

    fn is_alive(&self, member: &Incarnation) -> StoreFuture<Result<bool, StoreError>> {
        let member = member.clone();
        self.later(|store| async move { store.cluster.is_alive(&member).await })
    }

    fn leave(&self, member: &Incarnation) -> StoreFuture<Result<(), StoreError>> {
        let member = member.clone();
        self.later(|store| async move { store.cluster.leave(&member).await })
    }

    fn deliver(&self, to: &Incarnation, mail: Bytes) -> StoreFuture<Result<MailId, StoreError>> {
        let to = to.clone();
        self.later(|store| async move { store.deliver(&to, &mail).await })
    }

    fn claim_mail(&self, to: &Incarnation, mail: &MailId) -> StoreFuture<Result<bool, StoreError>> {
        let (to, mail) = (to.clone(), mail.clone());
        self.later(|store| async move { store.claim_mail(&to, &mail).await })
    }

    fn remove_mail(&self, of: &Incarnation, mail: Vec<MailId>) -> StoreFuture<Result<(), StoreError>> {
        let of = of.clone();
        self.later(|store| async move { store.remove_mail(&of, &mail).await })
    }

    fn mailbox(&self, of: &Incarnation) -> StoreFuture<Result<MailboxStatus, StoreError>> {
        let of = of.clone();
        self.later(|store| async move { store.mailbox(&of).await })
    }

    fn events(&self) -> ClusterEvents {
        self.0.events.receiver()
    }

    fn draw_epoch(&self, key: &SessionKey) -> StoreFuture<Result<u64, StoreError>> {
        let key = key.clone();
        self.later(|store| async move { store.draw_epoch(&key).await })
    }

    fn draw_ordinals(&self, key: &SessionKey) -> StoreFuture<Result<OrdinalBlock, StoreError>> {
        let key = key.clone();
        self.later(|store| async move { draw_ordinals(&store, &key).await })
    }

    fn views(&self, key: &SessionKey) -> StoreFuture<Result<OpenViews, StoreError>> {
        let key = key.clone();
        self.later(|store| async move { store.views_of(&key).await })
    }

    fn last_broadcast(&self) -> StoreFuture<Result<BroadcastId, StoreError>> {
        self.later(|store| async move { broadcasts::last(&store.cluster, &store.keys).await })
    }

    fn close_view(&self, key: &SessionKey, epoch: u64) -> StoreFuture<Result<(), StoreError>> {
        let key = key.clone();
        self.later(move |store| async move { store.close_view(&key, epoch).await })
    }

    fn restore_view(
        &self,
        key: &SessionKey,
        epoch: u64,
        gets: Vec<Ordinal>,
        max: usize,
    ) -> StoreFuture<Result<BroadcastId, StoreError>> {
        let key = key.clone();
        self.later(move |store| async move { store.restore_view(&key, epoch, &gets, max).await })
    }

    fn claim(&self, key: &SessionKey, from: Option<&Incarnation>) -> StoreFuture<Result<Incarnation, StoreError>> {
        let (key, from) = (key.clone(), from.cloned());
        self.later(|store| async move {
            let owner = store.change_owner(&key, "claim", from.as_ref()).await?;
            // No owner after a claim: the caller named an owner that has released the session.
            owner.ok_or_else(|| StoreError::Conflict { epoch: 0, last: None })
        })
    }

    fn release(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        let key = key.clone();
        self.later(|store| async move { store.change_owner(&key, "release", None).await.map(drop) })
    }

    fn count_sessions(&self, principal: &Principal) -> StoreFuture<Result<SessionCounts, StoreError>> {
        let principal = principal.clone();
        self.later(|store| async move { store.count_sessions(&principal).await })
    }

    fn attach(&self, key: &StreamKey, token: &ReaderToken) -> StoreFuture<Result<StreamStatus, StoreError>> {
        let (key, token) = (key.clone(), token.clone());
        self.later(|store| async move { store.attach(&key, &token).await })
    }

    fn read_as(
        &self,
        key: &StreamKey,
        token: &ReaderToken,
        after: Seq,
        limit: ReadLimit,
    ) -> StoreFuture<Result<Page, StoreError>> {
        let (key, token) = (key.clone(), token.clone());
        self.later(move |store| async move { store.read(&key, after, limit, Some(&token)).await })
    }

    fn detach(&self, key: &StreamKey, token: &ReaderToken) -> StoreFuture<Result<(), StoreError>> {
        let (key, token) = (key.clone(), token.clone());
        self.later(|store| async move { store.detach(&key, &token).await })
    }

    fn remote_reader(&self, key: &StreamKey, wake: bool) -> StoreFuture<Result<Option<RemotePosition>, StoreError>> {
        let key = key.clone();
        self.later(move |store| async move { store.remote_reader(&key, wake).await })
    }

    fn enqueue(
        &self,
        key: &SessionKey,
        messages: Vec<PushMessage>,
        limits: PushQueueLimits,
    ) -> StoreFuture<Result<Enqueued, StoreError>> {
        let key = key.clone();
        self.later(move |store| async move { store.enqueue(&key, &messages, limits).await })
    }

    fn listen(&self, key: &StreamKey, max: usize) -> StoreFuture<Result<BroadcastId, StoreError>> {
        let key = key.clone();
        self.later(move |store| async move { store.listen(&key, max).await })
    }

    fn broadcasts_applied(&self, key: &SessionKey) -> StoreFuture<Result<BroadcastId, StoreError>> {
        let key = key.clone();
        self.later(|store| async move { store.change_listeners(&key, "applied", "").await })
    }

    fn unlisten(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>> {
        self.change_listener(key, "unlisten")
    }

    fn demote(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>> {
        self.change_listener(key, "demote")
    }

    fn remove_listeners(&self, key: &SessionKey, of: &Incarnation) -> StoreFuture<Result<(), StoreError>> {
        let (key, of) = (key.clone(), of.clone());
        self.later(|store| async move { store.change_listeners(&key, "remove", of.as_str()).await.map(drop) })
    }

    fn bind(&self, key: &StreamKey, request: BindRequest) -> StoreFuture<Result<Bound, StoreError>> {
        let key = key.clone();
        self.later(|store| async move { store.bind(&key, request).await })
    }

    fn enqueue_broadcast(
        &self,
        key: &SessionKey,
        last: &BroadcastId,
        messages: Vec<(BroadcastId, PushMessage)>,
        limits: PushQueueLimits,
    ) -> StoreFuture<Result<usize, StoreError>> {
        let (key, last) = (key.clone(), last.clone());
        self.later(move |store| async move {
            let messages = messages.iter().map(|(id, message)| (Some(id), message));
            let enqueued = store.enqueue_once(&key, Some(&last), messages, limits).await?;
            Ok(enqueued.dropped)
        })
    }

    fn broadcasts_after(
        &self,
        id: &BroadcastId,
    ) -> StoreFuture<Result<Option<Vec<(BroadcastId, Signal)>>, StoreError>> {
        let id = id.clone();
        self.later(|store| async move { store.broadcasts_after(&id).await })
    }
}

impl RedisStore {
    fn change_listener(&self, key: &StreamKey, action: &'static str) -> StoreFuture<Result<(), StoreError>> {
        let key = key.clone();
        self.later(move |store| async move {
            let ordinal = key.ordinal.0.to_string();
            match store.change_listeners(&key.session, action, &ordinal).await {
                Ok(_) | Err(StoreError::SessionGone) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }
}
