//! A D-Bus message bus, on which a test plays a service.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::child::Killed;
use crate::error::{Doing as _, LabError, Result};
use crate::eventually::eventually;

/// Time limit for dbus-daemon(1) to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A message bus on which everybody may own any name; ends when dropped.
///
/// It needs dbus-daemon(1). Its socket is a file, which programs in every namespace that sees it can use.
pub struct Bus {
    address: String,
    _daemon: Killed,
}

impl Bus {
    /// Listens at `socket`, which must not exist; returns once it answers there.
    ///
    /// # Errors
    /// If dbus-daemon(1) is not installed or does not listen.
    pub fn start(socket: &Path) -> Result<Self> {
        let address = format!("unix:path={}", socket.display());
        let mut command = Command::new("dbus-daemon");
        command.args(["--session", "--nofork", "--nopidfile"]);
        command.arg(format!("--address={address}"));
        let daemon = command.stderr(Stdio::null()).spawn();
        let daemon = Killed(daemon.doing("start dbus-daemon")?);
        let listens = eventually(PATIENCE, || UnixStream::connect(socket).ok());
        listens.ok_or_else(|| LabError::Program {
            program: "dbus-daemon".to_owned(),
            problem: format!("it does not listen at {}", socket.display()),
        })?;
        Ok(Self {
            address,
            _daemon: daemon,
        })
    }

    /// The address for clients, as in `DBUS_SYSTEM_BUS_ADDRESS`.
    pub fn address(&self) -> &str {
        &self.address
    }
}
