//! Settings of the server, names of nodes and passwords.

use crate::support::{NAME, join, node, options, runtime, until};
use rethread_store::{ClusterStore as _, StoreError};
use rethread_store_redis::{ConnectError, Persistence, RedisCluster, RedisOptions};
use rethread_testkit::redis_server::RedisServer;

#[test]
fn server_that_evicts_keys_is_refused() {
    let Some(server) = RedisServer::start_with(&[("maxmemory-policy", "allkeys-lru")]) else {
        return;
    };
    runtime().block_on(async {
        let refused = RedisCluster::connect(options(&server)).await;
        let Err(ConnectError::Unsuitable(text)) = refused else {
            panic!("{refused:?}")
        };
        assert!(text.contains("allkeys-lru") && text.contains("noeviction"), "{text}");
        server.config("maxmemory-policy", "noeviction");
        RedisCluster::connect(options(&server)).await.expect("suitable now");
    });
}

#[test]
fn promises_follow_the_settings() {
    let Some(server) = RedisServer::start_with(&[]) else {
        return;
    };
    runtime().block_on(async {
        let promises = async || {
            RedisCluster::connect(options(&server))
                .await
                .unwrap()
                .promises()
                .clone()
        };
        assert_eq!(promises().await.persistence, Persistence::None);
        server.config("save", "3600 1");
        assert_eq!(promises().await.persistence, Persistence::Snapshots);
        server.config("appendonly", "yes");
        for (value, expected) in [
            ("always", Persistence::Always),
            ("everysec", Persistence::EverySecond),
            ("no", Persistence::OperatingSystem),
        ] {
            server.config("appendfsync", value);
            let promises = promises().await;
            assert_eq!(promises.persistence, expected);
            assert!(!promises.fails_over && promises.to_string().contains("acknowledged event survives"));
        }
    });
}

#[test]
fn server_with_hidden_settings_is_accepted() {
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let rules = ["ACL", "SETUSER", "default", "-config", "-info"];
        assert_eq!(server.command(&rules), "+OK\r\n");
        let cluster = RedisCluster::connect(options(&server)).await.expect("usable");
        assert_eq!(cluster.promises().persistence, Persistence::Unknown);
        let fixture = rethread_testkit::store_suite::StoreFixture::new(cluster.store(NAME).await.unwrap()).await;
        use rethread_store::SessionStore as _;
        fixture
            .store
            .open(&fixture.session)
            .await
            .expect("scripts work without INFO");
    });
}

/// The replacement does not wait for the end of the lease.
#[test]
fn newer_process_replaces_an_older_one_with_the_same_name() {
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let older = node(options(&server).with_node_id("one")).await;
        let other = node(options(&server).with_node_id("two")).await;
        let replaced = join(&older).await;
        older.renew(&replaced).await.expect("the lease holds");
        let newer = node(options(&server).with_node_id("one")).await;
        assert!(!other.is_alive(&replaced).await.unwrap());
        let refused = older.renew(&replaced).await;
        assert!(matches!(refused, Err(StoreError::Replaced)), "{refused:?}");
        newer
            .renew(&join(&newer).await)
            .await
            .expect("the lease of the newer one holds");
        other
            .renew(&join(&other).await)
            .await
            .expect("another name keeps its lease");
        newer.leave(&join(&newer).await).await.unwrap();
    });
}

/// Mail reaches the server that it names.
#[test]
fn servers_of_a_process_share_one_membership() {
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let process = RedisCluster::connect(options(&server)).await.unwrap();
        let (one, two) = (process.store("one").await.unwrap(), process.store("two").await.unwrap());
        let (mut to_one, mut to_two) = (one.events(), two.events());
        let me = join(&one).await;
        assert_eq!(join(&two).await, me);
        let sender = RedisCluster::connect(options(&server)).await.unwrap();
        sender
            .store("two")
            .await
            .unwrap()
            .deliver(&me, "for two".into())
            .await
            .unwrap();
        sender
            .store("one")
            .await
            .unwrap()
            .deliver(&me, "for one".into())
            .await
            .unwrap();
        for (events, expected) in [(&mut to_one, "for one"), (&mut to_two, "for two")] {
            loop {
                let event = tokio::time::timeout(std::time::Duration::from_secs(20), events.next()).await;
                if let rethread_store::ClusterEvent::Mail(_, mail) = event.unwrap().unwrap() {
                    break assert_eq!(mail, expected);
                }
            }
        }
    });
}

#[test]
fn password_is_used_and_hidden() {
    let Some(server) = RedisServer::start_with(&[("requirepass", "right%horse")]) else {
        return;
    };
    runtime().block_on(async {
        let url = |password: &str| format!("redis://:{password}@{}", server.address());
        let connected = RedisCluster::connect(RedisOptions::parse(&url("right%25horse")).unwrap()).await;
        assert!(!format!("{:?}", connected.expect("the password is right")).contains("horse"));
        let refused = RedisCluster::connect(RedisOptions::parse(&url("wrong-horse")).unwrap()).await;
        let error = refused.expect_err("the password is wrong");
        let mut text = format!("{error} {error:?}");
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text += &format!(" {cause} {cause:?}");
            source = cause.source();
        }
        assert!(!text.contains("horse"), "{text}");
        assert!(
            text.contains("WRONGPASS") || text.to_lowercase().contains("auth"),
            "{text}"
        );
    });
}

#[test]
fn unreachable_server_is_an_error() {
    let Some(mut server) = RedisServer::start() else { return };
    server.stop();
    runtime().block_on(async {
        let refused = RedisCluster::connect(options(&server)).await;
        assert!(matches!(refused, Err(ConnectError::Unreachable(_))), "{refused:?}");
    });
}

/// A dropped store closes its connections and ends its tasks.
#[test]
fn dropped_store_closes_its_connections() {
    let Some(server) = RedisServer::start() else { return };
    runtime().block_on(async {
        let store = node(options(&server)).await;
        let connections = async || {
            let list = server.command(&["CLIENT", "LIST"]);
            list.lines().filter(|line| line.contains("id=")).count() - 1
        };
        assert!(connections().await >= 3);
        drop(store);
        until(async || connections().await == 0).await;
    });
}
