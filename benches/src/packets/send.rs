//! Threads that send as fast as they can, one that receives and counts, and namespaces with nothing else in them.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::{Barrier, atomic::AtomicBool, atomic::Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use convoy_lab::{Lab, Namespace};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, MultiHeaders, SockFlag, SockType, SockaddrIn, bind,
    recvmmsg, sendmmsg, sendmsg, setsockopt, socket, sockopt,
};

use super::{BATCH, Method, PATHS, Path, Point, Ports, Rate, Sink};

/// How often a silent sink checks whether it is to end.
const WAIT: Duration = Duration::from_millis(20);
const SINK_BUFFER_BYTES: usize = 4 * 1024 * 1024;
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The port of all senders that share one, and the sink's; no other program has them here.
const SHARED_PORT: u16 = 5181;
const SINK_PORT: u16 = 5182;

/// The namespaces; without root only the host's own loopback interface.
pub(super) struct Places(Option<(Lab, Namespace, Namespace)>);

impl Places {
    /// Makes the namespaces, as root.
    pub(super) fn make() -> anyhow::Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("not root: only this host's loopback interface is measured, no veth");
            return Ok(Self(None));
        }
        let lab = Lab::new()?;
        let (left, right) = (lab.namespace("left")?, lab.namespace("right")?);
        let (a, b) = (format!("{LEFT}/24"), format!("{RIGHT}/24"));
        lab.veth(&left, "veth0", &[&a], &right, "veth0", &[&b], 1500)?;
        Ok(Self(Some((lab, left, right))))
    }

    pub(super) fn paths(&self) -> &'static [Path] {
        if self.0.is_some() {
            &PATHS
        } else {
            &PATHS[..1]
        }
    }

    /// A sender's socket, or the sink's, which stays in the namespace in which it is opened.
    fn open(&self, path: Path, is_sender: bool, port: u16) -> anyhow::Result<UdpSocket> {
        let (address, is_left) = match path {
            Path::Loopback => (Ipv4Addr::LOCALHOST, true),
            Path::Veth if is_sender => (LEFT, true),
            Path::Veth => (RIGHT, false),
        };
        let open = || -> nix::Result<UdpSocket> {
            let (family, kind) = (AddressFamily::Inet, SockType::Datagram);
            let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
            setsockopt(&socket, sockopt::ReusePort, &(port == SHARED_PORT))?;
            let address = SocketAddrV4::new(address, port);
            bind(socket.as_raw_fd(), &SockaddrIn::from(address))?;
            Ok(socket.into())
        };
        let opened = match &self.0 {
            Some((_, left, _)) if is_left => left.run(open)?,
            Some((_, _, right)) => right.run(open)?,
            None => open(),
        };
        opened.with_context(|| format!("open a socket at {address}:{port}"))
    }
}

/// Measures one point for `window`.
pub(super) fn measure(point: &Point, places: &Places, window: Duration) -> anyhow::Result<Rate> {
    let port = match point.ports {
        Ports::Own => 0,
        Ports::Shared => SHARED_PORT,
    };
    let senders = (0..point.threads).map(|_| places.open(point.path, true, port));
    let senders: Vec<UdpSocket> = senders.collect::<Result<_, _>>()?;
    let sink = match point.sink {
        Sink::Counting => Some(places.open(point.path, false, SINK_PORT)?),
        Sink::Closed => None,
    };
    if let Some(sink) = &sink {
        sink.set_read_timeout(Some(WAIT))?;
        // As root more than `net.core.rmem_max`; less only means that more is lost.
        let _ = setsockopt(sink, sockopt::RcvBufForce, &SINK_BUFFER_BYTES);
    }
    let (stop_senders, stop_sink) = (&AtomicBool::new(false), AtomicBool::new(false));
    let together = &Barrier::new(point.threads + 1);
    let panicked = |_| anyhow!("a thread panicked");
    thread::scope(|scope| {
        let counting = sink
            .as_ref()
            .map(|sink| scope.spawn(|| count(sink, &stop_sink)));
        let sending = senders.iter().map(|socket| {
            scope.spawn(move || {
                together.wait();
                send(socket, point, stop_senders)
            })
        });
        let sending: Vec<_> = sending.collect();
        together.wait();
        let began = Instant::now();
        thread::sleep(window);
        stop_senders.store(true, Ordering::Relaxed);
        let sent = sending.into_iter().map(|thread| thread.join());
        let sent: Result<Vec<_>, _> = sent.collect();
        let seconds = began.elapsed().as_secs_f64();
        stop_sink.store(true, Ordering::Relaxed);
        let received = counting
            .map(|thread| thread.join().map_err(panicked))
            .transpose()?;
        let received = received.transpose().context("receive")?;
        let sent = sent.map_err(panicked)?.into_iter();
        let sent = sent.sum::<Result<f64, Errno>>().context("send")?;
        Ok(Rate {
            sent_pps: sent,
            // They came within the time of the senders, or shortly after.
            received_pps: received.map(|datagrams| datagrams as f64 / seconds),
        })
    })
}

/// Sends to the sink until `stop` is set; the datagrams a second that the kernel took.
fn send(socket: &UdpSocket, point: &Point, stop: &AtomicBool) -> Result<f64, Errno> {
    let bytes = vec![7; point.size * point.datagrams_a_call().unwrap_or(1)];
    let target = match point.path {
        Path::Loopback => Ipv4Addr::LOCALHOST,
        Path::Veth => RIGHT,
    };
    let target = SocketAddrV4::new(target, SINK_PORT);
    let to = SockaddrIn::from(target);
    let (fd, flags) = (socket.as_raw_fd(), MsgFlags::empty());
    match point.method {
        Method::SendTo => until(stop, || match socket.send_to(&bytes, target) {
            Ok(_) => Ok(1),
            Err(error) => Err(Errno::from_raw(error.raw_os_error().unwrap_or_default())),
        }),
        Method::Gso => {
            let segment = point.size as u16;
            let control = [ControlMessage::UdpGsoSegments(&segment)];
            let slices = [IoSlice::new(&bytes)];
            until(stop, || {
                let sent = sendmsg(fd, &slices, &control, flags, Some(&to))?;
                Ok(sent / point.size)
            })
        }
        Method::Sendmmsg => {
            let mut headers = MultiHeaders::preallocate(BATCH, None);
            let slices = bytes.chunks(point.size).map(|one| [IoSlice::new(one)]);
            let slices: Vec<_> = slices.collect();
            until(stop, || {
                let sent = sendmmsg(fd, &mut headers, &slices, [Some(to); BATCH], [], flags)?;
                Ok(sent.count())
            })
        }
    }
}

/// Repeats `call`, which returns how many datagrams were taken.
fn until(stop: &AtomicBool, mut call: impl FnMut() -> Result<usize, Errno>) -> Result<f64, Errno> {
    let began = Instant::now();
    let mut datagrams = 0;
    while !stop.load(Ordering::Relaxed) {
        match call() {
            Ok(taken) => datagrams += taken,
            // No room at this moment: nothing was taken.
            Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(datagrams as f64 / began.elapsed().as_secs_f64())
}

/// Counts datagrams until `stop` is set and no more come; only their first byte is copied.
fn count(socket: &UdpSocket, stop: &AtomicBool) -> Result<u64, Errno> {
    let mut bytes = [[0; 1]; BATCH];
    let mut datagrams = 0;
    loop {
        // Both borrow from the former answer.
        let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
        let mut slices = bytes.each_mut().map(|byte| [IoSliceMut::new(byte)]);
        let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_WAITFORONE);
        match recvmmsg(fd, &mut headers, slices.iter_mut(), flags, None) {
            Ok(received) => datagrams += received.count() as u64,
            Err(Errno::EAGAIN) if stop.load(Ordering::Relaxed) => return Ok(datagrams),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
