//! Interfaces, addresses and routes of a namespace, by ip(8) and `/proc/net/dev`.

use std::{io, net::IpAddr};

use procfs::process::Process;

use crate::{
    error::{Doing as _, LabError},
    namespace::Namespace,
    tool,
};

/// The kernel's name of UDP segmentation offload (`ethtool -k`).
pub const UDP_SEGMENTATION: &str = "tx-udp-segmentation";

/// The interfaces, addresses and routes of a namespace.
///
/// Every change is complete when the call returns. Calls fail with [`LabError::Program`] when the
/// kernel refuses the change, or when ip(8) is not installed.
pub struct Link<'a>(pub(crate) &'a Namespace);

/// Counts of an interface since it was made (`/proc/net/dev`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Packets that came in.
    pub rx_packets: u64,
    /// Packets that went out.
    pub tx_packets: u64,
    /// Outgoing packets that were dropped: a TUN's queue was full.
    pub tx_dropped: u64,
}

impl Link<'_> {
    /// Sets an interface up.
    pub fn set_up(&self, name: &str) -> Result<(), LabError> {
        self.change(&["link", "set", name, "up"])
    }

    /// Sets an interface down.
    pub fn set_down(&self, name: &str) -> Result<(), LabError> {
        self.change(&["link", "set", name, "down"])
    }

    /// Sets an interface's MTU in bytes.
    pub fn set_mtu(&self, name: &str, mtu: u32) -> Result<(), LabError> {
        self.change(&["link", "set", name, "mtu", &mtu.to_string()])
    }

    /// Sets how many packets may wait in an interface's transmit queue.
    pub fn set_queue_length(&self, name: &str, packets: u32) -> Result<(), LabError> {
        self.change(&["link", "set", name, "txqueuelen", &packets.to_string()])
    }

    /// Removes an interface.
    pub fn remove(&self, name: &str) -> Result<(), LabError> {
        self.change(&["link", "delete", name])
    }

    /// Turns a feature of an interface on or off by ethtool(8).
    pub fn set_feature(&self, name: &str, feature: &str, on: bool) -> Result<(), LabError> {
        let state = if on { "on" } else { "off" };
        tool::run(self.0, "ethtool", &["-K", name, feature, state], "").map(drop)
    }

    /// Makes an interface cut GSO datagrams and TCP super-packets before they leave, as hardware must.
    pub fn cut_batches(&self, name: &str) -> Result<(), LabError> {
        let tcp = ["tx-tcp-segmentation", "tx-tcp6-segmentation"];
        let mut features = [UDP_SEGMENTATION].into_iter().chain(tcp);
        features.try_for_each(|feature| self.set_feature(name, feature, false))
    }

    /// Gives an interface an address, usable at once: an IPv6 address is not probed for
    /// duplicates first.
    pub fn add_address(&self, name: &str, address: &str) -> Result<(), LabError> {
        let change = ["address", "add", address, "dev", name, "nodad"];
        let flags = usize::from(address.contains(':'));
        self.change(&change[..change.len() - 1 + flags])
    }

    /// Takes an address from an interface, and with the first IPv4 address of a network all
    /// others of it (net.ipv4.conf.*.promote_secondaries).
    pub fn remove_address(&self, name: &str, address: &str) -> Result<(), LabError> {
        self.change(&["address", "delete", address, "dev", name])
    }

    /// Routes `destination` through a neighbour.
    pub fn add_route_through(&self, destination: &str, gateway: IpAddr) -> Result<(), LabError> {
        self.change(&["route", "add", destination, "via", &gateway.to_string()])
    }

    /// Makes every address of an IPv4 network one of this host.
    pub(crate) fn own_network(&self, network: &str) -> Result<(), LabError> {
        self.change(&["route", "replace", "local", network, "dev", "lo"])
    }

    /// Whether there is an interface of this name.
    pub fn exists(&self, name: &str) -> bool {
        self.statistics(name).is_ok()
    }

    /// The counts of an interface; fails with [`LabError::Io`] when there is none.
    pub fn statistics(&self, name: &str) -> Result<LinkStatistics, LabError> {
        let interfaces = Process::new(self.0.pid().as_raw()).and_then(|holder| holder.dev_status());
        let found = interfaces.ok().and_then(|mut all| all.remove(name));
        let counts = found.ok_or(io::ErrorKind::NotFound);
        let counts = counts.doing(self.0.step(&format!("look up {name}")))?;
        Ok(LinkStatistics {
            rx_packets: counts.recv_packets,
            tx_packets: counts.sent_packets,
            tx_dropped: counts.sent_drop,
        })
    }

    pub(crate) fn add_veth(
        &self,
        name: &str,
        other: &Namespace,
        other_name: &str,
        mtu: u32,
    ) -> Result<(), LabError> {
        let (mtu, other) = (mtu.to_string(), other.pid().to_string());
        let near = ["link", "add", name, "mtu", &mtu, "type", "veth"];
        let far = ["peer", "name", other_name, "mtu", &mtu, "netns", &other];
        self.change(&[&near[..], &far[..]].concat())
    }

    fn change(&self, arguments: &[&str]) -> Result<(), LabError> {
        tool::run(self.0, "ip", arguments, "").map(drop)
    }
}
