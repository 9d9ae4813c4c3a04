use super::*;
use crate::raw::{RawConnection, request};
use rethread_proto::sse::Block;

const TEST_TIMEOUT: Duration = Duration::from_secs(10);
const ALWAYS_CUT: CutPlan = CutPlan {
    chance: 1.0,
    min_bytes: 0,
    max_bytes: 200,
    max_idle: Duration::from_millis(20),
    style: CutStyle::Mixed,
    seed: 1,
    max_cuts: None,
};

/// A server that sends `response` to every client, and `late` after 200 ms.
async fn server(response: Vec<u8>, late: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let response = response.clone();
            tokio::spawn(async move {
                let (head, _) = read_head(&mut client).await.unwrap();
                let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
                assert!(
                    head.contains("connection: close") && !head.contains("keep-alive"),
                    "{head}"
                );
                let _ = client.write_all(&response).await;
                if !late.is_empty() {
                    sleep(Duration::from_millis(200)).await;
                    let _ = client.write_all(late).await;
                }
            });
        }
    });
    addr
}

fn sse(events: usize) -> Vec<u8> {
    let mut bytes =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let mut chunk = |text: &str| bytes.extend_from_slice(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes());
    chunk(":\n\n");
    chunk("data: no id\n\n");
    for n in 0..events {
        chunk(&format!("id: 1-{n}\ndata: event {n}\n\n"));
    }
    bytes
}

async fn call(proxy: &BreakingProxy) -> RawConnection {
    let mut client = RawConnection::open(proxy.addr()).await.unwrap();
    let post = request(
        "POST",
        "/mcp",
        &[("connection", "keep-alive"), ("keep-alive", "timeout=5")],
        b"{}",
    );
    client.send(&post).await.unwrap();
    client
}

async fn blocks(client: &mut RawConnection) -> Vec<Block> {
    let (status, headers) = client.read_head().await.unwrap();
    assert_eq!(
        (status.as_u16(), &headers["connection"]),
        (200, &"close".parse().unwrap())
    );
    let mut blocks = Vec::new();
    while let Some(block) = client.next_block(TEST_TIMEOUT).await {
        blocks.push(block);
    }
    assert!(client.ended());
    blocks
}

#[tokio::test]
async fn response_is_cut_only_after_the_first_id() {
    let server = server(sse(20), b"0\r\n\r\n").await;
    let mut lengths = std::collections::BTreeSet::new();
    let proxy = BreakingProxy::start(server, ALWAYS_CUT).await.unwrap();
    for _ in 0..30 {
        let blocks = blocks(&mut call(&proxy).await).await;
        let ids: Vec<_> = blocks.iter().filter_map(|block| block.id.as_deref()).collect();
        assert!(!ids.is_empty() && ids.len() < 20, "{ids:?}");
        lengths.insert(ids.len());
    }
    assert_eq!((proxy.cuts(), proxy.connections()), (30, 30));
    assert!(lengths.len() > 2, "{lengths:?}");
}

#[tokio::test]
async fn idle_stream_is_cut_by_time_up_to_max_cuts() {
    let server = server(sse(1), b"b\r\ndata: late\n\r\n1\r\n\n\r\n0\r\n\r\n").await;
    let plan = CutPlan {
        min_bytes: 1000,
        max_bytes: 1000,
        max_cuts: Some(2),
        ..ALWAYS_CUT
    };
    let proxy = BreakingProxy::start(server, plan).await.unwrap();
    for _ in 0..2 {
        assert_eq!(blocks(&mut call(&proxy).await).await.len(), 3);
    }
    assert_eq!(blocks(&mut call(&proxy).await).await.len(), 4);
    assert_eq!(proxy.cuts(), 2);
    proxy.stop().await;
}

#[tokio::test]
async fn unresumable_response_is_never_cut() {
    let json = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
        content-length: 16\r\n\r\n{\"id\":\"id: 1\\n\"}";
    let without_id = [&sse(0)[..], b"0\r\n\r\n"].concat();
    let ended = [&sse(1)[..], b"0\r\n\r\n"].concat();
    let late = CutPlan {
        min_bytes: 100,
        ..ALWAYS_CUT
    };
    for (response, plan, expected) in [
        (json.to_vec(), ALWAYS_CUT, 16),
        (without_id, ALWAYS_CUT, 16),
        (ended, late, 39),
    ] {
        let proxy = BreakingProxy::start(server(response, b"").await, plan).await.unwrap();
        let mut client = call(&proxy).await;
        client.read_head().await.unwrap();
        assert_eq!(client.read_body_to_end().await.unwrap().len(), expected);
        assert!(client.hung_up_within(TEST_TIMEOUT).await, "one exchange per connection");
        assert_eq!(proxy.cuts(), 0);
    }
}

#[tokio::test]
async fn paused_proxy_loses_nothing() {
    let server = server(sse(20), b"0\r\n\r\n").await;
    let proxy = BreakingProxy::start(
        server,
        CutPlan {
            chance: 0.0,
            ..ALWAYS_CUT
        },
    )
    .await
    .unwrap();
    proxy.pause();
    let mut client = call(&proxy).await;
    assert!(!client.hung_up_within(Duration::from_millis(50)).await);
    proxy.resume();
    assert_eq!(blocks(&mut client).await.len(), 22);
}

#[tokio::test]
async fn stopped_proxy_closes_its_connections() {
    let proxy = BreakingProxy::start(
        server(sse(1), b"x").await,
        CutPlan {
            chance: 0.0,
            ..ALWAYS_CUT
        },
    )
    .await
    .unwrap();
    let (addr, mut client) = (proxy.addr(), call(&proxy).await);
    client.read_head().await.unwrap();
    proxy.stop().await;
    assert!(client.hung_up_within(TEST_TIMEOUT).await);
    assert!(TcpStream::connect(addr).await.is_err());
}

#[test]
fn same_seed_gives_the_same_numbers() {
    let numbers = |seed| {
        let mut random = SplitMix64::new(seed);
        [random.next(), random.next(), random.below(10)]
    };
    // Reference values of SplitMix64.
    assert_eq!(numbers(1234567)[..2], [6457827717110365317, 3203168211198807973]);
    assert_eq!(numbers(3), numbers(3));
    let mut random = SplitMix64::new(5);
    assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
}
