//! Threads that send as fast as they can, and one that receives and counts.

use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::{Barrier, atomic::AtomicBool, atomic::Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg, sendmsg, setsockopt,
    sockopt,
};

use super::place::Places;
use super::record::{BATCH, Method, Point, Rate, Sink};

/// How often a silent sink checks whether it is to end.
const WAIT: Duration = Duration::from_millis(20);
const SINK_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Measures one point for `window`.
pub(super) fn measure(point: &Point, places: &Places, window: Duration) -> anyhow::Result<Rate> {
    let senders = (0..point.threads).map(|_| places.sender(point.path, point.ports));
    let senders: Vec<UdpSocket> = senders.collect::<Result<_, _>>()?;
    let sink = match point.sink {
        Sink::Counting => Some(places.sink(point.path)?),
        Sink::Closed => None,
    };
    if let Some(sink) = &sink {
        sink.set_read_timeout(Some(WAIT))?;
        // As root more than `net.core.rmem_max`; less only means that more is lost.
        let _ = setsockopt(sink, sockopt::RcvBufForce, &SINK_BUFFER_BYTES);
    }
    let target = Places::target(point.path);
    let (stop_senders, stop_sink) = (AtomicBool::new(false), AtomicBool::new(false));
    let together = Barrier::new(point.threads + 1);
    let panicked = |_| anyhow!("a thread panicked");
    thread::scope(|scope| {
        let counting = sink
            .as_ref()
            .map(|sink| scope.spawn(|| count(sink, &stop_sink)));
        let send = |socket| {
            together.wait();
            send(socket, target, point, &stop_senders)
        };
        let sending: Vec<_> = senders
            .iter()
            .map(|socket| scope.spawn(move || send(socket)))
            .collect();
        together.wait();
        thread::sleep(window);
        stop_senders.store(true, Ordering::Relaxed);
        let sent = sending
            .into_iter()
            .map(|thread| thread.join().map_err(panicked));
        let sent: Result<Vec<_>, _> = sent.collect();
        stop_sink.store(true, Ordering::Relaxed);
        let received = match counting {
            Some(thread) => Some(thread.join().map_err(panicked)?.context("receive")?),
            None => None,
        };
        let sent = sent?
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .context("send")?;
        Ok(rate(&sent, received))
    })
}

/// `received` datagrams came within the time of the senders, or shortly after.
fn rate(sent: &[(u64, Duration)], received: Option<u64>) -> Rate {
    let seconds = |time: &Duration| time.as_secs_f64().max(1e-9);
    let longest = sent
        .iter()
        .map(|(_, time)| seconds(time))
        .fold(1e-9, f64::max);
    Rate {
        sent_pps: sent
            .iter()
            .map(|(datagrams, time)| *datagrams as f64 / seconds(time))
            .sum(),
        received_pps: received.map(|datagrams| datagrams as f64 / longest),
    }
}

/// Sends to `target` until `stop` is set; the datagrams that the kernel took, and how long that took.
fn send(
    socket: &UdpSocket,
    target: SocketAddrV4,
    point: &Point,
    stop: &AtomicBool,
) -> Result<(u64, Duration), Errno> {
    let datagrams = point.datagrams_a_call().unwrap_or(1);
    let bytes = vec![7; point.size * datagrams];
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
                Ok((sent / point.size) as u64)
            })
        }
        Method::Sendmmsg => {
            let mut headers = MultiHeaders::preallocate(BATCH, None);
            let to = [Some(to); BATCH];
            let slices: Vec<_> = bytes
                .chunks(point.size)
                .map(|one| [IoSlice::new(one)])
                .collect();
            until(stop, || {
                let sent = sendmmsg(fd, &mut headers, &slices, to, [], flags)?;
                Ok(sent.count() as u64)
            })
        }
    }
}

/// Repeats `call`, which returns how many datagrams were taken.
fn until(
    stop: &AtomicBool,
    mut call: impl FnMut() -> Result<u64, Errno>,
) -> Result<(u64, Duration), Errno> {
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
    Ok((datagrams, began.elapsed()))
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
