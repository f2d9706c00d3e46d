use std::{
    hash::Hasher,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, duplex},
    net::TcpSocket,
    task::JoinHandle,
    time::timeout,
};

use super::*;

mod blocked;

/// Every wait of a test ends after this time.
const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn the_end_of_one_direction_is_passed_on_and_the_other_goes_on() {
    for relay in all_kinds() {
        let mut scene = Scene::new(relay).await;
        scene.client.write_all(b"question").await.unwrap();
        scene.client.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut scene.server).await, b"question");
        for part in [b"first ", b"second"] {
            scene.server.write_all(part).await.unwrap();
        }
        scene.server.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut scene.client).await, b"first second");
        assert!(matches!(scene.ended().await, Ended::Closed));
        let (out, back) = scene.moved();
        assert_eq!((out, back), (8, 12));
    }
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_writer_and_loses_nothing() {
    for relay in all_kinds() {
        let mut scene = Scene::new(relay).await;
        let mut rng = StdRng::seed_from_u64(1);
        let (mut sent, mut count) = (std::hash::DefaultHasher::new(), 0);
        // No reader takes anything: sooner or later, nothing can be written.
        loop {
            let mut piece = vec![0; 10_000];
            rng.fill(&mut piece[..]);
            let Ok(written) = timeout(STALL, scene.client.write(&piece)).await else {
                break;
            };
            let written = written.unwrap();
            sent.write(&piece[..written]);
            count += written;
        }
        assert!(count > 0);
        // The other direction is not affected.
        scene.server.write_all(b"back").await.unwrap();
        let mut back = [0; 4];
        within(scene.client.read_exact(&mut back)).await.unwrap();
        scene.client.shutdown().await.unwrap();
        let received = read_to_end(&mut scene.server).await;
        assert_eq!((received.len(), hash(&received)), (count, sent.finish()));
    }
}

/// The time that the relays of these tests give the end that lives.
const SHORT_LIMIT: Duration = Duration::from_secs(2);

/// A writer that makes no progress for this time is taken to have stopped. If it had not, more would be written.
const STALL: Duration = Duration::from_millis(50);

#[tokio::test]
async fn bytes_in_pieces_of_any_size_arrive_as_they_were_sent_in_both_directions() {
    for (seed, relay) in (2..).zip(all_kinds()) {
        let scene = Scene::new(relay).await;
        let relay = scene.relay;
        let (client_read, client_write) = scene.client.into_split();
        let (server_read, server_write) = scene.server.into_split();
        let tasks = [
            (client_write, server_read, seed),
            (server_write, client_read, seed + 100),
        ];
        let tasks = tasks.map(|(writer, mut reader, seed)| {
            tokio::spawn(async move {
                let sending = tokio::spawn(send_pieces(writer, seed));
                let received = read_to_end(&mut reader).await;
                assert_eq!((received.len(), hash(&received)), sending.await.unwrap());
            })
        });
        for task in tasks {
            within(task).await.unwrap();
        }
        assert!(matches!(within(relay).await.unwrap(), Ended::Closed));
    }
}

/// Sends pieces of random sizes; the number of bytes and their hash.
async fn send_pieces(mut writer: tokio::net::tcp::OwnedWriteHalf, seed: u64) -> (usize, u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut sent = Vec::new();
    for _ in 0..60 {
        let most = [1, 100, 1500, 70_000, 300_000][rng.random_range(0..5)];
        let mut piece = vec![0; rng.random_range(1..=most)];
        rng.fill(&mut piece[..]);
        writer.write_all(&piece).await.unwrap();
        sent.extend(piece);
        if rng.random() {
            tokio::task::yield_now().await;
        }
    }
    writer.shutdown().await.unwrap();
    (sent.len(), hash(&sent))
}

#[tokio::test]
async fn a_reset_arrives_as_a_reset_behind_what_was_sent_before() {
    for relay in all_kinds() {
        let mut scene = Scene::new(relay).await;
        scene.server.write_all(b"last words").await.unwrap();
        let mut words = [0; 10];
        within(scene.client.read_exact(&mut words)).await.unwrap();
        scene.server.set_zero_linger().unwrap();
        drop(scene.server);
        let error = within(scene.client.read(&mut words)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(matches!(
            within(scene.relay).await.unwrap(),
            Ended::Failed(_)
        ));
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_more_still_gets_what_came_before_the_reset() {
    for relay in all_kinds() {
        let mut scene = Scene::new(relay).await;
        // More than the client's socket takes: the rest waits in the relay's.
        let sent = vec![7; 200_000];
        scene.server.write_all(&sent).await.unwrap();
        scene.until_inbound(200_000).await;
        scene.server.set_zero_linger().unwrap();
        drop(scene.server);
        let mut received = vec![0; sent.len()];
        within(scene.client.read_exact(&mut received))
            .await
            .unwrap();
        assert!(within(scene.client.read(&mut [0])).await.is_err());
    }
}

#[tokio::test]
async fn a_reset_in_a_half_closed_connection_ends_it() {
    for relay in all_kinds() {
        let mut scene = Scene::new(relay).await;
        scene.client.shutdown().await.unwrap();
        assert!(read_to_end(&mut scene.server).await.is_empty());
        scene.server.set_zero_linger().unwrap();
        drop(scene.server);
        assert!(within(scene.client.read(&mut [0])).await.is_err());
        assert!(matches!(
            within(scene.relay).await.unwrap(),
            Ended::Failed(_)
        ));
    }
}

#[tokio::test]
async fn urgent_data_arrives_in_its_place_in_both_directions() {
    for relay in all_kinds() {
        let mut scene = Scene::new(relay).await;
        for is_back in [false, true] {
            let (from, to) = match is_back {
                false => (&mut scene.client, &mut scene.server),
                true => (&mut scene.server, &mut scene.client),
            };
            from.write_all(b"abc").await.unwrap();
            let mut first = [0; 3];
            within(to.read_exact(&mut first)).await.unwrap();
            send_urgent(from, b"de!");
            from.write_all(&[7; 5_000]).await.unwrap();
            // Without an end, too.
            let mut rest = vec![0; 5_003];
            within(to.read_exact(&mut rest)).await.unwrap();
            assert_eq!((&rest[..3], &rest[3..]), (&b"de!"[..], &[7; 5_000][..]));
            send_urgent(from, b"!");
            from.write_all(b"end").await.unwrap();
            from.shutdown().await.unwrap();
            assert_eq!(read_to_end(to).await, b"!end");
        }
        assert!(matches!(scene.ended().await, Ended::Closed));
    }
}

#[tokio::test]
async fn urgent_data_in_a_stream_needs_no_further_bytes_behind_it() {
    for relay in all_kinds() {
        let mut scene = Scene::new(relay).await;
        scene.client.write_all(b"abc").await.unwrap();
        let mut first = [0; 3];
        within(scene.server.read_exact(&mut first)).await.unwrap();
        // All of it is there when the relay looks: the test does not wait in between.
        scene.client.write_all(&[7; 20_000]).await.unwrap();
        send_urgent(&scene.client, b"!");
        scene.client.write_all(&[8; 20_000]).await.unwrap();
        let mut rest = vec![0; 40_001];
        within(scene.server.read_exact(&mut rest)).await.unwrap();
        assert_eq!(rest, [&[7; 20_000][..], b"!", &[8; 20_000]].concat());
    }
}

fn send_urgent(socket: &TcpStream, bytes: &[u8]) {
    use nix::sys::socket::{MsgFlags, send};
    let flags = MsgFlags::MSG_OOB;
    assert_eq!(
        send(std::os::fd::AsRawFd::as_raw_fd(socket), bytes, flags).unwrap(),
        bytes.len()
    );
}

#[tokio::test]
async fn a_source_that_fails_while_its_direction_is_blocked_ends_the_connection() {
    let kinds = all_kinds().into_iter().map(|relay| async {
        let mut scene = Scene::new(relay).await;
        let piece = [7; 10_000];
        while let Ok(written) = timeout(STALL, scene.client.write(&piece)).await {
            written.unwrap();
        }
        scene.client.set_zero_linger().unwrap();
        drop(scene.client);
        let begun = std::time::Instant::now();
        let ended = within(&mut scene.relay).await.unwrap();
        assert!(matches!(ended, Ended::Failed(_)));
        assert!(begun.elapsed() < SHORT_LIMIT + Duration::from_secs(1));
        // The rest that the relay could not deliver is a failure, not an end.
        assert!(
            within(scene.server.read_to_end(&mut Vec::new()))
                .await
                .is_err()
        );
    });
    futures_util::future::join_all(kinds).await;
}

#[tokio::test]
async fn a_source_that_fails_while_its_direction_is_blocked_may_still_be_read_to_its_end() {
    for relay in all_kinds() {
        let mut scene = Scene::new(relay).await;
        let piece = [7; 10_000];
        let mut count = 0;
        while let Ok(written) = timeout(STALL, scene.client.write(&piece)).await {
            count += written.unwrap();
        }
        scene.client.set_zero_linger().unwrap();
        drop(scene.client);
        // A reset discards what the client's own socket has not sent.
        let (mut received, mut buffer) = (0, vec![0; 70_000]);
        while let Ok(read @ 1..) = within(scene.server.read(&mut buffer)).await {
            received += read;
        }
        assert!(
            received > 32_000 && received <= count,
            "{received} of {count}"
        );
    }
}

#[tokio::test]
async fn a_reset_that_the_other_direction_hears_of_first_is_no_end() {
    for relay in all_kinds() {
        let mut scene = Scene::new(relay).await;
        scene.server.write_all(b"half of an answer").await.unwrap();
        let mut answer = [0; 17];
        within(scene.client.read_exact(&mut answer)).await.unwrap();
        // The relay waits until the server takes more.
        let piece = [7; 10_000];
        while let Ok(written) = timeout(STALL, scene.client.write(&piece)).await {
            written.unwrap();
        }
        scene.server.set_zero_linger().unwrap();
        drop(scene.server);
        let error = within(scene.client.read(&mut answer)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(matches!(
            within(scene.relay).await.unwrap(),
            Ended::Failed(_)
        ));
    }
}

#[tokio::test]
async fn a_reset_is_no_end_of_what_was_sent_before_it_where_both_directions_are_blocked() {
    let kinds = all_kinds().into_iter().map(|relay| async {
        let mut scene = Scene::new(relay).await;
        let piece = [7; 10_000];
        for socket in [&mut scene.client, &mut scene.server] {
            while let Ok(written) = timeout(STALL, socket.write(&piece)).await {
                written.unwrap();
            }
        }
        scene.client.set_zero_linger().unwrap();
        drop(scene.client);
        // As much as the relay has got: it is not all that the client has sent.
        let received = within(scene.server.read_to_end(&mut Vec::new())).await;
        assert!(received.is_err());
        assert!(matches!(
            within(scene.relay).await.unwrap(),
            Ended::Failed(_)
        ));
    });
    futures_util::future::join_all(kinds).await;
}

#[tokio::test]
async fn an_answer_and_its_end_arrive_although_the_server_refuses_the_rest_of_the_question() {
    for relay in all_kinds() {
        let mut scene = Scene::new(relay).await;
        let piece = [7; 10_000];
        while let Ok(written) = timeout(STALL, scene.client.write(&piece)).await {
            written.unwrap();
        }
        scene.server.write_all(b"too long").await.unwrap();
        scene.server.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut scene.client).await, b"too long");
        // It has unread bytes, so this is a reset.
        drop(scene.server);
        assert!(matches!(
            within(scene.relay).await.unwrap(),
            Ended::Failed(_)
        ));
    }
}

#[tokio::test]
async fn a_reset_behind_an_end_is_passed_on() {
    for relay in all_kinds() {
        let mut scene = Scene::new(relay).await;
        scene.client.shutdown().await.unwrap();
        assert!(read_to_end(&mut scene.server).await.is_empty());
        scene.client.set_zero_linger().unwrap();
        drop(scene.client);
        assert!(matches!(
            within(&mut scene.relay).await.unwrap(),
            Ended::Failed(_)
        ));
        let failed = scene.server.ready(tokio::io::Interest::ERROR);
        within(failed).await.unwrap();
    }
}

#[tokio::test]
async fn streams_that_are_not_sockets_are_relayed_too() {
    let (mut client, first) = duplex(100);
    let (second, mut server) = duplex(70);
    let (first, second) = (
        Stream::Other(Box::new(first)),
        Stream::Other(Box::new(second)),
    );
    let running = tokio::spawn(async move {
        let moved = Moved::default();
        Relay::new(DEFAULT_BUFFER, Method::Splice)
            .run(first, second, &Tenant::default(), &moved)
            .await
    });
    let sent = vec![3; 5000];
    let (written, received) = tokio::join!(
        async {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
        },
        read_to_end(&mut server)
    );
    let () = written;
    assert_eq!(received, sent);
    drop(server);
    assert!(read_to_end(&mut client).await.is_empty());
    assert!(matches!(within(running).await.unwrap(), Ended::Closed));
}

#[tokio::test]
async fn idle_connections_hold_neither_buffers_nor_pipes() {
    for method in [Method::Copy, Method::Splice] {
        let relay = Arc::new(Relay::new(DEFAULT_BUFFER, method));
        let mut scene = Scene::with(Arc::clone(&relay)).await;
        let mut bytes = [0; 5];
        for _ in 0..3 {
            scene.client.write_all(b"hello").await.unwrap();
            within(scene.server.read_exact(&mut bytes)).await.unwrap();
            // The relay has polled its source once more when the answer arrives.
            scene.server.write_all(b"hello").await.unwrap();
            within(scene.client.read_exact(&mut bytes)).await.unwrap();
        }
        tokio::task::yield_now().await;
        assert_eq!(relay.pools.buffers.lent(), 0);
        assert_eq!(relay.pools.pipes.lent(), 0);
    }
}

#[tokio::test]
async fn short_messages_need_no_pipe_and_a_stream_one_at_a_time() {
    let relay = Arc::new(Relay::new(DEFAULT_BUFFER, Method::Splice));
    let mut scene = Scene::with(Arc::clone(&relay)).await;
    for (length, made) in [(1, 0), (500, 0), (2_000, 0), (20_000, 1), (3, 1)] {
        let message = vec![7; length];
        let mut received = vec![0; length];
        for _ in 0..3 {
            scene.client.write_all(&message).await.unwrap();
            within(scene.server.read_exact(&mut received))
                .await
                .unwrap();
            scene.server.write_all(&message).await.unwrap();
            within(scene.client.read_exact(&mut received))
                .await
                .unwrap();
        }
        tokio::task::yield_now().await;
        let pipes = &relay.pools.pipes;
        assert_eq!((pipes.lent(), pipes.waiting()), (0, made), "{length}");
    }
}

#[tokio::test]
async fn a_stream_that_ends_by_a_reset_leaves_its_pipe_to_others() {
    let relay = Arc::new(Relay::new(DEFAULT_BUFFER, Method::Splice));
    for _ in 0..3 {
        let mut scene = Scene::with(Arc::clone(&relay)).await;
        let sent = vec![7; 100_000];
        let mut received = vec![0; sent.len()];
        let (written, read) = tokio::join!(
            within(scene.client.write_all(&sent)),
            within(scene.server.read_exact(&mut received)),
        );
        written.unwrap();
        read.unwrap();
        scene.client.set_zero_linger().unwrap();
        drop(scene.client);
        let ended = within(scene.relay).await.unwrap();
        assert!(matches!(ended, Ended::Failed(_)));
        assert_eq!(relay.pools.pipes.waiting(), 1);
    }
}

/// With and without splice(2), each with full and with empty pools, and with the smallest buffer.
fn all_kinds() -> Vec<Relay> {
    let kinds = [Method::Copy, Method::Splice].map(|method| {
        let sizes = [0, DEFAULT_BUFFER].map(|buffer| Relay::new(buffer, method));
        sizes.into_iter().chain([Relay::with_empty_pools(method)])
    });
    let kinds = kinds.into_iter().flatten();
    kinds
        .map(|relay| Relay {
            limit: SHORT_LIMIT,
            ..relay
        })
        .collect()
}

/// A client and a server with a relay between them.
struct Scene {
    client: TcpStream,
    server: TcpStream,
    relay: JoinHandle<Ended>,
    moved: Arc<Moved>,
}

impl Scene {
    async fn new(relay: Relay) -> Self {
        Self::with(Arc::new(relay)).await
    }

    async fn with(relay: Arc<Relay>) -> Self {
        Self::of(relay, Arc::default()).await
    }

    async fn of(relay: Arc<Relay>, tenant: Arc<Tenant>) -> Self {
        let (client, first) = connected().await;
        let (second, server) = connected().await;
        let moved = Arc::new(Moved::default());
        let counted = Arc::clone(&moved);
        let relay = tokio::spawn(async move {
            let (first, second) = (first.into(), second.into());
            relay.run(first, second, &tenant, &counted).await
        });
        Self {
            client,
            server,
            relay,
            moved,
        }
    }

    async fn ended(&mut self) -> Ended {
        within(&mut self.relay).await.unwrap()
    }

    fn moved(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.moved.outbound), read(&self.moved.inbound))
    }

    async fn until_inbound(&self, bytes: u64) {
        let is_there = async {
            while self.moved().1 < bytes {
                tokio::task::yield_now().await;
            }
        };
        within(is_there).await;
    }
}

/// Both ends of a connection on loopback, whose buffers are small enough to fill quickly.
async fn connected() -> (TcpStream, TcpStream) {
    let small = || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(32 << 10).unwrap();
        socket
    };
    let (listener, socket) = (small(), small());
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listener.listen(1).unwrap();
    let connecting = socket.connect(listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connecting, listener.accept());
    (connected.unwrap(), accepted.unwrap().0)
}

async fn read_to_end(reader: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    within(reader.read_to_end(&mut bytes)).await.unwrap();
    bytes
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("not in time")
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
