//! Settings of a namespace, as its owner sends them to the holder.

use std::{net::IpAddr, path::PathBuf};

use convoy_types::Switch;
use serde::{Deserialize, Serialize};

/// The network that a namespace has.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Settings {
    /// The TUN's name.
    pub interface: String,
    /// As for [`convoy_tun::Device::open`].
    pub offload: Switch,
    /// The TUN's addresses with the lengths of their networks' prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The TUN's MTU in bytes.
    pub mtu: u16,
    /// The destinations that lie behind the TUN. Those of an address family without an address are left out.
    pub routes: Vec<(IpAddr, u8)>,
    /// Whether flows of peers to other addresses are led out of the namespace: see [`Namespace::take_inlet`](super::Namespace::take_inlet).
    pub is_gateway: bool,
    /// `None` leaves the files as they are.
    pub files: Option<Files>,
}

/// The files of programs that enter the namespace.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Files {
    /// Contents of their `/etc/resolv.conf`.
    pub resolv_conf: String,
    /// Files and directories that they do not see.
    pub hidden: Vec<PathBuf>,
    /// Directories besides `/run` in which nothing appears that the host adds later, such as a hidden socket.
    pub replaced: Vec<PathBuf>,
}
