//! The configuration, parsed.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use convoy_types::{
    InterfaceName, Password, Prefix, PresharedKey, PrivateKey, PublicKey, RelayTransport,
};

use crate::{
    authorities::Certificates,
    base64::encode_key,
    forward::Forwarding,
    located::{Files, Located, Place},
    report::Report,
    source::Source,
    trust::Untrusted,
};

/// The configuration of a tunnel.
///
/// No public key occurs twice, and no prefix belongs to two peers.
#[derive(Clone, Debug)]
pub struct Config {
    /// The interface's name: that of the file.
    pub name: InterfaceName,
    /// The section `[Interface]`.
    pub interface: Interface,
    /// The sections `[Peer]`, those of `NAME.d` last.
    pub peers: Vec<Peer>,
    /// Why the hooks may not run; see [`hooks_are_trusted`](crate::hooks_are_trusted).
    pub hooks_trusted: Result<(), Untrusted>,
    /// The files that places refer to.
    pub files: Arc<Files>,
    /// `NAME.conf` as it was read; `None` if it was replaced at the same moment.
    pub source: Option<Arc<Source>>,
    /// The tunnel through which this one goes.
    pub via: Option<Arc<Via>>,
}

/// The tunnel through which another goes.
#[derive(Clone, Debug)]
pub struct Via {
    /// Its file.
    pub path: PathBuf,
    /// Its configuration, which goes through no third.
    pub config: Config,
}

/// The section `[Interface]`. `None` and empty lists stand for keys that are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interface {
    /// `PrivateKey`, or the contents of `PrivateKeyFile`.
    pub private_key: Option<Located<PrivateKey>>,
    /// `#convoy: PrivateKeyFile`
    pub private_key_file: Option<Located<PathBuf>>,
    /// `ListenPort`; 0 lets the kernel choose.
    pub listen_port: Option<Located<u16>>,
    /// `FwMark`; 0 is `off`.
    pub fwmark: Option<Located<u32>>,
    /// `Address`, with host bits.
    pub addresses: Vec<Located<Prefix>>,
    /// The addresses of `DNS`.
    pub dns_servers: Vec<Located<IpAddr>>,
    /// The search domains of `DNS`.
    pub dns_domains: Vec<Located<SearchDomain>>,
    /// `MTU` in bytes.
    pub mtu: Option<Located<u16>>,
    /// `Table`; [`Table::Auto`] if absent.
    pub table: Option<Located<Table>>,
    /// `PreUp`: commands for a shell, in order; [`crate::expand_hook`] fills in `%i` and `%p`.
    pub pre_up: Vec<Located<String>>,
    /// `PostUp`
    pub post_up: Vec<Located<String>>,
    /// `PreDown`
    pub pre_down: Vec<Located<String>>,
    /// `PostDown`
    pub post_down: Vec<Located<String>>,
    /// `SaveConfig`; false if absent.
    pub save_config: Option<Located<bool>>,
    /// `#convoy: KillSwitch`; [`KillSwitch::Off`] if absent.
    pub kill_switch: Option<Located<KillSwitch>>,
    /// `#convoy: AllowLAN`; whether the kill switch leaves the local network reachable; false if absent.
    pub allow_lan: Option<Located<bool>>,
    /// `#convoy: ExcludedIPs`, without `local`.
    pub excluded_ips: Vec<Located<Prefix>>,
    /// The word `local` in `#convoy: ExcludedIPs`: all but the local network goes through the tunnel.
    pub exclude_local: Option<Located<()>>,
    /// `#convoy: Forward` and all that belongs to it, for a tunnel in user space.
    pub forwarding: Forwarding,
    /// `#convoy: Nat` and all that belongs to it, for a tunnel in user space.
    pub nat: Nat,
    /// `#convoy: Stun`: servers that tell this machine its address outside.
    pub stun: Vec<Located<Endpoint>>,
    /// `#convoy: PortMap`: whether the router is asked to forward the port; false if absent.
    pub port_map: Option<Located<bool>>,
    /// `#convoy: PortForward`: the gateway in the tunnel that is asked for a port.
    pub port_forward: Option<Located<PortForward>>,
    /// `#convoy: PostPortForward`: commands for a shell, which also has `%p`.
    pub post_port_forward: Vec<Located<String>>,
    /// `#convoy: Turn`: servers that relay to peers behind firewalls, at most [`MAX_TURN_SERVERS`](crate::MAX_TURN_SERVERS).
    pub turns: Vec<Located<Turn>>,
    /// `#convoy: Via`: name or file of the tunnel through which this one goes.
    pub via: Option<Located<PathBuf>>,
}

/// A TURN server.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// The transport to it.
    pub transport: RelayTransport,
    /// Its address or name, and its port.
    pub server: Endpoint,
    /// `Username`
    pub user: String,
    /// `CaFile`, for TLS alone.
    pub ca_file: Option<Located<PathBuf>>,
    /// The contents of `CaFile`; `None` until it is read.
    pub authorities: Option<Certificates>,
    /// `PasswordFile`
    pub password_file: Located<PathBuf>,
    /// The contents of `PasswordFile`; `None` until it is read.
    pub password: Option<Password>,
}

/// A gateway in the tunnel that is asked for a port, by NAT-PMP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortForward {
    /// Its address; `None` for that of [`Interface::port_forward_gateway`].
    pub gateway: Option<Ipv4Addr>,
}

/// NAT of the peers' flows to other addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nat {
    /// `Nat`: whether any do, by sockets of the user; false if absent.
    pub is_on: Option<Located<bool>>,
    /// `NatAllow`: targets that are refused by default, but not here.
    pub allow: Vec<Located<Prefix>>,
    /// `NatDeny`: targets that are refused here, in any case.
    pub deny: Vec<Located<Prefix>>,
    /// `NatDNS`: whether peers' DNS queries to this end of the tunnel are answered; false if absent.
    pub dns: Option<Located<bool>>,
}

/// A section `[Peer]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// `PublicKey`
    pub public_key: Located<PublicKey>,
    /// `# friendly_name`, without control characters.
    pub friendly_name: Option<String>,
    /// `PresharedKey`, or the contents of `PresharedKeyFile`; `None` also for a key of zeros.
    pub preshared_key: Option<Located<PresharedKey>>,
    /// `#convoy: PresharedKeyFile`
    pub preshared_key_file: Option<Located<PathBuf>>,
    /// `AllowedIPs`, without repetitions.
    pub allowed_ips: Vec<Located<Prefix>>,
    /// `Endpoint`, then `#convoy: Endpoints`, in order of preference.
    pub endpoints: Vec<Located<Endpoint>>,
    /// `PersistentKeepalive` in seconds; 0 is `off`.
    pub persistent_keepalive: Option<Located<u16>>,
    /// `#convoy: Direct`: peers that are met through this one, at most
    /// [`MAX_DIRECT_PEERS`](convoy_types::MAX_DIRECT_PEERS) in all sections together.
    pub directs: Vec<Located<Direct>>,
}

/// A peer that is met through another, its hub.
#[derive(Clone, Debug, PartialEq)]
pub struct Direct {
    /// The peer's key.
    pub public_key: Located<PublicKey>,
    /// Prefixes of the peer, without repetitions, all within the hub's. The first is its address inside the tunnel.
    pub allowed_ips: Vec<Located<Prefix>>,
    /// The contents of `PresharedKeyFile`; `None` also for a key of zeros.
    pub preshared_key: Option<Located<PresharedKey>>,
    /// `PresharedKeyFile`
    pub preshared_key_file: Option<Located<PathBuf>>,
}

/// A search domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchDomain {
    /// Without a final dot; empty for the root.
    pub name: String,
    /// Written `~name`: decides where names are looked up, but completes none.
    pub route_only: bool,
}

/// Where routes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Table {
    /// No routes.
    Off,
    /// The main table; for default routes a table of their own and rules.
    #[default]
    Auto,
    /// This table.
    Number(u32),
}

/// Whether packets may leave outside of the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KillSwitch {
    /// They may.
    #[default]
    Off,
    /// Not while the tunnel is up.
    On,
    /// Not from now on, even when the tunnel is down or the machine starts.
    Persistent,
}

/// Where a peer can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address or name.
    pub host: Host,
    /// Not 0.
    pub port: u16,
}

/// The host of an [`Endpoint`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address; IPv4-mapped ones are IPv4.
    Ip(IpAddr),
    /// An address with a zone: the name or index of an interface.
    Zoned(Ipv6Addr, String),
    /// A name for DNS.
    Name(String),
}

/// Bytes by which the inner tunnel's MTU is below the outer one's: with IPv4 endpoints alone, and with others.
const OVERHEAD: [u16; 2] = [60, 80];

/// The word before the path of a direct peer's preshared key.
pub(crate) const DIRECT_KEY_FILE: &str = "PresharedKeyFile";
/// The protocol by which a gateway in the tunnel is asked for a port.
pub(crate) const NAT_PMP: &str = "nat-pmp";

impl Config {
    /// Returns the peers of the tunnel through which this one goes; none if it goes through none.
    #[must_use]
    pub fn outer_peers(&self) -> &[Peer] {
        match &self.via {
            Some(via) => &via.config.peers,
            None => &[],
        }
    }

    /// An error about a value of this configuration, shown like those of its files.
    #[must_use]
    pub fn error_at(&self, at: Place, title: &str, label: &str) -> Report {
        Report::about(&self.files, at, title, label)
    }

    /// Bytes by which the MTU is below that of the tunnel through which this one goes; 0 if it goes through none.
    #[must_use]
    pub fn inner_overhead(&self) -> u16 {
        match &self.via {
            None => 0,
            Some(_) => overhead(&self.peers),
        }
    }
}

/// Bytes by which the MTU of a tunnel with these peers is below that of one through which it goes.
pub(crate) fn overhead(peers: &[Peer]) -> u16 {
    let is_ipv4 = |host: &Host| matches!(host, Host::Ip(address) if address.is_ipv4());
    let mut endpoints = peers.iter().flat_map(|peer| &peer.endpoints);
    OVERHEAD[usize::from(endpoints.any(|it| !is_ipv4(&it.value.host)))]
}

impl Interface {
    /// Returns whether there is any hook.
    #[must_use]
    pub fn has_hooks(&self) -> bool {
        self.hooks().next().is_some()
    }

    /// Returns the gateway in the tunnel that is asked for a port, if one is wanted: the one that is written, or the
    /// first address of the network that `Address` connects, or the first name server in a private network.
    #[must_use]
    pub fn port_forward_gateway(&self) -> Option<Ipv4Addr> {
        let wanted = self.port_forward.as_ref()?.value;
        let first = |own: &Located<Prefix>| match own.value.network().address() {
            IpAddr::V4(network) if own.value.length() < 31 => {
                let first = Ipv4Addr::from(u32::from(network) | 1);
                Some(first).filter(|first| own.value.address() != *first)
            }
            _ => None,
        };
        let server = |server: &Located<IpAddr>| match server.value {
            IpAddr::V4(server) if is_private(server) => Some(server),
            _ => None,
        };
        let by_network = || self.addresses.iter().find_map(first);
        let by_server = || self.dns_servers.iter().find_map(server);
        wanted.gateway.or_else(by_network).or_else(by_server)
    }

    pub(crate) fn hooks(&self) -> impl Iterator<Item = &Located<String>> {
        let all = [&self.pre_up, &self.post_up, &self.pre_down, &self.post_down];
        let all = all.into_iter().flatten();
        all.chain(&self.post_port_forward)
    }
}

/// Returns whether an address is of a private network, or of one that providers share (RFC 1918, RFC 6598).
fn is_private(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    address.is_private() || (first == 100 && second & 0xc0 == 64)
}

impl Peer {
    /// A peer with nothing but its key.
    #[must_use]
    pub fn new(public_key: Located<PublicKey>) -> Self {
        Self {
            public_key,
            friendly_name: None,
            preshared_key: None,
            preshared_key_file: None,
            allowed_ips: Vec::new(),
            endpoints: Vec::new(),
            persistent_keepalive: None,
            directs: Vec::new(),
        }
    }
}

impl Endpoint {
    /// The address, if no look-up is needed.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Ip(address) => Some(SocketAddr::new(address, self.port)),
            Host::Zoned(..) | Host::Name(_) => None,
        }
    }
}

impl fmt::Display for PortForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAT_PMP)?;
        match self.gateway {
            Some(gateway) => write!(f, " {gateway}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for SearchDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tilde = if self.route_only { "~" } else { "" };
        let name = if self.name.is_empty() {
            "."
        } else {
            &self.name
        };
        write!(f, "{tilde}{name}")
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl fmt::Display for KillSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Persistent => "persistent",
        })
    }
}

/// As in a file, behind the `=`; without the preshared key.
impl fmt::Display for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode_key(&self.public_key.0))?;
        for (index, prefix) in self.allowed_ips.iter().enumerate() {
            let separator = if index == 0 { " " } else { ", " };
            write!(f, "{separator}{}", prefix.value)?;
        }
        match &self.preshared_key_file {
            Some(file) => write!(f, " {DIRECT_KEY_FILE} = {}", file.display()),
            None => Ok(()),
        }
    }
}

/// As in a file, behind the `=`; without the password.
impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, query) = match self.transport {
            RelayTransport::Udp => ("turn", ""),
            RelayTransport::Tcp => ("turn", "?transport=tcp"),
            RelayTransport::Tls => ("turns", ""),
        };
        let Self { server, user, .. } = self;
        write!(f, "{scheme}:{server}{query} Username = {user}")?;
        if let Some(file) = &self.ca_file {
            write!(f, " CaFile = {}", file.display())?;
        }
        write!(f, " PasswordFile = {}", self.password_file.display())
    }
}

/// As in a file: `[IPv6]:port`, `IPv4:port` or `name:port`.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port;
        match &self.host {
            Host::Ip(address) => SocketAddr::new(*address, port).fmt(f),
            Host::Zoned(address, zone) => write!(f, "[{address}%{zone}]:{port}"),
            Host::Name(name) => write!(f, "{name}:{port}"),
        }
    }
}
