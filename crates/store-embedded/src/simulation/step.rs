//! The steps of a random history.

use proptest::prelude::*;
use rethread_store::Retain;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Append {
        session: u8,
        stream: u8,
        count: u64,
        retain: Retain,
        release: bool,
        seal: bool,
        take: bool,
    },
    Repeat {
        session: u8,
        stream: u8,
    },
    Wrong {
        session: u8,
        stream: u8,
        ahead: u64,
    },
    ForgetStream {
        session: u8,
        stream: u8,
    },
    ForgetSession {
        session: u8,
    },
    Create {
        session: u8,
    },
    Update {
        session: u8,
    },
    Touch {
        session: u8,
    },
    End {
        session: u8,
    },
    Queue {
        session: u8,
        count: u64,
        drop: u64,
    },
    Sweep {
        seconds: u64,
    },
    Compact {
        segment: prop::sample::Index,
    },
    Checkpoint,
    DeleteDead,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let session = || 0..3u8;
    let stream = || 0..4u8;
    let retain = prop_oneof![6 => Just(Retain::None), 1 => Just(Retain::Question), 1 => Just(Retain::Answer)];
    let rare = || prop::bool::weighted(0.15);
    let append = (session(), stream(), 1..5u64, retain, rare(), rare(), rare());
    prop_oneof![
        30 => append.prop_map(|(session, stream, count, retain, release, seal, take)| {
            Step::Append { session, stream, count, retain, release, seal, take }
        }),
        3 => (session(), stream()).prop_map(|(session, stream)| Step::Repeat { session, stream }),
        2 => (session(), stream(), 1..4u64).prop_map(|(session, stream, ahead)| Step::Wrong { session, stream, ahead }),
        2 => (session(), stream()).prop_map(|(session, stream)| Step::ForgetStream { session, stream }),
        1 => session().prop_map(|session| Step::ForgetSession { session }),
        1 => session().prop_map(|session| Step::Create { session }),
        2 => session().prop_map(|session| Step::Update { session }),
        2 => session().prop_map(|session| Step::Touch { session }),
        1 => session().prop_map(|session| Step::End { session }),
        5 => (session(), 0..4u64, 0..3u64).prop_map(|(session, count, drop)| Step::Queue { session, count, drop }),
        2 => (0..40u64).prop_map(|seconds| Step::Sweep { seconds }),
        8 => any::<prop::sample::Index>().prop_map(|segment| Step::Compact { segment }),
        3 => Just(Step::Checkpoint),
        4 => Just(Step::DeleteDead),
    ]
}
