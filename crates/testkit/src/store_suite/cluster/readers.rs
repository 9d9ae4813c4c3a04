//! Readers on another node than the writer.

use super::{Node, nodes};
use crate::store_suite::Harness;
use crate::store_suite::fixture::*;
use rethread_store::{
    ClusterEvent, EventStore as _, Ordinal, ReadLimit, ReaderToken, Seq, Store, StoreError, StreamKey,
};
use tokio::time::timeout;

fn token<S>(node: &Node<S>, connection: u64) -> ReaderToken {
    ReaderToken {
        node: node.me.clone(),
        connection,
    }
}

async fn stream_changed<S: Store>(node: &mut Node<S>, stream: &StreamKey) {
    let changed = |event| matches!(event, ClusterEvent::StreamChanged(key) if key == *stream).then_some(());
    node.event(changed).await;
}

/// The acknowledgement of an append has the position of the reader on another node.
pub async fn append_reports_the_remote_reader<H: Harness>(harness: &H) {
    let Some(([mut writer, reader], session)) = nodes(harness).await else {
        return;
    };
    let fixture = StoreFixture {
        store: writer.store.clone(),
        session,
    };
    let (key, token) = (fixture.first_call_stream(), token(&reader, 7));
    let position = async |batch| {
        let appended = writer.store.append(&key, batch).await.expect("it fits");
        appended.remote_reader.map(|position| (position.token, position.seen))
    };
    assert_eq!(position(batch(0..3)).await, None);
    let unknown = reader.cluster().attach(&fixture.stream(Ordinal(3)), &token).await;
    assert!(matches!(unknown, Err(StoreError::UnknownStream)), "{unknown:?}");
    let status = reader
        .cluster()
        .attach(&key, &token)
        .await
        .expect("the stream is known");
    assert_eq!((status.last, status.writer), (Some(Seq(2)), Some(writer.me.clone())));
    assert_eq!(position(batch(3..4)).await, Some((token.clone(), Seq(0))));
    let page = reader.cluster().read_as(&key, &token, Seq(2), UNLIMITED_READ).await;
    assert_eq!(sequence(&page.expect("it is the reader")), [3]);
    assert_eq!(position(batch(4..5)).await, Some((token.clone(), Seq(2))));
    assert_eq!(
        position(batch(4..5)).await,
        Some((token.clone(), Seq(2))),
        "a repetition reports it too"
    );
    let asked = reader.cluster().remote_reader(&key, false).await.expect("asked");
    assert_eq!(asked.map(|position| position.seen), Some(Seq(2)));
    reader.cluster().detach(&key, &token).await.expect("detached");
    reader
        .cluster()
        .detach(&key, &token)
        .await
        .expect("a repeated detach is not an error");
    assert_eq!(position(batch(5..6)).await, None);
    stream_changed(&mut writer, &key).await;
}

/// RES-06: a stream has one reader. The next one displaces it, and the writer's node is notified.
pub async fn res_06_attach_displaces_the_previous_reader<H: Harness>(harness: &H) {
    let Some(([mut writer, a, b], session)) = nodes(harness).await else {
        return;
    };
    let fixture = StoreFixture {
        store: writer.store.clone(),
        session,
    };
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..3)).await;
    let (first, second) = (token(&a, 1), token(&b, 1));
    let limit = ReadLimit::default();
    a.cluster().attach(&key, &first).await.expect("the stream is known");
    stream_changed(&mut writer, &key).await;
    let page = a.cluster().read_as(&key, &first, Seq(0), limit).await;
    assert_eq!(sequence(&page.expect("it is the reader")), [1, 2]);
    // The displaced reader waits for the stream to grow. The displacement must wake it.
    let mut watch = a.store.watch(&key);
    timeout(STEP_TIMEOUT, watch.changed())
        .await
        .expect("the registration did not wake the watch");
    b.cluster().attach(&key, &second).await.expect("the stream is known");
    stream_changed(&mut writer, &key).await;
    timeout(STEP_TIMEOUT, watch.changed())
        .await
        .expect("the displaced reader was not woken");
    let displaced = a.cluster().read_as(&key, &first, Seq(2), limit).await;
    assert!(matches!(displaced, Err(StoreError::Displaced)), "{displaced:?}");
    a.cluster()
        .detach(&key, &first)
        .await
        .expect("a late detach changes nothing");
    let page = b.cluster().read_as(&key, &second, Seq(1), limit).await;
    assert_eq!(sequence(&page.expect("it is the reader")), [2]);
}

/// The next read and the detach of the reader wake a waiting writer.
pub async fn waiting_writer_is_woken_by_the_reader<H: Harness>(harness: &H) {
    let Some(([mut writer, reader], session)) = nodes(harness).await else {
        return;
    };
    let fixture = StoreFixture {
        store: writer.store.clone(),
        session,
    };
    let (key, token) = (fixture.first_call_stream(), token(&reader, 1));
    fixture.append(&key, batch(0..9)).await;
    reader
        .cluster()
        .attach(&key, &token)
        .await
        .expect("the stream is known");
    stream_changed(&mut writer, &key).await; // caused by the attach
    for seen in 1..4 {
        let position = writer.cluster().remote_reader(&key, true).await.expect("asked");
        assert_eq!(position.map(|position| position.seen), Some(Seq(seen - 1)));
        let page = reader.cluster().read_as(&key, &token, Seq(seen), UNLIMITED_READ).await;
        assert_eq!(page.expect("it is the reader").events.len() as u64, 8 - seen);
        stream_changed(&mut writer, &key).await;
    }
    writer.cluster().remote_reader(&key, true).await.expect("asked");
    reader.cluster().detach(&key, &token).await.expect("detached");
    stream_changed(&mut writer, &key).await;
    assert_eq!(writer.cluster().remote_reader(&key, true).await.expect("asked"), None);
}
