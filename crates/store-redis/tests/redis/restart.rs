//! A server that was restarted and has lost its last writes.

use crate::support::{node, options};
use rethread_store::{ClusterStore as _, SessionStore as _};
use rethread_testkit::redis_server::RedisServer;
use rethread_testkit::store_suite::StoreFixture;

/// RST-02: the server may have lost changes of a record. A view that has seen them learns of later changes, because their
/// revisions are higher.
#[tokio::test]
async fn rst_02_revisions_rise_after_a_restart() {
    let Some(server) = RedisServer::start() else { return };
    let store = node(options(&server)).await;
    let session = StoreFixture::new(store.clone()).await.session;
    let record = store.load(&session).await.unwrap().record;
    let seen = store.update(&session, 1, record.clone()).await.unwrap().revision;
    let views = server.command(&["KEYS", "*:v"]);
    let key = views.lines().find_map(|line| line.strip_suffix(":v")).unwrap();
    for restores_view in [true, false] {
        let lost = server.command(&["HSET", key, "rev", "1", "run", "another process"]);
        assert_eq!(lost.trim(), ":0");
        if restores_view {
            store.restore_view(&session, 1, Vec::new(), 16).await.unwrap();
        } else {
            let opened = store.open(&session).await.unwrap();
            assert!(opened.revision > seen, "{}", opened.revision);
        }
        let revision = store.load(&session).await.unwrap().revision;
        assert!(revision > seen, "{revision}");
        let updated = store.update(&session, revision, record.clone()).await.unwrap();
        assert_eq!(updated.revision, revision + 1);
    }
}
