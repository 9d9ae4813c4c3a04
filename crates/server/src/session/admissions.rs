//! The counter of requests that a view has admitted: see `session/admission.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The view is being closed. The other bits count the admitted requests.
const CLOSING: usize = 1 << (usize::BITS - 1);

/// The admitted requests of a view.
#[derive(Debug, Default)]
pub(super) struct Admissions(AtomicUsize);

impl Admissions {
    pub(super) fn enter(&self) -> bool {
        let enter = |count| (count & CLOSING == 0).then_some(count + 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter).is_ok()
    }

    pub(super) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// False if a request is admitted, or the view is being closed already.
    pub(super) fn begin_close(&self) -> bool {
        self.0
            .compare_exchange(0, CLOSING, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    pub(super) fn abort_close(&self) {
        self.0.fetch_and(!CLOSING, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T-38: a view with a request is not closed, and a view that is being closed admits no request.
    #[test]
    fn t_38_view_admits_requests_or_is_closed() {
        let admissions = Admissions::default();
        assert!(admissions.enter() && admissions.enter());
        assert!(!admissions.begin_close());
        admissions.leave();
        assert!(!admissions.begin_close(), "one request is left");
        admissions.leave();
        assert!(admissions.begin_close() && !admissions.begin_close());
        assert!(!admissions.enter());
        admissions.abort_close();
        assert!(admissions.enter(), "the view stays");
    }
}
