//! Links.

use std::io;

use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    link::{InfoPortKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
};

use crate::Netlink;

/// Kinds of devices that carry packets inside others, to a network elsewhere.
const TUNNELS: [&str; 14] = [
    "wireguard",
    "tun",
    "ovpn",
    "ppp",
    "xfrm",
    "vti",
    "vti6",
    "ipip",
    "sit",
    "gre",
    "gretap",
    "ip6tnl",
    "ip6gre",
    "ip6gretap",
];

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// In bytes.
    pub mtu: u32,
    pub is_up: bool,
    pub has_carrier: bool,
}

impl Netlink {
    pub async fn link_by_name(&self, name: &str) -> io::Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        self.link(message).await
    }

    pub async fn link_by_index(&self, index: u32) -> io::Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.link(message).await
    }

    /// The names of all links that may lead out, besides `interface`: neither loopback nor ports of bridges, as a
    /// host sends by the bridge.
    pub async fn links_out(&self, interface: &str) -> io::Result<Vec<String>> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let found = self.dump(request).await?;
        let outer = found.iter().filter(|message| may_lead_out(message));
        let names = outer.filter_map(|message| Some(link(message)?.name));
        Ok(names.filter(|name| name != interface).collect())
    }

    /// The indices of all tunnels' devices.
    pub async fn tunnels(&self) -> io::Result<Vec<u32>> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let found = self.dump(request).await?;
        let tunnels = found.iter().filter(|message| is_tunnel(message));
        Ok(tunnels
            .filter_map(|message| Some(link(message)?.index))
            .collect())
    }

    /// Changes the MTU and whether the link is up.
    pub async fn set_link(&self, index: u32, mtu: u32, up: bool) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.change_mask = LinkFlags::Up;
        message.header.flags.set(LinkFlags::Up, up);
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.change(RouteNetlinkMessage::SetLink(message)).await
    }

    async fn link(&self, message: LinkMessage) -> io::Result<Option<Link>> {
        match self.ask(RouteNetlinkMessage::GetLink(message), 0).await {
            Ok(found) => Ok(found.iter().find_map(link)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn link(message: &RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else {
        return None;
    };
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mtu: 0,
        is_up: message.header.flags.contains(LinkFlags::Up),
        has_carrier: message.header.flags.contains(LinkFlags::LowerUp),
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            _ => {}
        }
    }
    Some(link)
}

fn may_lead_out(message: &RouteNetlinkMessage) -> bool {
    let RouteNetlinkMessage::NewLink(message) = message else {
        return false;
    };
    let is_of_bridge = |info: &LinkInfo| *info == LinkInfo::PortKind(InfoPortKind::Bridge);
    let is_port = message.attributes.iter().any(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.iter().any(is_of_bridge),
        _ => false,
    });
    !is_port && !message.header.flags.contains(LinkFlags::Loopback)
}

fn is_tunnel(message: &RouteNetlinkMessage) -> bool {
    let RouteNetlinkMessage::NewLink(message) = message else {
        return false;
    };
    let infos = message
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        });
    infos.flatten().any(|info| match info {
        LinkInfo::Kind(kind) => TUNNELS.contains(&kind.to_string().as_str()),
        _ => false,
    })
}
