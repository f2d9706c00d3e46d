//! The TURN server, and which datagrams it has sent where.

use std::{net::SocketAddr, time::Duration};

use convoy_proto::config::{Authorities, Password, Relay, RelayTransport};
use turn_client_proto::{
    stun::{
        Instant,
        agent::Transmit,
        types::{
            attribute::{ErrorCode, Nonce, PasswordAlgorithmValue, PasswordAlgorithms, Realm},
            message::{Message, MessageClass, MessageType, MessageWriteVec},
            prelude::{AttributeStaticType, MessageWrite, MessageWriteExt},
        },
    },
    types::{TransportType, prelude::DelayedTransmitBuild},
};
use turn_server_proto::{
    api::{TurnServerApi, TurnServerPollRet},
    server::TurnServer,
};

pub(crate) const ADDRESS: ([u8; 4], u16) = ([198, 51, 100, 1], 3478);
/// Ports of relayed addresses begin above this one.
const PORTS: u16 = 50_000;

pub(crate) struct Server {
    turn: TurnServer,
    /// Whether it answers anything.
    pub(crate) is_alive: bool,
    port: u16,
    /// Destinations of the datagrams that it has relayed, and how many arrived there in the clear of a channel.
    pub(crate) relayed: Vec<SocketAddr>,
}

/// A datagram of the server: source, destination and payload.
pub(crate) type Sent = (SocketAddr, SocketAddr, Vec<u8>);

/// The server in a client's configuration.
pub(crate) fn relay() -> Relay {
    Relay {
        host: "turn.example.org".to_owned(),
        server: ADDRESS.into(),
        transport: RelayTransport::Udp,
        user: "alice".to_owned(),
        password: Password("secret".to_owned()),
        authorities: Authorities::default(),
    }
}

impl Server {
    pub(crate) fn new() -> Self {
        Self {
            turn: fresh(),
            is_alive: true,
            port: PORTS,
            relayed: Vec::new(),
        }
    }

    /// Forgets all allocations.
    pub(crate) fn restart(&mut self) {
        self.turn = fresh();
    }

    /// Whether the address is the server's, or one that it has given.
    pub(crate) fn is_at(&self, address: SocketAddr) -> bool {
        let (ip, port) = ADDRESS;
        let is_given = (PORTS + 1..=self.port).contains(&address.port());
        address.ip() == std::net::IpAddr::from(ip) && (address.port() == port || is_given)
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
        let transmit = Transmit::new(bytes.to_vec(), TransportType::Udp, from, to);
        let answer = self.turn.recv(transmit, instant(now));
        let answer = answer.map(|it| (it.from, it.to, it.data.build()));
        let mut sent: Vec<_> = answer.into_iter().collect();
        sent.extend(self.poll(now));
        for (from, to, bytes) in &mut sent {
            if from.port() == ADDRESS.1 {
                *bytes = with_algorithms(bytes);
            } else {
                self.relayed.push(*to);
            }
        }
        sent
    }

    fn poll(&mut self, now: Duration) -> Vec<Sent> {
        let mut sent = Vec::new();
        loop {
            if let TurnServerPollRet::AllocateSocket {
                transport,
                listen_addr,
                client_addr,
                allocation_transport,
                family,
            } = self.turn.poll(instant(now))
            {
                self.port += 1;
                let address = SocketAddr::from((ADDRESS.0, self.port));
                self.turn.allocated_socket(
                    transport,
                    listen_addr,
                    client_addr,
                    allocation_transport,
                    family,
                    Ok(address),
                    instant(now),
                );
            }
            let Some(transmit) = self.turn.poll_transmit(instant(now)) else {
                return sent;
            };
            sent.push((transmit.from, transmit.to, transmit.data));
        }
    }
}

fn fresh() -> TurnServer {
    let mut turn = TurnServer::new(TransportType::Udp, ADDRESS.into(), "example.org".to_owned());
    turn.add_user("alice".to_owned(), "secret".to_owned());
    turn
}

/// Repairs the server's second refusal of a client: it lacks the algorithms that its nonce promises.
fn with_algorithms(bytes: &[u8]) -> Vec<u8> {
    let Ok(message) = Message::from_bytes(bytes) else {
        return bytes.to_vec();
    };
    let code = message.attribute::<ErrorCode>();
    let is_refusal = code.is_ok_and(|it| it.code() == ErrorCode::UNAUTHORIZED);
    if !is_refusal || message.has_attribute(PasswordAlgorithms::TYPE) {
        return bytes.to_vec();
    }
    let mut repaired = Message::builder(
        message.get_type(),
        message.transaction_id(),
        MessageWriteVec::new(),
    );
    repaired
        .add_attribute(&message.attribute::<ErrorCode>().unwrap())
        .unwrap();
    repaired
        .add_attribute(&message.attribute::<Nonce>().unwrap())
        .unwrap();
    repaired
        .add_attribute(&message.attribute::<Realm>().unwrap())
        .unwrap();
    let algorithms = [PasswordAlgorithmValue::SHA256, PasswordAlgorithmValue::MD5];
    repaired
        .add_attribute(&PasswordAlgorithms::new(&algorithms))
        .unwrap();
    repaired.finish()
}

fn instant(now: Duration) -> Instant {
    Instant::from_nanos(i64::try_from(now.as_nanos()).unwrap())
}

/// A Data indication with this sender.
pub(crate) fn indication(from: SocketAddr, datagram: &[u8]) -> Vec<u8> {
    use turn_client_proto::types::{
        attribute::{Data, XorPeerAddress},
        message::DATA,
    };
    let transaction = 7_u128.into();
    let kind = MessageType::from_class_method(MessageClass::Indication, DATA);
    let mut message = Message::builder(kind, transaction, MessageWriteVec::new());
    let from = XorPeerAddress::new(from, transaction);
    message.add_attribute(&from).unwrap();
    message.add_attribute(&Data::new(datagram)).unwrap();
    message.finish()
}
