//! Starting the tunnel's three threads, and talking to them.

use std::io;

use convoy_proto::config::{DeviceUpdate, Snapshot};
use convoy_tun::Device;

/// Whether a kernel feature is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// Used where the kernel has it.
    #[default]
    Auto,
    /// Used; starting fails where the kernel does not have it.
    On,
    /// Not used.
    Off,
}

/// How the data path is to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// UDP segmentation offload on send.
    pub gso: Switch,
    /// UDP receive offload.
    pub udp_gro: Switch,
    /// Packets in one batch: 1..=50.
    pub batch: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gso: Switch::Auto,
            udp_gro: Switch::Auto,
            batch: 50,
        }
    }
}

/// Why a [`DeviceUpdate`] was refused; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The UDP sockets could not be opened on the port, or with the mark, asked for.
    #[error("cannot open the UDP sockets on port {port}: {source}")]
    Sockets {
        /// The port asked for.
        port: u16,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The tunnel has ended.
    #[error("the tunnel has ended")]
    Closed,
}

/// The tunnel has ended.
#[derive(Debug, thiserror::Error)]
#[error("the tunnel has ended")]
pub struct Closed;

/// Why the tunnel ended.
#[derive(Debug)]
pub enum Exit {
    /// [`Tunnel::stop`] was called.
    Stopped,
    /// The interface was deleted.
    InterfaceDeleted,
    /// Something failed that cannot be repaired.
    Failed(String),
}

/// A running tunnel: a handle that may be cloned and used from any thread.
#[derive(Clone, Debug)]
pub struct Tunnel {}

impl Tunnel {
    /// Starts the threads `tun-reader`, `tunnel` and `tun-writer` on `device`.
    ///
    /// # Errors
    /// When a thread cannot be started, or a feature that is [`Switch::On`] is not there.
    pub fn start(device: Device, options: Options) -> io::Result<Self> {
        let _ = (device, options);
        todo!()
    }

    /// Applies `update`, whole or not at all; blocks until the data path uses it.
    ///
    /// Opens sockets and computes keys on the caller's thread.
    ///
    /// # Errors
    /// See [`ApplyError`]; then nothing was changed.
    pub fn apply(&self, update: DeviceUpdate) -> Result<(), ApplyError> {
        let _ = update;
        todo!()
    }

    /// The device and its peers now; blocks until the data path answers.
    ///
    /// # Errors
    /// [`Closed`] once the tunnel has ended.
    pub fn snapshot(&self) -> Result<Snapshot, Closed> {
        todo!()
    }

    /// Tells the data path the interface's MTU in bytes.
    pub fn set_mtu(&self, mtu: u16) {
        let _ = mtu;
        todo!()
    }

    /// Asks the threads to end; [`Tunnel::wait`] tells when they have.
    pub fn stop(&self) {
        todo!()
    }

    /// Waits until the tunnel has ended, and says why.
    pub async fn wait(&self) -> Exit {
        todo!()
    }
}
