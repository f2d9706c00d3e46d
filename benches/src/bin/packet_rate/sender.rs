//! One thread that sends as fast as it can.

use std::{
    io::IoSlice,
    net::{SocketAddrV4, UdpSocket},
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::socket::{ControlMessage, MsgFlags, MultiHeaders, SockaddrIn, sendmmsg, sendmsg},
};

use crate::point::{BATCH, Method, Point};

/// What a sender has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Datagrams that the kernel has taken.
    pub(crate) datagrams: u64,
    /// From the first call to the last.
    pub(crate) time: Duration,
}

/// Sends to `target` until `stop` is set.
pub(crate) fn send(
    socket: &UdpSocket,
    target: SocketAddrV4,
    point: &Point,
    stop: &AtomicBool,
) -> Result<Sent, Errno> {
    let Some(datagrams) = point.datagrams_a_call() else {
        return Ok(Sent::default());
    };
    let bytes = vec![7; point.size * datagrams];
    match point.method {
        Method::SendTo => until(stop, || one(socket, target, &bytes)),
        Method::Gso => {
            let segment = point.size as u16;
            let to = SockaddrIn::from(target);
            until(stop, || train(socket, &to, &bytes, segment))
        }
        Method::Sendmmsg => {
            let mut headers = MultiHeaders::preallocate(BATCH, None);
            let to = [Some(SockaddrIn::from(target)); BATCH];
            let slices: Vec<_> = bytes
                .chunks(point.size)
                .map(|datagram| [IoSlice::new(datagram)])
                .collect();
            until(stop, || batch(socket, &to, &slices, &mut headers))
        }
    }
}

/// Repeats `call`, which returns how many datagrams were taken.
fn until(stop: &AtomicBool, mut call: impl FnMut() -> Result<u64, Errno>) -> Result<Sent, Errno> {
    let began = Instant::now();
    let mut datagrams = 0;
    while !stop.load(Ordering::Relaxed) {
        match call() {
            Ok(taken) => datagrams += taken,
            // No room at this moment, as on any way; nothing was taken.
            Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(Sent {
        datagrams,
        time: began.elapsed(),
    })
}

fn one(socket: &UdpSocket, target: SocketAddrV4, datagram: &[u8]) -> Result<u64, Errno> {
    match socket.send_to(datagram, target) {
        Ok(_) => Ok(1),
        Err(error) => Err(Errno::from_raw(error.raw_os_error().unwrap_or_default())),
    }
}

fn train(
    socket: &UdpSocket,
    target: &SockaddrIn,
    segments: &[u8],
    segment: u16,
) -> Result<u64, Errno> {
    let control = [ControlMessage::UdpGsoSegments(&segment)];
    let sent = sendmsg(
        socket.as_raw_fd(),
        &[IoSlice::new(segments)],
        &control,
        MsgFlags::empty(),
        Some(target),
    )?;
    Ok((sent / usize::from(segment)) as u64)
}

fn batch(
    socket: &UdpSocket,
    targets: &[Option<SockaddrIn>],
    datagrams: &[[IoSlice<'_>; 1]],
    headers: &mut MultiHeaders<SockaddrIn>,
) -> Result<u64, Errno> {
    let flags = MsgFlags::empty();
    let sent = sendmmsg(socket.as_raw_fd(), headers, datagrams, targets, [], flags)?;
    Ok(sent.count() as u64)
}
