//! The stack's link to its tunnel: the device, its addresses and MTUs, and the clock.

use std::{
    io::{self, ErrorKind},
    net::IpAddr,
    os::fd::OwnedFd,
};

use smoltcp::time::Instant;

use super::{device::Device, path_mtus::PathMtus, settings::Settings};
use convoy_packet::counters::Counters;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) settings: Settings,
    pub(super) device: Device,
    pub(super) counters: Counters,
    pub(super) path_mtus: PathMtus,
    begun: std::time::Instant,
    /// Time that a test has skipped, in microseconds.
    #[cfg(test)]
    skipped: std::sync::atomic::AtomicI64,
}

impl Link {
    pub(super) fn new(device: OwnedFd, settings: Settings) -> io::Result<Self> {
        Ok(Self {
            settings,
            device: Device::new(device)?,
            counters: Counters::default(),
            path_mtus: PathMtus::default(),
            begun: std::time::Instant::now(),
            #[cfg(test)]
            skipped: Default::default(),
        })
    }

    pub(super) fn now(&self) -> Instant {
        let micros = self.begun.elapsed().as_micros() as i64;
        #[cfg(test)]
        let micros = micros + self.skipped.load(std::sync::atomic::Ordering::Relaxed);
        Instant::from_micros(micros)
    }

    /// Lets time pass.
    #[cfg(test)]
    pub(super) fn skip(&self, time: std::time::Duration) {
        let micros = time.as_micros() as i64;
        self.skipped
            .fetch_add(micros, std::sync::atomic::Ordering::Relaxed);
        self.device.ring();
    }

    pub(super) fn mtu(&self) -> usize {
        self.settings.mtu.into()
    }

    /// Returns the longest packet in bytes that may be sent to an address, as far as is known.
    pub(super) fn mtu_to(&self, address: IpAddr) -> usize {
        self.path_mtus.to(address, self.mtu(), || self.now())
    }

    /// Returns whether this is an address of the stack.
    pub(super) fn owns(&self, address: IpAddr) -> bool {
        self.settings
            .addresses
            .iter()
            .any(|(own, _)| *own == address)
    }

    /// Returns the number of the peer that has an address; all that no peer has count as one.
    pub(super) fn peer_of(&self, address: IpAddr) -> u32 {
        self.settings.peers.of(address).unwrap_or(u32::MAX)
    }

    /// The address from which packets go to another: the one in its network, or else the first of its family.
    pub(super) fn source_for(&self, to: IpAddr) -> io::Result<IpAddr> {
        let own = || {
            let addresses = self.settings.addresses.iter();
            addresses.filter(|(own, _)| own.is_ipv4() == to.is_ipv4())
        };
        let is_near = |(own, bits): &&(IpAddr, u8)| {
            let [own, to] = [*own, to].map(|it| convoy_types::Prefix::network_of(it, *bits));
            own == to
        };
        let found = own().find(is_near).or_else(|| own().next());
        let unreachable = || io::Error::from(ErrorKind::NetworkUnreachable);
        found.map(|(own, _)| *own).ok_or_else(unreachable)
    }
}
