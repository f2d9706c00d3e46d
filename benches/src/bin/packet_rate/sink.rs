//! The thread that receives and counts.

use std::{
    io::IoSliceMut,
    net::UdpSocket,
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, setsockopt, sockopt},
};

use crate::point::BATCH;

/// How long it waits before it looks whether it is to end.
const WAIT: Duration = Duration::from_millis(20);
const BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Prepares the sink's socket.
pub(crate) fn prepare(socket: &UdpSocket) -> anyhow::Result<()> {
    socket.set_read_timeout(Some(WAIT))?;
    // With root more than `net.core.rmem_max`; less only means that more is lost.
    let _ = setsockopt(socket, sockopt::RcvBufForce, &BUFFER_BYTES);
    Ok(())
}

/// Receives until `stop` is set and nothing more comes; returns how many datagrams came.
///
/// Only their first byte is copied: their number is of interest.
pub(crate) fn count(socket: &UdpSocket, stop: &AtomicBool) -> Result<u64, Errno> {
    let mut bytes = [[0; 1]; BATCH];
    let mut datagrams = 0;
    loop {
        // Both borrow from the answer before.
        let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
        let mut slices = bytes.each_mut().map(|byte| [IoSliceMut::new(byte)]);
        let received = recvmmsg(
            socket.as_raw_fd(),
            &mut headers,
            slices.iter_mut(),
            MsgFlags::MSG_WAITFORONE,
            None,
        );
        match received {
            Ok(received) => datagrams += received.count() as u64,
            Err(Errno::EAGAIN) if stop.load(Ordering::Relaxed) => return Ok(datagrams),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
