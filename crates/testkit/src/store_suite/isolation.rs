//! Nobody reads, ends or forgets what belongs to somebody else (design D3, T-14).

use super::Harness;
use super::scene::*;
use bytes::Bytes;
use rethread_store::{
    Batch, Event, EventStore as _, Ordinal, Principal, Retention, Seq, SessionId, SessionKey, SessionStore as _, Store,
    StoreError, StreamKey,
};

/// A stream with one event that tells whose it is.
async fn mark<S: Store>(store: &S, key: &StreamKey, text: &str) {
    let event = Event::new(Seq(1), Bytes::from(text.to_owned()));
    let marked = store
        .append(
            key,
            Batch {
                events: vec![event],
                ..batch(1..2)
            },
        )
        .await;
    marked.unwrap_or_else(|error| panic!("{key:?} is refused: {error:?}"));
}

async fn reads<S: Store>(store: &S, key: &StreamKey) -> Vec<Bytes> {
    let page = store.read_after(key, Seq(0), ALL).await;
    let page = page.unwrap_or_else(|error| panic!("{key:?} cannot be read: {error:?}"));
    page.events.into_iter().map(|event| event.payload).collect()
}

fn key(issuer: &str, subject: &str, session: &str) -> SessionKey {
    SessionKey {
        principal: Principal::new(issuer, subject),
        session: SessionId::parse(session).expect("a session id is visible ASCII"),
    }
}

/// The same session id under another principal, another session, another ordinal: all unknown.
pub async fn a_guessed_key_reads_nothing<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    scene.append(&scene.first(), last_batch(0..3)).await;
    for ordinal in [0, 2, 3, u64::MAX] {
        scene.assert_unknown(&scene.stream(Ordinal(ordinal))).await;
    }
    let issuer = scene.session.principal.issuer().to_owned();
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
            ..scene.session.clone()
        };
        scene
            .assert_unknown(&StreamKey {
                session: session.clone(),
                ordinal: Ordinal(1),
            })
            .await;
        let loaded = scene.store.load(&session).await;
        assert!(matches!(loaded, Err(StoreError::SessionGone)), "{loaded:?}");
        let updated = scene.store.update(&session, 1, record()).await;
        assert!(matches!(updated, Err(StoreError::SessionGone)), "{updated:?}");
        scene
            .store
            .end(&session)
            .await
            .expect("ending what is not there is no error");
        scene
            .store
            .forget_session(&session)
            .await
            .expect("forgetting what is not there is no error");
    }
    assert_eq!(
        sequence(&scene.page(&scene.first(), 0).await),
        [1, 2],
        "the principal has noticed nothing"
    );
    assert_eq!(
        scene
            .store
            .load(&scene.session)
            .await
            .expect("the session lives")
            .record,
        record()
    );
}

/// The same ordinals in many sessions, some of one id but of two principals, some of names that only differ where a
/// careless key would be joined, matched or folded.
pub async fn names_that_look_alike_stay_apart<H: Harness>(harness: &H) {
    let store = harness.fresh(Retention::default()).await;
    let long = "s".repeat(SessionId::MAX_LEN);
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
        store.create(session, record()).await.expect("a session can be created");
        for key in streams(session) {
            mark(&store, &key, &format!("{key:?} {}", session.session.as_str())).await;
        }
    }
    let everybody = async |sessions: &[SessionKey]| {
        for session in sessions {
            for key in streams(session) {
                assert_eq!(
                    reads(&store, &key).await,
                    [format!("{key:?} {}", session.session.as_str())]
                );
            }
        }
    };
    everybody(&sessions).await;
    // One after the other goes, and only that one.
    for (n, session) in sessions.iter().enumerate() {
        store
            .forget_stream(&streams(session)[0])
            .await
            .expect("it can be forgotten");
        let kept = &streams(session)[2]; // ordinal 11, beside the forgotten 1
        assert_eq!(reads(&store, kept).await.len(), 1, "{kept:?}");
        store.end(session).await.expect("it can be ended");
        store.forget_session(session).await.expect("it can be forgotten");
        everybody(&sessions[n + 1..]).await;
        for key in streams(session) {
            let read = store.status(&key).await;
            assert!(matches!(read, Err(StoreError::UnknownStream)), "{key:?}: {read:?}");
        }
    }
}
