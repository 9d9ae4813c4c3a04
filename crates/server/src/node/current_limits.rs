//! The limits of a running node. A configuration that is read again may change them while clients are served.
//!
//! Each limit is a word of its own, because every call reads several of them: a lock would be shared by all calls.

use crate::node::limits::Limits;
use parking_lot::RwLock;
use rethread_proto::auth::Rate;
use rethread_proto::jsonrpc;
use rethread_proto::subscription::FilterLimits;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

macro_rules! current_limits {
    ($($field:ident)*) => {
        /// The limits in force. The methods have the names of the fields of [`Limits`]. The policy of an endpoint has the limits
        /// of headers, the constants of streams have those of the live buffer.
        #[derive(Debug)]
        pub(crate) struct CurrentLimits {
            $($field: AtomicUsize,)*
            input_rounds: AtomicUsize,
            has_rate: AtomicBool,
            rate: RwLock<Option<Rate>>,
        }

        impl CurrentLimits {
            pub(crate) fn new(limits: &Limits) -> Self {
                // Every field is named here, so that none can be forgotten.
                let Limits { $($field,)* input_rounds, rate, header_bytes: _, headers: _, window_events: _, window_bytes: _ } = limits;
                CurrentLimits {
                    $($field: AtomicUsize::new(*$field),)*
                    input_rounds: AtomicUsize::new(*input_rounds as usize),
                    has_rate: AtomicBool::new(rate.is_some()),
                    rate: RwLock::new(*rate),
                }
            }

            /// Puts other limits in force. Readers may see some of them before the others.
            pub(crate) fn set(&self, limits: &Limits) {
                let Limits { $($field,)* input_rounds, rate, header_bytes: _, headers: _, window_events: _, window_bytes: _ } = limits;
                $(self.$field.store(*$field, Ordering::Relaxed);)*
                self.input_rounds.store(*input_rounds as usize, Ordering::Relaxed);
                *self.rate.write() = *rate;
                self.has_rate.store(rate.is_some(), Ordering::Relaxed);
            }

            $(pub(crate) fn $field(&self) -> usize {
                self.$field.load(Ordering::Relaxed)
            })*
        }
    };
}

current_limits! {
    body_bytes json_depth batch id_bytes initialize_bytes sessions sessions_per_principal calls calls_per_principal
    calls_per_session connections push_streams_per_session abandoned_push_streams_per_session questions_per_session
    waiting_messages_per_session waiting_bytes_per_session subscriptions_per_session subscription_bytes_per_session subscriptions
    subscriptions_per_principal uris_per_subscription uri_bytes_per_subscription parks parks_per_principal parked_bytes queued_lines
}

impl CurrentLimits {
    pub(crate) fn input_rounds(&self) -> u32 {
        u32::try_from(self.input_rounds.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    /// Most servers have none, and must not pay for the lock.
    pub(crate) fn rate(&self) -> Option<Rate> {
        if !self.has_rate.load(Ordering::Relaxed) {
            return None;
        }
        *self.rate.read()
    }

    /// The bounds of the envelope of a message.
    pub(crate) fn envelope(&self) -> jsonrpc::Limits {
        jsonrpc::Limits::new(self.json_depth(), self.batch(), self.id_bytes())
    }

    /// The bounds of one `subscriptions/listen`.
    pub(crate) fn filter(&self) -> FilterLimits {
        FilterLimits::new(self.uris_per_subscription(), self.uri_bytes_per_subscription())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_limits_are_in_force_at_once() {
        let current = CurrentLimits::new(&Limits::default());
        assert_eq!((current.calls(), current.rate()), (Limits::default().calls, None));
        let rate = Rate::new(5, std::time::Duration::from_secs(1));
        current.set(&Limits::default().with(|limits| {
            limits.calls = 3;
            limits.input_rounds = 2;
            limits.rate = rate;
        }));
        assert_eq!((current.calls(), current.input_rounds(), current.rate()), (3, 2, rate));
        current.set(&Limits::default());
        assert_eq!(current.rate(), None);
    }
}
