//! A certificate on disk changes while clients connect.

use super::*;
use rethread_testkit::certificates::Authority;
use std::path::Path;
use tokio::net::TcpListener;

fn files(dir: &Path) -> TlsFiles {
    TlsFiles {
        cert: dir.join("cert.pem"),
        key: dir.join("key.pem"),
    }
}

fn write_pair(authority: &Authority, files: &TlsFiles) {
    authority.write_pair(&files.cert, &files.key);
    // The clock of files may be too coarse to distinguish two writes of a test.
    let time = std::time::SystemTime::now() + Duration::from_secs(u64::from(rand_second()));
    for path in [&files.cert, &files.key] {
        std::fs::File::options()
            .append(true)
            .open(path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    }
}

fn rand_second() -> u16 {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes).unwrap();
    u16::from_ne_bytes(bytes)
}

/// Whether a client that trusts `authority` can connect.
async fn is_trusted(tls: &ListenerTls, authority: &Authority) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = async { tls.accept(listener.accept().await.unwrap().0).await.is_ok() };
    let (_, connected) = tokio::join!(accepting, authority.connect(address));
    connected.is_ok()
}

#[tokio::test]
async fn ops_18_changed_files_are_read_and_invalid_ones_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (files, first, second) = (files(dir.path()), Authority::new(), Authority::new());
    write_pair(&first, &files);
    let tls = ListenerTls::open(Some(&files)).unwrap();
    assert!(is_trusted(&tls, &first).await);

    // A certificate without its key: certbot may have written one of the two.
    std::fs::write(&files.cert, second.issue().0).unwrap();
    tls.reload_changed();
    assert!(tls.reload(Some(&files)).is_err());
    assert!(is_trusted(&tls, &first).await, "the pair in force stays");

    write_pair(&second, &files);
    tls.reload_changed();
    assert!(is_trusted(&tls, &second).await);
    assert!(!is_trusted(&tls, &first).await);

    std::fs::remove_file(&files.key).unwrap();
    tls.reload_changed();
    assert!(is_trusted(&tls, &second).await);
}

/// OPS-18: files are checked every 30 seconds.
#[tokio::test(start_paused = true)]
async fn ops_18_watch_reads_changed_files_within_thirty_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    write_pair(&Authority::new(), &files);
    let tls = ListenerTls::open(Some(&files)).unwrap();
    let watched = Arc::clone(&tls);
    let watching = tokio::spawn(async move { watched.watch().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = tls.config().unwrap();
    write_pair(&Authority::new(), &files);
    tokio::time::sleep(Duration::from_secs(28)).await;
    assert!(Arc::ptr_eq(&before, &tls.config().unwrap()), "not checked yet");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!Arc::ptr_eq(&before, &tls.config().unwrap()));
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn ops_18_silent_client_is_closed_at_the_handshake_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    write_pair(&Authority::new(), &files);
    let tls = ListenerTls::open(Some(&files)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _silent = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    let start = tokio::time::Instant::now();
    let ended = tls.accept(socket).await.map(|_| ()).map_err(|error| error.kind());
    assert_eq!(ended, Err(io::ErrorKind::TimedOut));
    assert_eq!(start.elapsed().as_secs(), HANDSHAKE_TIMEOUT.as_secs());
}

#[test]
fn ops_18_invalid_pairs_are_described() {
    let dir = tempfile::tempdir().unwrap();
    let (files, authority) = (files(dir.path()), Authority::new());
    let (cert, key) = authority.issue();
    for (cert, key, expected) in [
        (None, None, "cannot read the certificate"),
        (Some("no PEM"), Some(&*key), "has no certificate"),
        (Some(&cert), None, "cannot read the key"),
        (Some(&cert), Some("no PEM"), "has no private key"),
        (Some(&cert), Some(&authority.issue().1), "cannot be used together"),
    ] {
        for (path, text) in [(&files.cert, cert), (&files.key, key)] {
            let _ = std::fs::remove_file(path);
            if let Some(text) = text {
                std::fs::write(path, text).unwrap();
            }
        }
        let problem = files.server_config().unwrap_err();
        assert!(problem.message.contains(expected), "{problem}");
        assert!(!problem.message.contains("PRIVATE"), "{problem}");
    }
}
