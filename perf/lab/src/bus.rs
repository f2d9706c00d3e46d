//! A D-Bus message bus, on which a test plays a service.

use std::{
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::{
    error::{Doing as _, LabError},
    eventually::eventually,
};

/// Time limit for dbus-daemon(1) to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A message bus on which everybody may own any name; ends when dropped.
///
/// It needs dbus-daemon(1). Its socket is a file, which programs in every namespace that sees it can use.
pub struct Bus {
    daemon: Child,
    address: String,
}

impl Bus {
    /// Listens at `socket`, which must not exist; returns once it answers there.
    ///
    /// # Errors
    /// If dbus-daemon(1) is not installed or does not listen.
    pub fn start(socket: &Path) -> Result<Self, LabError> {
        let address = format!("unix:path={}", socket.display());
        let mut command = Command::new("dbus-daemon");
        command.args(["--session", "--nofork", "--nopidfile"]);
        command.arg(format!("--address={address}"));
        let daemon = command.stderr(Stdio::null()).spawn();
        let daemon = daemon.doing("start dbus-daemon")?;
        let bus = Self { daemon, address };
        let listens = eventually(PATIENCE, || UnixStream::connect(socket).ok());
        match listens {
            Some(_) => Ok(bus),
            None => Err(LabError::Program {
                program: "dbus-daemon".to_owned(),
                problem: format!("it does not listen at {}", socket.display()),
            }),
        }
    }

    /// The address for clients, as in `DBUS_SYSTEM_BUS_ADDRESS`.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
