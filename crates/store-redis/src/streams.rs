//! The event logs.

use crate::coding::{Head, Packed, encode_info};
use crate::keys::StreamDigest;
use crate::members::millis;
use crate::scripts::SCRIPTS;
use crate::store::{RedisStore, StoreInner, check_number, digest, digest_of};
use redis::Cmd;
use rethread_store::{
    Appended, Batch, EventStore, Ordinal, Page, ReadLimit, ReaderToken, RemotePosition, Retention, Seq, SessionKey,
    StoreError, StoreFuture, StreamKey, StreamStatus, Watch,
};
use std::sync::Arc;

impl StoreInner {
    async fn append(&self, key: &StreamKey, batch: Batch) -> Result<Appended, StoreError> {
        if batch.taken.is_some() {
            return Err(StoreError::unavailable("the queues of this store have no positions"));
        }
        check_number(batch.epoch)?;
        let (first, last) = (batch.events.first(), batch.events.last());
        let number = |event: Option<&rethread_store::Event>| {
            let number = event.map(|event| check_number(event.seq.0)).transpose()?;
            Ok::<_, StoreError>(number.map_or_else(String::new, |number| number.to_string()))
        };
        let gapless = batch.events.windows(2).all(|pair| pair[1].seq == pair[0].seq.next());
        let packed = Packed::new(&batch.events);
        let released: Vec<String> = batch.released.iter().map(|seq| seq.0.to_string()).collect();
        let limits = self.cluster.options.retention;
        let mut call = self.call(&SCRIPTS.append, digest_of(key));
        call.arg(key.ordinal.0)
            .arg(batch.epoch)
            .arg(number(first)?)
            .arg(number(last)?);
        call.arg(u8::from(batch.seals)).arg(u8::from(gapless));
        call.arg(batch.gap.map_or_else(String::new, |gap| gap.0.to_string()));
        call.arg(encode_info(batch.info.as_deref()));
        call.arg(limits.events).arg(limits.bytes).arg(millis(limits.age));
        call.arg(released.join(" ")).arg(packed.pins);
        call.arg(packed.count)
            .arg(packed.cost)
            .arg(packed.last_cost)
            .arg(packed.blob);
        let mut reply = self.run(&SCRIPTS.append, &call).await?;
        Ok(Appended::read_by(reply.remote_reader()?))
    }

    /// Reads a page. With a token, also acknowledges the position of that remote reader.
    pub(crate) async fn read(
        &self,
        key: &StreamKey,
        after: Seq,
        limit: ReadLimit,
        token: Option<&ReaderToken>,
    ) -> Result<Page, StoreError> {
        let mut call = self.call(&SCRIPTS.read, digest_of(key));
        call.arg(key.ordinal.0)
            .arg(after.0.saturating_add(1))
            .arg(limit.events)
            .arg(limit.bytes.max(1));
        call.arg(self.age_millis())
            .arg(token.map_or_else(String::new, ToString::to_string))
            .arg(after.0);
        let mut reply = self.run(&SCRIPTS.read, &call).await?;
        Head::new(reply.array()?)?.page(reply, after, limit)
    }

    pub(crate) fn age_millis(&self) -> u64 {
        millis(self.cluster.options.retention.age)
    }

    /// A change of the remote reader of a stream.
    pub(crate) fn reader_call(&self, key: &StreamKey, action: &str, token: &str) -> Cmd {
        let mut call = self.call(&SCRIPTS.reader, digest_of(key));
        call.arg(key.ordinal.0).arg(action).arg(token).arg(self.age_millis());
        call
    }

    pub(crate) async fn attach(&self, key: &StreamKey, token: &ReaderToken) -> Result<StreamStatus, StoreError> {
        let call = self.reader_call(key, "attach", &token.to_string());
        let mut reply = self.run(&SCRIPTS.reader, &call).await?;
        Ok(Head::new(reply.array()?)?.status)
    }

    pub(crate) async fn detach(&self, key: &StreamKey, token: &ReaderToken) -> Result<(), StoreError> {
        let call = self.reader_call(key, "detach", &token.to_string());
        match self.run(&SCRIPTS.reader, &call).await {
            Ok(_) | Err(StoreError::UnknownStream) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn remote_reader(
        &self,
        key: &StreamKey,
        wake: bool,
    ) -> Result<Option<RemotePosition>, StoreError> {
        let call = self.reader_call(key, if wake { "wait" } else { "ask" }, "");
        self.run(&SCRIPTS.reader, &call).await?.remote_reader()
    }

    async fn open_streams(&self, key: &SessionKey) -> Result<Vec<Ordinal>, StoreError> {
        let mut range = redis::cmd("ZRANGEBYSCORE");
        range
            .arg(format!("{}:x", self.keys.session(digest(key))))
            .arg("+inf")
            .arg("+inf");
        let mut reply = crate::reply::Reply::of_array(self.cluster.connection.command(&range).await?)?;
        let mut ordinals = Vec::new();
        while !reply.is_empty() {
            ordinals.push(Ordinal(reply.number()?));
        }
        ordinals.sort_unstable();
        Ok(ordinals)
    }

    async fn forget(&self, key: &SessionKey, ordinal: Option<Ordinal>) -> Result<(), StoreError> {
        let mut call = self.call(&SCRIPTS.forget, digest(key));
        call.arg(ordinal.map_or_else(String::new, |ordinal| ordinal.0.to_string()));
        self.run(&SCRIPTS.forget, &call).await.map(drop)
    }

    async fn set_watched(&self, (session, ordinal): StreamDigest, watched: bool) -> Result<(), StoreError> {
        let mut call = self.call(&SCRIPTS.watch, session);
        call.arg(ordinal.0).arg(u8::from(watched));
        self.run(&SCRIPTS.watch, &call).await.map(drop)
    }

    /// Registers this node as a watcher of a stream and then wakes the reader. It reads once more, so it misses no
    /// event between its last read and the registration.
    fn register_watch(self: &Arc<Self>, stream: StreamDigest) {
        let store = Arc::clone(self);
        self.cluster.runtime.spawn(async move {
            match store.set_watched(stream, true).await {
                Ok(()) => store.watches.wake(stream),
                Err(StoreError::UnknownStream) => store.watches.remove(stream),
                Err(_) => {
                    store.watches.unregistered(stream);
                    store.watches.wake(stream); // the next read reports the outage
                }
            }
        });
    }

    /// Registers new watches and removes those without readers.
    pub(crate) fn sweep_watches(self: &Arc<Self>) {
        let (wanted, unwanted) = self.watches.sweep();
        for stream in wanted {
            self.register_watch(stream);
        }
        if unwanted.is_empty() {
            return;
        }
        let store = Arc::clone(self);
        self.cluster.runtime.spawn(async move {
            for stream in unwanted {
                let _ = store.set_watched(stream, false).await; // a failure only causes useless wake-ups
                // A reader may have attached meanwhile, and this may have removed its registration.
                store.watches.unregistered(stream);
            }
            for stream in store.watches.sweep().0 {
                store.register_watch(stream);
            }
        });
    }
}

impl EventStore for RedisStore {
    fn append(&self, key: &StreamKey, batch: Batch) -> StoreFuture<Result<Appended, StoreError>> {
        let key = key.clone();
        self.later(|store| async move { store.append(&key, batch).await })
    }

    fn read_after(&self, key: &StreamKey, after: Seq, limit: ReadLimit) -> StoreFuture<Result<Page, StoreError>> {
        let key = key.clone();
        self.later(move |store| async move { store.read(&key, after, limit, None).await })
    }

    fn status(&self, key: &StreamKey) -> StoreFuture<Result<StreamStatus, StoreError>> {
        let (key, nothing) = (key.clone(), ReadLimit::new(0, 0));
        self.later(move |store| async move { Ok(store.read(&key, Seq(0), nothing, None).await?.status) })
    }

    fn open_streams(&self, key: &SessionKey) -> StoreFuture<Result<Vec<Ordinal>, StoreError>> {
        let key = key.clone();
        self.later(|store| async move { store.open_streams(&key).await })
    }

    fn forget_stream(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>> {
        let key = key.clone();
        self.later(|store| async move { store.forget(&key.session, Some(key.ordinal)).await })
    }

    fn forget_session(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        let key = key.clone();
        self.later(|store| async move { store.forget(&key, None).await })
    }

    fn watch(&self, key: &StreamKey) -> Watch {
        let stream = (digest_of(key), key.ordinal);
        let (receiver, is_new) = self.0.watches.subscribe(stream);
        if is_new {
            self.0.register_watch(stream);
        }
        Watch::new(receiver)
    }

    fn retention(&self) -> Retention {
        self.0.cluster.options.retention
    }

    fn sweep(&self) -> StoreFuture<Result<(), StoreError>> {
        StoreFuture::ready(Ok(())) // Redis expires the keys of ended streams
    }
}
