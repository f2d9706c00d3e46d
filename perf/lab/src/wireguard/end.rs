//! A daemon with its interface up and its addresses: one end of a tunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::sys::signal::Signal;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::wireguard::{Config, Daemon, Implementation, KeyPair, Peer};

/// The interface of the tunnel at every end.
const INTERFACE: &str = "wg0";
/// The UDP port of every end.
const PORT: u16 = 51_820;

/// The IP version that carries a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Underlay {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The identity of an end: its keys, and the number from which its addresses are derived.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The daemon's keys.
    pub keys: KeyPair,
    /// The last part of all its addresses, from 1 to 254.
    pub number: u8,
}

/// One end of a tunnel.
pub struct End {
    /// Where the daemon runs.
    pub namespace: Namespace,
    /// The daemon.
    pub daemon: Daemon,
    /// The daemon's identity.
    pub keys: KeyPair,
    /// The daemon's configuration.
    pub config: Config,
    number: u8,
    tunnel_mtu: u32,
}

impl Identity {
    /// A new random identity.
    pub fn new(number: u8) -> Self {
        let keys = KeyPair::generate();
        Self { keys, number }
    }

    /// This end as a peer of another one: its key, its address (if known beforehand) and its inner
    /// addresses.
    pub fn as_peer(&self, endpoint: Option<SocketAddr>) -> Peer {
        Peer {
            public_key: self.keys.public,
            endpoint,
            allowed_ips: vec![
                format!("{}/32", inner_v4(self.number)),
                format!("{}/128", inner_v6(self.number)),
            ],
            ..Peer::default()
        }
    }
}

impl End {
    /// Starts a daemon with these peers that listens on port 51,820, and sets its interface up with its
    /// addresses and an MTU in bytes.
    pub fn start(
        namespace: &Namespace,
        implementation: &Implementation,
        identity: &Identity,
        peers: Vec<Peer>,
        tunnel_mtu: u32,
    ) -> Result<Self> {
        let end = Self {
            namespace: namespace.clone(),
            daemon: Daemon::start(namespace, implementation, INTERFACE)?,
            keys: identity.keys.clone(),
            config: Config {
                private_key: identity.keys.private,
                listen_port: PORT,
                peers,
            },
            number: identity.number,
            tunnel_mtu,
        };
        end.bring_up()?;
        Ok(end)
    }

    /// This end's address inside the tunnel.
    pub fn inner_v4(&self) -> IpAddr {
        inner_v4(self.number).into()
    }

    /// This end's IPv6 address inside the tunnel.
    pub fn inner_v6(&self) -> IpAddr {
        inner_v6(self.number).into()
    }

    /// This end's address outside the tunnel, if it is an end of a [`Tunnel`](crate::wireguard::Tunnel).
    pub fn outer(&self, underlay: Underlay) -> SocketAddr {
        outer(underlay, self.number)
    }

    /// Kills the daemon, unless it has ended.
    pub fn kill_daemon(&mut self) -> Result<()> {
        if self.daemon.ended().is_none() {
            self.daemon.signal(Signal::SIGKILL)?;
            self.daemon.wait()?;
        }
        Ok(())
    }

    /// Kills the daemon, starts `implementation` in its place, and configures it as before.
    pub fn replace_daemon(&mut self, implementation: &Implementation) -> Result<()> {
        self.kill_daemon()?;
        self.daemon = Daemon::start(&self.namespace, implementation, INTERFACE)?;
        self.bring_up()
    }

    /// Configures the daemon, and its interface as wg-quick(8) would.
    fn bring_up(&self) -> Result<()> {
        self.daemon.configure(&self.config)?;
        let link = self.namespace.link();
        // Below the minimum MTU of IPv6, the kernel disables IPv6 on the link (RFC 8200, section 5).
        let has_ipv6 = self.tunnel_mtu >= 1_280;
        let v4 = format!("{}/24", self.inner_v4());
        let v6 = has_ipv6.then(|| format!("{}/64", self.inner_v6()));
        let addresses: Vec<_> = [v4].into_iter().chain(v6).collect();
        link.bring_up(INTERFACE, self.tunnel_mtu, &addresses)?;
        // The daemon opens its sockets when it learns that the link is up.
        self.daemon.wait_until_listening(self.config.listen_port)?;
        if has_ipv6 {
            self.daemon.wait_until_addressed(inner_v6(self.number))?;
        }
        Ok(())
    }
}

pub(super) fn outer(underlay: Underlay, number: u8) -> SocketAddr {
    let ip: IpAddr = match underlay {
        Underlay::V4 => Ipv4Addr::new(10, 9, 0, number).into(),
        Underlay::V6 => Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, number.into()).into(),
    };
    SocketAddr::new(ip, PORT)
}

fn inner_v4(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 8, 0, number)
}

fn inner_v6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd08, 0, 0, 0, 0, 0, 0, number.into())
}
