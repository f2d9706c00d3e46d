//! Links.

use std::io;

use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkFlags, LinkMessage},
};

use super::Netlink;

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// In bytes.
    pub(crate) mtu: u32,
    pub(crate) is_up: bool,
    pub(crate) has_carrier: bool,
}

impl Netlink {
    pub(crate) async fn link_by_name(&self, name: &str) -> io::Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        self.link(message).await
    }

    pub(crate) async fn link_by_index(&self, index: u32) -> io::Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.link(message).await
    }

    /// Changes the MTU and whether the link is up.
    pub(crate) async fn set_link(&self, index: u32, mtu: u32, up: bool) -> io::Result<()> {
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
