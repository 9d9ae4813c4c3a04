//! The conformance suite of store backends. Every backend passes the same cases as the memory backend.
//!
//! In the backend's `tests/` folder, with this crate as a dev-dependency:
//!
//! ```
//! use rethread_store::{MemoryLimits, MemoryStore, Retention};
//!
//! rethread_testkit::store_suite!(|retention: Retention| async move {
//!     MemoryStore::new(MemoryLimits { stream: retention, ..MemoryLimits::default() })
//! });
//! ```
//!
//! The macro creates one `#[test]` per case. The closure creates an empty store with the given [`Retention`]; each case
//! creates its own. Stores that share an engine must be isolated: give each its own schema, prefix or folder. Implement
//! [`Harness`] instead of a closure if tests can move the clock, or if other nodes can open the same data. The suite
//! then checks more.
//!
//! The suite does not prescribe when eviction happens, the order of concurrent calls, how overhead bytes are counted,
//! or the result of `create` for an existing session.

mod cluster;
mod concurrent;
mod fence;
mod fixture;
mod isolation;
mod log;
mod model;
mod queue;
mod retention;
mod sessions;
mod size;

pub use fixture::{StoreFixture, answer, batch, event, info, last_batch, principal, question, record, sequence};
pub use queue::{queued, update};

use rethread_store::{Retention, Store};
use std::future::Future;
use std::time::Duration;

/// Gives the suite access to a backend.
pub trait Harness: Send + Sync + 'static {
    /// The backend. Clones share their data.
    type Store: Store + Clone;

    /// Whether the backend can run here. The suite skips every case otherwise.
    fn is_available(&self) -> bool {
        true
    }

    /// Creates an empty store that no other case uses.
    fn fresh(&self, retention: Retention) -> impl Future<Output = Self::Store> + Send;

    /// Opens the same data as another node, with its own connection if the backend has connections.
    fn peer(&self, store: &Self::Store) -> impl Future<Output = Self::Store> + Send {
        let peer = store.clone();
        async move { peer }
    }

    /// Advances the clock of this store. Returns false if the clock is fixed; the suite then skips age checks.
    ///
    /// The suite calls this on the thread that created the store, so the clock may be thread-local.
    fn advance(&self, store: &Self::Store, by: Duration) -> bool {
        let _ = (store, by);
        false
    }
}

/// A function that creates stores is a harness.
impl<F, Fut, S> Harness for F
where
    F: Fn(Retention) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = S> + Send,
    S: Store + Clone,
{
    type Store = S;

    fn fresh(&self, retention: Retention) -> impl Future<Output = S> + Send {
        self(retention)
    }
}

/// A longer case counts as a hang.
const CASE_TIMEOUT: Duration = Duration::from_secs(300);

/// Runs one case in its own runtime. Cases with concurrent actors start extra threads.
pub fn run<H: Harness>(harness: &H, case: impl AsyncFnOnce(&H)) {
    if !harness.is_available() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let limited = runtime.block_on(async { tokio::time::timeout(CASE_TIMEOUT, case(harness)).await });
    limited.expect("the case timed out; was a wake-up lost?");
    // Threads of the backend may end late. Do not wait for them.
    runtime.shutdown_timeout(Duration::from_secs(5));
}

/// Runs every case in turn, for use without a test harness. Panics at the first failure.
pub fn run_all<H: Harness>(harness: &H) {
    macro_rules! run_each {
        ($harness:expr, $($case:ident)*) => {
            $( run($harness, cases::$case); )*
        };
    }
    crate::__store_cases! { (run_each) harness }
}

/// Creates a test for every case of the suite. See [the module](mod@crate::store_suite).
#[macro_export]
macro_rules! store_suite {
    ($harness:expr) => {
        $crate::__store_cases! { ($crate::__store_tests) $harness }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_tests {
    ($harness:expr, $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::store_suite::run(&$harness, $crate::store_suite::cases::$case);
            }
        )*
    };
}

// The only list of cases. The compiler reports a case that is missing here as dead code.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_cases {
    (($($callback:tt)*) $harness:expr) => {
        $($callback)*! {
            $harness,
            append_reads_back
            stream_info_reads_back
            read_starts_after_the_cursor
            sto_03_priming_event_is_never_read
            stream_starts_at_zero_or_one
            page_size_is_bounded
            pages_cover_every_event_once
            unwritten_stream_is_unknown
            empty_batch_can_seal
            streams_number_independently
            append_with_a_wrong_number_is_refused
            sto_01_repeated_append_is_idempotent
            repeated_seal_is_idempotent
            sealed_stream_refuses_appends
            later_epoch_fences_earlier_writer
            empty_batch_of_later_epoch_fences
            later_epoch_cannot_overwrite
            first_append_needs_stream_info
            stream_info_is_set_once
            session_without_record_refuses_appends
            ended_session_refuses_appends
            ended_session_stays_ended
            forgotten_stream_is_unknown
            session_survives_forgetting_its_streams
            res_08_eviction_removes_the_oldest_and_reports_the_gap
            events_within_limits_are_retained
            eviction_spares_the_whole_window
            evicted_priming_event_is_not_a_gap
            eviction_spares_answers
            eviction_spares_open_questions
            eviction_by_bytes_spares_the_newest
            sealed_stream_expires
            foreign_key_reads_nothing
            similar_names_do_not_collide
            concurrent_writers_get_distinct_numbers
            concurrent_reader_sees_an_ordered_prefix
            watch_never_misses_the_last_append
            every_watch_wakes
            watch_of_unknown_stream_wakes
            session_may_end_during_appends
            record_reads_back
            ended_session_has_no_record
            update_with_wrong_revision_is_refused
            concurrent_updates_have_one_winner
            highest_ordinal_survives_its_stream
            open_streams_are_listed
            idle_sessions_expire
            live_sessions_do_not_expire
            bus_reaches_every_subscriber
            bus_does_not_replay
            slow_subscriber_learns_of_loss
            large_payloads_read_back
            large_batch_is_one_append
            ten_thousand_streams_stay_separate
            random_history_matches_the_model
            queued_message_reads_back
            queue_floor_only_rises
            late_queue_update_changes_nothing
            append_takes_from_the_queue
            earlier_epoch_cannot_change_a_queue
            queue_ends_with_its_session
            queues_of_sessions_stay_separate
            taken_message_is_in_queue_or_stream_never_both
            random_queue_history_matches_the_model
            views_of_two_nodes_write_at_once
            takeover_needs_a_new_epoch
            writer_goes_on_after_lost_writes
            ordinals_of_nodes_do_not_overlap
            updates_of_several_nodes_lose_nothing
            changed_session_wakes_other_views
            owner_is_claimed_once
            sessions_of_all_nodes_are_counted
            get_03_gets_of_all_nodes_are_bounded
            get_04_waiting_messages_of_all_nodes_are_bounded
            lease_ends_for_good
            death_is_final_once_it_is_asked_for
            mail_arrives_in_order
            mail_is_claimed_once
            mailbox_counts_unclaimed_mail
            append_reports_the_remote_reader
            res_06_attach_displaces_the_previous_reader
            waiting_writer_is_woken_by_the_reader
            newest_get_takes_messages
            restored_view_has_its_entry_and_its_gets
            messages_move_to_the_next_get
            get_04_push_queue_collapses_and_is_bounded
            message_is_bound_once
            broadcast_is_enqueued_once
            missed_broadcasts_are_enqueued_once
        }
    };
}

/// The cases. Each takes a [`Harness`] and panics if the backend fails.
pub mod cases {
    pub use super::cluster::{
        append_reports_the_remote_reader, broadcast_is_enqueued_once, changed_session_wakes_other_views,
        death_is_final_once_it_is_asked_for, get_03_gets_of_all_nodes_are_bounded,
        get_04_push_queue_collapses_and_is_bounded, get_04_waiting_messages_of_all_nodes_are_bounded,
        lease_ends_for_good, mail_arrives_in_order, mail_is_claimed_once, mailbox_counts_unclaimed_mail,
        message_is_bound_once, messages_move_to_the_next_get, missed_broadcasts_are_enqueued_once,
        newest_get_takes_messages, ordinals_of_nodes_do_not_overlap, owner_is_claimed_once,
        res_06_attach_displaces_the_previous_reader, restored_view_has_its_entry_and_its_gets,
        sessions_of_all_nodes_are_counted, takeover_needs_a_new_epoch, updates_of_several_nodes_lose_nothing,
        views_of_two_nodes_write_at_once, waiting_writer_is_woken_by_the_reader, writer_goes_on_after_lost_writes,
    };
    pub use super::concurrent::*;
    pub use super::fence::*;
    pub use super::isolation::*;
    pub use super::log::*;
    pub use super::model::*;
    pub use super::queue::{
        append_takes_from_the_queue, earlier_epoch_cannot_change_a_queue, late_queue_update_changes_nothing,
        queue_ends_with_its_session, queue_floor_only_rises, queued_message_reads_back,
        queues_of_sessions_stay_separate, random_queue_history_matches_the_model,
        taken_message_is_in_queue_or_stream_never_both,
    };
    pub use super::retention::*;
    pub use super::sessions::*;
    pub use super::size::*;
}
