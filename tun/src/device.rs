//! A TUN device, real or in memory.

mod error;
mod io;
mod linux;
pub mod memory;
mod offload;
mod socket;

use std::{
    io::Result as IoResult,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use convoy_types::Switch;
pub use error::OpenError;
pub(crate) use io::{PacketIo, Stop};
pub use linux::TX_QUEUE_LEN;
pub use offload::Offload;

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
    pub fn open(name: &str, offload: Switch) -> Result<Self, OpenError> {
        linux::open(name, offload).map(Self::new)
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
        linux::adopt(fd).map(Self::new)
    }

    fn new((io, offload): (impl PacketIo + 'static, Offload)) -> Self {
        let io = Arc::new(io);
        Self { io, offload }
    }

    /// Returns whether the TUN of this descriptor still has an interface: somebody may have deleted that.
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
        socket::adopt(fd, name, mtu).map(Self::new)
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
