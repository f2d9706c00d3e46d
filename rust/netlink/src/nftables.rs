//! Tables that belong to this process: no other one can change, flush or delete them.
//!
//! The kernel ties a table to the netlink socket that made it (`NFT_TABLE_F_OWNER`, Linux 5.12), and keeps it when that
//! is closed (`NFT_TABLE_F_PERSIST`, Linux 6.9). Then the next socket may adopt it. nft(8) opens a socket for each
//! run, and most versions cannot say either. So nft(8) changes rules while nobody owns the tables, and afterwards a
//! socket of this module adopts them. Where the kernel refuses any of this, tables belong to nobody, as before.

use std::io;

use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

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

/// The length of a netlink header, and of `NLMSG_ERROR` up to its number.
const HEADER: usize = 16;
const ERROR: u16 = 2;

/// Owns tables of one name until it is dropped. They stay.
pub struct Owner {
    _socket: Socket,
}

impl Owner {
    /// Makes the tables that do not exist, for [`Owner::adopt`]; those that exist stay as they are.
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
}
