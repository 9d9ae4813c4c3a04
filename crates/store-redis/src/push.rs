//! The push queues, which all nodes share.

use crate::broadcasts::check_position;
use crate::cluster::random_token;
use crate::coding::{encode_info, unpack};
use crate::members::millis;
use crate::scripts::SCRIPTS;
use crate::store::{StoreInner, check_number, digest, digest_of};
use rethread_store::{
    BindRequest, Bound, BroadcastId, Enqueued, PushMessage, PushQueueLimits, SessionKey, StoreError, StreamKey,
};

/// Bytes of one bind. A larger message is bound alone.
const MAX_BOUND_BYTES: usize = 1 << 20;
/// The encoding has two bytes for the length, and a prefix character counts.
const MAX_COLLAPSE_BYTES: usize = u16::MAX as usize - 1;

impl StoreInner {
    /// Adds messages to a queue.
    pub(crate) async fn enqueue(
        &self,
        key: &SessionKey,
        messages: &[PushMessage],
        limits: PushQueueLimits,
    ) -> Result<Enqueued, StoreError> {
        self.enqueue_once(key, None, messages.iter().map(|message| (None, message)), limits)
            .await
    }

    /// Adds messages to a queue. One with the id of a broadcast is added unless the queue has had a broadcast that is as late.
    /// Afterwards it has had those up to `last`.
    pub(crate) async fn enqueue_once(
        &self,
        key: &SessionKey,
        last: Option<&BroadcastId>,
        messages: impl Iterator<Item = (Option<&BroadcastId>, &PushMessage)>,
        limits: PushQueueLimits,
    ) -> Result<Enqueued, StoreError> {
        fn position(id: Option<&BroadcastId>) -> Result<&str, StoreError> {
            id.map_or(Ok(""), check_position)
        }
        let mut call = self.call(&SCRIPTS.enqueue, digest(key));
        call.arg(limits.messages).arg(limits.bytes).arg(random_token());
        call.arg(position(last)?);
        for (broadcast, message) in messages {
            call.arg(position(broadcast)?);
            // A message with a longer key is never collapsed.
            let collapse = message
                .collapse
                .as_deref()
                .filter(|key| key.len() <= MAX_COLLAPSE_BYTES);
            call.arg(collapse.map_or_else(String::new, |key| format!("={key}")));
            call.arg(&*message.payload);
        }
        let mut reply = self.run(&SCRIPTS.enqueue, &call).await?;
        let (dropped, waiting) = (reply.number()?, reply.number()?);
        Ok(Enqueued::new(dropped as usize, waiting as usize))
    }

    /// Adds a listener, and removes the oldest ones beyond `max`.
    pub(crate) async fn listen(&self, key: &StreamKey, max: usize) -> Result<BroadcastId, StoreError> {
        let mut call = self.call(&SCRIPTS.listen, digest_of(key));
        call.arg("listen").arg(key.ordinal.0).arg(max.max(1));
        Ok(BroadcastId(self.run(&SCRIPTS.listen, &call).await?.text()?.into()))
    }

    /// Changes the listeners of a session. After `applied`, returns the last broadcast that the queue has.
    pub(crate) async fn change_listeners(
        &self,
        key: &SessionKey,
        action: &str,
        what: &str,
    ) -> Result<BroadcastId, StoreError> {
        let mut call = self.call(&SCRIPTS.listen, digest(key));
        call.arg(action).arg(what);
        let mut reply = self.run(&SCRIPTS.listen, &call).await?;
        Ok(BroadcastId(if reply.is_empty() {
            Box::default()
        } else {
            reply.text()?.into()
        }))
    }

    pub(crate) async fn bind(&self, key: &StreamKey, request: BindRequest) -> Result<Bound, StoreError> {
        let limits = self.cluster.options.retention;
        let mut call = self.call(&SCRIPTS.bind, digest_of(key));
        call.arg(key.ordinal.0)
            .arg(check_number(request.epoch)?)
            .arg(check_number(request.first.0)?);
        call.arg(request.max)
            .arg(MAX_BOUND_BYTES)
            .arg(encode_info(request.info.as_deref()));
        call.arg(limits.events).arg(limits.bytes).arg(millis(limits.age));
        let mut reply = self.run(&SCRIPTS.bind, &call).await?;
        let more = reply.number()? > 0;
        Ok(Bound::new(unpack(reply.bytes()?)?, more))
    }
}
