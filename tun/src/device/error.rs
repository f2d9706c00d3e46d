//! Causes for which a TUN cannot be opened.

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
    /// Offload was required ([`convoy_types::Switch::On`]), and the kernel refuses it.
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
