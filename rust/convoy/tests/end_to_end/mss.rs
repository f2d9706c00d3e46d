//! TCP between hosts with Ethernet's MTU behind both ends of a tunnel. Only the left daemon may lower the
//! MSS in their handshakes.
//!
//! ```text
//!   near                    left                right                    far
//!   10.81.0.2 ── veth ── 10.81.0.1 ═════════ 10.82.0.1 ── veth ── 10.82.0.2
//!   fd81::2              fd81::1               fd82::1              fd82::2
//!           1,500 bytes           1,420 bytes           1,500 bytes
//! ```

use std::net::IpAddr;

use convoy_lab::{
    Lab, Namespace, PacketSocket, Turn,
    wireguard::{End, Tunnel, TunnelOptions},
};
use etherparse::{NetSlice, SlicedPacket, TcpOptionElement, TcpSlice, TransportSlice};
use socket2::SockRef;

use crate::{
    hub::forward,
    scene::{DEADLINE, convoy, lab},
    stats::Stats,
    traffic::{connection, ping},
};

#[test]
fn a_clamped_handshake_announces_what_the_tunnel_carries() {
    let Some(hosts) = Hosts::new("on") else {
        return;
    };
    for (from, to) in hosts.both_ways() {
        for (is_v4, most) in [(true, 1_380), (false, 1_360)] {
            let seen = shake_hands(from, to, is_v4);
            assert_eq!(seen.announced, [most; 2]);
            let fits = |mss: &u32| *mss <= most.into();
            assert!(seen.in_use.iter().all(fits), "{:?}", seen.in_use);
        }
    }
}

#[test]
fn a_handshake_passes_unchanged_by_default() {
    let Some(hosts) = Hosts::new("off") else {
        return;
    };
    for (from, to) in hosts.both_ways() {
        for (is_v4, mss) in [(true, 1_460), (false, 1_440)] {
            assert_eq!(shake_hands(from, to, is_v4).announced, [mss; 2]);
        }
    }
}

/// The two hosts behind the tunnel.
struct Hosts {
    near: Host,
    far: Host,
    _tunnel: Tunnel,
    _lab: Lab,
    _turn: Turn,
}

struct Host {
    namespace: Namespace,
    v4: IpAddr,
    v6: IpAddr,
}

impl Hosts {
    /// With this value of the left daemon's switch.
    fn new(clamp_mss: &str) -> Option<Self> {
        let (turn, lab) = lab(&["ping"])?;
        let left = match clamp_mss {
            "off" => convoy(),
            value => convoy().argument("--clamp-mss").argument(value),
        };
        let options = TunnelOptions::default();
        let mut tunnel = Tunnel::new(&lab, &left, &convoy(), &options).unwrap();
        route_to_host(&mut tunnel.left, &tunnel.right, 82);
        route_to_host(&mut tunnel.right, &tunnel.left, 81);
        let [near, far] = [(&tunnel.left, 81, 82), (&tunnel.right, 82, 81)]
            .map(|(end, own, other)| Host::behind(&lab, end, own, other));
        // The right daemon learns the left one's endpoint.
        ping(&tunnel.left, tunnel.right.inner_v4());
        assert_eq!(Stats::of(&tunnel.left).state("clamp_mss"), clamp_mss);
        Some(Self {
            near,
            far,
            _tunnel: tunnel,
            _lab: lab,
            _turn: turn,
        })
    }

    fn both_ways(&self) -> [(&Host, &Host); 2] {
        [(&self.near, &self.far), (&self.far, &self.near)]
    }
}

/// Routes the other end's host through the tunnel.
fn route_to_host(end: &mut End, other: &End, network: u8) {
    let (v4, v6) = (format!("10.{network}.0.0/24"), format!("fd{network}::/64"));
    let allowed_ips = &mut end.config.peers[0].allowed_ips;
    allowed_ips.extend([v4.clone(), v6.clone()]);
    end.daemon.configure(&end.config).unwrap();
    let link = end.namespace.link();
    link.add_route_through(&v4, other.inner_v4()).unwrap();
    link.add_route_through(&v6, other.inner_v6()).unwrap();
    forward(&end.namespace);
}

impl Host {
    fn behind(lab: &Lab, end: &End, own: u8, other: u8) -> Self {
        let namespace = lab.namespace("host").unwrap();
        let v4 = |number| format!("10.{own}.0.{number}");
        let v6 = |number| format!("fd{own}::{number}");
        let addresses = |number| [v4(number) + "/24", v6(number) + "/64"];
        let (inside, outside) = (addresses(2), addresses(1));
        let (inside, outside) = (
            inside.each_ref().map(String::as_str),
            outside.each_ref().map(String::as_str),
        );
        lab.veth(
            &namespace,
            "veth0",
            &inside,
            &end.namespace,
            "lan",
            &outside,
            1_500,
        )
        .unwrap();
        let link = namespace.link();
        for (network, gateway) in [
            (format!("10.{other}.0.0/24"), v4(1)),
            (format!("fd{other}::/64"), v6(1)),
        ] {
            let gateway = gateway.parse().unwrap();
            link.add_route_through(&network, gateway).unwrap();
        }
        Self {
            namespace,
            v4: v4(2).parse().unwrap(),
            v6: v6(2).parse().unwrap(),
        }
    }

    fn address(&self, is_v4: bool) -> IpAddr {
        if is_v4 { self.v4 } else { self.v6 }
    }
}

/// The maximum segment sizes of a connection, in bytes.
struct Sizes {
    /// As they arrive: in the SYN, and in its answer.
    announced: [u16; 2],
    /// As both kernels then use them.
    in_use: [u32; 2],
}

/// Connects two hosts.
fn shake_hands(from: &Host, to: &Host, is_v4: bool) -> Sizes {
    let [at_from, at_to] =
        [from, to].map(|host| PacketSocket::hearing(&host.namespace, "veth0").unwrap());
    let (client, server) = connection(&from.namespace, &to.namespace, to.address(is_v4));
    Sizes {
        announced: [
            announced(&at_to, from.address(is_v4)),
            announced(&at_from, to.address(is_v4)),
        ],
        in_use: [&client, &server].map(|socket| SockRef::from(socket).tcp_mss().unwrap()),
    }
}

/// The MSS in the first SYN from `sender`. Its checksum must be right.
fn announced(heard: &PacketSocket, sender: IpAddr) -> u16 {
    loop {
        let frame = heard.receive(DEADLINE).unwrap().expect("a SYN");
        let packet = SlicedPacket::from_ethernet(&frame).unwrap();
        let (Some(network), Some(TransportSlice::Tcp(tcp))) = (packet.net, packet.transport) else {
            continue;
        };
        let Some(checksum) = checksum_from(sender, &network, &tcp).filter(|_| tcp.syn()) else {
            continue;
        };
        assert_eq!(tcp.checksum(), checksum);
        let mut options = tcp.options_iterator().flatten();
        let mss = options.find_map(|option| match option {
            TcpOptionElement::MaximumSegmentSize(mss) => Some(mss),
            _ => None,
        });
        return mss.expect("an MSS");
    }
}

/// The right TCP checksum; `None` if the packet is not from `sender`.
fn checksum_from(sender: IpAddr, network: &NetSlice<'_>, tcp: &TcpSlice<'_>) -> Option<u16> {
    let (source, checksum): (IpAddr, _) = match network {
        NetSlice::Ipv4(ip) => {
            let (source, destination) = (ip.header().source(), ip.header().destination());
            (source.into(), tcp.calc_checksum_ipv4(source, destination))
        }
        NetSlice::Ipv6(ip) => {
            let (source, destination) = (ip.header().source(), ip.header().destination());
            (source.into(), tcp.calc_checksum_ipv6(source, destination))
        }
        NetSlice::Arp(_) => return None,
    };
    (source == sender).then(|| checksum.unwrap())
}
