//! A super-packet through two tunnels with all their threads: in-memory TUN devices, UDP on loopback.

use std::net::Ipv4Addr;

use convoy_stages::{HERE, Host, THERE, packets::VNET_LEN, packets::unsegmented};
use convoy_tun::memory::{self, Kernel};
use convoy_tunnel::{Options, Tunnel};
use divan::{Bencher, counter::ItemsCount};

use crate::{FLOW, MTU, OFFLOAD, PATIENCE, SEGMENT_PAYLOAD, SEGMENTS, each};

/// IPv4 and TCP, without options.
const HEADERS: usize = 40;

#[divan::bench]
fn super_packet(bencher: Bencher<'_, '_>) {
    let (here, there) = (End::start(HERE), End::start(THERE));
    here.add_peer(&there);
    there.add_peer(&here);
    // Begins the session.
    here.kernel.send(&unsegmented(&FLOW.udp(100)));
    there.receive();
    let raw = FLOW.tcp_super_packet(SEGMENTS, SEGMENT_PAYLOAD);
    each(bencher, ItemsCount::new(SEGMENTS), || {
        here.kernel.send(&raw);
        let mut left = SEGMENTS * SEGMENT_PAYLOAD;
        while left > 0 {
            left -= there.receive() - VNET_LEN - HEADERS;
        }
    });
}

/// A tunnel, and the kernel side of its TUN.
struct End {
    host: Host,
    tunnel: Tunnel,
    kernel: Kernel,
}

impl End {
    fn start(host: Host) -> Self {
        let (device, kernel) = memory::pair(OFFLOAD, MTU).expect("a descriptor");
        let tunnel = Tunnel::start(device, Options::default()).expect("the tunnel starts");
        let own = host.configuration(Vec::new());
        tunnel.apply(own).expect("a private key");
        Self {
            host,
            tunnel,
            kernel,
        }
    }

    fn add_peer(&self, peer: &Self) {
        let port = peer.tunnel.snapshot().expect("it runs").listen_port;
        let peer = peer.host.as_peer((Ipv4Addr::LOCALHOST, port));
        let update = self.host.configuration(vec![peer]);
        self.tunnel.apply(update).expect("a peer");
    }

    /// The length of the next packet written.
    fn receive(&self) -> usize {
        let raw = self.kernel.receive(PATIENCE).expect("a packet arrives");
        let len = raw.len();
        self.kernel.recycle(raw);
        len
    }
}
