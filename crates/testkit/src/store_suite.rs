//! What every store backend must do: one set of cases, the same for all. A backend is right if it cannot be told from
//! the memory backend by these.
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
//! The macro makes one `#[test]` of every case, so that a failure has a name. The closure makes an empty store that
//! keeps what the given [`Retention`] says; each case makes its own. Stores that share an engine must not see each
//! other: give each a schema, a prefix or a folder of its own. A backend whose clock a test can move, or which other
//! nodes can open too, implements [`Harness`] instead of giving a closure, and then more is checked.
//!
//! What the suite does not ask: when eviction happens (in the append or later), in which order concurrent calls are
//! served, how bytes of bookkeeping are counted, what `create` does to a session that exists.

mod concurrent;
mod fence;
mod isolation;
mod log;
mod model;
mod queue;
mod retention;
mod scene;
mod sessions;
mod size;

pub use queue::{queued, update};
pub use scene::{Scene, answer, batch, event, info, last_batch, principal, question, record, sequence};

use rethread_store::{Retention, Store};
use std::future::Future;
use std::time::Duration;

/// How the suite gets at a backend.
pub trait Harness: Send + Sync + 'static {
    /// The backend. Clones share what is stored.
    type Store: Store + Clone;

    /// An empty store that nobody else uses.
    fn fresh(&self, retention: Retention) -> impl Future<Output = Self::Store> + Send;

    /// The same data as another node sees it: a connection of its own where the backend can have one.
    fn peer(&self, store: &Self::Store) -> impl Future<Output = Self::Store> + Send {
        let peer = store.clone();
        async move { peer }
    }

    /// Moves the clock that this store ages by. False if there is no such clock; then nothing is asked about age.
    ///
    /// Called on the thread that made the store, so that the clock may be local to a thread.
    fn advance(&self, store: &Self::Store, by: Duration) -> bool {
        let _ = (store, by);
        false
    }
}

/// A function that makes stores is a harness.
impl<F, Made, S> Harness for F
where
    F: Fn(Retention) -> Made + Send + Sync + 'static,
    Made: Future<Output = S> + Send,
    S: Store + Clone,
{
    type Store = S;

    fn fresh(&self, retention: Retention) -> impl Future<Output = S> + Send {
        self(retention)
    }
}

/// A case that takes longer has hung.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Runs one case. It brings its own runtime, so that a backend's tests need no more than `#[test]`, and threads beside
/// it where the case asks for many at once.
pub fn run<H: Harness>(harness: &H, case: impl AsyncFnOnce(&H)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be started");
    let limited = runtime.block_on(async { tokio::time::timeout(TIME_LIMIT, case(harness)).await });
    limited.expect("the case ends within its time limit; has a wake-up been lost?");
    // A backend may have threads of its own that end late; the case is over all the same.
    runtime.shutdown_timeout(Duration::from_secs(5));
}

/// Runs every case, one after the other, for those who have no test harness at hand. Panics at the first failure.
pub fn run_all<H: Harness>(harness: &H) {
    macro_rules! in_turn {
        ($harness:expr, $($case:ident)*) => {
            $( run($harness, cases::$case); )*
        };
    }
    crate::__store_cases! { (in_turn) harness }
}

/// Makes a test of every case of the suite. See [the module](mod@crate::store_suite).
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

// The one list of the cases. A case that is missing here is dead code, and the compiler says so.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_cases {
    (($($callback:tt)*) $harness:expr) => {
        $($callback)*! {
            $harness,
            what_is_appended_is_read_back
            facts_come_back
            a_cursor_reads_what_comes_after_it
            the_priming_event_counts_but_is_not_read
            a_stream_starts_with_its_first_number
            pages_are_bounded
            pages_join_without_a_seam
            a_stream_that_never_was_is_unknown
            a_stream_can_end_without_an_event
            streams_of_a_session_count_apart
            numbers_must_follow
            a_repeated_append_is_harmless
            a_repeated_end_is_harmless
            a_sealed_stream_takes_no_more
            a_later_epoch_fences_the_earlier
            an_empty_batch_of_a_later_epoch_fences
            a_later_epoch_does_not_overwrite
            a_stream_without_facts_is_not_made
            facts_are_settled_once
            a_session_without_a_record_takes_nothing
            an_ended_session_takes_nothing
            nothing_comes_back_to_life
            a_forgotten_stream_is_unknown
            a_session_can_forget_its_streams_and_go_on
            eviction_takes_the_oldest_and_tells
            what_fits_is_kept
            a_lost_priming_event_is_no_gap
            eviction_passes_over_an_answer
            eviction_passes_over_an_open_question
            eviction_by_bytes_keeps_the_newest
            a_sealed_stream_is_forgotten_in_time
            a_guessed_key_reads_nothing
            names_that_look_alike_stay_apart
            one_writer_wins_each_number
            readers_see_a_prefix_in_order
            a_watch_never_misses_the_last_append
            every_watch_wakes
            a_watch_over_nothing_wakes_once
            a_session_can_end_under_its_writers
            a_record_is_read_back
            an_ended_session_has_no_record
            an_update_expects_the_right_epoch
            one_of_many_restores_wins
            the_high_water_mark_outlasts_the_streams
            open_streams_are_listed
            idle_sessions_expire
            live_sessions_do_not_expire
            the_bus_reaches_everybody
            the_bus_has_no_memory
            a_slow_listener_is_told_what_it_missed
            large_payloads_come_back_whole
            a_large_batch_is_taken_whole
            ten_thousand_streams_stay_apart
            a_random_history_reads_as_the_model_says
            a_waiting_message_is_read_back
            a_floor_of_a_queue_only_rises
            a_late_update_of_a_queue_changes_nothing
            an_append_takes_from_the_queue
            an_earlier_epoch_does_not_change_a_queue
            a_queue_ends_with_its_session
            queues_of_sessions_stay_apart
            a_taken_message_is_never_in_both_or_neither
            a_random_history_of_a_queue_is_as_the_model_says
        }
    };
}

/// The cases. Each is a function of a [`Harness`] that panics if the backend fails it.
pub mod cases {
    pub use super::concurrent::*;
    pub use super::fence::*;
    pub use super::isolation::*;
    pub use super::log::*;
    pub use super::model::*;
    pub use super::queue::{
        a_floor_of_a_queue_only_rises, a_late_update_of_a_queue_changes_nothing, a_queue_ends_with_its_session,
        a_random_history_of_a_queue_is_as_the_model_says, a_taken_message_is_never_in_both_or_neither,
        a_waiting_message_is_read_back, an_append_takes_from_the_queue, an_earlier_epoch_does_not_change_a_queue,
        queues_of_sessions_stay_apart,
    };
    pub use super::retention::*;
    pub use super::sessions::*;
    pub use super::size::*;
}
