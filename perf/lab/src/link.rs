//! Interfaces, addresses and routes of a namespace, with ip(8) and `/proc/net/dev`.

use std::{io, net::IpAddr};

use procfs::{net::DeviceStatus, process::Process};

use crate::error::{Doing as _, Result};
use crate::namespace::Namespace;
use crate::tool;

/// The kernel's name for UDP segmentation offload (`ethtool -k`).
pub const UDP_SEGMENTATION: &str = "tx-udp-segmentation";

/// The interfaces, addresses and routes of a namespace.
///
/// Every change is complete when the call returns. Calls fail with [`Program`](crate::LabError::Program) if the
/// kernel refuses the change or ip(8) is not installed.
pub struct Link<'a>(pub(crate) &'a Namespace);

impl Namespace {
    /// The interfaces, addresses and routes inside.
    pub fn link(&self) -> Link<'_> {
        Link(self)
    }
}

impl Link<'_> {
    /// Sets an interface up.
    pub fn set_up(&self, name: &str) -> Result<()> {
        self.change(&["link", "set", name, "up"])
    }

    /// Gives an interface this MTU in bytes and these addresses, and sets it up. An IPv6 address is usable at
    /// once: it skips duplicate address detection.
    pub fn bring_up(&self, name: &str, mtu: u32, addresses: &[impl AsRef<str>]) -> Result<()> {
        let add = |address: &str| format!("{}\n", adding(name, address).join(" "));
        let addresses: String = addresses.iter().map(|it| add(it.as_ref())).collect();
        // One process for all, since each takes longer than its change.
        let lines = format!("link set {name} mtu {mtu}\n{addresses}link set {name} up\n");
        tool::run(self.0, "ip", &["-batch", "-"], &lines)
    }

    /// Sets an interface down.
    pub fn set_down(&self, name: &str) -> Result<()> {
        self.change(&["link", "set", name, "down"])
    }

    /// Sets the length of an interface's transmit queue in packets.
    pub fn set_queue_length(&self, name: &str, packets: u32) -> Result<()> {
        self.change(&["link", "set", name, "txqueuelen", &packets.to_string()])
    }

    /// Removes an interface.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.change(&["link", "delete", name])
    }

    /// Turns a feature of an interface on or off with ethtool(8).
    pub fn set_feature(&self, name: &str, feature: &str, on: bool) -> Result<()> {
        let state = if on { "on" } else { "off" };
        tool::run(self.0, "ethtool", &["-K", name, feature, state], "")
    }

    /// Makes an interface cut GSO datagrams and TCP super-packets before they leave, as hardware must.
    pub fn cut_batches(&self, name: &str) -> Result<()> {
        let tcp = ["tx-tcp-segmentation", "tx-tcp6-segmentation"];
        let mut features = [UDP_SEGMENTATION].into_iter().chain(tcp);
        features.try_for_each(|feature| self.set_feature(name, feature, false))
    }

    /// Adds an address to an interface. It is usable at once: an IPv6 address skips duplicate address
    /// detection.
    pub fn add_address(&self, name: &str, address: &str) -> Result<()> {
        self.change(&adding(name, address))
    }

    /// Removes an address from an interface. Removing the first IPv4 address of a network removes the
    /// network's other addresses too (net.ipv4.conf.*.promote_secondaries).
    pub fn remove_address(&self, name: &str, address: &str) -> Result<()> {
        self.change(&["address", "delete", address, "dev", name])
    }

    /// Routes `destination`, which may be `default`, through a neighbour, in place of any earlier route.
    pub fn add_route_through(&self, destination: &str, gateway: IpAddr) -> Result<()> {
        self.change(&["route", "replace", destination, "via", &gateway.to_string()])
    }

    /// Makes every address of an IPv4 network a local address.
    pub fn own_network(&self, network: &str) -> Result<()> {
        self.change(&["route", "replace", "local", network, "dev", "lo"])
    }

    /// Returns whether an interface with this name exists.
    pub fn exists(&self, name: &str) -> bool {
        self.statistics(name).is_ok()
    }

    /// The counters of an interface (`/proc/net/dev`); fails with [`Io`](crate::LabError::Io) if it does not exist.
    pub fn statistics(&self, name: &str) -> Result<DeviceStatus> {
        let interfaces = Process::new(self.0.pid().as_raw()).and_then(|holder| holder.dev_status());
        let found = interfaces.ok().and_then(|mut all| all.remove(name));
        let found = found.ok_or(io::ErrorKind::NotFound);
        found.doing(self.0.step(&format!("look up {name}")))
    }

    /// Adds a virtual cable from the interface `name` to `other_name` in `other`, of an MTU in bytes; both ends are down.
    pub fn add_veth(
        &self,
        name: &str,
        other: &Namespace,
        other_name: &str,
        mtu: u32,
    ) -> Result<()> {
        let (mtu, other) = (mtu.to_string(), other.pid().to_string());
        let near = ["link", "add", name, "mtu", &mtu, "type", "veth"];
        let far = ["peer", "name", other_name, "mtu", &mtu, "netns", &other];
        self.change(&[&near[..], &far[..]].concat())
    }

    fn change(&self, arguments: &[&str]) -> Result<()> {
        tool::run(self.0, "ip", arguments, "")
    }
}

/// The arguments that add an address.
fn adding<'a>(name: &'a str, address: &'a str) -> Vec<&'a str> {
    let flags: &[_] = match address.contains(':') {
        true => &["nodad"],
        false => &[],
    };
    [&["address", "add", address, "dev", name][..], flags].concat()
}
