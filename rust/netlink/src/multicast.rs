//! A netlink socket that only listens.

use std::io;

use rtnetlink::packet_core::NetlinkMessage;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::{Socket, SocketAddr};
use tokio::io::unix::AsyncFd;

/// The largest datagram of netlink multicasts.
const DATAGRAM: usize = 32 * 1024;

/// The length of a netlink header.
const HEADER: usize = 16;

/// The length of `struct nfgenmsg`, which follows it for nftables.
const NFGENMSG: usize = 4;

/// The attribute with the table's name: `NFTA_TABLE_NAME`, `NFTA_CHAIN_TABLE`, `NFTA_RULE_TABLE` and their
/// like are all 1.
const TABLE_NAME: u16 = 1;

/// A netlink socket that has joined groups. The kernel's buffer bounds the queue.
pub struct Multicast(AsyncFd<Socket>);

impl Multicast {
    pub fn open(protocol: isize, groups: &[u32]) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        for group in groups {
            socket.add_membership(*group)?;
        }
        socket.set_non_blocking(true)?;
        // SAFETY: the socket owns its descriptor and never replaces it.
        Ok(Self(unsafe { AsyncFd::register(socket) }?))
    }

    /// The next datagram; `None` if the kernel had to drop some. May be cancelled.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        let receive = |socket: &Socket| {
            let mut datagram = Vec::with_capacity(DATAGRAM);
            socket.recv(&mut datagram, 0).map(|_| datagram)
        };
        let interest = tokio::io::Interest::READABLE;
        self.0
            .async_io(interest, |socket| receive(socket))
            .await
            .ok()
    }
}

/// The messages in a datagram of rtnetlink.
pub fn route_messages(datagram: &[u8]) -> impl Iterator<Item = RouteNetlinkMessage> {
    messages(datagram).filter_map(|message| {
        let parsed = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message);
        match parsed.ok()?.payload {
            rtnetlink::packet_core::NetlinkPayload::InnerMessage(inner) => Some(inner),
            _ => None,
        }
    })
}

/// The tables that a datagram of nftables is about.
pub fn nft_tables(datagram: &[u8]) -> impl Iterator<Item = &str> {
    messages(datagram).filter_map(|message| {
        let mut attributes = message.get(HEADER + NFGENMSG..)?;
        while let Some((length, kind)) = attribute(attributes) {
            if kind == TABLE_NAME {
                let name = attributes.get(4..length)?;
                return std::str::from_utf8(name).ok()?.strip_suffix('\0');
            }
            attributes = attributes.get(length.next_multiple_of(4)..)?;
        }
        None
    })
}

fn messages(mut datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(datagram.get(..4)?.try_into().ok()?) as usize;
        let message = datagram.get(..length).filter(|_| length >= HEADER)?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    })
}

fn attribute(bytes: &[u8]) -> Option<(usize, u16)> {
    let length = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
    (length >= 4).then_some((length.into(), kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_has_no_messages() {
        for length in 0..64u8 {
            let nonsense: Vec<u8> = (0..length).map(|n| n.wrapping_mul(37)).collect();
            assert_eq!(nft_tables(&nonsense).count(), 0);
            assert_eq!(route_messages(&nonsense).count(), 0);
        }
    }

    #[test]
    fn the_table_of_each_message_is_found() {
        let mut datagram = Vec::new();
        for name in [&b"convoy_wg0\0"[..], b"filter\0"] {
            let attribute = 4 + name.len();
            let length = HEADER + NFGENMSG + attribute;
            datagram.extend((length as u32).to_ne_bytes());
            datagram.extend([0; HEADER - 4 + NFGENMSG]);
            datagram.extend((attribute as u16).to_ne_bytes());
            datagram.extend(TABLE_NAME.to_ne_bytes());
            datagram.extend(name);
            datagram.resize(datagram.len().next_multiple_of(4), 0);
        }
        let tables: Vec<_> = nft_tables(&datagram).collect();
        assert_eq!(tables, ["convoy_wg0", "filter"]);
    }
}
