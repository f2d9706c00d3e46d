//! The server of the tests: the library's, with what it gets wrong mended.

use turn_client_proto::{
    stun::types::{
        attribute::{ErrorCode, Nonce, PasswordAlgorithmValue, PasswordAlgorithms, Realm},
        message::{IntegrityAlgorithm, LongTermCredentials, Message, MessageWriteVec},
        prelude::{AttributeStaticType, MessageWrite, MessageWriteExt},
    },
    types::{
        attribute::{
            AdditionalAddressFamily, ChannelNumber as Number, RequestedAddressFamily,
            XorPeerAddress,
        },
        message::{ALLOCATE, CHANNEL_BIND},
    },
};

use super::*;

impl World {
    /// Requires that no channel leads to two peers (RFC 8656 §12).
    pub(super) fn note_channels(&mut self, message: &[u8]) {
        let Ok(message) = Message::from_bytes(message) else {
            return;
        };
        let now = self.now;
        if message.has_method(ALLOCATE) {
            self.bound.clear();
        }
        if let Ok(number) = message.attribute::<Number>()
            && message.has_method(CHANNEL_BIND)
        {
            let peer = message.attribute::<XorPeerAddress>().unwrap();
            let peer = peer.addr(message.transaction_id());
            let is_over = |at: Duration| at + Duration::from_secs(900) <= now;
            let former = self.bound.insert(number.channel(), (peer, now));
            let is_free = former.is_none_or(|(known, at)| known == peer || is_over(at));
            assert!(is_free, "{former:?} loses its channel to {peer}");
        }
    }

    /// The refusal of a signed request that names IPv6 by a server that has never heard of it.
    pub(super) fn refusal_of_old(&self, message: &[u8]) -> Option<Vec<u8>> {
        let request = Message::from_bytes(message).ok().filter(|_| self.is_old)?;
        let names_family = request.has_attribute(AdditionalAddressFamily::TYPE)
            || request.has_attribute(RequestedAddressFamily::TYPE);
        let realm = request.attribute::<Realm>().ok().filter(|_| names_family)?;
        let credentials = LongTermCredentials::new("alice".to_owned(), "secret".to_owned());
        let key = credentials.to_key(realm.realm().to_owned()).into();
        let mut refusal = Message::builder_error(&request, MessageWriteVec::new());
        let code = ErrorCode::builder(ErrorCode::ADDRESS_FAMILY_NOT_SUPPORTED);
        refusal.add_attribute(&code.build().unwrap()).unwrap();
        let signed = refusal.add_message_integrity(&key, IntegrityAlgorithm::Sha1);
        signed.unwrap();
        Some(refusal.finish())
    }

    /// Answers what the server asks of its sockets. It forgets a client whose last answer is a refusal.
    pub(super) fn give_addresses(&mut self) {
        let mut wanted = Vec::new();
        while let TurnServerPollRet::AllocateSocket { family, .. } =
            self.server.poll(instant(self.now))
        {
            wanted.push((self.socket_of(family == AddressFamily::IPV4), family));
        }
        wanted.sort_by_key(|(socket, _)| socket.is_ok());
        for (socket, family) in wanted {
            self.server.allocated_socket(
                TransportType::Udp,
                self.server_address,
                self.client_address,
                TransportType::Udp,
                family,
                socket,
                instant(self.now),
            );
        }
    }

    fn socket_of(&mut self, is_ipv4: bool) -> Result<SocketAddr, SocketAllocateError> {
        self.relayed_port += 1;
        let (has_family, address) = match is_ipv4 {
            true => (self.has.v4, [198, 51, 100, 1].into()),
            false => (self.has.v6, peer_v6().ip()),
        };
        let lacks = SocketAllocateError::AddressFamilyNotSupported;
        let refusal = self.refuses.or((!has_family).then_some(lacks));
        let address = SocketAddr::new(address, self.relayed_port);
        refusal.map_or(Ok(self.gives.unwrap_or(address)), Err)
    }
}

pub(super) fn fresh_server(address: SocketAddr) -> TurnServer {
    let mut server = TurnServer::new(TransportType::Udp, address, "example.org".to_owned());
    server.add_user("alice".to_owned(), "secret".to_owned());
    server
}

/// Repairs the server's second refusal of a client: it lacks the algorithms that its nonce promises.
pub(super) fn with_algorithms(bytes: Vec<u8>) -> Vec<u8> {
    let message = Message::from_bytes(&bytes).unwrap();
    let code = message.attribute::<ErrorCode>();
    let is_refusal = code.is_ok_and(|it| it.code() == ErrorCode::UNAUTHORIZED);
    if !is_refusal || message.has_attribute(PasswordAlgorithms::TYPE) {
        return bytes;
    }
    let mut repaired = Message::builder(
        message.get_type(),
        message.transaction_id(),
        MessageWriteVec::new(),
    );
    let code = message.attribute::<ErrorCode>().unwrap();
    let nonce = message.attribute::<Nonce>().unwrap();
    let realm = message.attribute::<Realm>().unwrap();
    let algorithms = [PasswordAlgorithmValue::SHA256, PasswordAlgorithmValue::MD5];
    repaired.add_attribute(&code).unwrap();
    repaired.add_attribute(&nonce).unwrap();
    repaired.add_attribute(&realm).unwrap();
    repaired
        .add_attribute(&PasswordAlgorithms::new(&algorithms))
        .unwrap();
    repaired.finish()
}
