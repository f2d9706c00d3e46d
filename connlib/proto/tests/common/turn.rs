//! A server of `turn-server-proto`, and the repair of its answers that a client needs.

use std::{net::SocketAddr, time::Duration};

use turn_client_proto::{
    stun::{
        Instant,
        types::{
            attribute::{ErrorCode, Nonce, PasswordAlgorithmValue, PasswordAlgorithms, Realm},
            message::{Message, MessageWriteVec},
            prelude::{AttributeStaticType, MessageWrite, MessageWriteExt},
        },
    },
    types::TransportType,
};
use turn_server_proto::{api::TurnServerApi, server::TurnServer};

pub(crate) fn fresh_server(address: SocketAddr, password: &str) -> TurnServer {
    let mut server = TurnServer::new(TransportType::Udp, address, "example.org".to_owned());
    server.add_user("alice".to_owned(), password.to_owned());
    server
}

/// Repairs the server's second refusal of a client: it lacks the algorithms that its nonce promises.
pub(crate) fn with_algorithms(bytes: &[u8]) -> Vec<u8> {
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
    let code = message.attribute::<ErrorCode>().expect("a code");
    let nonce = message.attribute::<Nonce>().expect("a nonce");
    let realm = message.attribute::<Realm>().expect("a realm");
    let algorithms = [PasswordAlgorithmValue::SHA256, PasswordAlgorithmValue::MD5];
    let fits = "it fits a message";
    repaired.add_attribute(&code).expect(fits);
    repaired.add_attribute(&nonce).expect(fits);
    repaired.add_attribute(&realm).expect(fits);
    let algorithms = PasswordAlgorithms::new(&algorithms);
    repaired.add_attribute(&algorithms).expect(fits);
    repaired.finish()
}

pub(crate) fn instant(now: Duration) -> Instant {
    Instant::from_nanos(i64::try_from(now.as_nanos()).expect("a time within centuries"))
}
