//! The namespace engine: a second TUN, and transparent sockets inside.

use std::{
    io::{self, ErrorKind},
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    task::{Context, Poll, ready},
};

use nix::sys::socket::{SockaddrStorage, bind, setsockopt, sockopt::ReuseAddr};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::UdpSocket,
};

use super::inside::Inside;
use crate::ends::Ends;
use convoy_network::{Answer, Datagrams, Family, OpenSockets, SocketKind, transparent};
use convoy_packet::{
    counters::{Counters, Dropped},
    packet::{FRAGMENT_HEADER, IPV6_HEADER, seal_ipv4},
    vnet::VnetHeader,
};

/// The least MTU of IPv6.
const MIN_MTU: usize = 1_280;
/// A fragment header follows.
const IPV6_FRAGMENT: u8 = 44;

#[derive(Debug)]
pub(super) struct Tun {
    device: AsyncFd<OwnedFd>,
    sockets: Arc<dyn OpenSockets>,
    /// Greatest size of packets in the tunnel, in bytes.
    mtu: usize,
    counters: Counters,
}

impl Tun {
    pub(super) fn new(
        device: OwnedFd,
        sockets: Arc<dyn OpenSockets>,
        mtu: u16,
    ) -> io::Result<Self> {
        // SAFETY: the descriptor stays open for as long as it is watched, as it is owned.
        let watched = unsafe { AsyncFd::register_with_interest(device, Interest::READABLE) };
        Ok(Self {
            device: watched?,
            sockets,
            mtu: mtu.into(),
            counters: Counters::default(),
        })
    }

    /// Routers make none of a packet of IPv6 (RFC 8200, section 4.5).
    fn write_fragments(&self, packet: &[u8]) {
        let (header, payload) = packet.split_at(IPV6_HEADER);
        let each = (self.mtu.max(MIN_MTU) - IPV6_HEADER - FRAGMENT_HEADER) & !7;
        let ident: [u8; 4] = rand::random();
        for (index, part) in payload.chunks(each).enumerate() {
            let offset = index * each;
            let is_last = offset + part.len() == payload.len();
            let mut fragment = header.to_vec();
            let length = (FRAGMENT_HEADER + part.len()) as u16;
            fragment[4..6].copy_from_slice(&length.to_be_bytes());
            let protocol = std::mem::replace(&mut fragment[6], IPV6_FRAGMENT);
            fragment.extend([protocol, 0]);
            fragment.extend((offset as u16 | u16::from(!is_last)).to_be_bytes());
            fragment.extend(ident);
            fragment.extend(part);
            self.write_whole(&fragment);
        }
    }

    fn write_whole(&self, packet: &[u8]) {
        match rustix::io::write(self.device.get_ref(), packet).map_err(io::Error::from) {
            Ok(_) => self.counters.count_sent(packet.len(), false),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.counters.drop(Dropped::DeviceFull);
            }
            Err(_) => self.counters.drop(Dropped::DeviceFailed),
        }
    }
}

impl Inside for Tun {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.device.poll_read_ready(context))?.retain_ready();
        Poll::Ready(Ok(()))
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<(VnetHeader, usize)> {
        let read = |device: &OwnedFd| Ok(rustix::io::read(device, &mut *buffer)?);
        let length = self.device.try_io(Interest::READABLE, read)?;
        Ok((VnetHeader::default(), length))
    }

    /// The kernel has forwarded them.
    fn is_behind_router(&self) -> bool {
        true
    }

    fn write(&self, packet: &mut [u8]) {
        match packet[0] >> 4 {
            _ if packet.len() <= self.mtu => self.write_whole(packet),
            4 => {
                // The kernel makes the fragments, and takes the packet's identification.
                packet[4..6].copy_from_slice(&rand::random::<[u8; 2]>());
                seal_ipv4(packet);
                self.write_whole(packet);
            }
            _ => self.write_fragments(packet),
        }
    }

    fn admit(&self, syn: &[u8]) {
        self.write_whole(syn);
    }

    /// As soon as there is one, the kernel finds it for the flow's datagrams.
    fn datagrams(&self, Ends { peer, target }: Ends) -> Answer<'_, Datagrams> {
        Box::pin(async move {
            let opened = self.sockets.open(SocketKind::Udp, Family::of(target.ip()));
            let opened = opened.await?;
            transparent::permit(&opened, target.is_ipv6())?;
            // Other flows have the same target.
            setsockopt(&opened, ReuseAddr, &true)?;
            bind(opened.as_raw_fd(), &SockaddrStorage::from(target))?;
            let datagrams = Datagrams::Kernel(UdpSocket::from_std(opened.into())?);
            datagrams.prepare_for_batches();
            datagrams.connect(peer).await?;
            Ok(datagrams)
        })
    }
}
