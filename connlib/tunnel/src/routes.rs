//! Asking the kernel for a route (rtnetlink, Linux): which interface a datagram would leave by.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use netlink_packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{RouteAttribute, RouteMessage},
};
use netlink_sys::{Socket, SocketAddr as Kernel, protocols::NETLINK_ROUTE};

/// A socket to ask by; without one, every source address is taken for right.
#[derive(Debug)]
pub(crate) struct Routes {
    socket: Option<Socket>,
    sequence: u32,
}

impl Routes {
    pub(crate) fn new() -> Self {
        let socket = Socket::new(NETLINK_ROUTE).and_then(|mut socket| {
            socket.bind_auto()?;
            socket.connect(&Kernel::new(0, 0))?;
            Ok(socket)
        });
        if let Err(error) = &socket {
            tracing::warn!(%error, "Cannot ask for routes: answers leave from where they were asked");
        }
        Self {
            socket: socket.ok(),
            sequence: 0,
        }
    }

    /// Whether a datagram from `source` to `to` leaves by `interface`; also if that is unknown.
    pub(crate) fn lead_out_by(
        &mut self,
        interface: u32,
        to: SocketAddr,
        source: SocketAddr,
        mark: u32,
    ) -> bool {
        match self.interface_to(to, source, mark) {
            Ok(found) => found.is_none_or(|found| found == interface),
            Err(error) => {
                tracing::debug!(%to, %source, %error, "No route from the address that was spoken to");
                false
            }
        }
    }

    /// `None` if the kernel does not say. The kernel answers before `send` returns: nothing waits.
    fn interface_to(
        &mut self,
        to: SocketAddr,
        source: SocketAddr,
        mark: u32,
    ) -> io::Result<Option<u32>> {
        let Some(socket) = &self.socket else {
            return Ok(None);
        };
        // The zone decides, not the route.
        if matches!(to.ip(), IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            return Ok(None);
        }
        self.sequence = self.sequence.wrapping_add(1);
        let mut request =
            NetlinkMessage::from(RouteNetlinkMessage::GetRoute(question(to, source, mark)));
        request.header.flags = NLM_F_REQUEST;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        if socket.send(&bytes, 0).is_err() {
            return Ok(None);
        }
        loop {
            let mut answer = Vec::with_capacity(4096);
            if socket.recv(&mut answer, libc::MSG_DONTWAIT).is_err() {
                return Ok(None);
            }
            let Ok(answer) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer) else {
                return Ok(None);
            };
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            return match answer.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => {
                    Ok(interface_of(&route))
                }
                NetlinkPayload::Error(error) => Err(error.to_io()),
                _ => Ok(None),
            };
        }
    }
}

/// Rules and multipath routes may look at the ports, too.
fn question(to: SocketAddr, source: SocketAddr, mark: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    let (family, bits) = match to {
        SocketAddr::V4(_) => (AddressFamily::Inet, 32),
        SocketAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    message.header.address_family = family;
    message.header.destination_prefix_length = bits;
    message.header.source_prefix_length = bits;
    message.attributes = vec![
        RouteAttribute::Destination(to.ip().into()),
        RouteAttribute::Source(source.ip().into()),
        RouteAttribute::IpProto(libc::IPPROTO_UDP as u8),
        RouteAttribute::Sport(source.port()),
        RouteAttribute::Dport(to.port()),
        RouteAttribute::Mark(mark),
    ];
    message
}

fn interface_of(route: &RouteMessage) -> Option<u32> {
    route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Oif(interface) => Some(*interface),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn loopback_leads_out_by_loopback() {
        let loopback = nix::net::if_::if_nametoindex("lo").unwrap();
        let mut routes = Routes::new();
        for ip in [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            Ipv6Addr::LOCALHOST.into(),
        ] {
            let (to, source) = (SocketAddr::new(ip, 1), SocketAddr::new(ip, 2));
            assert!(routes.lead_out_by(loopback, to, source, 0));
            assert!(!routes.lead_out_by(loopback + 1000, to, source, 0));
        }
    }

    #[test]
    fn an_address_that_is_not_ours_is_no_source() {
        let mut routes = Routes::new();
        let to = (Ipv4Addr::LOCALHOST, 1).into();
        assert!(!routes.lead_out_by(1, to, ([192, 0, 2, 77], 2).into(), 0));
    }
}
