//! The TURN server, and which datagrams it has sent where.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use convoy_proto::config::{Authorities, Password, Relay, RelayTransport};
use turn_client_proto::{
    stun::{
        agent::Transmit,
        types::{
            message::{Message, MessageClass, MessageType, MessageWriteVec},
            prelude::{MessageWrite, MessageWriteExt},
        },
    },
    types::{
        AddressFamily, TransportType,
        attribute::{ChannelNumber, Data, XorPeerAddress},
        message::{ALLOCATE, CHANNEL_BIND, DATA},
        prelude::DelayedTransmitBuild,
    },
};
use turn_server_proto::{
    api::{SocketAllocateError, TurnServerApi, TurnServerPollRet},
    server::TurnServer,
};

use crate::turn::{fresh_server, instant, with_algorithms};

pub(crate) const ADDRESS: ([u8; 4], u16) = ([198, 51, 100, 1], 3478);
/// Another server's address, and one of IPv6 alone.
pub(crate) const SECOND: ([u8; 4], u16) = ([198, 51, 100, 2], 3478);
pub(crate) const ADDRESS_V6: ([u16; 8], u16) = ([0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1], 3478);
const PASSWORD: &str = "secret";
/// Ports of relayed addresses begin above this one.
const PORTS: u16 = 50_000;

/// Families of which a server has addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Has {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

pub(crate) const BOTH: Has = Has { v4: true, v6: true };
pub(crate) const ONLY_V4: Has = Has {
    v4: true,
    v6: false,
};
pub(crate) const ONLY_V6: Has = Has {
    v4: false,
    v6: true,
};

pub(crate) struct Server {
    turn: TurnServer,
    pub(crate) address: SocketAddr,
    /// Whether it answers anything.
    pub(crate) is_alive: bool,
    pub(crate) has: Has,
    port: u16,
    /// Peers by the client and the number of the channel, and when they were last bound.
    channels: HashMap<(SocketAddr, u16), (SocketAddr, Duration)>,
    /// Destinations of the datagrams that it has relayed, and how many arrived there in the clear of a channel.
    pub(crate) relayed: Vec<SocketAddr>,
}

/// A datagram of the server: source, destination and payload.
pub(crate) type Sent = (SocketAddr, SocketAddr, Vec<u8>);

impl Server {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            turn: fresh_server(address, PASSWORD),
            address,
            is_alive: true,
            has: BOTH,
            port: PORTS,
            channels: HashMap::new(),
            relayed: Vec::new(),
        }
    }

    /// The server in a client's configuration.
    pub(crate) fn relay(&self) -> Relay {
        Relay {
            host: "turn.example.org".to_owned(),
            server: self.address,
            transport: RelayTransport::Udp,
            user: "alice".to_owned(),
            password: Password(PASSWORD.to_owned()),
            authorities: Authorities::default(),
        }
    }

    /// Forgets all allocations.
    pub(crate) fn restart(&mut self) {
        self.turn = fresh_server(self.address, PASSWORD);
    }

    /// Returns whether the address is the server's, or one that it has given.
    pub(crate) fn is_at(&self, address: SocketAddr) -> bool {
        let is_given = (PORTS + 1..=self.port).contains(&address.port());
        let gives = [true, false].map(|is_v4| self.relaying_ip(is_v4));
        address == self.address || gives.contains(&address.ip()) && is_given
    }

    fn relaying_ip(&self, is_v4: bool) -> IpAddr {
        match (is_v4, self.address) {
            (true, SocketAddr::V4(own)) => (*own.ip()).into(),
            (true, _) => [198, 51, 100, 3].into(),
            (false, SocketAddr::V4(own)) => {
                let [.., last] = own.ip().octets();
                [0x2001, 0xdb8, 0x98, 0, 0, 0, 0, u16::from(last)].into()
            }
            (false, SocketAddr::V6(own)) => (*own.ip()).into(),
        }
    }

    /// Takes a datagram; returns those that it sends.
    pub(crate) fn take(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        bytes: &[u8],
        now: Duration,
    ) -> Vec<Sent> {
        if !self.is_alive {
            return Vec::new();
        }
        self.note_channel(from, bytes, now);
        let transmit = Transmit::new(bytes.to_vec(), TransportType::Udp, from, to);
        let answer = self.turn.recv(transmit, instant(now));
        let answer = answer.map(|it| (it.from, it.to, it.data.build()));
        let mut sent: Vec<_> = answer.into_iter().collect();
        sent.extend(self.poll(now));
        for (from, to, bytes) in &mut sent {
            if *from == self.address {
                *bytes = with_algorithms(bytes);
            } else {
                self.relayed.push(*to);
            }
        }
        sent
    }

    /// Requires that no channel leads to two peers (RFC 8656 §12).
    fn note_channel(&mut self, client: SocketAddr, bytes: &[u8], now: Duration) {
        let Ok(message) = Message::from_bytes(bytes) else {
            return;
        };
        if message.has_method(ALLOCATE) {
            self.channels.retain(|(it, _), _| *it != client);
        }
        if let Ok(number) = message.attribute::<ChannelNumber>()
            && message.has_method(CHANNEL_BIND)
        {
            let peer = message.attribute::<XorPeerAddress>().unwrap();
            let peer = peer.addr(message.transaction_id());
            let key = (client, number.channel());
            let former = self.channels.insert(key, (peer, now));
            let is_over = |at: Duration| at + Duration::from_secs(900) <= now;
            let is_free = former.is_none_or(|(it, at)| it == peer || is_over(at));
            assert!(is_free, "{former:?} and {peer} at {now:?}");
        }
    }

    fn poll(&mut self, now: Duration) -> Vec<Sent> {
        let mut sent = Vec::new();
        loop {
            self.give_addresses(now);
            let Some(transmit) = self.turn.poll_transmit(instant(now)) else {
                return sent;
            };
            sent.push((transmit.from, transmit.to, transmit.data));
        }
    }

    /// Answers what the server asks of its sockets. It forgets a client whose last answer is a refusal.
    fn give_addresses(&mut self, now: Duration) {
        let mut wanted = Vec::new();
        while let TurnServerPollRet::AllocateSocket {
            client_addr,
            family,
            ..
        } = self.turn.poll(instant(now))
        {
            self.port += 1;
            let is_v4 = family == AddressFamily::IPV4;
            let has_family = if is_v4 { self.has.v4 } else { self.has.v6 };
            let address = SocketAddr::new(self.relaying_ip(is_v4), self.port);
            let lacks = SocketAllocateError::AddressFamilyNotSupported;
            let socket = has_family.then_some(address).ok_or(lacks);
            wanted.push((client_addr, family, socket));
        }
        wanted.sort_by_key(|(.., socket)| socket.is_ok());
        for (client, family, socket) in wanted {
            let udp = TransportType::Udp;
            let server = self.address;
            self.turn
                .allocated_socket(udp, server, client, udp, family, socket, instant(now));
        }
    }
}

/// A Data indication with this sender.
pub(crate) fn indication(from: SocketAddr, datagram: &[u8]) -> Vec<u8> {
    let transaction = 7_u128.into();
    let kind = MessageType::from_class_method(MessageClass::Indication, DATA);
    let mut message = Message::builder(kind, transaction, MessageWriteVec::new());
    let from = XorPeerAddress::new(from, transaction);
    message.add_attribute(&from).unwrap();
    message.add_attribute(&Data::new(datagram)).unwrap();
    message.finish()
}
