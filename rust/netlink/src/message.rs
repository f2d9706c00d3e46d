//! A message of rtnetlink, as far as this crate reads it.

use rtnetlink::{
    packet_core::{DecodeError, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable},
    packet_route::RouteNetlinkMessage,
};

/// The length of `struct ifinfomsg`, which precedes a link's attributes.
const IFINFOMSG: usize = 16;

/// The attributes of a link that [`crate::Link`] and [`crate::Notice`] have.
const NEEDED: [u16; 6] = [
    libc::IFLA_IFNAME,
    libc::IFLA_MTU,
    libc::IFLA_TXQLEN,
    libc::IFLA_STATS64,
    libc::IFLA_WIRELESS,
    libc::IFLA_NEW_NETNSID,
];

/// Flag bits of an attribute's kind, outside `NLA_TYPE_MASK`.
const KIND_FLAGS: u16 = 0xc000;

/// A message; `None` if it cannot be parsed. The library would skip it, and the caller would wait forever.
#[derive(Clone, Debug)]
pub(crate) struct Message(pub(crate) Option<RouteNetlinkMessage>);

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let parse = |payload: &[u8]| RouteNetlinkMessage::deserialize(header, payload).ok();
        let is_link = matches!(header.message_type, libc::RTM_NEWLINK | libc::RTM_DELLINK);
        // An alias may be in any encoding, and kinds of links have data that only newer versions know.
        let without = |kinds: &[u16]| parse(&with_only(kinds, payload)).filter(|_| is_link);
        let with_kind = [&NEEDED[..], &[libc::IFLA_LINKINFO]].concat();
        let parsed = parse(payload).or_else(|| without(&with_kind));
        Ok(Self(parsed.or_else(|| without(&NEEDED))))
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.0.as_ref().map_or(0, NetlinkSerializable::message_type)
    }

    fn buffer_len(&self) -> usize {
        self.0.as_ref().map_or(0, NetlinkSerializable::buffer_len)
    }

    fn serialize(&self, buffer: &mut [u8]) {
        if let Some(message) = &self.0 {
            message.serialize(buffer);
        }
    }
}

/// Returns the payload of a link's message with attributes of these kinds alone.
fn with_only(kinds: &[u16], payload: &[u8]) -> Vec<u8> {
    let (head, mut attributes) = payload.split_at(payload.len().min(IFINFOMSG));
    let mut kept = head.to_vec();
    while let Some((length, kind)) = attribute(attributes) {
        if kinds.contains(&(kind & !KIND_FLAGS)) {
            kept.extend_from_slice(&attributes[..length]);
            kept.resize(kept.len().next_multiple_of(4), 0);
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    kept
}

/// Returns the length and the kind of the first attribute, if it is whole.
fn attribute(attributes: &[u8]) -> Option<(usize, u16)> {
    let length = u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?).into();
    let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
    ((4..=attributes.len()).contains(&length)).then_some((length, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_are_not_needed_are_left_out_even_of_nonsense() {
        let whole: Vec<u8> = (0..IFINFOMSG as u8).collect();
        let attribute = |kind: u16, content: &[u8]| {
            let length = 4 + content.len() as u16;
            let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.extend(content);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let (name, alias) = (attribute(3, b"lo\0"), attribute(20, b"B\xfcro"));
        let payload = [&whole[..], &alias, &name].concat();
        assert_eq!(with_only(&[3], &payload), [&whole[..], &name].concat());
        for length in 0..payload.len() {
            assert!(with_only(&[3, 20], &payload[..length]).len() <= length.next_multiple_of(4));
        }
    }
}
