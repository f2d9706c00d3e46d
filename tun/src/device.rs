//! A TUN device, real or in memory.

mod io;
mod linux;
pub mod memory;
mod socket;

use std::{
    io::Result as IoResult,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

pub(crate) use io::{PacketIo, Stop};

/// Length of the kernel's queue of packets that wait for the reader thread (`txqueuelen`), in packets.
///
/// A longer queue loses fewer packets to bursts and to busy processors, and delays those behind a backlog
/// more. The kernel's default is 500 for a TUN, and 1,000 for Ethernet.
pub const TX_QUEUE_LEN: u32 = 2000;

/// Whether super-packets are exchanged with the kernel (TUN offload).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffloadRequest {
    /// Uses the offload that the kernel has.
    #[default]
    Auto,
    /// Requires super-packets of TCP; opening fails where the kernel refuses them.
    On,
    /// Uses none: each packet is read and written by itself.
    Off,
}

/// The offload that the kernel granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// A virtio header stands in front of each packet.
    pub vnet_hdr: bool,
    /// The kernel exchanges super-packets of TCP.
    pub tcp: bool,
    /// The kernel exchanges super-packets of UDP (Linux 6.2 and later).
    pub udp: bool,
}

/// An open TUN device; clones share it.
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) io: Arc<dyn PacketIo>,
    offload: Offload,
}

impl Device {
    /// Creates the interface `name`, or attaches to a persistent one. Sets [`TX_QUEUE_LEN`], and leaves
    /// the link as it is (a new one is down), as wireguard-go does.
    ///
    /// # Errors
    /// An [`OpenError`]: it has a variant for each cause that the user can remedy.
    pub fn open(name: &str, offload: OffloadRequest) -> Result<Self, OpenError> {
        linux::open(name, offload)
    }

    /// Adopts the descriptor of a TUN that another program opened (`WG_TUN_FD`), and makes it
    /// non-blocking. Uses offload if the TUN has `IFF_VNET_HDR`, and then sets its headers' length and
    /// byte order.
    ///
    /// The TUN must have `IFF_NO_PI`. This cannot be checked: `TUNGETIFF` reports `IFF_NOFILTER`, the same
    /// bit, for every TUN without a socket filter.
    ///
    /// # Errors
    /// [`OpenError::NotATun`], or [`OpenError::Other`].
    pub fn adopt(fd: OwnedFd) -> Result<Self, OpenError> {
        linux::adopt(fd)
    }

    /// Whether the TUN of this descriptor still has an interface: somebody may have deleted that.
    #[must_use]
    pub fn is_attached(fd: BorrowedFd<'_>) -> bool {
        linux::is_attached(fd)
    }

    /// Adopts a socket that leads to a network stack in user space: one end of a pair of type
    /// `SOCK_SEQPACKET`. Each message is a virtio header and a packet or super-packet. Closing the other end
    /// deletes the interface.
    ///
    /// `name` and `mtu` (in bytes) are those that the device reports.
    ///
    /// # Errors
    /// [`OpenError::NotADevice`], or [`OpenError::Other`].
    pub fn over_socket(fd: OwnedFd, name: String, mtu: u16) -> Result<Self, OpenError> {
        socket::adopt(fd, name, mtu)
    }

    /// The interface's present name: it may have been renamed.
    ///
    /// # Errors
    /// `EBADFD` once the interface has been deleted.
    pub fn name(&self) -> IoResult<String> {
        self.io.name()
    }

    /// The interface's MTU in bytes.
    ///
    /// # Errors
    /// `EBADFD` once the interface has been deleted; `ENODEV` after it was moved to another network
    /// namespace.
    pub fn mtu(&self) -> IoResult<u16> {
        self.io.mtu()
    }

    /// Sets the interface's MTU in bytes.
    ///
    /// # Errors
    /// As [`Device::mtu`], and `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_mtu(&self, mtu: u16) -> IoResult<()> {
        self.io.set_mtu(mtu)
    }

    /// The network namespace that the interface is in now: it may have been moved.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN` there; `EINVAL` where the kernel has no `TUNGETDEVNETNS`.
    pub fn network_namespace(&self) -> IoResult<OwnedFd> {
        self.io.network_namespace()
    }

    /// The offload that the kernel granted.
    pub fn offload(&self) -> Offload {
        self.offload
    }
}

/// The descriptor of the TUN, for example to hand a duplicate to another process. That of a device in memory
/// only polls readable when a packet can be read.
impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.readable()
    }
}

/// Why a TUN could not be opened, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device node is missing and could not be created.
    #[error(
        "/dev/net/tun does not exist: run `modprobe tun`, or `mkdir -p /dev/net && mknod -m 0666 /dev/net/tun c 10 200`"
    )]
    Missing,
    /// The device node exists, but the kernel has no TUN driver.
    #[error("/dev/net/tun has no driver: run `modprobe tun`")]
    NoDriver,
    /// The permissions of the device node forbid opening it.
    #[error(
        "/dev/net/tun may not be opened by this user: run as root, or `chmod 0666 /dev/net/tun`"
    )]
    NodeForbidden,
    /// The program lacks the capability to create an interface.
    #[error(
        "no permission to create the interface {0}: run as root, or give the program CAP_NET_ADMIN (`setcap cap_net_admin+ep`)"
    )]
    NotPermitted(String),
    /// Another program has opened the interface.
    #[error("the interface {0} is in use by another program: stop it, or choose another name")]
    Busy(String),
    /// An interface of this name exists that is not a TUN, or a TUN with other flags.
    #[error(
        "there is already an interface {0} of another kind: `ip link delete {0}`, or choose another name"
    )]
    Taken(String),
    /// The name is longer than the kernel allows.
    #[error("the interface name {0} is too long: 15 bytes at most")]
    NameTooLong(String),
    /// The kernel would refuse the name.
    #[error(
        "{0:?} is not an interface name: no spaces, `/` or `:`, and neither empty nor `.` or `..`"
    )]
    InvalidName(String),
    /// Offload was required ([`OffloadRequest::On`]), and the kernel refuses it.
    #[error("the kernel refuses offload on the interface {name}: set TUN offload to auto or off")]
    NoOffload {
        /// The interface.
        name: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The descriptor to adopt is not that of a TUN.
    #[error("the descriptor is not that of a TUN interface")]
    NotATun,
    /// The socket to adopt is not one that keeps messages apart.
    #[error("the socket is not of type SOCK_SEQPACKET")]
    NotADevice,
    /// Any other error.
    #[error("opening the TUN failed")]
    Other(#[from] std::io::Error),
}
