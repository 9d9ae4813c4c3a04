//! The records of sessions.

use crate::keys::{SessionDigest, idle_member, parse_idle_member, principal_digest};
use crate::members::millis;
use crate::reply::{Reply, unexpected};
use crate::scripts::SCRIPTS;
use crate::store::{RedisStore, StoreInner, digest};
use futures_util::future::try_join;
use redis::{Value, cmd};
use rethread_store::{
    Incarnation, IsLive, Ordinal, OrdinalBlock, Principal, SessionCounts, SessionKey, SessionRecord, SessionStore,
    SessionView, StoreError, StoreFuture, StoredSession, Updated,
};
use std::time::Duration;

/// Ordinals of one draw. A node draws again when half of them are used, so the rest covers the round trip.
const ORDINALS_PER_BLOCK: u64 = 4096;
/// Idle sessions per batch of expiry.
const MAX_CANDIDATES: usize = 256;

impl StoreInner {
    async fn create(&self, key: &SessionKey, record: SessionRecord, owned: bool) -> Result<SessionView, StoreError> {
        let session = digest(key);
        // The indexes come first: an entry without a session is harmless, and expiry removes it.
        self.add_to_indexes(key, session).await?;
        self.views.opening(session, key);
        let mut call = self.call(&SCRIPTS.create, session);
        call.arg(record.to_bytes()).arg(record.epoch).arg(u8::from(owned));
        call.arg(&*self.bus_position.borrow().0).arg(ORDINALS_PER_BLOCK);
        let created = self.run(&SCRIPTS.create, &call).await;
        let epoch = created.is_ok().then_some(record.epoch);
        self.views.opened(session, epoch);
        let ordinals = ordinal_block(&mut created?)?;
        let mut view = SessionView::new(record, 1, ordinals, Duration::ZERO);
        view.owner = owned.then(|| self.cluster.me());
        Ok(view)
    }

    async fn add_to_indexes(&self, key: &SessionKey, session: SessionDigest) -> Result<(), StoreError> {
        let principal = principal_digest(&key.principal);
        let now = self.now_millis().await?;
        for (set, member) in [
            (self.keys.idle(), idle_member(session, &principal)),
            (self.keys.sessions_of(&principal), session.hex()),
        ] {
            let mut add = cmd("ZADD");
            add.arg(set).arg(now).arg(member);
            self.cluster.connection.command(&add).await?;
        }
        Ok(())
    }

    async fn remove_from_indexes(&self, principal: &str, session: SessionDigest) -> Result<(), StoreError> {
        for (set, member) in [
            (self.keys.sessions_of(principal), session.hex()),
            (self.keys.idle(), idle_member(session, principal)),
        ] {
            let mut remove = cmd("ZREM");
            remove.arg(set).arg(member);
            self.cluster.connection.command(&remove).await?;
        }
        Ok(())
    }

    /// The time of the store.
    async fn now_millis(&self) -> Result<i64, StoreError> {
        let mut time = Reply::of_array(self.cluster.connection.command(&cmd("TIME")).await?)?;
        let (seconds, micros) = (time.number()?, time.number()?);
        Ok((seconds * 1000 + micros / 1000) as i64 + self.cluster.skew())
    }

    async fn open(&self, key: &SessionKey) -> Result<SessionView, StoreError> {
        let session = digest(key);
        let changes = self.views.opening(session, key);
        let opened = self.open_view(session).await;
        let epoch = opened.as_ref().ok().map(|view| view.record.epoch);
        let changed = self.views.opened(session, epoch) != changes;
        let mut view = opened?;
        if changed {
            // A wake-up arrived before the reply, so the view may be older than the record.
            let stored = self.load(key).await?;
            view.revision = stored.revision;
            view.owner = stored.owner;
            view.record = stored.record.with_epoch(view.record.epoch);
        }
        Ok(view)
    }

    async fn open_view(&self, session: SessionDigest) -> Result<SessionView, StoreError> {
        let mut call = self.call(&SCRIPTS.open, session);
        call.arg(ORDINALS_PER_BLOCK);
        let mut reply = self.run(&SCRIPTS.open, &call).await?;
        let record = SessionRecord::from_bytes(&reply.bytes()?).ok_or_else(unexpected)?;
        let (revision, epoch) = (reply.number()?, reply.number()?);
        let ordinals = ordinal_block(&mut reply)?;
        let idle = Duration::from_millis(reply.number()?);
        let mut view = SessionView::new(record.with_epoch(epoch), revision, ordinals, idle);
        view.owner = reply.member()?;
        Ok(view)
    }

    async fn load(&self, key: &SessionKey) -> Result<StoredSession, StoreError> {
        let call = self.call(&SCRIPTS.load, digest(key));
        let mut reply = self.run(&SCRIPTS.load, &call).await?;
        let record = SessionRecord::from_bytes(&reply.bytes()?).ok_or_else(unexpected)?;
        let (revision, epoch) = (reply.number()?, reply.number()?);
        let high_water = Ordinal(reply.number()?);
        let idle = Duration::from_millis(reply.number()?);
        let mut stored = StoredSession::new(record.with_epoch(epoch), high_water, idle);
        stored.revision = revision;
        stored.owner = reply.member()?;
        Ok(stored)
    }

    async fn update(&self, key: &SessionKey, revision: u64, record: SessionRecord) -> Result<Updated, StoreError> {
        let mut call = self.call(&SCRIPTS.update, digest(key));
        call.arg(revision).arg(record.to_bytes());
        let mut reply = self.run(&SCRIPTS.update, &call).await?;
        Ok(Updated::new(reply.number()?, reply.array()?.members()?))
    }

    async fn touch(&self, key: &SessionKey) -> Result<(), StoreError> {
        let call = self.call(&SCRIPTS.touch, digest(key));
        self.run(&SCRIPTS.touch, &call).await.map(drop)
    }

    async fn end(&self, key: &SessionKey) -> Result<Vec<Incarnation>, StoreError> {
        let session = digest(key);
        let call = self.call(&SCRIPTS.end, session);
        let views = self.run(&SCRIPTS.end, &call).await?.array()?.members()?;
        self.views.ended(session);
        self.remove_from_indexes(&principal_digest(&key.principal), session)
            .await?;
        Ok(views)
    }

    async fn expire(&self, idle: Duration, is_live: IsLive) -> Result<usize, StoreError> {
        let mut expired = 0;
        loop {
            let before = self.now_millis().await? - millis(idle) as i64;
            let mut range = cmd("ZRANGEBYSCORE");
            range.arg(self.keys.idle()).arg("-inf").arg(before);
            range.arg("LIMIT").arg(0).arg(MAX_CANDIDATES);
            let mut candidates = Reply::of_array(self.cluster.connection.command(&range).await?)?;
            if candidates.is_empty() {
                return Ok(expired);
            }
            while !candidates.is_empty() {
                let member = candidates.text()?;
                let (session, principal) = parse_idle_member(&member).ok_or_else(unexpected)?;
                expired += usize::from(self.expire_session(session, principal, idle, &is_live).await?);
            }
        }
    }

    /// Ends a session if it is idle. The set of idle sessions does not record every use, so it may be out of date.
    async fn expire_session(
        &self,
        session: SessionDigest,
        principal: &str,
        idle: Duration,
        is_live: &IsLive,
    ) -> Result<bool, StoreError> {
        let touches = self.views.key(session).is_some_and(|key| is_live(&key));
        let mut call = self.call(&SCRIPTS.expire, session);
        call.arg(millis(idle)).arg(u8::from(touches));
        let reply = self.cluster.connection.run_raw(&SCRIPTS.expire, &call).await;
        let reply = match reply.and_then(outcome_of_expiry)? {
            Expiry::InUse(at) => {
                let mut update = cmd("ZADD");
                update
                    .arg(self.keys.idle())
                    .arg(at)
                    .arg(idle_member(session, principal));
                self.cluster.connection.command(&update).await?;
                return Ok(false);
            }
            ended => ended,
        };
        self.views.ended(session);
        self.remove_from_indexes(principal, session).await?;
        Ok(reply == Expiry::Expired)
    }

    pub(crate) async fn count_sessions(&self, principal: &Principal) -> Result<SessionCounts, StoreError> {
        let of_principal = self.keys.sessions_of(&principal_digest(principal));
        let counted = try_join(self.count(self.keys.idle()), self.count(of_principal)).await;
        counted.map(|(total, of_principal)| SessionCounts::new(total, of_principal))
    }

    async fn count(&self, set: String) -> Result<usize, StoreError> {
        let mut count = cmd("ZCARD");
        count.arg(set);
        match self.cluster.connection.command(&count).await? {
            Value::Int(count) => Ok(count as usize),
            _ => Err(unexpected()),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Expiry {
    /// The time of the last use.
    InUse(u64),
    Expired,
    /// The session had ended before.
    Gone,
}

fn outcome_of_expiry(reply: Value) -> Result<Expiry, StoreError> {
    let mut reply = Reply::of_array(reply)?;
    match reply.text()?.as_str() {
        "ok" => Ok(Expiry::InUse(reply.number()?)),
        "expired" => Ok(Expiry::Expired),
        "gone" => Ok(Expiry::Gone),
        _ => Err(unexpected()),
    }
}

/// The ordinals of a reply.
pub(crate) fn ordinal_block(reply: &mut Reply) -> Result<OrdinalBlock, StoreError> {
    Ok(OrdinalBlock {
        after: Ordinal(reply.number()?),
        last: Ordinal(reply.number()?),
    })
}

/// The next ordinals of a session.
pub(crate) async fn draw_ordinals(store: &StoreInner, key: &SessionKey) -> Result<OrdinalBlock, StoreError> {
    let mut call = store.call(&SCRIPTS.draw, digest(key));
    call.arg(ORDINALS_PER_BLOCK);
    ordinal_block(&mut store.run(&SCRIPTS.draw, &call).await?)
}

impl SessionStore for RedisStore {
    fn create(
        &self,
        key: &SessionKey,
        record: SessionRecord,
        owned: bool,
    ) -> StoreFuture<Result<SessionView, StoreError>> {
        let key = key.clone();
        self.later(move |store| async move { store.create(&key, record, owned).await })
    }

    fn open(&self, key: &SessionKey) -> StoreFuture<Result<SessionView, StoreError>> {
        let key = key.clone();
        self.later(|store| async move { store.open(&key).await })
    }

    fn load(&self, key: &SessionKey) -> StoreFuture<Result<StoredSession, StoreError>> {
        let key = key.clone();
        self.later(|store| async move { store.load(&key).await })
    }

    fn update(
        &self,
        key: &SessionKey,
        revision: u64,
        record: SessionRecord,
    ) -> StoreFuture<Result<Updated, StoreError>> {
        let key = key.clone();
        self.later(move |store| async move { store.update(&key, revision, record).await })
    }

    fn touch(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        let key = key.clone();
        self.later(|store| async move { store.touch(&key).await })
    }

    fn expire(&self, idle: Duration, is_live: IsLive) -> StoreFuture<Result<usize, StoreError>> {
        self.later(move |store| async move { store.expire(idle, is_live).await })
    }

    fn end(&self, key: &SessionKey) -> StoreFuture<Result<Vec<Incarnation>, StoreError>> {
        let key = key.clone();
        self.later(|store| async move { store.end(&key).await })
    }
}
