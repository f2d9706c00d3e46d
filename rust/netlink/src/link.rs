//! Links.

use std::io;

use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    link::{InfoPortKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
};

use crate::{Netlink, error::NetlinkError};

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Number in its network namespace.
    pub index: u32,
    /// Name of the interface.
    pub name: String,
    /// `wireguard`, `tun`, `vxlan` and so on; empty for hardware.
    pub kind: String,
    /// Whether the administrator has set it up.
    pub is_up: bool,
    /// Whether it can carry packets: a cable is plugged in, a program has opened the TUN.
    pub has_carrier: bool,
    /// Whether it is loopback.
    pub is_loopback: bool,
    /// Whether it is a port of a bridge.
    pub is_bridge_port: bool,
    /// In bytes; 0 if the kernel tells none.
    pub mtu: u32,
    /// The length of its queue in packets.
    pub queue: u32,
    /// Packets that the kernel has dropped because the queue was full, or the driver did.
    pub dropped: Option<u64>,
}

/// A change of a link; absent values stay as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkChange {
    /// Whether it is to be up.
    pub up: Option<bool>,
    /// In bytes.
    pub mtu: Option<u32>,
    /// The length of its queue in packets.
    pub queue: Option<u32>,
}

impl LinkChange {
    /// Sets a link up.
    pub const UP: Self = Self {
        up: Some(true),
        mtu: None,
        queue: None,
    };
}

impl Netlink {
    /// Lists all links.
    pub async fn links(&self) -> Result<Vec<Link>, NetlinkError> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let found = self.dump(request).await;
        let found = found.map_err(NetlinkError::on("list", "links"))?;
        Ok(found.iter().filter_map(of_message).collect())
    }

    /// Finds the link with a name; `None` if there is none.
    pub async fn link_by_name(&self, name: &str) -> Result<Option<Link>, NetlinkError> {
        self.link_by_name_in(name, None).await
    }

    /// Finds the link with a name in the network namespace with an identifier, or in this one; `None` if there is none.
    pub async fn link_by_name_in(
        &self,
        name: &str,
        namespace: Option<i32>,
    ) -> Result<Option<Link>, NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        let there = namespace.map(LinkAttribute::IfNetnsId);
        message.attributes.extend(there);
        let found = self.link(message).await;
        found.map_err(NetlinkError::on(
            "look up",
            format_args!("interface {name}"),
        ))
    }

    /// Finds the link with an index; `None` if there is none.
    pub async fn link_by_index(&self, index: u32) -> Result<Option<Link>, NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let found = self.link(message).await;
        found.map_err(NetlinkError::on("look up", format_args!("link {index}")))
    }

    /// Changes the link with an index.
    pub async fn change_link(&self, index: u32, change: LinkChange) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        if let Some(up) = change.up {
            message.header.change_mask = LinkFlags::Up;
            message.header.flags.set(LinkFlags::Up, up);
        }
        let mtu = change.mtu.map(LinkAttribute::Mtu);
        let queue = change.queue.map(LinkAttribute::TxQueueLen);
        message.attributes.extend(mtu.into_iter().chain(queue));
        let changed = self.change(RouteNetlinkMessage::SetLink(message)).await;
        changed.map_err(NetlinkError::on("change", format_args!("link {index}")))
    }

    async fn link(&self, message: LinkMessage) -> io::Result<Option<Link>> {
        match self.look_up(RouteNetlinkMessage::GetLink(message)).await {
            Ok(found) => Ok(found.iter().find_map(of_message)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn of_message(message: &RouteNetlinkMessage) -> Option<Link> {
    match message {
        RouteNetlinkMessage::NewLink(message) => Some(Link::parse(message)),
        _ => None,
    }
}

impl Link {
    pub(crate) fn parse(message: &LinkMessage) -> Self {
        let has = |flag| message.header.flags.contains(flag);
        let mut link = Self {
            index: message.header.index,
            is_up: has(LinkFlags::Up),
            has_carrier: has(LinkFlags::LowerUp),
            is_loopback: has(LinkFlags::Loopback),
            ..Self::default()
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::TxQueueLen(length) => link.queue = *length,
                LinkAttribute::Stats64(statistics) => link.dropped = Some(statistics.tx_dropped),
                LinkAttribute::LinkInfo(infos) => link.note(infos),
                _ => {}
            }
        }
        link
    }

    fn note(&mut self, infos: &[LinkInfo]) {
        for info in infos {
            match info {
                LinkInfo::Kind(kind) => self.kind = kind.to_string(),
                LinkInfo::PortKind(InfoPortKind::Bridge) => self.is_bridge_port = true,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::link::{InfoKind, Stats64};

    use super::*;

    #[test]
    fn a_links_flags_and_attributes_are_read_from_a_message() {
        let mut message = LinkMessage::default();
        message.header.index = 7;
        assert_eq!(
            Link::parse(&message),
            Link {
                index: 7,
                ..Link::default()
            }
        );
        message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
        let mut statistics = Stats64::default();
        statistics.tx_dropped = 3;
        message.attributes = vec![
            LinkAttribute::IfName("wg0".to_owned()),
            LinkAttribute::Mtu(1420),
            LinkAttribute::TxQueueLen(500),
            LinkAttribute::Stats64(statistics),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Tun),
                LinkInfo::PortKind(InfoPortKind::Bridge),
            ]),
        ];
        let expected = Link {
            index: 7,
            name: "wg0".to_owned(),
            kind: "tun".to_owned(),
            is_up: true,
            has_carrier: true,
            is_loopback: false,
            is_bridge_port: true,
            mtu: 1420,
            queue: 500,
            dropped: Some(3),
        };
        assert_eq!(Link::parse(&message), expected);
    }
}
