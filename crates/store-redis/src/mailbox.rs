//! The mailbox of this process.

use crate::cluster::Inner;
use crate::link::{Wire, in_time};
use crate::reply::{Reply, unexpected};
use bytes::Bytes;
use redis::aio::ConnectionLike as _;
use redis::{RedisError, cmd};
use rethread_store::{Incarnation, MailId, StoreError};
use std::sync::Weak;
use std::time::Duration;
use tokio::time::sleep;

/// A read blocks up to this time for mail.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Messages of one read.
const MAX_READ_ENTRIES: usize = 16;
/// The delay between two attempts to connect.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Reads the mailbox of this process, for one membership after another.
pub(crate) async fn run(inner: Weak<Inner>) {
    while let Some(strong) = inner.upgrade() {
        let mut identities = strong.identity.subscribe();
        let identity = identities.borrow_and_update().clone();
        drop(strong);
        let mut last = "0-0".to_owned();
        loop {
            tokio::select! {
                read = read(&inner, &identity, &mut last) => match read {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(%error, "the mailbox cannot be read"),
                },
                changed = identities.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    break;
                }
            }
            sleep(RETRY_DELAY).await;
        }
    }
}

/// Reads mail after `last` until the connection fails. Returns `Ok` when the process has dropped its last store.
async fn read(inner: &Weak<Inner>, identity: &Incarnation, last: &mut String) -> Result<(), StoreError> {
    let Some(strong) = inner.upgrade() else { return Ok(()) };
    let mut wire = strong.connector.commands().await.map_err(StoreError::unavailable)?;
    let (mailbox, timeout) = (strong.keys.mailbox(identity.as_str()), strong.options.timeout);
    drop(strong);
    let mut wait = None; // the first read does not block, so it soon proves that the mailbox is readable
    loop {
        let replies = next(&mut wire, &mailbox, last, wait, timeout).await?;
        wait = Some(READ_TIMEOUT.min(timeout / 2));
        let Some(inner) = inner.upgrade() else { return Ok(()) };
        inner.health.set_mailbox_read(identity);
        for mail in replies {
            // Waits while the channel of the server is full. The mail stays in the store until a node claims it.
            if let Some(store) = inner.server(&mail.server) {
                store.events.mail(mail.token, mail.content).await;
            }
            inner.health.set_mailbox_read(identity);
            *last = mail.id;
        }
    }
}

struct Mail {
    id: String,
    token: MailId,
    server: String,
    content: Bytes,
}

async fn next(
    wire: &mut Wire,
    mailbox: &str,
    after: &str,
    wait: Option<Duration>,
    timeout: Duration,
) -> Result<Vec<Mail>, StoreError> {
    let mut read = cmd("XREAD");
    read.arg("COUNT").arg(MAX_READ_ENTRIES);
    if let Some(wait) = wait {
        read.arg("BLOCK").arg(wait.as_millis() as u64);
    }
    read.arg("STREAMS").arg(mailbox).arg(after);
    let value = in_time(timeout + wait.unwrap_or_default(), wire.req_packed_command(&read)).await;
    let value = value.and_then(redis::Value::extract_error);
    let mut streams = Reply::of_array(value.map_err(|error: RedisError| StoreError::unavailable(error))?)?;
    if streams.is_empty() {
        return Ok(Vec::new());
    }
    let mut stream = streams.array()?;
    stream.next();
    let mut entries = stream.array()?;
    let mut mails = Vec::new();
    while !entries.is_empty() {
        let mut entry = entries.array()?;
        let id = entry.text()?;
        let mut fields = entry.array()?;
        let (mut token, mut server, mut content) = (None, None, None);
        while !fields.is_empty() {
            match fields.text()?.as_str() {
                "t" => token = Some(MailId(fields.text()?.into())),
                "s" => server = Some(fields.text()?),
                "d" => content = Some(fields.bytes()?),
                _ => drop(fields.next()),
            }
        }
        mails.push(Mail {
            id,
            token: token.ok_or_else(unexpected)?,
            server: server.ok_or_else(unexpected)?,
            content: content.ok_or_else(unexpected)?,
        });
    }
    Ok(mails)
}
