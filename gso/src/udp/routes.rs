//! Route lookups in the kernel by rtnetlink (Linux): how a datagram would leave.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use netlink_packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{RouteAttribute, RouteFlags, RouteMessage, RouteMetric},
};
use netlink_sys::{Socket, SocketAddr as Kernel, protocols::NETLINK_ROUTE};

/// The netlink socket for lookups. Without one nothing is known: every source address counts as right,
/// and no route as narrower than its interface.
#[derive(Debug, Default)]
pub(super) struct Routes {
    socket: Option<Socket>,
    sequence: u32,
}

/// The datagrams that a lookup is about.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// The remote address.
    pub to: SocketAddr,
    /// The local port, and the local address unless the kernel is to choose it.
    pub source: (Option<IpAddr>, u16),
    /// The firewall mark.
    pub mark: u32,
}

impl Routes {
    pub(super) fn new() -> Self {
        let socket = Socket::new(NETLINK_ROUTE).and_then(|mut socket| {
            socket.bind_auto()?;
            socket.connect(&Kernel::new(0, 0))?;
            Ok(socket)
        });
        if let Err(error) = &socket {
            tracing::warn!(%error, "Cannot look up routes: sticky source addresses are not checked");
        }
        Self {
            socket: socket.ok(),
            sequence: 0,
        }
    }

    /// Returns whether the flow leaves by `interface`; true if that is unknown.
    pub(super) fn lead_out_by(&mut self, interface: u32, flow: Flow) -> bool {
        // Of a link-local address, the zone decides, not the route.
        if matches!(flow.to.ip(), IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            return true;
        }
        match self.ask(flow, RouteFlags::empty()) {
            Ok(route) => route
                .and_then(|route| interface_of(&route))
                .is_none_or(|found| found == interface),
            Err(error) => {
                tracing::debug!(to = %flow.to, ?flow.source, %error, "No route from the local address that the peer uses");
                false
            }
        }
    }

    /// The MTU in bytes that is set on the flow's route itself (`ip route add ... mtu`), if any.
    ///
    /// Leaves out an MTU that the kernel has learnt from ICMP messages, which anybody can forge.
    pub(super) fn own_mtu(&mut self, flow: Flow) -> Option<usize> {
        let route = self.ask(flow, RouteFlags::FibMatch).ok().flatten()?;
        let metrics = route
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                RouteAttribute::Metrics(metrics) => Some(metrics),
                _ => None,
            });
        metrics?.iter().find_map(|metric| match metric {
            RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu as usize),
            _ => None,
        })
    }

    /// Makes the kernel forget the path MTU that it has learnt for the flow (`RTM_DELROUTE` of a cached
    /// route). Does nothing without `CAP_NET_ADMIN`.
    pub(super) fn forget_learnt_mtu(&mut self, flow: Flow) {
        let Ok(Some(route)) = self.ask(flow, RouteFlags::empty()) else {
            return;
        };
        if route.header.flags.contains(RouteFlags::Cloned) {
            self.send(RouteNetlinkMessage::DelRoute(route));
        }
    }

    /// Looks up the flow's route; `None` if the kernel does not say. Never waits: the kernel answers
    /// before `send` returns.
    fn ask(&mut self, flow: Flow, flags: RouteFlags) -> io::Result<Option<RouteMessage>> {
        if !self.send(RouteNetlinkMessage::GetRoute(question(flow, flags))) {
            return Ok(None);
        }
        let Some(socket) = &self.socket else {
            return Ok(None);
        };
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
                    Ok(Some(route))
                }
                NetlinkPayload::Error(error) => Err(error.to_io()),
                _ => Ok(None),
            };
        }
    }

    /// Sends a message; returns whether the kernel took it.
    fn send(&mut self, message: RouteNetlinkMessage) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        socket.send(&bytes, 0).is_ok()
    }
}

/// Includes the ports, as rules and multipath routes may depend on them.
fn question(flow: Flow, flags: RouteFlags) -> RouteMessage {
    let mut message = RouteMessage::default();
    let (family, bits) = match flow.to {
        SocketAddr::V4(_) => (AddressFamily::Inet, 32),
        SocketAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    let (source, port) = flow.source;
    message.header.address_family = family;
    message.header.destination_prefix_length = bits;
    message.header.flags = flags;
    message.attributes = vec![
        RouteAttribute::Destination(flow.to.ip().into()),
        RouteAttribute::IpProto(libc::IPPROTO_UDP as u8),
        RouteAttribute::Sport(port),
        RouteAttribute::Dport(flow.to.port()),
        RouteAttribute::Mark(flow.mark),
    ];
    if let Some(source) = source {
        message.header.source_prefix_length = bits;
        message
            .attributes
            .push(RouteAttribute::Source(source.into()));
    }
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
        // Its index is 1 in every network namespace.
        const LOOPBACK: u32 = 1;
        let mut routes = Routes::new();
        for ip in [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            Ipv6Addr::LOCALHOST.into(),
        ] {
            assert!(routes.lead_out_by(LOOPBACK, flow(ip, ip)));
            assert!(!routes.lead_out_by(LOOPBACK + 1000, flow(ip, ip)));
            assert_eq!(routes.own_mtu(flow(ip, ip)), None);
        }
    }

    #[test]
    fn an_address_that_is_not_ours_is_no_source() {
        let not_ours = [192, 0, 2, 77].into();
        let flow = flow(Ipv4Addr::LOCALHOST.into(), not_ours);
        assert!(!Routes::new().lead_out_by(1, flow));
    }

    fn flow(to: IpAddr, source: IpAddr) -> Flow {
        Flow {
            to: SocketAddr::new(to, 1),
            source: (Some(source), 2),
            mark: 0,
        }
    }
}
