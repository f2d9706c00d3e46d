//! Listeners, their services, and who may use them.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use convoy_types::Prefix;

use crate::located::Located;

/// Everything that a file asks to be forwarded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forwarding {
    /// The listeners; a forwarder's file has at least one.
    pub listeners: Vec<Listener>,
    /// Access to any of them on this host.
    pub access: AccessLists,
    /// Targets that clients of proxies may name.
    pub targets: AccessLists,
    /// Bytes of a buffer.
    pub buffer: Option<usize>,
    /// The file with the password of proxies that have none of their own.
    pub(crate) login_file: Option<Located<PathBuf>>,
    /// All keys and values as they were written.
    pub(crate) written: Vec<(&'static str, String)>,
}

/// A listener, and who may use it.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// On which side it listens; it connects on the other one.
    pub side: Side,
    /// Where it listens; `at` is the whole value.
    pub addresses: Located<Vec<SocketAddr>>,
    /// Service that it offers.
    pub offer: Offer,
    /// Access to it.
    pub access: AccessLists,
    /// Targets that its clients may name, if it is a proxy.
    pub targets: AccessLists,
    /// User and password that it asks for.
    pub login: Option<UserPassword>,
    pub(crate) login_file: Option<Located<PathBuf>>,
}

/// A side of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This host.
    Host,
    /// The tunnel.
    Inside,
}

/// A service of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Connections to a host and a port.
    Tcp(String, u16),
    /// Datagrams to a host and a port.
    Udp(String, u16),
    /// SOCKS5.
    Socks5,
    /// HTTP's CONNECT.
    HttpConnect,
}

/// Prefixes of clients, or of targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessLists {
    /// Clients: if there are any, nobody else may use the listener. Targets: what is refused otherwise and may be
    /// reached.
    pub allow: Vec<Prefix>,
    /// Prefixes that are refused in any case.
    pub deny: Vec<Prefix>,
}

/// A user and a password, without a `Debug` that shows them.
#[derive(Clone, PartialEq, Eq)]
pub struct UserPassword {
    /// The part before the first colon.
    pub user: String,
    /// The rest.
    pub password: String,
}

impl Listener {
    /// Returns where it listens inside a tunnel with these addresses; `None` if one of its own is not among them.
    #[must_use]
    pub fn inside(&self, own: &[IpAddr]) -> Option<Vec<SocketAddr>> {
        let mut inside = Vec::new();
        for address in &*self.addresses {
            let ip = address.ip();
            let of_family = own.iter().filter(|own| own.is_ipv4() == ip.is_ipv4());
            match ip {
                _ if ip.is_unspecified() => {
                    inside.extend(of_family.map(|own| SocketAddr::new(*own, address.port())));
                }
                _ if ip.is_loopback() || own.contains(&ip) => inside.push(*address),
                _ => return None,
            }
        }
        (!inside.is_empty()).then_some(inside)
    }
}

impl std::fmt::Debug for UserPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserPassword")
    }
}
