//! Services that a listener offers.

use std::fmt;

use convoy_network::dial::Target;

use crate::login::Login;

/// A service of a listener.
#[derive(Clone, Debug)]
pub enum Service {
    /// Connections to a target.
    Tcp(Target),
    /// Datagrams to a target, and its answers.
    Udp(Target),
    /// SOCKS5: connections and datagrams to whatever the client names.
    Socks5(Option<Login>),
    /// HTTP's CONNECT: connections to whatever the client names.
    HttpConnect(Option<Login>),
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(target) => write!(f, "{target}"),
            Self::Udp(target) => write!(f, "{target} (UDP)"),
            Self::Socks5(_) => f.write_str("SOCKS5"),
            Self::HttpConnect(_) => f.write_str("HTTP CONNECT"),
        }
    }
}
