//! Connections with TLS.

use crate::support::{node, runtime};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rethread_store_redis::{ConnectError, RedisCluster, RedisOptions};
use rethread_testkit::redis_server::{RedisServer, free_port};
use rethread_testkit::store_suite::{StoreFixture, batch, sequence};
use std::path::Path;
use std::process::Command;

/// The URL for `trusting_client_connects`, which runs in a child process that trusts the test's authority.
const URL: &str = "RETHREAD_TEST_TLS_URL";

/// Writes a certificate authority and a certificate for 127.0.0.1.
fn write_certificates(dir: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a certificate")).expect("a certificate");
    let key = KeyPair::generate().expect("a certificate");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    for (name, text) in [
        ("authority", authority.pem()),
        ("certificate", certificate.pem()),
        ("key", key.serialize_pem()),
    ] {
        std::fs::write(dir.join(name), text).expect("a file");
    }
}

/// A client accepts a certificate only if it trusts the authority.
#[test]
fn certificates_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    write_certificates(dir.path());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (authority, certificate, key, port) = (path("authority"), path("certificate"), path("key"), free_port());
    let port = port.to_string();
    let settings = [
        ("tls-port", port.as_str()),
        ("tls-ca-cert-file", &authority),
        ("tls-cert-file", &certificate),
        ("tls-key-file", &key),
        ("tls-auth-clients", "no"),
    ];
    let Some(_server) = RedisServer::start_with(&settings) else {
        return;
    };
    let url = format!("rediss://127.0.0.1:{port}");
    runtime().block_on(async {
        let refused = RedisCluster::connect(RedisOptions::parse(&url).unwrap()).await;
        assert!(matches!(refused, Err(ConnectError::Unreachable(_))), "{refused:?}");
    });
    let trusting = Command::new(std::env::current_exe().unwrap())
        .args(["tls::trusting_client_connects", "--exact", "--ignored", "--nocapture"])
        .env("SSL_CERT_FILE", &authority)
        .env(URL, &url)
        .status();
    assert!(
        trusting.unwrap().success(),
        "a client that trusts the authority did not connect"
    );
}

#[test]
#[ignore = "certificates_are_checked runs it"]
fn trusting_client_connects() {
    let Ok(url) = std::env::var(URL) else { return }; // does nothing under `--ignored`
    runtime().block_on(async {
        let fixture = StoreFixture::new(node(RedisOptions::parse(&url).unwrap()).await).await;
        fixture.append(&fixture.first_call_stream(), batch(0..3)).await;
        assert_eq!(sequence(&fixture.page(&fixture.first_call_stream(), 0).await), [1, 2]);
    });
}
