//! Interfaces, addresses and routes of a namespace, by rtnetlink.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsFd, AsRawFd},
    sync::{Mutex, PoisonError},
};

use rtnetlink::{
    AddressMessageBuilder, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder,
    packet_core::{NLM_F_CREATE, NLM_F_EXCL},
    packet_route::{
        AddressFamily, RouteNetlinkMessage as Message,
        address::{AddressAttribute, AddressFlags, AddressMessage},
        link::{InfoData, InfoVeth, LinkAttribute, LinkMessage},
    },
};

use crate::{address::Cidr, error::LabError, namespace::Namespace, netlink::Netlink};

/// Makes something new, or fails where it is there already.
const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// The interfaces, addresses and routes of a namespace.
///
/// Every change is complete when the call returns. All calls fail with [`LabError::Link`] when
/// the kernel refuses the change, and with [`LabError::Cidr`] when an address is none.
pub struct Link<'a> {
    label: &'a str,
    netlink: &'a Mutex<Netlink>,
}

/// What an interface has counted since it was made (`ip -statistics link`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Packets that came in.
    pub rx_packets: u64,
    /// Bytes that came in.
    pub rx_bytes: u64,
    /// Incoming packets that were dropped.
    pub rx_dropped: u64,
    /// Packets that went out.
    pub tx_packets: u64,
    /// Bytes that went out.
    pub tx_bytes: u64,
    /// Outgoing packets that were dropped: a TUN's queue was full.
    pub tx_dropped: u64,
}

impl<'a> Link<'a> {
    pub(crate) fn new(label: &'a str, netlink: &'a Mutex<Netlink>) -> Self {
        Self { label, netlink }
    }

    /// Sets an interface up.
    ///
    /// # Errors
    ///
    /// See [`Link`].
    pub fn set_up(&self, name: &str) -> Result<(), LabError> {
        let message = LinkUnspec::new_with_name(name).up().build();
        self.change(format!("set {name} up"), Message::SetLink(message), 0)
    }

    /// Sets an interface down.
    ///
    /// # Errors
    ///
    /// See [`Link`].
    pub fn set_down(&self, name: &str) -> Result<(), LabError> {
        let message = LinkUnspec::new_with_name(name).down().build();
        self.change(format!("set {name} down"), Message::SetLink(message), 0)
    }

    /// Sets an interface's MTU in bytes.
    ///
    /// # Errors
    ///
    /// See [`Link`].
    pub fn set_mtu(&self, name: &str, mtu: u32) -> Result<(), LabError> {
        let message = LinkUnspec::new_with_name(name).mtu(mtu).build();
        self.change(
            format!("set the MTU of {name} to {mtu}"),
            Message::SetLink(message),
            0,
        )
    }

    /// Sets how many packets may wait in an interface's transmit queue.
    ///
    /// # Errors
    ///
    /// See [`Link`].
    pub fn set_queue_length(&self, name: &str, packets: u32) -> Result<(), LabError> {
        let message = LinkUnspec::new_with_name(name).txqueuelen(packets).build();
        let what = format!("set the queue length of {name} to {packets}");
        self.change(what, Message::SetLink(message), 0)
    }

    /// Removes an interface.
    ///
    /// # Errors
    ///
    /// See [`Link`].
    pub fn remove(&self, name: &str) -> Result<(), LabError> {
        let message = LinkUnspec::new_with_name(name).build();
        self.change(format!("remove {name}"), Message::DelLink(message), 0)
    }

    /// Gives an interface an address, usable at once: an IPv6 address is not probed for
    /// duplicates first.
    ///
    /// # Errors
    ///
    /// See [`Link`].
    pub fn add_address(&self, name: &str, address: &str) -> Result<(), LabError> {
        let mut message = self.address_of(name, address.parse()?)?;
        if message.header.family == AddressFamily::Inet6 {
            let nodad = AddressAttribute::Flags(AddressFlags::Nodad);
            message.attributes.push(nodad);
        }
        let what = format!("add {address} to {name}");
        self.change(what, Message::NewAddress(message), NEW)
    }

    /// Takes an address from an interface, and with the first IPv4 address of a network all
    /// others of it (net.ipv4.conf.*.promote_secondaries).
    ///
    /// # Errors
    ///
    /// See [`Link`].
    pub fn remove_address(&self, name: &str, address: &str) -> Result<(), LabError> {
        let message = self.address_of(name, address.parse()?)?;
        let what = format!("remove {address} from {name}");
        self.change(what, Message::DelAddress(message), 0)
    }

    /// Routes `destination` into an interface.
    ///
    /// # Errors
    ///
    /// See [`Link`].
    pub fn add_route(&self, destination: &str, name: &str) -> Result<(), LabError> {
        let network: Cidr = destination.parse()?;
        let route = route_to(network)?.output_interface(self.index(name)?);
        let what = format!("route {destination} into {name}");
        self.change(what, Message::NewRoute(route.build()), NEW)
    }

    /// Routes `destination` through a neighbour.
    ///
    /// # Errors
    ///
    /// See [`Link`].
    pub fn add_route_through(&self, destination: &str, gateway: IpAddr) -> Result<(), LabError> {
        let what = format!("route {destination} through {gateway}");
        let route = route_to(destination.parse()?)?
            .gateway(gateway)
            .map_err(|e| self.refused(what.clone(), io::Error::other(e)))?;
        self.change(what, Message::NewRoute(route.build()), NEW)
    }

    /// Whether there is an interface of this name.
    #[must_use]
    pub fn exists(&self, name: &str) -> bool {
        self.look_up(name).is_ok()
    }

    /// The interface's number in its namespace.
    ///
    /// # Errors
    ///
    /// See [`Link`].
    pub fn index(&self, name: &str) -> Result<u32, LabError> {
        Ok(self.look_up(name)?.header.index)
    }

    /// An interface's MTU in bytes.
    ///
    /// # Errors
    ///
    /// See [`Link`].
    pub fn mtu(&self, name: &str) -> Result<u32, LabError> {
        let link = self.look_up(name)?;
        let mtu = link
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Mtu(mtu) => Some(*mtu),
                _ => None,
            });
        Ok(mtu.unwrap_or_default())
    }

    /// An interface's Ethernet address.
    ///
    /// # Errors
    ///
    /// See [`Link`]; also for an interface that has none.
    pub fn ethernet_address(&self, name: &str) -> Result<[u8; 6], LabError> {
        let link = self.look_up(name)?;
        let mut attributes = link.attributes.iter();
        let address = attributes.find_map(|attribute| match attribute {
            LinkAttribute::Address(address) => address.as_slice().try_into().ok(),
            _ => None,
        });
        let none = || io::ErrorKind::AddrNotAvailable.into();
        address.ok_or_else(|| self.refused(format!("read the address of {name}"), none()))
    }

    /// What an interface has counted.
    ///
    /// # Errors
    ///
    /// See [`Link`].
    pub fn statistics(&self, name: &str) -> Result<LinkStatistics, LabError> {
        let link = self.look_up(name)?;
        let counted = link
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(s) => Some(LinkStatistics {
                    rx_packets: s.rx_packets,
                    rx_bytes: s.rx_bytes,
                    rx_dropped: s.rx_dropped,
                    tx_packets: s.tx_packets,
                    tx_bytes: s.tx_bytes,
                    tx_dropped: s.tx_dropped,
                }),
                _ => None,
            });
        Ok(counted.unwrap_or_default())
    }

    pub(crate) fn add_veth(
        &self,
        name: &str,
        other: &Namespace,
        other_name: &str,
        mtu: u32,
    ) -> Result<(), LabError> {
        let network = other.network();
        let far = LinkMessageBuilder::<LinkUnspec>::new()
            .name(other_name)
            .mtu(mtu)
            .setns_by_fd(network.as_fd().as_raw_fd())
            .build();
        let message = LinkVeth::new(name, other_name)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(far)))
            .mtu(mtu)
            .build();
        let what = format!("join {name} to {other_name} in {}", other.label());
        self.change(what, Message::NewLink(message), NEW)
    }

    fn address_of(&self, name: &str, address: Cidr) -> Result<AddressMessage, LabError> {
        let index = self.index(name)?;
        Ok(match address.address {
            IpAddr::V4(ip) => AddressMessageBuilder::<Ipv4Addr>::new()
                .index(index)
                .address(ip, address.prefix)
                .build(),
            IpAddr::V6(ip) => AddressMessageBuilder::<Ipv6Addr>::new()
                .index(index)
                .address(ip, address.prefix)
                .build(),
        })
    }

    fn look_up(&self, name: &str) -> Result<LinkMessage, LabError> {
        let question = LinkUnspec::new_with_name(name).build();
        let mut found = None;
        let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        netlink
            .request(Message::GetLink(question), 0, |answer| {
                if let Message::NewLink(link) = answer {
                    found = Some(link);
                }
            })
            .and_then(|()| found.ok_or_else(|| io::ErrorKind::NotFound.into()))
            .map_err(|source| self.refused(format!("look up {name}"), source))
    }

    fn change(&self, what: String, message: Message, flags: u16) -> Result<(), LabError> {
        let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        netlink
            .request(message, flags, |_| {})
            .map_err(|source| self.refused(what, source))
    }

    fn refused(&self, what: String, source: io::Error) -> LabError {
        LabError::Link {
            label: self.label.to_owned(),
            what,
            source,
        }
    }
}

fn route_to(network: Cidr) -> Result<RouteMessageBuilder<IpAddr>, LabError> {
    // The kernel refuses a destination with bits behind its prefix.
    let address = network.network();
    RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(address, network.prefix)
        .map_err(|_| crate::address::ParseCidrError::of(&network).into())
}
