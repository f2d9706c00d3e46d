mod challenges;
mod closed_window;
mod closing;
mod hostile;
mod inlet;
mod lossy;
mod many;
mod paths;
mod relayed;
mod segments;
mod silence;
mod tcp;
mod udp;
mod wire;

use std::{hash::Hasher, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use convoy_network::{NameServers, peers::Peers};

use super::*;

/// Every wait of a test ends after this time.
const DEADLINE: Duration = Duration::from_secs(60);

const A: &str = "10.9.0.1";
const B: &str = "10.9.0.2";
const A6: &str = "fd09::1";
const B6: &str = "fd09::2";

/// Peers by their addresses, for a stack.
const PEERS: [(&str, u32); 4] = [(B, 0), (B6, 0), ("192.0.2.0/24", 0), ("10.9.1.0/24", 1)];

/// Two stacks, each at one end of a device.
fn joined(mtu: u16) -> (Stack, Stack) {
    let (a, b) = device_pair().unwrap();
    (stack(a, [A, A6], mtu), stack(b, [B, B6], mtu))
}

fn stack(device: OwnedFd, addresses: [&str; 2], mtu: u16) -> Stack {
    Stack::start(device, settings(addresses, mtu)).unwrap()
}

fn settings(addresses: [&str; 2], mtu: u16) -> Settings {
    let bits = |address: &IpAddr| if address.is_ipv4() { 24 } else { 64 };
    let addresses = addresses.map(|it| it.parse().unwrap());
    Settings {
        addresses: addresses.map(|it| (it, bits(&it))).to_vec(),
        mtu,
        names: NameServers::default(),
        peers: Arc::new(Peers::new(
            PEERS.map(|(prefix, peer)| (prefix.parse().unwrap(), peer)),
        )),
    }
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// A connection from the first stack to an address of the second.
async fn connected(from: &Stack, to: &Stack, address: &str) -> (Stream, Stream) {
    let listener = to.listen(at(address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (client, server) = tokio::join!(from.connect(at(address, port)), listener.accept());
    (client.unwrap(), server.unwrap().0)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("not in time")
}

/// Waits until something is so.
async fn until(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within(waiting).await;
}

/// Sends this many random bytes in pieces and then an end; returns their hash.
async fn send(mut to: impl tokio::io::AsyncWrite + Unpin, length: usize, seed: u64) -> u64 {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut hash = std::hash::DefaultHasher::new();
    let mut left = length;
    let mut piece = vec![0; 100_000];
    while left > 0 {
        let size = rng.random_range(1..=piece.len().min(left));
        rng.fill(&mut piece[..size]);
        to.write_all(&piece[..size]).await.unwrap();
        for byte in &piece[..size] {
            hash.write_u8(*byte);
        }
        left -= size;
    }
    to.shutdown().await.unwrap();
    hash.finish()
}

/// Receives until the end; the number of bytes and their hash.
async fn receive(mut from: impl tokio::io::AsyncRead + Unpin) -> (usize, u64) {
    let mut hash = std::hash::DefaultHasher::new();
    let mut length = 0;
    let mut piece = vec![0; 70_000];
    loop {
        let read = from.read(&mut piece).await.unwrap();
        if read == 0 {
            return (length, hash.finish());
        }
        for byte in &piece[..read] {
            hash.write_u8(*byte);
        }
        length += read;
    }
}

/// Sends as much in both directions at the same time, and checks that all of it arrives.
async fn exchange(client: Stream, server: Stream, length: usize) {
    let (client_read, client_write) = tokio::io::split(client);
    let (server_read, server_write) = tokio::io::split(server);
    let tasks = [
        (client_write, server_read, 1),
        (server_write, client_read, 2),
    ];
    let tasks = tasks.map(|(write, read, seed)| {
        tokio::spawn(async move {
            let sending = tokio::spawn(send(write, length, seed));
            let received = receive(read).await;
            assert_eq!(received, (length, sending.await.unwrap()));
        })
    });
    for task in tasks {
        within(task).await.unwrap();
    }
}
