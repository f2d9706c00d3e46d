//! Two tunnels in one process: TUN devices in memory, UDP on loopback. Needs no root.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use convoy_proto::{
    config::{AllowedIpUpdate, DeviceUpdate, PeerUpdate, Prefix, PrivateKey, PublicKey, Snapshot},
    noise::Identity,
};
use convoy_tun::{
    Offload,
    memory::{self, Kernel},
};
use convoy_tunnel::{Options, Tunnel};

/// Time limit for anything that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of the virtio header in front of each packet.
pub const VNET: usize = 10;

/// One tunnel and the kernel behind its TUN.
pub struct End {
    pub tunnel: Tunnel,
    pub kernel: Kernel,
    pub inner: Ipv4Addr,
    pub key: PrivateKey,
}

/// Two tunnels that are each other's peer, with their first handshake done.
pub fn connected(options: &Options) -> (End, End) {
    let (a, b) = (End::start(1, options), End::start(2, options));
    a.add_peer(&b);
    b.add_peer(&a);
    for (from, to) in [(&a, &b), (&b, &a)] {
        from.send(&udp(from.inner, to.inner, b"first"));
        assert_eq!(to.receive_payload(), b"first");
    }
    (a, b)
}

impl End {
    pub fn start(n: u8, options: &Options) -> Self {
        let offload = Offload {
            vnet_hdr: true,
            tcp: true,
            udp: true,
        };
        let (device, kernel) = memory::pair(offload, 1420).expect("file descriptors");
        let tunnel = Tunnel::start(device, options.clone()).expect("the tunnel starts");
        let key = PrivateKey([n; 32]);
        let update = DeviceUpdate {
            private_key: Some(Some(key.clone())),
            ..DeviceUpdate::default()
        };
        tunnel.apply(update).expect("a private key");
        Self {
            tunnel,
            kernel,
            inner: [10, 0, 0, n].into(),
            key,
        }
    }

    pub fn add_peer(&self, peer: &Self) {
        let mut update = PeerUpdate::new(peer.public_key());
        let port = peer.snapshot().listen_port;
        update.endpoint = Some((Ipv4Addr::LOCALHOST, port).into());
        update.allowed_ips = vec![AllowedIpUpdate {
            network: Prefix::network_of(peer.inner.into(), 32).expect("a prefix"),
            remove: false,
        }];
        let update = DeviceUpdate {
            peers: vec![update],
            ..DeviceUpdate::default()
        };
        self.tunnel.apply(update).expect("a peer");
    }

    pub fn public_key(&self) -> PublicKey {
        Identity::new(&self.key).public_key()
    }

    pub fn snapshot(&self) -> Snapshot {
        self.tunnel.snapshot().expect("the tunnel runs")
    }

    /// Lets the tunnel read `packet` from its TUN, behind an empty virtio header.
    pub fn send(&self, packet: &[u8]) {
        self.kernel.send(&[&[0; VNET], packet].concat());
    }

    /// The payload of the next packet that the tunnel writes to its TUN.
    pub fn receive_payload(&self) -> Vec<u8> {
        let raw = self.kernel.receive(PATIENCE).expect("a packet arrives");
        let payload = raw[VNET + 28..].to_vec();
        self.kernel.recycle(raw);
        payload
    }
}

/// Waits until `condition` holds.
pub fn eventually(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "gave up after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An IPv4 UDP packet without a UDP checksum, which keeps it out of coalescing.
pub fn udp(from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut packet = ipv4_header(from, to, 17, 8 + payload.len());
    packet.extend([0x10, 0, 0x20, 0]);
    packet.extend(((8 + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

/// A TCP super-packet as the kernel hands it over: virtio header, and a checksum to complete.
pub fn tcp_super_packet(from: Ipv4Addr, to: Ipv4Addr, segment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = ipv4_header(from, to, 6, 20 + payload.len());
    packet.extend([
        0x10, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff,
    ]);
    let pseudo = pseudo_header(&packet, 6, 20 + payload.len());
    packet.extend(pseudo.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    let mut raw = vec![1, 1, 40, 0];
    raw.extend(segment.to_le_bytes());
    raw.extend([20, 0, 16, 0]);
    raw.extend(packet);
    raw
}

/// A TCP segment that opens a connection, as the kernel hands it over: virtio header, and a checksum to
/// complete.
pub fn tcp_syn(from: Ipv4Addr, to: Ipv4Addr, mss: u16) -> Vec<u8> {
    let mut packet = ipv4_header(from, to, 6, 24);
    packet.extend([
        0x10, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 0x02, 0xff, 0xff,
    ]);
    let pseudo = pseudo_header(&packet, 6, 24);
    packet.extend(pseudo.to_be_bytes());
    packet.extend([0, 0, 2, 4]);
    packet.extend(mss.to_be_bytes());
    [&[1, 0, 0, 0, 0, 0, 20, 0, 16, 0][..], &packet].concat()
}

/// Returns whether the checksum of an IPv4 packet's TCP segment is right.
pub fn is_tcp_checksum_right(packet: &[u8]) -> bool {
    let pseudo = pseudo_header(packet, 6, packet.len() - 20);
    let all = [&pseudo.to_be_bytes()[..], &packet[20..]].concat();
    ones_complement_sum(&all) == 0xffff
}

fn ipv4_header(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, len: usize) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend(((20 + len) as u16).to_be_bytes());
    header.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    let checksum = !ones_complement_sum(&header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

fn pseudo_header(ip: &[u8], protocol: u8, len: usize) -> u16 {
    let mut bytes = ip[12..20].to_vec();
    bytes.extend([0, protocol]);
    bytes.extend((len as u16).to_be_bytes());
    ones_complement_sum(&bytes)
}

fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u16::from_be_bytes([w[0], w[1]]));
    let mut sum: u32 = words.map(u32::from).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
