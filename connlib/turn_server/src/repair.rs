//! Repairs an answer of `turn-server-proto` 0.7.

use std::borrow::Cow;

use stun_types::{
    attribute::{
        AttributeStaticType as _, ErrorCode, Nonce, PasswordAlgorithmValue, PasswordAlgorithms,
        Realm,
    },
    message::{Message, MessageWrite as _, MessageWriteExt as _, MessageWriteVec, StunWriteError},
};

/// Adds the algorithms that the nonce of the server's second refusal promises, and which it lacks.
pub(super) fn with_algorithms(bytes: &[u8]) -> Cow<'_, [u8]> {
    match repaired(bytes) {
        Some(Ok(bytes)) => Cow::Owned(bytes),
        Some(Err(_)) | None => Cow::Borrowed(bytes),
    }
}

fn repaired(bytes: &[u8]) -> Option<Result<Vec<u8>, StunWriteError>> {
    let message = Message::from_bytes(bytes).ok()?;
    let code = message.attribute::<ErrorCode>().ok()?;
    if code.code() != ErrorCode::UNAUTHORIZED || message.has_attribute(PasswordAlgorithms::TYPE) {
        return None;
    }
    let nonce = message.attribute::<Nonce>().ok()?;
    let realm = message.attribute::<Realm>().ok()?;
    let algorithms = [PasswordAlgorithmValue::SHA256, PasswordAlgorithmValue::MD5];
    let algorithms = PasswordAlgorithms::new(&algorithms);
    let (kind, id) = (message.get_type(), message.transaction_id());
    let mut whole = Message::builder(kind, id, MessageWriteVec::new());
    let added = whole
        .add_attribute(&code)
        .and_then(|()| whole.add_attribute(&nonce))
        .and_then(|()| whole.add_attribute(&realm))
        .and_then(|()| whole.add_attribute(&algorithms));
    Some(added.map(|()| whole.finish()))
}
