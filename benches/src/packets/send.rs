//! A thread that sends as fast as it can, a thread that receives and counts, and the empty namespaces they run in.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use convoy_lab::{Lab, Namespace};
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrIn, sendmmsg, sendmsg, sendto, setsockopt,
    sockopt,
};

use crate::agent::connect;
use crate::programs::ensure_root;

/// Datagrams per `sendmmsg`; every kernel also takes this many segments in one send.
const BATCH: usize = 64;
/// Largest UDP payload of an IPv4 datagram (RFC 768, 791), and of one packet on the veth.
const MAX_PAYLOAD: usize = 65_507;
const VETH_PAYLOAD: usize = 1472;

/// Silence after which no further datagrams are expected.
const SILENCE: Duration = Duration::from_millis(100);
const SINK_BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// Calls between two readings of the clock.
const CALLS: usize = 16;
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 5182;

/// One combination of all parameters.
#[derive(Debug)]
pub(super) struct Point {
    /// Whether the sockets are at the ends of a veth, or both on loopback.
    pub(super) is_veth: bool,
    /// Whether a thread receives and counts, or a closed port discards datagrams.
    pub(super) is_counted: bool,
    pub(super) method: Method,
    /// Bytes of UDP payload.
    pub(super) size: usize,
}

/// The way to the kernel: one datagram per call, [`BATCH`] per call, or one buffer that it cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    SendTo,
    Sendmmsg,
    Gso,
}

/// The ends of a veth.
pub(super) fn namespaces() -> Result<(Lab, [Namespace; 2])> {
    ensure_root()?;
    let lab = Lab::new()?;
    let (left, right) = (lab.namespace("left")?, lab.namespace("right")?);
    connect(&lab, (&left, "veth0", LEFT), (&right, "veth0", RIGHT))?;
    Ok((lab, [left, right]))
}

impl Point {
    /// `None` if the method has nothing to batch.
    pub(super) fn datagrams_per_call(&self) -> Option<usize> {
        match self.method {
            Method::SendTo => Some(1),
            Method::Sendmmsg => Some(BATCH),
            // The kernel refuses segments that do not fit one packet.
            Method::Gso if self.is_veth && self.size > VETH_PAYLOAD => None,
            Method::Gso => {
                let segments = (MAX_PAYLOAD / self.size).min(BATCH);
                (segments > 1).then_some(segments)
            }
        }
    }
}

/// Sends for `window`. Returns how many thousand datagrams per second the kernel accepted, and how many arrived if
/// the sink counts them.
pub(super) fn measure(
    point: &Point,
    [left, right]: &[Namespace; 2],
    window: Duration,
) -> Result<(f64, Option<f64>)> {
    let (from, to, far) = match point.is_veth {
        false => (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, left),
        true => (LEFT, RIGHT, right),
    };
    let sender = left.run(|| UdpSocket::bind((from, 0)))?.context("bind")?;
    let mut sink = None;
    if point.is_counted {
        let socket = far.run(|| UdpSocket::bind((to, PORT)))?.context("bind")?;
        socket.set_read_timeout(Some(SILENCE))?;
        setsockopt(&socket, sockopt::RcvBufForce, &SINK_BUFFER_BYTES)?;
        sink = Some(socket);
    }
    thread::scope(|scope| {
        let counting = sink.map(|sink| scope.spawn(move || count(&sink)));
        let began = Instant::now();
        let sent = send(&sender, SocketAddrV4::new(to, PORT).into(), point, window);
        let seconds = began.elapsed().as_secs_f64();
        let counted = counting.map(|thread| thread.join()).transpose();
        let counted = counted.map_err(|_| anyhow!("the sink panicked"))?;
        let received = counted.transpose().context("receive")?;
        let kpps = |datagrams: usize| datagrams as f64 / seconds / 1e3;
        // All counted datagrams arrived while the sender ran, or shortly after.
        Ok((kpps(sent.context("send")?), received.map(kpps)))
    })
}

/// Returns how many datagrams the kernel accepted within `window`.
fn send(socket: &UdpSocket, to: SockaddrIn, point: &Point, window: Duration) -> nix::Result<usize> {
    let bytes = vec![7; point.size * point.datagrams_per_call().unwrap_or(1)];
    let (fd, flags) = (socket.as_raw_fd(), MsgFlags::empty());
    match point.method {
        Method::SendTo => repeat(window, || sendto(fd, &bytes, &to, flags).map(|_| 1)),
        Method::Gso => {
            let segment = point.size as u16;
            let control = [ControlMessage::UdpGsoSegments(&segment)];
            let slices = [IoSlice::new(&bytes)];
            repeat(window, || {
                let sent = sendmsg(fd, &slices, &control, flags, Some(&to))?;
                Ok(sent / point.size)
            })
        }
        Method::Sendmmsg => {
            let mut headers = MultiHeaders::preallocate(BATCH, None);
            let slices = bytes.chunks(point.size).map(|one| [IoSlice::new(one)]);
            let slices: Vec<_> = slices.collect();
            repeat(window, || {
                let sent = sendmmsg(fd, &mut headers, &slices, [Some(to); BATCH], [], flags)?;
                Ok(sent.count())
            })
        }
    }
}

/// Repeats `call`, which returns how many datagrams the kernel accepted, and adds them up.
fn repeat(window: Duration, mut call: impl FnMut() -> nix::Result<usize>) -> nix::Result<usize> {
    let began = Instant::now();
    let mut datagrams = 0;
    while began.elapsed() < window {
        for _ in 0..CALLS {
            match call() {
                Ok(taken) => datagrams += taken,
                // The kernel had no room: nothing was sent.
                Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(datagrams)
}

/// Counts datagrams until no more arrive; copies only their first byte.
fn count(socket: &UdpSocket) -> io::Result<usize> {
    let mut datagrams = 0;
    loop {
        match socket.recv(&mut [0]) {
            Ok(_) => datagrams += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(datagrams),
            Err(error) => return Err(error),
        }
    }
}
