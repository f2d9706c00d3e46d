//! A TUN device, real or in memory.

mod io;
mod linux;
pub mod memory;

use std::{io::Result as IoResult, os::fd::OwnedFd, sync::Arc};

pub(crate) use io::{PacketIo, Stop};

/// Packets that wait in the kernel for the reader thread (`txqueuelen`).
///
/// More lose fewer packets of a burst, or while other threads have the processor, and make those behind
/// them wait longer. The kernel's choice is 500 for a TUN, and 1,000 for Ethernet.
pub const TX_QUEUE_LEN: u32 = 2000;

/// Whether the kernel may hand over super-packets, and take them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffloadRequest {
    /// As much as the kernel has.
    #[default]
    Auto,
    /// At least for TCP.
    On,
    /// None: each packet is read and written by itself.
    Off,
}

/// The offload that the device got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// A virtio header stands in front of each packet.
    pub vnet_hdr: bool,
    /// Super-packets of TCP.
    pub tcp: bool,
    /// Super-packets of UDP (Linux 6.2).
    pub udp: bool,
}

/// An open TUN device; clones share it.
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) io: Arc<dyn PacketIo>,
    offload: Offload,
}

impl Device {
    /// Makes the interface `name`, or attaches to it where it persists. The link is left down, as
    /// wireguard-go does, with [`TX_QUEUE_LEN`] set.
    ///
    /// # Errors
    /// One [`OpenError`] for each thing that a person can put right.
    pub fn open(name: &str, offload: OffloadRequest) -> Result<Self, OpenError> {
        linux::open(name, offload)
    }

    /// Takes over a descriptor of a TUN that somebody else opened (`WG_TUN_FD`), with or without
    /// `IFF_VNET_HDR`; offload is used where it has the flag. Makes the descriptor non-blocking.
    ///
    /// It must have been opened with `IFF_NO_PI`. That cannot be checked: `TUNGETIFF` gives
    /// `IFF_NOFILTER`, which is the same bit, for every TUN without a socket filter.
    ///
    /// # Errors
    /// [`OpenError::NotATun`], or [`OpenError::Other`].
    pub fn adopt(fd: OwnedFd) -> Result<Self, OpenError> {
        linux::adopt(fd)
    }

    /// The interface's name, which may have changed since it was opened.
    ///
    /// # Errors
    /// `EBADFD` once the interface was deleted.
    pub fn name(&self) -> IoResult<String> {
        self.io.name()
    }

    /// The interface's MTU in bytes.
    ///
    /// # Errors
    /// `ENODEV` after the interface was moved to another network namespace.
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

    /// The network namespace that the interface is in, which may not be the one it was opened in.
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

/// Why a TUN could not be opened, with the fix.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device node is missing, and could not be made.
    #[error(
        "/dev/net/tun does not exist: run `modprobe tun`, or `mkdir -p /dev/net && mknod -m 0666 /dev/net/tun c 10 200`"
    )]
    Missing,
    /// The node is there, and no driver behind it.
    #[error("/dev/net/tun has no driver: run `modprobe tun`")]
    NoDriver,
    /// The node's permissions.
    #[error(
        "/dev/net/tun may not be opened by this user: run as root, or `chmod 0666 /dev/net/tun`"
    )]
    NodeForbidden,
    /// Making an interface takes a capability.
    #[error(
        "no permission to make the interface {0}: run as root, or give the program CAP_NET_ADMIN (`setcap cap_net_admin+ep`)"
    )]
    NotPermitted(String),
    /// Another program has the interface.
    #[error("the interface {0} is in use by another program: stop it, or choose another name")]
    Busy(String),
    /// There is an interface of this name, and it is no TUN, or one opened with other flags.
    #[error(
        "there is already an interface {0} of another kind: `ip link delete {0}`, or choose another name"
    )]
    Taken(String),
    /// Longer than the kernel allows.
    #[error("the interface name {0} is too long: 15 bytes at most")]
    NameTooLong(String),
    /// Not a name that the kernel would take.
    #[error(
        "{0:?} is not an interface name: no spaces, `/` or `:`, and neither empty nor `.` or `..`"
    )]
    InvalidName(String),
    /// [`OffloadRequest::On`], and the kernel has none.
    #[error("the kernel refuses offload on the interface {name}: allow it to be off")]
    NoOffload {
        /// The interface.
        name: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The descriptor to adopt is something else.
    #[error("the descriptor is not that of a TUN interface")]
    NotATun,
    /// Anything else.
    #[error("opening the TUN failed")]
    Other(#[from] std::io::Error),
}
