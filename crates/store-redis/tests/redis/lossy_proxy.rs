//! A proxy that drops replies: the server has run the command, but the client does not know the result.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[derive(Default)]
struct State {
    /// Drop the reply to the next script.
    armed: AtomicBool,
    lost: AtomicUsize,
}

pub(crate) struct LossyProxy {
    address: SocketAddr,
    state: Arc<State>,
}

impl LossyProxy {
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(server).await {
                    tokio::spawn(pass(client, server, Arc::clone(&shared)));
                }
            }
        });
        LossyProxy { address, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Drops the reply to the next script and closes the connection.
    pub(crate) fn lose_next_reply(&self) {
        self.state.armed.store(true, Ordering::SeqCst);
    }

    /// The number of dropped replies.
    pub(crate) fn lost(&self) -> usize {
        self.state.lost.load(Ordering::SeqCst)
    }
}

/// Forwards bytes both ways until one end closes or a reply is dropped.
async fn pass(mut client: TcpStream, mut server: TcpStream, state: Arc<State>) {
    let (mut from_client, mut from_server) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut loses = false;
    loop {
        tokio::select! {
            biased;
            read = client.read(&mut from_client) => {
                let Ok(bytes @ 1..) = read else { return };
                let is_script = from_client[..bytes].windows(7).any(|word| word == b"EVALSHA");
                loses |= is_script && state.armed.swap(false, Ordering::SeqCst);
                if server.write_all(&from_client[..bytes]).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut from_server) => {
                let Ok(bytes @ 1..) = read else { return };
                if loses {
                    state.lost.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                if client.write_all(&from_server[..bytes]).await.is_err() {
                    return;
                }
            }
        }
    }
}
