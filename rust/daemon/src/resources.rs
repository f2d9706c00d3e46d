//! Resources that a daemon opens, or gets from the process that starts it, before it gives up its privileges.

use std::{
    os::{fd::OwnedFd, unix::net::UnixListener},
    thread,
    time::Instant,
};

use anyhow::Context;
use convoy_process::{
    inherited_fd, name_like_the_program,
    socket::{self, SocketFile},
};
use convoy_tun::{Device, OpenError, Switch};
use convoy_uapi::socket as wg;
use nix::{
    libc::ino_t,
    net::if_::if_nametoindex,
    sys::stat::{SFlag, fstat},
};
use tracing::warn;

use crate::{
    args::DeviceName,
    link_monitor,
    supervised::{
        Supervision,
        start::{HandedOver, Start},
    },
};

/// MTU of a new interface in bytes, as in wireguard-go: fits a 1,500-byte link over IPv6.
const DEFAULT_MTU: u16 = 1420;

/// Everything the tunnel needs before it starts.
pub(super) struct Resources {
    pub(super) device: Device,
    /// The kernel's name for the interface; an adopted device brings its own.
    pub(super) interface: String,
    pub(super) listener: UnixListener,
    /// `None` if the UAPI socket has no file.
    pub(super) socket_file: Option<SocketFile>,
    /// `None` unless a supervisor has started this process.
    pub(super) supervision: Option<Supervision>,
    pub(super) watched: Watched,
}

/// The source of events of the interface.
#[derive(Clone, Copy, Debug)]
pub(super) enum Watched {
    /// By the kernel, to this network namespace. `None` if that has no file.
    From { namespace: Option<ino_t> },
    /// No events come; a supervisor has given the MTU.
    Not { mtu: u16 },
}

impl Watched {
    /// Returns the interface's index, if it is in this network namespace: another one of its name may be.
    pub(super) fn index_of(self, interface: &str) -> Option<u32> {
        match self {
            Self::From { .. } => if_nametoindex(interface).ok(),
            Self::Not { .. } => None,
        }
    }
}

impl Resources {
    /// Opens what the environment does not bring.
    pub(super) fn acquire(interface: &DeviceName, offload: Switch) -> anyhow::Result<Self> {
        let uapi_fd = inherited_fd("WG_UAPI_FD")?;
        let device = match inherited_fd("WG_TUN_FD")? {
            Some(fd) => adopt(fd, interface, None).context("cannot use the device of WG_TUN_FD")?,
            None => {
                if uapi_fd.is_none() {
                    // Reports the cause; the kernel would only say that the name is taken.
                    let is_gone = || if_nametoindex(interface.as_str()).is_err();
                    socket::ensure_unused(&wg::path(interface.as_str()), is_gone)?;
                }
                open(interface, offload)?
            }
        };
        if let Err(error) = device.set_mtu(DEFAULT_MTU) {
            warn!("cannot set the interface's MTU: {error}");
        }
        Self::new(device, uapi_fd, None, None)
    }

    /// Takes over what a supervisor has opened. It has set the MTU, and may have started this process in place of one
    /// that died.
    pub(super) fn handed_over(
        interface: &DeviceName,
        start: &Start,
        [tun, uapi, supervisors]: HandedOver,
    ) -> anyhow::Result<Self> {
        name_like_the_program();
        let device = adopt(tun, interface, start.inner_mtu);
        let device = device.context("cannot use the device that the supervisor has opened")?;
        let supervision = Supervision::new(start, supervisors)?;
        Self::new(device, Some(uapi), Some(supervision), start.inner_mtu)
    }

    fn new(
        device: Device,
        uapi: Option<OwnedFd>,
        supervision: Option<Supervision>,
        inner_mtu: Option<u16>,
    ) -> anyhow::Result<Self> {
        let interface = device.name().context("cannot read the interface's name")?;
        let (listener, socket_file) = match uapi {
            Some(fd) => wg::adopt(fd)?,
            None => {
                let (listener, file) = socket::bind(&wg::path(&interface))?;
                (listener, Some(file))
            }
        };
        Ok(Self {
            device,
            interface,
            listener,
            socket_file,
            supervision,
            watched: match inner_mtu {
                Some(mtu) => Watched::Not { mtu },
                None => Watched::From {
                    namespace: link_monitor::own_namespace(),
                },
            },
        })
    }

    /// The socket file that this process removes at its end; a supervisor removes its own.
    pub(super) fn own_socket_file(&self) -> Option<SocketFile> {
        match self.supervision {
            Some(_) => None,
            None => self.socket_file.clone(),
        }
    }
}

/// Adopts a TUN, or the socket of a stack in user space.
fn adopt(fd: OwnedFd, interface: &DeviceName, inner_mtu: Option<u16>) -> Result<Device, OpenError> {
    let is_socket = fstat(&fd).is_ok_and(|stat| {
        SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFSOCK
    });
    match is_socket {
        true => {
            let mtu = inner_mtu.unwrap_or(DEFAULT_MTU);
            Device::over_socket(fd, interface.as_str().to_owned(), mtu)
        }
        false => Device::adopt(fd),
    }
}

/// Opens a new device. If a killed daemon still holds one of that name, waits for it to die.
fn open(interface: &DeviceName, offload: Switch) -> Result<Device, OpenError> {
    let deadline = Instant::now() + socket::ENDING_TIME;
    loop {
        match Device::open(interface.as_str(), offload) {
            Err(OpenError::Busy(_)) if Instant::now() < deadline => {
                thread::sleep(socket::ENDING_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_interface_of_the_same_name_is_not_the_tunnels() {
        let (namespace, mtu) = (None, 1_420);
        assert_eq!(Watched::From { namespace }.index_of("lo"), Some(1));
        assert_eq!(Watched::Not { mtu }.index_of("lo"), None);
    }
}
