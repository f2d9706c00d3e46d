//! Tables of nftables: changes of them, and those that belong to this process, which no other one can change, flush or
//! delete.
//!
//! The kernel ties a table to the netlink socket that made it (`NFT_TABLE_F_OWNER`, Linux 5.12), and keeps it when that
//! is closed (`NFT_TABLE_F_PERSIST`, Linux 6.9). Then the next socket may adopt it. nft(8) opens a socket for each
//! run, and most versions cannot say either. So nft(8) changes rules while nobody owns the tables, and afterwards a
//! socket of this module adopts them. Where the kernel refuses any of this, tables belong to nobody, as before.

use std::io;

use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use crate::{
    error::NetlinkError,
    multicast::{HEADER, Multicast, messages},
};

/// `NFNL_MSG_BATCH_BEGIN`, `NFNL_MSG_BATCH_END` and `NFT_MSG_NEWTABLE` of `NFNL_SUBSYS_NFTABLES`
/// (linux/netfilter/nfnetlink.h, nf_tables.h).
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = SUBSYSTEM << 8;

/// Attributes of a table.
const NAME: u16 = 1;
const FLAGS: u16 = 2;

/// `NFT_TABLE_F_OWNER | NFT_TABLE_F_PERSIST`.
const OWNER_AND_PERSIST: u32 = 0x2 | 0x4;

/// `NLM_F_REQUEST`, `NLM_F_ACK`, `NLM_F_EXCL` and `NLM_F_CREATE` (linux/netlink.h).
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;

/// The families of our tables (linux/netfilter.h): `NFPROTO_INET`, `NFPROTO_NETDEV`.
const FAMILIES: [u8; 2] = [1, 5];

/// `NLMSG_ERROR`.
const ERROR: u16 = 2;

/// `NFNLGRP_NFTABLES` of linux/netfilter/nfnetlink.h.
const GROUP: u32 = 7;

/// The length of `struct nfgenmsg`, which follows the header of a message.
const NFGENMSG: usize = 4;

/// The attribute with the table's name: `NFTA_TABLE_NAME`, `NFTA_CHAIN_TABLE`, `NFTA_RULE_TABLE` and their
/// like are all 1.
const TABLE_NAME: u16 = 1;

/// Owns tables of one name until it is dropped. They stay.
pub struct Owner {
    _socket: Socket,
}

impl Owner {
    /// Creates the tables that do not exist, for [`Owner::adopt`]; those that exist stay as they are.
    pub fn prepare(table: &str, has_egress: bool) {
        let families = if has_egress {
            &FAMILIES[..]
        } else {
            &FAMILIES[..1]
        };
        for family in families.iter().copied() {
            // One that exists, or that the kernel cannot make so, is made or changed by nft(8).
            if let Err(error) = open().and_then(|it| ask(&it, family, table, CREATE | EXCLUSIVE)) {
                tracing::debug!(table, family, %error, "Not made as an owned table");
            }
        }
    }

    /// Adopts those of the tables that exist: the kernel would make the others. `None` if it refuses.
    pub fn adopt(table: &str, has_inet: bool, has_netdev: bool) -> Option<Self> {
        let socket = open().ok()?;
        let mut is_owner = false;
        for (family, exists) in FAMILIES.into_iter().zip([has_inet, has_netdev]) {
            if !exists {
                continue;
            }
            match ask(&socket, family, table, 0) {
                Ok(()) => is_owner = true,
                Err(error) => tracing::debug!(table, family, %error, "Not adopted"),
            }
        }
        is_owner.then_some(Self { _socket: socket })
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

/// A subscription to changes of tables. The kernel's buffer bounds the queue.
pub struct Changes(Multicast);

impl Changes {
    /// Subscribes in the network namespace of the calling thread.
    ///
    /// # Errors
    /// If the kernel refuses the socket.
    pub fn subscribe() -> Result<Self, NetlinkError> {
        let opened = Multicast::open(NETLINK_NETFILTER, &[GROUP]);
        let opened = opened.map_err(NetlinkError::on("watch", "nftables"))?;
        Ok(Self(opened))
    }

    /// Waits for a change; returns whether it may be one of the table with this name. May be cancelled: no change is lost.
    pub async fn next_is_of(&mut self, table: Option<&str>) -> bool {
        match self.0.next().await {
            Ok((datagram, _)) => tables(datagram).any(|changed| Some(changed) == table),
            // The kernel dropped some.
            Err(_) => true,
        }
    }
}

/// The tables that a datagram of nftables is about.
fn tables(datagram: &[u8]) -> impl Iterator<Item = &str> {
    messages(datagram).filter_map(|message| {
        let mut attributes = message.get(HEADER + NFGENMSG..)?;
        while let Some((length, kind)) = head(attributes) {
            if kind == TABLE_NAME {
                let name = attributes.get(4..length)?;
                return std::str::from_utf8(name).ok()?.strip_suffix('\0');
            }
            attributes = attributes.get(length.next_multiple_of(4)..)?;
        }
        None
    })
}

fn head(attribute: &[u8]) -> Option<(usize, u16)> {
    let length = u16::from_ne_bytes(attribute.get(..2)?.try_into().ok()?);
    let kind = u16::from_ne_bytes(attribute.get(2..4)?.try_into().ok()?);
    (length >= 4).then_some((length.into(), kind))
}

fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Makes or adopts one table. The kernel answers before `send` returns.
fn ask(socket: &Socket, family: u8, table: &str, how: u16) -> io::Result<()> {
    socket.send(&batch(family, table, how), 0)?;
    let mut answer = Vec::with_capacity(4096);
    socket.recv(&mut answer, libc::MSG_DONTWAIT)?;
    let kind = answer.get(4..6).and_then(|it| it.try_into().ok());
    let number = answer
        .get(HEADER..HEADER + 4)
        .and_then(|it| it.try_into().ok());
    match (kind.map(u16::from_ne_bytes), number.map(i32::from_ne_bytes)) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(number)) => Err(io::Error::from_raw_os_error(-number)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// One transaction with one table.
fn batch(family: u8, table: &str, how: u16) -> Vec<u8> {
    let name = [table.as_bytes(), &[0]].concat();
    let attributes = [
        attribute(NAME, &name),
        attribute(FLAGS, &OWNER_AND_PERSIST.to_be_bytes()),
    ];
    [
        message(BATCH_BEGIN, REQUEST, 0, SUBSYSTEM, &[]),
        message(
            NEW_TABLE,
            REQUEST | ACK | how,
            family,
            0,
            &attributes.concat(),
        ),
        message(BATCH_END, REQUEST, 0, SUBSYSTEM, &[]),
    ]
    .concat()
}

/// A netlink message with `struct nfgenmsg`.
fn message(kind: u16, flags: u16, family: u8, resource: u16, attributes: &[u8]) -> Vec<u8> {
    let length = HEADER + 4 + attributes.len();
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence number and port.
    message.extend([0; 8]);
    message.extend([family, 0]);
    message.extend(resource.to_be_bytes());
    message.extend(attributes);
    message
}

fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let length = 4 + content.len();
    let mut attribute = Vec::with_capacity(length.next_multiple_of(4));
    attribute.extend((length as u16).to_ne_bytes());
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(content);
    attribute.resize(length.next_multiple_of(4), 0);
    attribute
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_of_a_batch_is_aligned_and_as_long_as_it_says() {
        for name in ["t", "convoy_wg0", "convoy_a.2fb", "abcd"] {
            let mut rest = &batch(1, name, CREATE)[..];
            let mut kinds = Vec::new();
            while !rest.is_empty() {
                let length = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
                assert_eq!(length % 4, 0, "{name}");
                kinds.push(u16::from_ne_bytes(rest[4..6].try_into().unwrap()));
                rest = &rest[length..];
            }
            assert_eq!(kinds, [BATCH_BEGIN, NEW_TABLE, BATCH_END]);
        }
    }

    #[test]
    fn nonsense_names_no_table() {
        for length in 0..64u8 {
            let nonsense: Vec<u8> = (0..length).map(|n| n.wrapping_mul(37)).collect();
            assert_eq!(tables(&nonsense).count(), 0);
        }
    }

    #[test]
    fn the_table_of_each_message_is_found() {
        let mut datagram = Vec::new();
        for name in [&b"convoy_wg0\0"[..], b"filter\0"] {
            datagram.extend(message(NEW_TABLE, REQUEST, 1, 0, &attribute(NAME, name)));
        }
        let found: Vec<_> = tables(&datagram).collect();
        assert_eq!(found, ["convoy_wg0", "filter"]);
    }
}
