use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

const ALL: Offered = Offered {
    tools: true,
    prompts: true,
    resources: true,
    subscribe: true,
};

fn limits(uris: usize) -> FilterLimits {
    FilterLimits { uris, uri_bytes: 100 }
}

fn read(json: &str) -> Result<Filter, RpcError> {
    Filter::read(&Params::from_raw(Bytes::copy_from_slice(json.as_bytes())), limits(3))
}

fn filter(uris: &[&str]) -> Filter {
    Filter {
        tools: true,
        prompts: true,
        resources: true,
        uris: uris.iter().map(|uri| (*uri).into()).collect(),
    }
}

fn updated(uri: &str) -> Change {
    Change::Updated(uri.into())
}

fn text(draft: &Draft) -> &str {
    std::str::from_utf8(draft.payload()).unwrap()
}

#[test]
fn sub_01_the_filter_is_read() {
    let whole = r#"{"_meta":{},"notifications":{"toolsListChanged":true,"promptsListChanged":false,
        "resourcesListChanged":true,"resourceSubscriptions":["a:/1","a:/2","a:\/1"],"taskIds":[1]}}"#;
    let expected = Filter {
        tools: true,
        prompts: false,
        resources: true,
        uris: vec!["a:/1".into(), "a:/2".into()],
    };
    assert_eq!(read(whole), Ok(expected));
    for nothing in [
        r#"{"notifications":{}}"#,
        r#"{"notifications":{"x":null,"resourceSubscriptions":[]}}"#,
    ] {
        assert_eq!(read(nothing).unwrap(), Filter::default(), "{nothing}");
    }
}

#[test]
fn sub_01_missing_and_mistyped_members_are_named() {
    for (json, name) in [
        ("", "params.notifications"),
        ("{}", "params.notifications"),
        (r#"[{"toolsListChanged":true}]"#, "params"),
        (r#"{"notifications":null}"#, "params.notifications"),
        (r#"{"notifications":true}"#, "params.notifications"),
        (r#"{"notifications":[true,true,true,[]]}"#, "params.notifications"),
        (r#"{"notifications":{"toolsListChanged":1}}"#, "toolsListChanged"),
        (r#"{"notifications":{"toolsListChanged":null}}"#, "toolsListChanged"),
        (
            r#"{"notifications":{"promptsListChanged":"true"}}"#,
            "promptsListChanged",
        ),
        (
            r#"{"notifications":{"resourcesListChanged":{}}}"#,
            "resourcesListChanged",
        ),
        (
            r#"{"notifications":{"resourceSubscriptions":null}}"#,
            "resourceSubscriptions",
        ),
        (
            r#"{"notifications":{"resourceSubscriptions":"a"}}"#,
            "resourceSubscriptions",
        ),
        (
            r#"{"notifications":{"resourceSubscriptions":["a",1]}}"#,
            "resourceSubscriptions",
        ),
        (
            r#"{"notifications":{"resourceSubscriptions":[null]}}"#,
            "resourceSubscriptions",
        ),
    ] {
        let error = read(json).expect_err(json);
        assert_eq!(error.code, -32602, "{json}");
        assert!(error.message.contains(&format!("{name}`")), "{json}: {error}");
    }
}

#[test]
fn sub_08_the_number_of_uris_is_bounded() {
    let uris = |n: usize| {
        let uris: Vec<_> = (0..n).map(|n| format!("a:/{n}")).collect();
        read(&json!({"notifications": {"resourceSubscriptions": uris}}).to_string())
    };
    assert_eq!(uris(3).unwrap().uris.len(), 3);
    let error = uris(4).unwrap_err();
    assert_eq!(error.code, -32602);
    assert!(error.message.contains("resourceSubscriptions"), "{error}");
}

#[test]
fn sub_02_acknowledgement_contains_the_honoured_filter() {
    let asked = Filter {
        resources: false,
        ..filter(&["file:///a.txt"])
    };
    let ack = |offered| {
        let draft = asked.honour(offered).acknowledgement(&RequestId::from(31));
        let value: Value = serde_json::from_slice(draft.payload()).unwrap();
        value["params"]["notifications"].clone()
    };
    let wire = asked
        .honour(Offered { prompts: false, ..ALL })
        .acknowledgement(&RequestId::from(31));
    assert_eq!(
        text(&wire),
        concat!(
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":"#,
            r#"{"io.modelcontextprotocol/subscriptionId":31},"notifications":{"toolsListChanged":true,"#,
            r#""resourceSubscriptions":["file:///a.txt"]}}}"#
        ),
    );
    let tools_and_prompts = json!({"toolsListChanged": true, "promptsListChanged": true});
    assert_eq!(
        ack(Offered {
            subscribe: false,
            ..ALL
        }),
        tools_and_prompts
    );
    assert_eq!(ack(Offered::default()), json!({}), "SUB-08");
}

#[test]
fn sub_03_every_message_carries_the_id_with_its_type() {
    for (id, json) in [
        (RequestId::from(7), "7"),
        (RequestId::from("7"), "\"7\""),
        (RequestId::from_json("9007199254740993").unwrap(), "9007199254740993"),
        (RequestId::from("a\"\n"), r#""a\"\n""#),
    ] {
        let stamp = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{json}}}"#);
        let mut all = vec![Filter::default().acknowledgement(&id), closing(&id, None)];
        for change in [Change::Tools, Change::Prompts, Change::Resources, updated("a:/1")] {
            all.push(notification(&change, &id));
        }
        for draft in &all {
            assert!(text(draft).contains(&stamp), "{}", text(draft));
        }
    }
    assert_eq!(
        text(&notification(&updated("file:///a.txt"), &RequestId::from(31))),
        concat!(
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":"#,
            r#"{"io.modelcontextprotocol/subscriptionId":31},"uri":"file:///a.txt"}}"#
        ),
    );
    assert_eq!(
        text(&notification(&Change::Tools, &RequestId::from(31))),
        concat!(
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":"#,
            r#"{"io.modelcontextprotocol/subscriptionId":31}}}"#
        ),
    );
}

#[test]
fn sub_04_only_requested_changes_match() {
    let changes = [Change::Tools, Change::Prompts, Change::Resources, updated("a:/1")];
    let heard = |filter: &Filter| changes.each_ref().map(|change| filter.matches(change));
    assert_eq!(heard(&filter(&["a:/1"])), [true; 4]);
    assert_eq!(heard(&Filter::default()), [false; 4]);
    let prompts = Filter {
        prompts: true,
        ..Filter::default()
    };
    assert_eq!(heard(&prompts), [false, true, false, false]);
    assert_eq!(heard(&filter(&["a:/2"])), [true, true, true, false]);
}

#[test]
fn sub_04_t_26_sub_resources_begin_at_a_border() {
    for (subscribed, updated, expected) in [
        ("file:///a", "file:///a", true),
        ("file:///a", "file:///a/b", true),
        ("file:///a", "file:///a?x=1", true),
        ("file:///a", "file:///a#l3", true),
        ("file:///a/", "file:///a/b", true),
        ("file:///a?", "file:///a?x=1", true),
        ("file:///a#", "file:///a#l3", true),
        ("file:///a", "file:///ab", false),
        ("file:///a", "file:///a.txt", false),
        ("file:///a/b", "file:///a", false),
        ("file:///a/", "file:///a", false),
        ("file:///A", "file:///a", false),
        ("", "/a", false),
        ("", "", true),
    ] {
        assert_eq!(covers(subscribed, updated), expected, "{subscribed} {updated}");
    }
}

#[test]
fn sub_06_the_last_message_is_the_response() {
    assert_eq!(
        text(&closing(&RequestId::from(31), None)),
        concat!(
            r#"{"jsonrpc":"2.0","id":31,"result":{"resultType":"complete","_meta":"#,
            r#"{"io.modelcontextprotocol/subscriptionId":31}}}"#
        ),
    );
    let info = json!({"name": "s", "version": "1"});
    let draft = closing(&RequestId::from("x"), Some(&info));
    let value: Value = serde_json::from_slice(draft.payload()).unwrap();
    assert_eq!(value["result"]["_meta"]["io.modelcontextprotocol/serverInfo"], info);
}

#[test]
fn sub_08_repeated_changes_collapse_in_the_order_of_first_arrival() {
    let (filter, mut pending) = (filter(&["a:/1", "a:/2"]), Pending::new(limits(8)));
    let changes = [updated("a:/2"), Change::Tools, updated("a:/1"), Change::Prompts];
    for change in &changes {
        assert!(pending.add(&filter, change));
    }
    for change in &changes {
        assert!(!pending.add(&filter, change), "nothing new");
    }
    assert!(!pending.add(&filter, &updated("b:/")), "SUB-04");
    assert_eq!(pending.take(), changes);
    assert!(pending.is_empty() && pending.take().is_empty());
    assert!(
        pending.add(&filter, &Change::Tools),
        "once taken, the next change counts again"
    );
}

#[test]
fn sub_08_burst_of_sub_resources_is_bounded_without_loss() {
    let (filter, mut pending) = (filter(&["a:/", "a:/deep/", "b:/"]), Pending::new(limits(2)));
    for n in 0..1000 {
        pending.add(&filter, &updated(&format!("a:/deep/{n}")));
        pending.add(&filter, &updated(&format!("a:/{n}")));
        pending.add(&filter, &Change::Tools);
    }
    let expected = [
        updated("a:/deep/0"),
        updated("a:/0"),
        Change::Tools,
        updated("a:/deep/"),
        updated("a:/"),
    ];
    assert_eq!(pending.take(), expected);
}

/// SEC-06: the limit in bytes applies to the filter and to the waiting changes.
#[test]
fn sec_06_uris_of_a_filter_are_bounded_in_bytes() {
    let json = |uri: &str| json!({ "notifications": { "resourceSubscriptions": [uri] } }).to_string();
    assert!(read(&json(&"u".repeat(96))).is_ok());
    let error = read(&json(&"u".repeat(97))).unwrap_err();
    assert_eq!(error.code, -32602);
    assert!(error.message.contains("longer than 100 bytes"), "{}", error.message);

    let (filter, mut pending) = (filter(&["a:/"]), Pending::new(limits(9)));
    let long = |n: usize| updated(&format!("a:/{n}{}", "x".repeat(46)));
    for n in 0..9 {
        pending.add(&filter, &long(n));
    }
    assert_eq!(pending.take(), [long(0), long(1), updated("a:/")], "2 x 50 bytes fit");
    pending.add(&filter, &long(3));
    assert_eq!(pending.take(), [long(3)], "a take frees space");
}

proptest! {
    /// SUB-08: for any sequence, the reader gets each matching change once, at its URI or at the subscribed one above it, and
    /// the waiting changes stay within the limit.
    #[test]
    fn sub_08_every_change_is_delivered_within_the_bound(
        uris in proptest::collection::vec("[ab](/[ab]){0,2}", 0..4),
        changes in proptest::collection::vec(prop_oneof![
            Just(Change::Tools), Just(Change::Prompts),
            "[abc](/[abc]){0,3}".prop_map(|uri| Change::Updated(uri.into())),
        ], 0..60),
        room in 0usize..5,
    ) {
        let filter = Filter { prompts: false, ..filter(&uris.iter().map(String::as_str).collect::<Vec<_>>()) };
        let mut pending = Pending::new(limits(room));
        for change in &changes {
            pending.add(&filter, change);
        }
        prop_assert!(pending.len() <= 3 + room + filter.uris.len());
        let told = pending.take();
        let distinct: HashSet<_> = told.iter().collect();
        prop_assert_eq!(distinct.len(), told.len());
        for change in &told {
            prop_assert!(filter.matches(change));
        }
        for change in changes.iter().filter(|change| filter.matches(change)) {
            let heard = told.iter().any(|told| match (told, change) {
                (Change::Updated(told), Change::Updated(uri)) => covers(told, uri),
                (told, change) => told == change,
            });
            prop_assert!(heard, "{:?}", change);
        }
    }

    #[test]
    fn sub_01_any_text_is_a_filter_or_an_error(json in "\\PC{0,40}") {
        let _ = read(&json);
    }
}
