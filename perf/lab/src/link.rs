//! Interfaces, addresses and routes of a namespace, by ip(8) and `/proc/net/dev`.

use std::{fs, io, net::IpAddr};

use serde_json::Value;

use crate::{error::LabError, namespace::Namespace, tool::IP};

/// The interfaces, addresses and routes of a namespace.
///
/// Every change is complete when the call returns. Calls fail with [`LabError::Tool`] when the
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

    /// Whether there is an interface of this name.
    pub fn exists(&self, name: &str) -> bool {
        self.statistics(name).is_ok()
    }

    /// An interface's MTU in bytes.
    pub fn mtu(&self, name: &str) -> Result<u32, LabError> {
        let mtu = self.show(name)?[0]["mtu"].as_u64();
        Ok(mtu.unwrap_or_default() as u32)
    }

    /// An interface's Ethernet address; fails for an interface that has none.
    pub fn ethernet_address(&self, name: &str) -> Result<[u8; 6], LabError> {
        let shown = self.show(name)?;
        let parts = shown[0]["address"].as_str().unwrap_or_default().split(':');
        let bytes: Vec<u8> = parts
            .filter_map(|part| u8::from_str_radix(part, 16).ok())
            .collect();
        let none = |_| io::ErrorKind::AddrNotAvailable.into();
        bytes.try_into().map_err(none).map_err(|source| {
            self.0
                .refused(format!("read the Ethernet address of {name}"), source)
        })
    }

    /// The counts of an interface; fails with [`LabError::Namespace`] when there is none.
    pub fn statistics(&self, name: &str) -> Result<LinkStatistics, LabError> {
        fs::read_to_string(format!("/proc/{}/net/dev", self.0.pid()))
            .and_then(|table| counts(&table, name).ok_or_else(|| io::ErrorKind::NotFound.into()))
            .map_err(|source| self.0.refused(format!("look up {name}"), source))
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
        IP.run(Some(self.0), arguments, "").map(drop)
    }

    fn show(&self, name: &str) -> Result<Value, LabError> {
        let shown = IP.run(Some(self.0), &["-json", "link", "show", name], "")?;
        Ok(serde_json::from_slice(&shown).unwrap_or_default())
    }
}

/// A line of `/proc/net/dev`: the name, eight counts of incoming packets, eight of outgoing ones.
fn counts(table: &str, name: &str) -> Option<LinkStatistics> {
    let line = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    let counts: Vec<u64> = line
        .split_whitespace()
        .filter_map(|count| count.parse().ok())
        .collect();
    Some(LinkStatistics {
        rx_packets: *counts.get(1)?,
        tx_packets: *counts.get(9)?,
        tx_dropped: *counts.get(11)?,
    })
}
