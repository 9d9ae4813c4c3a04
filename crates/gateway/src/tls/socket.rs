//! A socket with or without TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A connection after its handshake. One type for both kinds: the HTTP code is then compiled once.
pub(crate) enum AcceptedSocket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Calls a method of either socket.
macro_rules! delegate {
    ($socket:expr, $method:ident $(, $argument:expr)*) => {
        match $socket {
            AcceptedSocket::Plain(socket) => Pin::new(socket).$method($($argument),*),
            AcceptedSocket::Tls(socket) => Pin::new(socket).$method($($argument),*),
        }
    };
}

impl AsyncRead for AcceptedSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        delegate!(self.get_mut(), poll_read, cx, buf)
    }
}

impl AsyncWrite for AcceptedSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self.get_mut(), poll_write, cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self.get_mut(), poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self.get_mut(), poll_shutdown, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self.get_mut(), poll_write_vectored, cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            AcceptedSocket::Plain(socket) => socket.is_write_vectored(),
            AcceptedSocket::Tls(socket) => socket.is_write_vectored(),
        }
    }
}
