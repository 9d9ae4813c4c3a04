//! Asks a gateway that runs on this machine for its servers. Its page for people has the list.

use crate::client_entry::ClientEndpoint;
use crate::exit::{Exit, Failure};
use crate::http_client::{self, ClientError};
use crate::landing_page;
use crate::start_message::listener_url;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::time::timeout;

/// How long the gateway may take for its page. Beyond: a failure.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest page. Beyond: a failure.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// The servers of the gateway that listens on `listen`.
pub(crate) async fn servers(listen: SocketAddr) -> Result<Vec<ClientEndpoint>, Failure> {
    let url = listener_url(listen, false);
    // A gateway with a certificate closes a connection that does not begin with a handshake.
    let asking = async {
        match page(listen, false).await {
            Ok(page) => Ok(page),
            Err(plain) => page(listen, true).await.map_err(|_| plain),
        }
    };
    let page = match timeout(RESPONSE_TIMEOUT, asking).await {
        Ok(page) => page.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} seconds", RESPONSE_TIMEOUT.as_secs())),
    };
    let page = page.map_err(|reason| {
        Failure::new(Exit::Failure, format!("no gateway answers at {url}: {reason}"))
            .hint("start it, name its address with --listen, or name its server: --config FILE, or -- COMMAND")
    })?;
    landing_page::listed_servers(&page).ok_or_else(|| {
        let message = format!("{url} does not list servers; it needs tokens, or is another program");
        Failure::new(Exit::Failure, message)
            .hint("the address of the gateway with --listen, or its server: --config FILE, or -- COMMAND")
    })
}

async fn page(listen: SocketAddr, is_tls: bool) -> Result<String, ClientError> {
    let url = listener_url(listen, is_tls);
    let (_, host) = url.split_once("://").unwrap_or_default();
    let request = Request::builder()
        .uri("/")
        .header(header::HOST, host)
        .header(header::ACCEPT, "text/html")
        .body(Full::<Bytes>::default())?;
    let (response, _socket) = match is_tls {
        false => http_client::send(reachable(listen), request).await?,
        true => http_client::send_tls(reachable(listen), request).await?,
    };
    let body = Limited::new(response.into_body(), MAX_PAGE_BYTES).collect().await?;
    Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

/// A listener on all addresses is reached over loopback.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_on_all_addresses_is_reached_over_loopback() {
        for (listen, expected) in [
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:1", "[::1]:1"),
            ("192.0.2.7:1", "192.0.2.7:1"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()), expected.parse().unwrap());
        }
    }
}
