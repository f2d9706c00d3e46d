//! The gateway, two peers that use it, and hosts outside.
//!
//! ```text
//!  server: wireguard-go, 10.8.0.1 ──── net ──── client: the user's gateway, 10.8.0.2
//!  second: Convoy,       10.8.0.3 ─────┘ └ hosts outside: 198.18.0.1, 2001:db8:18::1
//! ```

use std::{
    fs, io,
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
};

use convoy_lab::{Namespace, Pid, eventually, wireguard::Daemon};
use socket2::{Domain, Socket, Type};

use super::super::{
    user::{PROGRAM, USER, error, nothing_is_left, succeeds, user, world_of},
    userspace::ports::{ECHO, up_with},
    world::World,
};
use crate::{
    scene::{DEADLINE, convoy},
    twins::{private_key, public_key},
};

/// Hosts outside.
pub(in super::super) const OUTSIDE: [&str; 2] = ["198.18.0.1", "2001:db8:18::1"];
/// Hosts outside to which there is no way, and of which nothing is heard.
pub(in super::super) const UNREACHABLE: &str = "198.18.0.98";
pub(in super::super) const SILENT: &str = "198.18.0.99";
/// Networks that peers reach through the gateway: hosts outside, the router, and those that nobody should reach.
const THROUGH: &str = "198.18.0.0/15,192.168.1.1/32,192.168.1.3/32,169.254.0.0/16,127.0.0.2/32,10.8.0.0/24,\
     2001:db8:18::/48,2001:db8:2::1/128,2001:db8:2::3/128,fd00:ec2::/32,fd08::/64";

pub(in super::super) struct Place {
    pub(in super::super) world: World,
    second: Namespace,
    _daemon: Daemon,
}

impl Place {
    /// The gateway is up with these arguments. `None` if the machine cannot provide it.
    pub(in super::super) fn new(interface: &str, args: &[&str]) -> Option<Self> {
        let place = Self::without_gateway(interface)?;
        place.up(args);
        Some(place)
    }

    /// The gateway is not up.
    pub(in super::super) fn without_gateway(interface: &str) -> Option<Self> {
        let second = public_key(3);
        let peers = format!(
            "Endpoint = 203.0.113.1:51820\nAllowedIPs = 10.8.0.1/32, fd08::1/128\nPersistentKeepalive = 25\n\
             [Peer]\nPublicKey = {second}\nEndpoint = 192.0.2.2:51820\nAllowedIPs = 10.8.0.3/32, fd08::3/128\n\
             PersistentKeepalive = 25\n"
        );
        let world = world_of(interface, &peers, &[])?;
        world.net.link().bring_up("lo", 65_536, &OUTSIDE).unwrap();
        let [of_second, of_net] = [["192.0.2.2/24"], ["192.0.2.1/24"]];
        let second = world.lab().namespace("second").unwrap();
        let lab = world.lab();
        lab.veth(
            &second, "eth0", &of_second, &world.net, "dmz", &of_net, 1_500,
        )
        .unwrap();
        world.shell_at(
            &world.net,
            &format!("ip route add unreachable {UNREACHABLE}; ip route add blackhole {SILENT}"),
        );
        // As most distributions have it.
        world.shell("echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range");
        // Addresses of the gateway's host that no datagram of a tunnel goes to.
        world.shell(
            "ip addr add 192.168.1.3/24 dev eth0; ip addr add 2001:db8:2::3/64 dev eth0 nodad",
        );
        let daemon = Daemon::start(&second, &convoy(), "wg0").unwrap();
        let own = ["10.8.0.3/24", "fd08::3/64"];
        second.link().bring_up("wg0", 1_420, &own).unwrap();
        let (key, gateway) = (private_key(3), public_key(1));
        world.shell_at(
            &second,
            &format!(
                "ip route add default via 192.0.2.1; echo {key} > /run/key
                 wg set wg0 listen-port 51820 private-key /run/key peer {gateway} allowed-ips 10.8.0.2/32,fd08::2/128"
            ),
        );
        for peer in [&second, &world.server] {
            let routes = THROUGH
                .split(',')
                .map(|it| format!("ip route replace {it} dev wg0\n"));
            let routes: String = routes.collect();
            world.shell_at(
                peer,
                &format!("wg set wg0 peer {gateway} allowed-ips {THROUGH}\n{routes}"),
            );
        }
        Some(Self {
            world,
            second,
            _daemon: daemon,
        })
    }

    /// Brings the gateway up, and waits until both peers have heard of it; returns what was said.
    pub(in super::super) fn up(&self, args: &[&str]) -> String {
        let outcome = up_with(&self.world, args);
        succeeds(&outcome);
        for peer in self.peers() {
            let pings = || pings(peer, &["10.8.0.2"]).then_some(());
            assert!(eventually(DEADLINE, pings).is_some(), "{}", peer.label());
        }
        error(&outcome)
    }

    /// wireguard-go, and Convoy.
    pub(in super::super) fn peers(&self) -> [&Namespace; 2] {
        [&self.world.server, &self.second]
    }

    /// Ends the gateway as its user.
    pub(in super::super) fn down(&self) {
        let down = user(&self.world, PROGRAM).args(["down", "wg0"]).output();
        succeeds(&down.unwrap());
        nothing_is_left(&self.world);
    }
}

/// Returns whether a host answers an echo request.
pub(in super::super) fn pings(peer: &Namespace, words: &[&str]) -> bool {
    let mut ping = peer.command("ping");
    let ping = ping.args(["-n", "-c1", "-W1"]).args(words);
    ping.output().unwrap().status.success()
}

/// The process that holds the namespace of the user's only tunnel.
pub(in super::super) fn holder_of_user() -> Pid {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = all.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
    let is_it = |pid: &i32| {
        let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        read("cmdline").contains("namespace-holder")
            && read("status").contains(&format!("Uid:\t{USER}"))
    };
    Pid::from_raw(pids.find(is_it).unwrap())
}

/// Sends datagrams to [`ECHO`] of a host until one comes back.
pub(in super::super) fn answers(peer: &Namespace, host: &str, bytes: usize) {
    let socket = socket(peer, host, ECHO);
    let question = vec![7; bytes];
    let mut answer = vec![0; bytes + 1];
    socket.send(&question).unwrap();
    let length = socket.recv(&mut answer).unwrap();
    assert!(answer[..length] == question, "{length}");
}

/// Sends a datagram to a port; returns what the network says about it.
pub(in super::super) fn ask(peer: &Namespace, host: &str, port: u16) -> io::Result<usize> {
    let socket = socket(peer, host, port);
    socket.send(b"question")?;
    socket.recv(&mut [0; 16])
}

/// Sends the first packet of a connection to [`ECHO`] of a host, and waits for nothing.
pub(in super::super) fn begins_to_connect(peer: &Namespace, host: &str) -> TcpStream {
    let to = SocketAddr::from((host.parse::<IpAddr>().unwrap(), ECHO));
    let open = || Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    let socket = peer.run(open).unwrap();
    socket.set_nonblocking(true).unwrap();
    let pending = socket.connect(&to.into()).unwrap_err();
    assert_eq!(pending.raw_os_error(), Some(libc::EINPROGRESS), "{host}");
    socket.into()
}

pub(in super::super) fn socket(peer: &Namespace, host: &str, port: u16) -> UdpSocket {
    let to: SocketAddr = (host.parse::<IpAddr>().unwrap(), port).into();
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let bind = || UdpSocket::bind(any).and_then(|it| it.connect(to).map(|()| it));
    let socket = peer.run(bind).unwrap().unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket
}
