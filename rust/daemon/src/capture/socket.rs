//! A packet socket on a tunnel's interface (packet(7)).

use std::{
    io::IoSliceMut,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use nix::{
    errno::Errno,
    getsockopt_impl,
    ifaddrs::getifaddrs,
    net::if_::{if_indextoname, if_nametoindex},
    sockopt_impl,
    sys::socket::{
        AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike,
        bind, getsockopt, recvmsg, setsockopt, socket, sockopt,
    },
};

/// The size limit of a packet: a super-packet.
pub(super) const LONGEST_PACKET: usize = 65_535;

/// The buffer for packets that wait to be read, in bytes.
const BUFFER_BYTES: usize = 64 << 20;

sockopt_impl!(
    /// Counters of a packet socket since they were last read.
    PacketStatistics,
    GetOnly,
    libc::SOL_PACKET,
    libc::PACKET_STATISTICS,
    libc::tpacket_stats
);

/// A socket that copies the packets of an interface.
#[derive(Debug)]
pub(super) struct PacketSocket {
    socket: OwnedFd,
    index: u32,
}

/// A captured packet.
#[derive(Debug)]
pub(super) struct Captured<'a> {
    /// The packet from its IP header on.
    pub(super) packet: &'a [u8],
    /// Length before truncation to the buffer.
    pub(super) length: usize,
    pub(super) direction: Direction,
    /// Time since 1970.
    pub(super) time: Duration,
}

/// Direction as seen from this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Inbound,
    Outbound,
}

/// For [`PacketSocket::receive`].
pub(super) fn buffer() -> Vec<u8> {
    vec![0; LONGEST_PACKET]
}

impl PacketSocket {
    /// Copies everything that passes this interface from now on.
    ///
    /// # Errors
    /// If there is no such interface, it is not a tunnel's, or the caller may not capture.
    pub(super) fn open(interface: &str) -> anyhow::Result<Self> {
        let index = match if_nametoindex(interface) {
            Ok(index) => index,
            Err(Errno::ENODEV) => bail!("{interface} is not up"),
            Err(errno) => return Err(errno).with_context(|| interface.to_owned()),
        };
        if has_link_layer(interface)? {
            bail!("{interface} is not the interface of a tunnel");
        }
        // Without a protocol it receives nothing until it is bound to its interface.
        let close = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = match socket(AddressFamily::Packet, SockType::Raw, close, None) {
            Err(Errno::EPERM) => bail!("a capture needs CAP_NET_RAW (run as root)"),
            socket => socket.context("cannot open a packet socket")?,
        };
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        // Without CAP_NET_ADMIN, the default size has to do.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES);
        let address = address(index).context("cannot name the interface")?;
        bind(socket.as_raw_fd(), &address)
            .with_context(|| format!("cannot capture on {interface}"))?;
        Ok(Self { socket, index })
    }

    /// Returns the next packet; `None` if there is none yet.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<Captured<'a>>, Errno> {
        let mut control = nix::cmsg_space!(libc::timespec);
        let mut into = [IoSliceMut::new(buffer)];
        // With MSG_TRUNC the kernel tells the length before it was cut.
        let (socket, flags) = (self.socket.as_raw_fd(), MsgFlags::MSG_TRUNC);
        let message = match recvmsg::<LinkAddr>(socket, &mut into, Some(&mut control), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let stamp = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
            _ => None,
        });
        let now = || SystemTime::now().duration_since(UNIX_EPOCH);
        let time = stamp.unwrap_or_else(|| now().unwrap_or_default());
        let is_outbound = message
            .address
            .is_some_and(|from| from.pkttype() == libc::PACKET_OUTGOING);
        let length = message.bytes;
        Ok(Some(Captured {
            packet: &buffer[..length.min(buffer.len())],
            length,
            direction: match is_outbound {
                true => Direction::Outbound,
                false => Direction::Inbound,
            },
            time,
        }))
    }

    /// Returns whether its interface still exists.
    pub(super) fn is_there(&self) -> bool {
        // By its number: it may be renamed. nix returns an empty name for an unknown number.
        if_indextoname(self.index).is_ok_and(|name| !name.is_empty())
    }

    /// Returns the number of packets lost since the last call because the buffer was full.
    pub(super) fn dropped(&self) -> u64 {
        let statistics = getsockopt(&self.socket, PacketStatistics);
        statistics.map_or(0, |it| it.tp_drops.into())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns whether packets have a link-layer header: such devices have an address of their own.
fn has_link_layer(interface: &str) -> Result<bool, Errno> {
    let mut addresses = getifaddrs()?.filter(|it| it.interface_name == interface);
    Ok(addresses.any(|it| it.address.is_some_and(|it| it.as_link_addr().is_some())))
}

/// All protocols of an interface.
fn address(interface: u32) -> Option<LinkAddr> {
    // SAFETY: all zero is a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = i32::try_from(interface).ok()?;
    let len = libc::socklen_t::try_from(size_of_val(&address)).ok()?;
    // SAFETY: it points to a `sockaddr_ll` of this length, and its family says so.
    unsafe { LinkAddr::from_raw((&raw const address).cast(), Some(len)) }
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread};

    use convoy_tun::{Device, Switch};
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn an_interface_that_is_renamed_is_still_there_until_it_is_deleted() {
        let in_own_namespace = thread::spawn(|| {
            let device = unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|errno| errno.to_string())
                .and_then(|()| {
                    Device::open("before", Switch::Off).map_err(|error| error.to_string())
                });
            let device = match device {
                Ok(device) => device,
                Err(why) => {
                    eprintln!(
                        "SKIPPED an_interface_that_is_renamed_is_still_there_until_it_is_deleted: {why}"
                    );
                    return;
                }
            };
            let socket = PacketSocket::open("before").unwrap();
            let mut rename = Command::new("ip");
            rename.args(["link", "set", "before", "name", "after"]);
            assert!(rename.status().unwrap().success());
            assert!(socket.is_there());
            drop(device);
            assert!(!socket.is_there());
        });
        in_own_namespace.join().unwrap();
    }
}
