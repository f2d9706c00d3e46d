//! Reasons why a TUN cannot be opened, and their fixes.

use std::fmt;

/// Reason why a TUN cannot be opened. Shown, it names the fix after a colon, if there is one.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device node is missing and could not be created.
    Missing,
    /// The device node exists, but the kernel has no TUN driver.
    NoDriver,
    /// The permissions of the device node forbid opening it.
    NodeForbidden,
    /// The program lacks the capability to create an interface.
    NotPermitted(String),
    /// Another program has opened the interface.
    Busy(String),
    /// An interface of this name exists that is not a TUN, or a TUN with other flags.
    Taken(String),
    /// The name is longer than the kernel allows.
    NameTooLong(String),
    /// The kernel would refuse the name.
    InvalidName(String),
    /// Offload was required ([`convoy_types::Switch::On`]), and the kernel refuses it.
    NoOffload {
        /// The interface.
        name: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The descriptor to adopt is not that of a TUN.
    NotATun,
    /// The socket to adopt is not one that keeps messages apart.
    NotADevice,
    /// Any other error.
    Other(#[from] std::io::Error),
}

impl OpenError {
    /// Returns the reason alone, without a fix.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Missing => "/dev/net/tun does not exist".to_owned(),
            Self::NoDriver => "/dev/net/tun has no driver".to_owned(),
            Self::NodeForbidden => "/dev/net/tun may not be opened by this user".to_owned(),
            Self::NotPermitted(name) => format!("no permission to create the interface {name}"),
            Self::Busy(name) => format!("the interface {name} is in use by another program"),
            Self::Taken(name) => format!("there is already an interface {name} of another kind"),
            Self::NameTooLong(name) => {
                format!("the interface name {name} is too long: 15 bytes at most")
            }
            Self::InvalidName(name) => format!(
                "{name:?} is not an interface name: no spaces, `/` or `:`, and neither empty nor `.` or `..`"
            ),
            Self::NoOffload { name, .. } => {
                format!("the kernel refuses offload on the interface {name}")
            }
            Self::NotATun => "the descriptor is not that of a TUN interface".to_owned(),
            Self::NotADevice => "the socket is not of type SOCK_SEQPACKET".to_owned(),
            Self::Other(_) => "opening the TUN failed".to_owned(),
        }
    }

    /// Returns what would make it work, if that is known.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        let fix = match self {
            Self::Missing => {
                "run `modprobe tun`, or `mkdir -p /dev/net && mknod -m 0666 /dev/net/tun c 10 200`"
            }
            Self::NoDriver => "run `modprobe tun`",
            Self::NodeForbidden => "run as root, or `chmod 0666 /dev/net/tun`",
            Self::NotPermitted(_) => {
                "run as root, or give the program CAP_NET_ADMIN (`setcap cap_net_admin+ep`)"
            }
            Self::Busy(_) => "stop it, or choose another name",
            Self::Taken(name) => {
                return Some(format!("`ip link delete {name}`, or choose another name"));
            }
            Self::NoOffload { .. } => "set TUN offload to auto or off",
            _ => return None,
        };
        Some(fix.to_owned())
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason())?;
        self.fix().map_or(Ok(()), |fix| write!(f, ": {fix}"))
    }
}
