//! No caller can read, end or forget the data of another principal or session (D3, T-14).

use super::Harness;
use super::fixture::*;
use bytes::Bytes;
use rethread_store::{
    Event, EventStore as _, Ordinal, Principal, Retention, Seq, SessionId, SessionKey, SessionStore as _, Store,
    StoreError, StreamKey,
};

/// Writes a stream with one event that names its owner.
async fn write_marker<S: Store>(store: &S, key: &StreamKey, text: &str) {
    let event = Event::new(Seq(1), Bytes::from(text.to_owned()));
    let marked = store.append(key, batch(1..2).with_events(vec![event])).await;
    marked.unwrap_or_else(|error| panic!("{key:?} is refused: {error:?}"));
}

async fn reads<S: Store>(store: &S, key: &StreamKey) -> Vec<Bytes> {
    let page = store.read_after(key, Seq(0), UNLIMITED_READ).await;
    let page = page.unwrap_or_else(|error| panic!("{key:?} cannot be read: {error:?}"));
    page.events.into_iter().map(|event| event.payload).collect()
}

fn key(issuer: &str, subject: &str, session: &str) -> SessionKey {
    SessionKey {
        principal: Principal::new(issuer, subject),
        session: SessionId::parse(session).expect("a session id is visible ASCII"),
    }
}

/// Another principal, another session and another ordinal are all unknown.
pub async fn foreign_key_reads_nothing<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    fixture.append(&fixture.first_call_stream(), last_batch(0..3)).await;
    for ordinal in [0, 2, 3, u64::MAX] {
        fixture.assert_unknown(&fixture.stream(Ordinal(ordinal))).await;
    }
    let issuer = fixture.session.principal.issuer().to_owned();
    let others = [
        Principal::anonymous(),
        Principal::new(issuer.as_str(), "mallory"),
        Principal::new("https://other.example", "alice"),
        Principal::new("alice", issuer.as_str()),
        Principal::new(issuer.as_str(), ""),
        Principal::new(issuer.as_str(), "alice "),
        Principal::new(issuer.as_str(), "Alice"),
    ];
    for principal in others {
        let session = SessionKey {
            principal,
            ..fixture.session.clone()
        };
        fixture
            .assert_unknown(&StreamKey {
                session: session.clone(),
                ordinal: Ordinal(1),
            })
            .await;
        let loaded = fixture.store.load(&session).await;
        assert!(matches!(loaded, Err(StoreError::SessionGone)), "{loaded:?}");
        let updated = fixture.store.update(&session, 1, record()).await;
        assert!(matches!(updated, Err(StoreError::SessionGone)), "{updated:?}");
        fixture
            .store
            .end(&session)
            .await
            .expect("ending an unknown session is not an error");
        fixture
            .store
            .forget_session(&session)
            .await
            .expect("forgetting an unknown session is not an error");
    }
    assert_eq!(
        sequence(&fixture.page(&fixture.first_call_stream(), 0).await),
        [1, 2],
        "the data is unchanged"
    );
    assert_eq!(
        fixture
            .store
            .load(&fixture.session)
            .await
            .expect("the session exists")
            .record,
        record()
    );
}

/// The same ordinals in many sessions: equal ids under two principals, and names that collide if a key is joined, matched
/// by prefix or case-folded.
pub async fn similar_names_do_not_collide<H: Harness>(harness: &H) {
    let store = harness.fresh(Retention::default()).await;
    let long = "s".repeat(SessionId::MAX_BYTES);
    let sessions = [
        key("a", "bc", "s"),
        key("ab", "c", "s"),
        key("", "abc", "s"),
        key("abc", "", "s"),
        key("a:b", "c", "s"),
        key("a", "b:c", "s"),
        key("a/b", "c", "s"),
        key("a", "b/c", "s"),
        key("a.b", "c", "s"),
        key("a\0b", "c", "s"),
        key("a", "b\0c", "s"),
        key("a|b", "c", "s"),
        key("{a}", "c", "s"),
        key("a", "c", "s"),
        key("A", "C", "S"),
        key("a", "c", "s1"),
        key("a", "c", "s:1"),
        key("a", "c", "s.1"),
        key("a", "c", "s/1"),
        key("a", "c", "s-1"),
        key("a", "c", "s%"),
        key("a", "c", "s_"),
        key("a", "c", "*"),
        key("a", "c", "s*"),
        key("a", "c", "s.>"),
        key("a", "c", "'"),
        key("a", "c", "\\"),
        key("a", "c", "$s"),
        key("a", "c", &long),
        key("ä\u{1f9f5}", "é", "s"),
        key("", "", "s"),
    ];
    let streams = |session: &SessionKey| {
        let session = session.clone();
        [1, 2, 11, 12].map(move |ordinal| StreamKey {
            session: session.clone(),
            ordinal: Ordinal(ordinal),
        })
    };
    for session in &sessions {
        store
            .create(session, record(), false)
            .await
            .expect("a session can be created");
        for key in streams(session) {
            write_marker(&store, &key, &format!("{key:?} {}", session.session.as_str())).await;
        }
    }
    let assert_all_readable = async |sessions: &[SessionKey]| {
        for session in sessions {
            for key in streams(session) {
                assert_eq!(
                    reads(&store, &key).await,
                    [format!("{key:?} {}", session.session.as_str())]
                );
            }
        }
    };
    assert_all_readable(&sessions).await;
    // Remove one session after the other; only that one may disappear.
    for (n, session) in sessions.iter().enumerate() {
        store.forget_stream(&streams(session)[0]).await.expect("forgotten");
        let retained = &streams(session)[2]; // ordinal 11, not the forgotten 1
        assert_eq!(reads(&store, retained).await.len(), 1, "{retained:?}");
        store.end(session).await.expect("ended");
        store.forget_session(session).await.expect("forgotten");
        assert_all_readable(&sessions[n + 1..]).await;
        for key in streams(session) {
            let read = store.status(&key).await;
            assert!(matches!(read, Err(StoreError::UnknownStream)), "{key:?}: {read:?}");
        }
    }
}
