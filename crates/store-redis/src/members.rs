//! Membership: joins, leases, and the health checks before a renewal.

use crate::cluster::{Inner, fill_random, random_u32};
use crate::keys::hex;
use crate::reply::{Reply, unexpected};
use crate::scripts::SCRIPTS;
use parking_lot::Mutex;
use redis::{Cmd, cmd};
use rethread_proto::clock::Wall;
use rethread_store::{Incarnation, Membership, Renewal, StoreError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// The mailbox of a dead node expires after this many leases.
const MAILBOX_LEASES: u32 = 10;
/// A node that received no tick for this time does not receive wake-ups: two ticks are missing.
pub(crate) const MAX_SILENCE: Duration = Duration::from_millis(2500);
/// A mailbox is read at least every second.
const MAX_MAILBOX_PAUSE: Duration = Duration::from_secs(4);

/// Whether wake-ups and mail reach this process.
#[derive(Debug)]
pub(crate) struct Health {
    /// The name under which wake-ups arrive.
    subscribed: watch::Sender<Option<Incarnation>>,
    last_tick: Mutex<Instant>,
    /// The mailbox that is read.
    mailbox: watch::Sender<Option<Incarnation>>,
    last_mailbox_read: Mutex<Instant>,
}

impl Default for Health {
    fn default() -> Self {
        Health {
            subscribed: watch::Sender::new(None),
            last_tick: Mutex::new(Instant::now()),
            mailbox: watch::Sender::new(None),
            last_mailbox_read: Mutex::new(Instant::now()),
        }
    }
}

impl Health {
    pub(crate) fn set_subscribed(&self, identity: Option<Incarnation>) {
        self.ticked();
        self.subscribed.send_replace(identity);
    }

    pub(crate) fn ticked(&self) {
        *self.last_tick.lock() = Instant::now();
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.last_tick.lock().elapsed() > MAX_SILENCE
    }

    pub(crate) fn set_mailbox_read(&self, identity: &Incarnation) {
        *self.last_mailbox_read.lock() = Instant::now();
        self.mailbox.send_if_modified(|read| {
            let is_new = read.as_ref() != Some(identity);
            *read = Some(identity.clone());
            is_new
        });
    }

    pub(crate) async fn wait_subscribed(&self, identity: &Incarnation, limit: Duration) -> Result<(), StoreError> {
        wait(&self.subscribed, identity, limit).await
    }

    async fn wait_mailbox_read(&self, identity: &Incarnation, limit: Duration) -> Result<(), StoreError> {
        wait(&self.mailbox, identity, limit).await
    }

    fn check(&self, member: &Incarnation) -> Result<(), StoreError> {
        if self.subscribed.borrow().as_ref() != Some(member) || self.is_silent() {
            return Err(StoreError::unavailable("wake-ups do not arrive"));
        }
        let pause = self.last_mailbox_read.lock().elapsed();
        if self.mailbox.borrow().as_ref() != Some(member) || pause > MAX_MAILBOX_PAUSE {
            return Err(StoreError::unavailable("the mailbox cannot be read"));
        }
        Ok(())
    }
}

async fn wait(
    state: &watch::Sender<Option<Incarnation>>,
    identity: &Incarnation,
    limit: Duration,
) -> Result<(), StoreError> {
    let mut state = state.subscribe();
    let reached = timeout(limit, state.wait_for(|state| state.as_ref() == Some(identity))).await;
    match reached {
        Ok(Ok(_)) => Ok(()),
        _ => Err(StoreError::unavailable("wake-ups or mail do not arrive")),
    }
}

/// The membership of this process, which all its servers share.
#[derive(Debug, Default)]
pub(crate) struct SharedMembership {
    current: Option<JoinedMembership>,
    /// Servers that have joined and not left. The last one to leave releases the lease.
    servers: usize,
}

/// A membership, and the moment of its `now`.
#[derive(Clone, Debug)]
struct JoinedMembership {
    membership: Membership,
    received: Instant,
}

impl JoinedMembership {
    /// A server may join later than the first one of its process.
    fn at_this_time(self) -> Membership {
        let mut membership = self.membership;
        membership.now = membership.now + self.received.elapsed();
        membership
    }
}

impl Inner {
    /// Joins for one server of this process. `previous` is the server's incarnation whose lease has ended.
    pub(crate) async fn join(&self, previous: Option<&Incarnation>) -> Result<Membership, StoreError> {
        let mut shared = self.membership.lock().await;
        let joined = match &shared.current {
            Some(current) if Some(&current.membership.incarnation) != previous => Ok(current.clone()),
            _ => self.join_again(previous).await,
        };
        let joined = joined.inspect_err(|error| self.note_replaced(error))?;
        if previous.is_none() {
            shared.servers += 1;
        }
        shared.current = Some(joined.clone());
        Ok(joined.at_this_time())
    }

    /// Joins under a new incarnation, after `previous` of this process.
    async fn join_again(&self, previous: Option<&Incarnation>) -> Result<JoinedMembership, StoreError> {
        let (member, shared_secret, now) = self.add_member(previous).await?;
        let received = Instant::now();
        let secret = self.options.secret.unwrap_or(shared_secret);
        self.identity.send_replace(member.clone());
        let ready = async {
            self.health.wait_subscribed(&member, self.options.timeout).await?;
            self.health.wait_mailbox_read(&member, self.options.timeout).await
        };
        if let Err(error) = ready.await {
            let _ = self.release_lease(&member).await; // if this fails, the lease expires
            return Err(error);
        }
        self.reconnected(); // the watches are registered under the old name
        let membership = Membership::new(member, self.options.lease, secret, now);
        Ok(JoinedMembership { membership, received })
    }

    fn note_replaced(&self, error: &StoreError) {
        if matches!(error, StoreError::Replaced) {
            self.replaced.send_replace(true);
        }
    }

    async fn add_member(&self, previous: Option<&Incarnation>) -> Result<(Incarnation, [u8; 32], Wall), StoreError> {
        let (mut born, mut secret) = ([0; 16], [0; 32]);
        fill_random(&mut born);
        fill_random(&mut secret);
        let mut call = SCRIPTS.join.call(&self.keys.members());
        call.arg(self.skew()).arg(format!("{:08x}", random_u32()));
        call.arg(millis(self.options.lease)).arg(self.node_id());
        call.arg(hex(&born)).arg(hex(&secret));
        call.arg(&*self.process).arg(previous.map_or("", Incarnation::as_str));
        let mut reply = self.connection.run(&SCRIPTS.join, &call).await?;
        let member = reply.member()?.ok_or_else(unexpected)?;
        let secret = parse_secret(&reply.text()?).ok_or_else(unexpected)?;
        Ok((member, secret, Wall::from_millis(reply.number()?)))
    }

    fn node_id(&self) -> &str {
        self.options.node_id.as_deref().unwrap_or("")
    }

    async fn member_step(&self, action: &str, member: &Incarnation) -> Result<Reply, StoreError> {
        let mut call = SCRIPTS.member.call(&self.keys.members());
        call.arg(self.skew()).arg(action).arg(member.as_str());
        call.arg(millis(self.options.lease)).arg(self.node_id());
        call.arg(&*self.process);
        self.connection.run(&SCRIPTS.member, &call).await
    }

    pub(crate) async fn renew(&self, member: &Incarnation) -> Result<Renewal, StoreError> {
        self.health.check(member)?;
        let renewed = self.member_step("renew", member).await;
        let mut reply = renewed.inspect_err(|error| self.note_replaced(error))?;
        let now = Wall::from_millis(reply.number()?);
        let born = reply.text()?.into();
        let live = reply.array()?.members()?;
        self.connection.command(&self.extend_mailbox(member)).await?;
        Ok(Renewal::new(live, now, born))
    }

    fn extend_mailbox(&self, member: &Incarnation) -> Cmd {
        let mut extend = cmd("PEXPIRE");
        extend
            .arg(self.keys.mailbox(member.as_str()))
            .arg(self.mailbox_millis());
        extend
    }

    pub(crate) fn mailbox_millis(&self) -> u64 {
        millis(self.options.lease * MAILBOX_LEASES)
    }

    /// How long claimed mail is remembered: longer than its delivery may be repeated.
    pub(crate) fn claim_memory_millis(&self) -> u64 {
        millis(self.options.timeout * 2)
    }

    pub(crate) async fn is_alive(&self, member: &Incarnation) -> Result<bool, StoreError> {
        Ok(self.member_step("check", member).await?.number()? == 1)
    }

    async fn release_lease(&self, member: &Incarnation) -> Result<(), StoreError> {
        self.member_step("leave", member).await.map(drop)
    }

    /// One server of this process leaves.
    pub(crate) async fn leave(&self, member: &Incarnation) -> Result<(), StoreError> {
        let mut shared = self.membership.lock().await;
        shared.servers = shared.servers.saturating_sub(1);
        if shared.servers > 0 {
            return Ok(());
        }
        self.release_lease(member).await?;
        if (shared.current.as_ref()).is_some_and(|joined| joined.membership.incarnation == *member) {
            shared.current = None;
        }
        Ok(())
    }
}

/// Milliseconds, at least one and at most about 30 years, which the commands of Redis accept.
pub(crate) fn millis(duration: Duration) -> u64 {
    (duration.as_millis() as u64).clamp(1, 1_000_000_000_000)
}

fn parse_secret(hex: &str) -> Option<[u8; 32]> {
    let mut secret = [0; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    for (at, byte) in secret.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).ok()?;
    }
    Some(secret)
}
