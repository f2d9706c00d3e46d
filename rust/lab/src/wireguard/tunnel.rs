//! Two daemons that are each other's peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{
    error::LabError,
    lab::Lab,
    namespace::Namespace,
    wireguard::{Config, Daemon, Implementation, KeyPair, Peer},
};

/// The interface of the tunnel, on both ends.
const INTERFACE: &str = "wg0";
/// The cable between the ends.
const CABLE: &str = "veth0";
/// The UDP port of both ends.
const PORT: u16 = 51_820;

/// Which IP version carries the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Underlay {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// How a [`Tunnel`] is to be.
#[derive(Clone, Copy, Debug)]
pub struct TunnelOptions {
    /// Which IP version carries the tunnel.
    pub underlay: Underlay,
    /// The MTU of the cable in bytes.
    pub cable_mtu: u32,
    /// The MTU of the tunnel in bytes.
    pub tunnel_mtu: u32,
}

/// Ethernet, and WireGuard's usual MTU over it.
impl Default for TunnelOptions {
    fn default() -> Self {
        Self {
            underlay: Underlay::V4,
            cable_mtu: 1_500,
            tunnel_mtu: 1_420,
        }
    }
}

/// Two namespaces joined by a cable, and a WireGuard daemon in each.
pub struct Tunnel {
    /// The end that knows where the other is, and so speaks first.
    pub left: End,
    /// The end that waits to be spoken to.
    pub right: End,
}

/// One end of a [`Tunnel`].
pub struct End {
    /// Where the daemon runs.
    pub namespace: Namespace,
    /// The daemon.
    pub daemon: Daemon,
    /// The daemon's identity.
    pub keys: KeyPair,
    /// What the daemon has been told.
    pub config: Config,
    /// 1 for the left end, 2 for the right.
    number: u8,
    tunnel_mtu: u32,
}

impl Tunnel {
    /// Builds the tunnel: the cable, the daemons, keys, addresses and routes. No packet has gone
    /// through it yet.
    ///
    /// # Errors
    ///
    /// When a namespace or a link cannot be had, or a daemon does not start.
    pub fn new(
        lab: &Lab,
        left: &Implementation,
        right: &Implementation,
        options: &TunnelOptions,
    ) -> Result<Self, LabError> {
        let (a, b) = (lab.namespace("left")?, lab.namespace("right")?);
        let outer = |n: u8| [format!("10.9.0.{n}/24"), format!("fd09::{n}/64")];
        let (outer_a, outer_b) = (outer(1), outer(2));
        lab.veth(
            &a,
            CABLE,
            &outer_a.each_ref().map(String::as_str),
            &b,
            CABLE,
            &outer_b.each_ref().map(String::as_str),
            options.cable_mtu,
        )?;
        let (keys_a, keys_b) = (KeyPair::generate(), KeyPair::generate());
        let right_outside = SocketAddr::new(outer_address(options.underlay, 2), PORT);
        let left_config = config(&keys_a, &keys_b, 2, Some(right_outside));
        let right_config = config(&keys_b, &keys_a, 1, None);
        Ok(Self {
            left: End::start(a, left, keys_a, left_config, 1, options.tunnel_mtu)?,
            right: End::start(b, right, keys_b, right_config, 2, options.tunnel_mtu)?,
        })
    }
}

impl End {
    /// This end's address inside the tunnel.
    #[must_use]
    pub fn inner_v4(&self) -> IpAddr {
        Ipv4Addr::new(10, 8, 0, self.number).into()
    }

    /// This end's IPv6 address inside the tunnel.
    #[must_use]
    pub fn inner_v6(&self) -> IpAddr {
        Ipv6Addr::new(0xfd08, 0, 0, 0, 0, 0, 0, self.number.into()).into()
    }

    /// Where this end's daemon is to be found outside the tunnel.
    #[must_use]
    pub fn outer(&self, underlay: Underlay) -> SocketAddr {
        SocketAddr::new(outer_address(underlay, self.number), PORT)
    }

    /// Kills the daemon without notice, starts `implementation` in its place, and tells it the
    /// same as before.
    ///
    /// # Errors
    ///
    /// When the new daemon does not start.
    pub fn replace_daemon(&mut self, implementation: &Implementation) -> Result<(), LabError> {
        self.daemon.signal(nix::sys::signal::Signal::SIGKILL)?;
        self.daemon.wait()?;
        self.daemon = Daemon::start(&self.namespace, implementation, INTERFACE)?;
        self.bring_up()
    }

    fn start(
        namespace: Namespace,
        implementation: &Implementation,
        keys: KeyPair,
        config: Config,
        number: u8,
        tunnel_mtu: u32,
    ) -> Result<Self, LabError> {
        let daemon = Daemon::start(&namespace, implementation, INTERFACE)?;
        let end = Self {
            namespace,
            daemon,
            keys,
            config,
            number,
            tunnel_mtu,
        };
        end.bring_up()?;
        Ok(end)
    }

    /// Configures the daemon, and its interface as wg-quick(8) would.
    fn bring_up(&self) -> Result<(), LabError> {
        self.daemon.configure(&self.config)?;
        let link = self.namespace.link();
        link.set_mtu(INTERFACE, self.tunnel_mtu)?;
        link.add_address(INTERFACE, &format!("{}/24", self.inner_v4()))?;
        // Below the least MTU of IPv6 the kernel has no IPv6 on the link (RFC 8200, section 5).
        if self.tunnel_mtu >= 1_280 {
            link.add_address(INTERFACE, &format!("{}/64", self.inner_v6()))?;
        }
        link.set_up(INTERFACE)
    }
}

fn outer_address(underlay: Underlay, number: u8) -> IpAddr {
    match underlay {
        Underlay::V4 => Ipv4Addr::new(10, 9, 0, number).into(),
        Underlay::V6 => Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, number.into()).into(),
    }
}

fn config(own: &KeyPair, peer: &KeyPair, peer_number: u8, endpoint: Option<SocketAddr>) -> Config {
    Config {
        private_key: own.private,
        listen_port: PORT,
        peers: vec![Peer {
            public_key: peer.public,
            preshared_key: None,
            endpoint,
            persistent_keepalive: 0,
            allowed_ips: vec![
                format!("10.8.0.{peer_number}/32"),
                format!("fd08::{peer_number}/128"),
            ],
        }],
    }
}
