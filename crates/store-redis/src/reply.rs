//! The replies of scripts.

use bytes::Bytes;
use redis::Value;
use rethread_store::{Incarnation, ReaderToken, RemotePosition, Seq, StoreError};

/// A cursor over the values of a reply.
#[derive(Debug)]
pub(crate) struct Reply(std::vec::IntoIter<Value>);

impl Reply {
    /// The values of an array. An array that begins with the name of a refusal is that error.
    pub(crate) fn of_script(value: Value) -> Result<Self, StoreError> {
        let mut reply = Reply::of_array(value)?;
        match reply.text()?.as_str() {
            "ok" => Ok(reply),
            "gone" => Err(StoreError::SessionGone),
            "unknown" => Err(StoreError::UnknownStream),
            "sealed" => Err(StoreError::Sealed),
            "displaced" => Err(StoreError::Displaced),
            "ended" => Err(StoreError::LeaseEnded),
            "replaced" => Err(StoreError::Replaced),
            "full" => Err(StoreError::Full),
            "conflict" => {
                let epoch = reply.number()?;
                let last = reply.text()?;
                let last = if last.is_empty() {
                    None
                } else {
                    Some(Seq(parse(&last)?))
                };
                Err(StoreError::Conflict { epoch, last })
            }
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn of_array(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(values) => Ok(Reply(values.into_iter())),
            Value::Nil => Ok(Reply(Vec::new().into_iter())),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn next(&mut self) -> Option<Value> {
        self.0.next()
    }

    pub(crate) fn array(&mut self) -> Result<Reply, StoreError> {
        Reply::of_array(self.next().ok_or_else(unexpected)?)
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, StoreError> {
        match self.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes.into()),
            Some(Value::SimpleString(text)) => Ok(text.into()),
            Some(Value::Int(number)) => Ok(number.to_string().into()),
            Some(Value::Okay) => Ok(Bytes::from_static(b"OK")),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        String::from_utf8(self.bytes()?.into()).map_err(|_| unexpected())
    }

    pub(crate) fn number(&mut self) -> Result<u64, StoreError> {
        match self.next() {
            Some(Value::Int(number)) => u64::try_from(number).map_err(|_| unexpected()),
            Some(Value::BulkString(bytes)) => parse(std::str::from_utf8(&bytes).map_err(|_| unexpected())?),
            _ => Err(unexpected()),
        }
    }

    /// A member. `None` for an empty text.
    pub(crate) fn member(&mut self) -> Result<Option<Incarnation>, StoreError> {
        let text = self.text()?;
        if text.is_empty() {
            return Ok(None);
        }
        Incarnation::parse(&text).map(Some).ok_or_else(unexpected)
    }

    /// The remaining values as members.
    pub(crate) fn members(mut self) -> Result<Vec<Incarnation>, StoreError> {
        let mut members = Vec::new();
        while self.0.len() > 0 {
            members.extend(self.member()?);
        }
        Ok(members)
    }

    /// A reader and its position. `None` without a reader.
    pub(crate) fn remote_reader(&mut self) -> Result<Option<RemotePosition>, StoreError> {
        let (token, seen) = (self.text()?, Seq(self.number()?));
        Ok(ReaderToken::parse(&token).map(|token| RemotePosition::new(token, seen)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

fn parse(text: &str) -> Result<u64, StoreError> {
    text.parse().map_err(|_| unexpected())
}

/// The error for a value that no version of this crate writes.
pub(crate) fn unexpected() -> StoreError {
    StoreError::unavailable("the store contains unexpected data")
}
