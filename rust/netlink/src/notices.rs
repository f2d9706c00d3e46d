//! Notices of the kernel: links, addresses, routes and rules that have changed.

use std::collections::VecDeque;

use rtnetlink::{
    MulticastGroup,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::{
        RouteNetlinkMessage,
        link::{LinkAttribute, LinkMessage},
    },
    sys::protocols::NETLINK_ROUTE,
};

use crate::{
    error::NetlinkError,
    link::Link,
    message::Message,
    multicast::{Multicast, messages},
    route::Route,
};

/// Objects to hear about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Links.
    Links,
    /// Addresses of both families.
    Addresses,
    /// Routes of both families.
    Routes,
    /// Rules of both families.
    Rules,
}

/// A change in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A link is new or has changed.
    Link {
        /// Its state now.
        link: Link,
        /// Whether a wireless driver tells of a scan.
        is_scan: bool,
    },
    /// A link has left this network namespace.
    LinkGone {
        /// Its index there.
        index: u32,
        /// Whether it is in another one now.
        is_moved: bool,
    },
    /// An address is new, has changed or is gone.
    Address {
        /// The index of its link.
        link: u32,
        /// Whether it is gone.
        is_gone: bool,
    },
    /// A route is new, has changed or is gone.
    Route {
        /// The route.
        route: Route,
        /// Whether it is gone.
        is_gone: bool,
    },
    /// A rule is new or gone.
    Rule {
        /// Whether it is gone.
        is_gone: bool,
    },
    /// The socket overflowed: notices were lost.
    Lost,
    /// A notice that cannot be parsed.
    Unreadable,
    /// A message that tells of nothing above.
    Other,
}

/// A subscription to notices. The kernel's buffer bounds the queue.
pub struct Notices {
    socket: Multicast,
    hears_other_namespaces: bool,
    /// The rest of the last datagram, and the network namespace that it is about unless that is this one.
    heard: VecDeque<Notice>,
    namespace: Option<i32>,
}

impl Notices {
    /// Subscribes in the network namespace of the calling thread.
    ///
    /// # Errors
    /// If the kernel refuses the socket.
    pub fn subscribe(topics: &[Topic]) -> Result<Self, NetlinkError> {
        let groups = topics.iter().flat_map(Topic::groups);
        let groups: Vec<_> = groups.map(|group| *group as u32).collect();
        let socket = Multicast::open(NETLINK_ROUTE, &groups);
        Ok(Self {
            socket: socket.map_err(NetlinkError::on("watch", "rtnetlink"))?,
            hears_other_namespaces: false,
            heard: VecDeque::new(),
            namespace: None,
        })
    }

    /// Also hears of every network namespace that has an identifier in this one, or no longer does. Returns whether
    /// that is new, so that earlier notices were missed.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_BROADCAST`.
    pub fn hear_other_namespaces(&mut self, wanted: bool) -> Result<bool, NetlinkError> {
        if wanted == self.hears_other_namespaces {
            return Ok(false);
        }
        let heard = self.socket.socket().set_listen_all_namespaces(wanted);
        heard.map_err(NetlinkError::on("watch", "other network namespaces"))?;
        self.hears_other_namespaces = wanted;
        Ok(true)
    }

    /// Waits for the next notice; returns the identifier of the network namespace that it is about, too, unless that is
    /// this one. May be cancelled: no notice is lost.
    ///
    /// # Errors
    /// If the socket fails. Notices that the kernel had to drop are no error, but [`Notice::Lost`].
    pub async fn next(&mut self) -> Result<(Notice, Option<i32>), NetlinkError> {
        loop {
            if let Some(notice) = self.heard.pop_front() {
                return Ok((notice, self.namespace));
            }
            match self.socket.next().await {
                Ok((datagram, namespace)) => {
                    self.heard.extend(parse(datagram));
                    self.namespace = namespace;
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    return Ok((Notice::Lost, None));
                }
                Err(cause) => return Err(NetlinkError::on("read", "notices")(cause)),
            }
        }
    }
}

impl Topic {
    fn groups(&self) -> &'static [MulticastGroup] {
        match self {
            Self::Links => &[MulticastGroup::Link],
            Self::Addresses => &[MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr],
            Self::Routes => &[MulticastGroup::Ipv4Route, MulticastGroup::Ipv6Route],
            Self::Rules => &[MulticastGroup::Ipv4Rule, MulticastGroup::Ipv6Rule],
        }
    }
}

fn parse(datagram: &[u8]) -> impl Iterator<Item = Notice> {
    messages(datagram).map(
        |message| match NetlinkMessage::<Message>::deserialize(message) {
            Ok(parsed) => match parsed.payload {
                NetlinkPayload::InnerMessage(Message(Some(inner))) => Notice::of(&inner),
                NetlinkPayload::InnerMessage(Message(None)) => Notice::Unreadable,
                _ => Notice::Other,
            },
            Err(_) => Notice::Unreadable,
        },
    )
}

impl Notice {
    fn of(message: &RouteNetlinkMessage) -> Self {
        use RouteNetlinkMessage as Message;
        let has =
            |link: &LinkMessage, is: fn(&LinkAttribute) -> bool| link.attributes.iter().any(is);
        match message {
            Message::NewLink(link) => Self::Link {
                link: Link::parse(link),
                is_scan: has(link, |it| matches!(it, LinkAttribute::Wireless(_))),
            },
            Message::DelLink(link) => Self::LinkGone {
                index: link.header.index,
                is_moved: has(link, |it| matches!(it, LinkAttribute::NewNetnsId(_))),
            },
            Message::NewAddress(address) | Message::DelAddress(address) => Self::Address {
                link: address.header.index,
                is_gone: matches!(message, Message::DelAddress(_)),
            },
            Message::NewRoute(route) | Message::DelRoute(route) => match Route::parse(route) {
                Some(route) => Self::Route {
                    route,
                    is_gone: matches!(message, Message::DelRoute(_)),
                },
                None => Self::Unreadable,
            },
            Message::NewRule(_) => Self::Rule { is_gone: false },
            Message::DelRule(_) => Self::Rule { is_gone: true },
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_has_no_messages() {
        for length in 0..64u8 {
            let nonsense: Vec<u8> = (0..length).map(|n| n.wrapping_mul(37)).collect();
            assert_eq!(parse(&nonsense).count(), 0);
        }
    }

    #[test]
    fn each_message_of_a_datagram_is_a_notice_even_one_that_cannot_be_parsed() {
        let mut link = LinkMessage::default();
        link.header.index = 7;
        let mut datagram = Vec::new();
        for message in [
            RouteNetlinkMessage::NewLink(link.clone()),
            RouteNetlinkMessage::DelLink(link),
        ] {
            let mut message = NetlinkMessage::from(message);
            message.finalize();
            let mut bytes = vec![0; message.buffer_len()];
            message.serialize(&mut bytes);
            datagram.extend(bytes);
        }
        let mut broken = datagram[..20].to_vec();
        broken[..4].copy_from_slice(&20_u32.to_ne_bytes());
        datagram.extend(broken);
        let notices: Vec<_> = parse(&datagram).collect();
        let link = Link {
            index: 7,
            ..Link::default()
        };
        let expected = [
            Notice::Link {
                link,
                is_scan: false,
            },
            Notice::LinkGone {
                index: 7,
                is_moved: false,
            },
            Notice::Unreadable,
        ];
        assert_eq!(notices, expected);
    }
}
