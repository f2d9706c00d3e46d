//! The device from which packets come that begin a flow, and to which the answers go.

use std::{
    io::{self, ErrorKind},
    os::fd::OwnedFd,
};

use tokio::io::{Interest, unix::AsyncFd};

use crate::stack::{Dropped, counters::Counters};

/// The longest packet.
pub(super) const LONGEST: usize = 65_535;

#[derive(Debug)]
pub(super) struct Inlet(AsyncFd<OwnedFd>);

impl Inlet {
    pub(super) fn new(device: OwnedFd) -> io::Result<Self> {
        // SAFETY: the descriptor stays open for as long as it is watched, as it is owned.
        let watched = unsafe { AsyncFd::register_with_interest(device, Interest::READABLE) };
        Ok(Self(watched?))
    }

    /// Waits for packets.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.0.readable().await?.retain_ready();
        Ok(())
    }

    /// The next packet; `WouldBlock` if there is none.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |device: &OwnedFd| Ok(rustix::io::read(device, &mut *buffer)?);
        self.0.try_io(Interest::READABLE, read)
    }

    /// Sends a packet into the namespace, or counts that it could not be.
    pub(super) fn write(&self, packet: &[u8], counters: &Counters) {
        match rustix::io::write(self.0.get_ref(), packet).map_err(io::Error::from) {
            Ok(_) => counters.count_sent(packet.len(), false),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                counters.drop(Dropped::DeviceFull);
            }
            Err(_) => counters.drop(Dropped::DeviceFailed),
        }
    }
}
