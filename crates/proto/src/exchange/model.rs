//! Random inputs against what a client must see: each request gets one end, and each reply is delivered at most once.

use super::{Cancelled, ClientGone, Emit, Reply, Response, ResponseRules};
use crate::version::Version;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Input {
    Emit,
    Upgrade,
    Reply,
    Park,
    Retry { kept: bool },
    ClientGone,
    Cancel,
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let input = prop_oneof![
        3 => Just(Input::Emit),
        1 => Just(Input::Upgrade),
        2 => Just(Input::Reply),
        2 => Just(Input::Park),
        3 => any::<bool>().prop_map(|kept| Input::Retry { kept }),
        1 => Just(Input::ClientGone),
        1 => Just(Input::Cancel),
    ];
    proptest::collection::vec(input, 0..24)
}

fn rules() -> impl Strategy<Value = (ResponseRules, usize)> {
    prop_oneof![
        Just((ResponseRules::request(Version::V2025_11_25), 1)),
        Just((ResponseRules::request(Version::V2026_07_28), 1)),
        Just((ResponseRules::batch(Version::V2025_03_26), 3)),
        Just((ResponseRules::connection_bound(), 1)),
    ]
}

/// The state of the client of the current request: nothing, an open stream, or the end of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Waits,
    Reads,
    Ended,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn oracle_each_request_ends_once_and_each_reply_is_delivered_once((rules, requests) in rules(), inputs in inputs()) {
        let mut response = Response::new(rules, requests);
        let mut client = if rules.starts_streaming { Client::Reads } else { Client::Waits };
        let (mut open, mut kept_reply) = (requests, false);
        for input in inputs {
            match input {
                Input::Emit => match response.emit() {
                    Emit::Open => {
                        prop_assert_eq!(client, Client::Waits);
                        client = Client::Reads;
                    }
                    Emit::Deliver => prop_assert_eq!(client, Client::Reads),
                    Emit::Keep => prop_assert!(rules.parks_questions && !kept_reply && client == Client::Ended),
                    Emit::Discard => prop_assert!(rules.survives_disconnect),
                    Emit::TooLate => prop_assert!(open == 0 || kept_reply),
                },
                Input::Upgrade => if response.upgrade() {
                    prop_assert_eq!(client, Client::Waits);
                    client = Client::Reads;
                },
                Input::Reply if open == 0 || kept_reply => {} // a call replies once
                Input::Reply => match response.reply() {
                    Reply::Json => {
                        prop_assert_eq!(client, Client::Waits);
                        (client, open) = (Client::Ended, 0);
                    }
                    Reply::Deliver { seals } => {
                        prop_assert_eq!(client, Client::Reads);
                        open -= 1;
                        prop_assert_eq!(seals, open == 0 && rules.ends_with_last_reply);
                        if seals { client = Client::Ended; }
                    }
                    Reply::Keep => {
                        prop_assert!(rules.parks_questions && client == Client::Ended);
                        kept_reply = true;
                    }
                    Reply::Discard => { prop_assert!(rules.survives_disconnect); open = 0; }
                },
                Input::Park => if response.park() {
                    prop_assert!(rules.parks_questions && open > 0 && client != Client::Ended);
                    client = Client::Ended;
                } else {
                    prop_assert!(!rules.parks_questions || client == Client::Ended);
                },
                Input::Retry { kept } => match response.retry(kept) {
                    Some(retry) => {
                        prop_assert!(client == Client::Ended && open > 0);
                        prop_assert_eq!(retry.replied, kept_reply);
                        client = if retry.opens { Client::Reads } else { Client::Waits };
                        if retry.replied {
                            let form = response.reply();
                            let expected = if retry.opens { Reply::Deliver { seals: true } } else { Reply::Json };
                            prop_assert_eq!(form, expected);
                            (client, open, kept_reply) = (Client::Ended, 0, false);
                        }
                    }
                    None => prop_assert!(!response.is_waiting_for_input()),
                },
                Input::ClientGone => match response.client_gone() {
                    ClientGone::Cancel => {
                        prop_assert!(!rules.survives_disconnect && client != Client::Ended);
                        for _ in 0..open { response.cancel(); }
                        prop_assert!(response.is_done());
                        (client, open) = (Client::Ended, 0);
                    }
                    ClientGone::FailQuestions => {
                        prop_assert!(rules.survives_disconnect && response.is_unreachable());
                        client = Client::Ended;
                    }
                    ClientGone::Continue => {}
                },
                Input::Cancel if open == 0 => prop_assert_eq!(response.cancel(), Cancelled::Nothing),
                Input::Cancel => {
                    match response.cancel() {
                        Cancelled::Empty => { prop_assert_eq!(client, Client::Waits); client = Client::Ended; open = 0; }
                        Cancelled::Seal => { prop_assert_eq!(client, Client::Reads); client = Client::Ended; open = 0; }
                        Cancelled::Unpark => { prop_assert!(rules.parks_questions); open = 0; kept_reply = false; }
                        Cancelled::Nothing => { open = if response.is_done() { 0 } else { open - 1 }; }
                    }
                }
            }
            prop_assert_eq!(response.is_done(), open == 0);
        }
    }
}
