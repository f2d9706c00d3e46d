//! A super-packet through two tunnels with all their threads: TUN devices in memory, UDP on loopback.

use std::{net::Ipv4Addr, time::Duration};

use convoy_stages::{
    Host, measured,
    packets::{Flow, VNET_LEN, unsegmented},
};
use convoy_tun::{
    Offload,
    memory::{self, Kernel},
};
use convoy_tunnel::{Options, Tunnel};
use divan::{Bencher, counter::ItemsCount};

use crate::{SEGMENT_PAYLOAD, SEGMENTS};

const MTU: u16 = 1420;
const PATIENCE: Duration = Duration::from_secs(5);
/// IPv4 and TCP, without options.
const HEADERS: usize = 40;

#[divan::bench]
fn super_packet(bencher: Bencher<'_, '_>) {
    let (here, there) = connected();
    let flow = Flow {
        from: here.host.inner(),
        to: there.host.inner(),
    };
    let raw = flow.tcp_super_packet(SEGMENTS, SEGMENT_PAYLOAD);
    bencher.counter(ItemsCount::new(SEGMENTS)).bench_local(|| {
        measured(|| {
            here.kernel.send(&raw);
            let mut left = SEGMENTS * SEGMENT_PAYLOAD;
            while left > 0 {
                left -= there.receive() - VNET_LEN - HEADERS;
            }
        });
    });
}

/// A tunnel, and the kernel behind its TUN.
struct End {
    host: Host,
    tunnel: Tunnel,
    kernel: Kernel,
}

/// Two tunnels with a session.
fn connected() -> (End, End) {
    let (here, there) = (End::start(Host(1)), End::start(Host(2)));
    here.add_peer(&there);
    there.add_peer(&here);
    let flow = Flow {
        from: here.host.inner(),
        to: there.host.inner(),
    };
    here.kernel.send(&unsegmented(&flow.udp(100)));
    there.receive();
    (here, there)
}

impl End {
    fn start(host: Host) -> Self {
        let offload = Offload {
            vnet_hdr: true,
            tcp: true,
            udp: true,
        };
        let (device, kernel) = memory::pair(offload, MTU).expect("a descriptor");
        let tunnel = Tunnel::start(device, Options::default()).expect("the tunnel starts");
        let end = Self {
            host,
            tunnel,
            kernel,
        };
        let own = host.configuration(Vec::new());
        end.tunnel.apply(own).expect("a private key");
        end
    }

    fn add_peer(&self, peer: &Self) {
        let port = peer.tunnel.snapshot().expect("it runs").listen_port;
        let endpoint = (Ipv4Addr::LOCALHOST, port).into();
        let peer = peer.host.as_peer(endpoint);
        let update = self.host.configuration(vec![peer]);
        self.tunnel.apply(update).expect("a peer");
    }

    /// The length of the next write.
    fn receive(&self) -> usize {
        let raw = self.kernel.receive(PATIENCE).expect("a packet arrives");
        let len = raw.len();
        self.kernel.recycle(raw);
        len
    }
}
