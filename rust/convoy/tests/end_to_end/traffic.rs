//! Traffic through the tunnel, checked byte for byte.

use std::{
    collections::HashSet,
    env,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use convoy_lab::{Namespace, eventually, wireguard::End};

use crate::scene::{DEADLINE, output_of};

const PORT: u16 = 7_000;
const BLOCK: usize = 64 * 1024;

/// Bytes that TCP carries in each direction.
pub(crate) fn tcp_bytes() -> u64 {
    let megabytes = env::var("CONVOY_TEST_MEGABYTES").map_or(200, |text| text.parse().unwrap());
    megabytes * 1_000_000
}

/// Pings once with an unfragmented packet of `size` bytes, long enough to wait for a handshake.
pub(crate) fn ping_of(from: &End, to: IpAddr, size: usize) {
    let (payload, to) = (payload_of(to, size), to.to_string());
    let arguments = ["-n", "-c1", "-W20", "-M", "do", "-s", &payload, &to];
    output_of(&from.namespace, "ping", &arguments);
}

/// Returns whether an unfragmented packet of `size` bytes is answered within a second.
pub(crate) fn answers_of(from: &End, to: IpAddr, size: usize) -> bool {
    let (payload, to) = (payload_of(to, size), to.to_string());
    let mut ping = from.namespace.command("ping");
    let ping = ping.args(["-n", "-c1", "-W1", "-M", "do", "-s", &payload, &to]);
    ping.output().unwrap().status.success()
}

fn payload_of(to: IpAddr, size: usize) -> String {
    let headers = if to.is_ipv4() { 20 + 8 } else { 40 + 8 };
    (size - headers).to_string()
}

pub(crate) fn ping(from: &End, to: IpAddr) {
    ping_of(from, to, 100);
}

/// Returns whether one ping is answered within a second.
pub(crate) fn answers(from: &End, to: IpAddr) -> bool {
    answers_of(from, to, 84)
}

/// Sends `bytes` over one TCP connection and compares them on arrival; `progress` counts those that
/// have arrived.
pub(crate) fn tcp(from: &Namespace, to: &End, ip: IpAddr, bytes: u64, progress: &AtomicU64) {
    tcp_between(from, &to.namespace, ip, bytes, progress);
}

/// Like [`tcp`], to any namespace with the address `ip`.
pub(crate) fn tcp_between(
    from: &Namespace,
    to: &Namespace,
    ip: IpAddr,
    bytes: u64,
    progress: &AtomicU64,
) {
    let (sender, receiver) = connection(from, to, ip);
    thread::scope(|scope| {
        scope.spawn(|| send(sender, Stream::new(1), bytes));
        receive(receiver, Stream::new(1), bytes, progress);
    });
}

/// Makes `changes` changes, numbered from 1 and evenly spread, while `from` sends to `to` over one
/// TCP connection.
pub(crate) fn during_tcp(from: &End, to: &End, changes: u16, change: impl Fn(u16)) {
    let bytes = tcp_bytes();
    let progress = AtomicU64::new(0);
    let send = || tcp(&from.namespace, to, to.inner_v4(), bytes, &progress);
    thread::scope(|scope| {
        scope.spawn(send);
        for step in 1..=changes {
            let part = bytes / u64::from(changes + 2) * u64::from(step);
            await_progress(&progress, part);
            change(step);
        }
    });
}

/// Waits until this many bytes have arrived, as long as some do before each deadline: how fast they come depends on the
/// machine.
pub(crate) fn await_progress(progress: &AtomicU64, bytes: u64) {
    let arrived = || progress.load(Ordering::Relaxed);
    while arrived() < bytes {
        let before = arrived();
        let more = || (arrived() > before).then_some(());
        assert!(eventually(DEADLINE, more).is_some(), "TCP has stalled");
    }
}

/// Sends `bytes` in both directions of one TCP connection at the same time.
pub(crate) fn tcp_both_ways(from: &Namespace, to: &End, ip: IpAddr, bytes: u64) {
    let (left, right) = connection(from, &to.namespace, ip);
    let (left_too, right_too) = (left.try_clone().unwrap(), right.try_clone().unwrap());
    let progress = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| send(left, Stream::new(1), bytes));
        scope.spawn(|| send(right, Stream::new(2), bytes));
        scope.spawn(|| receive(left_too, Stream::new(2), bytes, &progress));
        receive(right_too, Stream::new(1), bytes, &progress);
    });
}

/// Exchanges echoes of `count` datagrams with payloads of 1 to `largest` bytes, in bursts.
pub(crate) fn udp_echo(from: &Namespace, to: &End, ip: IpAddr, count: usize, largest: usize) {
    udp_echo_between(from, &to.namespace, ip, count, largest);
}

/// Like [`udp_echo`], to any namespace with the address `ip`.
pub(crate) fn udp_echo_between(
    from: &Namespace,
    to: &Namespace,
    ip: IpAddr,
    count: usize,
    largest: usize,
) {
    let mut stream = Stream::new(3);
    let payloads = (0..count).map(|i| stream.take(1 + i * 7 % largest));
    // A burst fits every queue on the way, above all the socket buffers of 208 KiB.
    echoed(from, to, ip, payloads, (65_536 / largest).min(40));
}

/// Exchanges echoes of one datagram for each possible checksum.
pub(crate) fn udp_echo_of_every_checksum(from: &Namespace, to: &End, ip: IpAddr) {
    let payloads = (0..=u16::MAX).map(|payload| payload.to_be_bytes().to_vec());
    echoed(from, &to.namespace, ip, payloads, 40);
}

fn echoed(
    from: &Namespace,
    to: &Namespace,
    ip: IpAddr,
    mut payloads: impl Iterator<Item = Vec<u8>>,
    burst_length: usize,
) {
    let address = SocketAddr::new(ip, PORT);
    let echo = bound(to, || UdpSocket::bind(address));
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A fixed port gives the same checksums in every run. Where one should be 0xffff, wireguard-go
    // writes 0 and the kernel drops the datagram (RFC 8200, section 8.1).
    let socket = bound(from, || UdpSocket::bind((any, PORT)));
    socket.connect(address).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| echo_until(&echo, &done));
        // Stops the other thread even if this one panics.
        let _end = SetOnDrop(&done);
        let mut sent = HashSet::new();
        loop {
            let burst: Vec<_> = payloads.by_ref().take(burst_length).collect();
            if burst.is_empty() {
                break;
            }
            sent.extend(burst.iter().cloned());
            exchange(&socket, &burst, &sent);
        }
    });
}

/// Binds a socket in the namespace, and waits while the address is in use: a process that another test has just
/// forked keeps closed sockets open until it executes its program.
pub(crate) fn bound<T: Send>(namespace: &Namespace, bind: impl Fn() -> io::Result<T> + Sync) -> T {
    let attempt = || match namespace.run(&bind).unwrap() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
        outcome => Some(outcome.unwrap()),
    };
    eventually(DEADLINE, attempt).unwrap()
}

/// Sends each payload until its exact echo arrives. Order does not matter: BoringTun's threads
/// overtake one another, and so do wireguard-go's at the start of a session. Tests without other
/// programs show that Convoy keeps the order. A payload that was sent twice may be echoed twice: `sent` has them all.
fn exchange(socket: &UdpSocket, burst: &[Vec<u8>], sent: &HashSet<Vec<u8>>) {
    let deadline = Instant::now() + DEADLINE;
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut missing: Vec<&Vec<u8>> = burst.iter().collect();
    let mut heard = vec![0; 65_535];
    while !missing.is_empty() {
        assert!(
            Instant::now() < deadline,
            "{} echoes are missing",
            missing.len()
        );
        for payload in &missing {
            socket.send(payload).unwrap();
        }
        while !missing.is_empty()
            && let Ok(length) = socket.recv(&mut heard)
        {
            let echo = &heard[..length];
            assert!(sent.contains(echo), "an echo of {length} bytes differs");
            if let Some(position) = missing.iter().position(|p| *p == echo) {
                missing.swap_remove(position);
            }
        }
    }
}

/// Connects two namespaces over TCP.
pub(crate) fn connection(from: &Namespace, to: &Namespace, ip: IpAddr) -> (TcpStream, TcpStream) {
    let address = SocketAddr::new(ip, PORT);
    let listener = bound(to, || TcpListener::bind(address));
    let connect = || TcpStream::connect_timeout(&address, DEADLINE);
    let sender = from.run(connect).unwrap().unwrap();
    let (receiver, _) = listener.accept().unwrap();
    for stream in [&sender, &receiver] {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
    }
    (sender, receiver)
}

fn send(mut to: TcpStream, mut stream: Stream, bytes: u64) {
    let mut left = bytes;
    while left > 0 {
        let block = stream.take(left.min(BLOCK as u64) as usize);
        to.write_all(&block).unwrap();
        left -= block.len() as u64;
    }
    to.shutdown(std::net::Shutdown::Write).unwrap();
}

fn receive(mut from: TcpStream, mut stream: Stream, bytes: u64, progress: &AtomicU64) {
    let mut arrived = 0;
    while arrived < bytes {
        let expected = stream.take((bytes - arrived).min(BLOCK as u64) as usize);
        let mut block = vec![0; expected.len()];
        from.read_exact(&mut block).unwrap();
        assert!(
            block == expected,
            "a byte differs in the block at {arrived}"
        );
        arrived += block.len() as u64;
        progress.fetch_add(block.len() as u64, Ordering::Relaxed);
    }
    assert_eq!(
        from.read(&mut [0]).unwrap(),
        0,
        "more arrived than was sent"
    );
}

/// Echoes datagrams until `done` is set.
pub(crate) fn echo_until(socket: &UdpSocket, done: &AtomicBool) {
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let mut buffer = vec![0; 65_535];
    while !done.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((length, sender)) => {
                socket.send_to(&buffer[..length], sender).unwrap();
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => panic!("the echo failed: {e}"),
        }
    }
}

/// Stops other threads even if this one panics.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bytes that both ends can generate, so that any loss, repetition or reordering shows
/// (xorshift64*, Vigna 2016).
struct Stream(u64);

impl Stream {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for chunk in bytes.chunks_mut(8) {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        bytes
    }
}
