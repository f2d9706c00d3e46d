//! A running daemon: start, configure, signal, wait.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Ipv6Addr, Shutdown};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::child::{Killed, process_id};
use crate::error::{LabError, Result};
use crate::eventually::eventually;
use crate::namespace::Namespace;
use crate::wireguard::Config;

/// Time limit for a daemon to start, answer or end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program that behaves like `wireguard-go`, and how to start it.
#[derive(Clone, Debug)]
pub struct Implementation {
    /// The program.
    pub program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
}

impl Implementation {
    /// A program by its path, or by its name in `PATH`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: vec!["-f".into()],
            variables: Vec::new(),
        }
    }

    /// Adds an argument before the interface's name; `-f` (stay in the foreground) is always there.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    fn failed(&self, problem: impl Into<String>) -> LabError {
        LabError::Program {
            program: self.program.display().to_string(),
            problem: problem.into(),
        }
    }
}

/// A daemon in the foreground of its namespace; killed when dropped.
///
/// Calls that wait for the daemon fail with [`LabError::Program`] if it takes more than 20 seconds.
pub struct Daemon {
    implementation: Implementation,
    child: Killed,
    interface: String,
    socket: PathBuf,
    log: File,
}

impl Daemon {
    /// Starts `implementation` for a new interface, and waits until it answers.
    pub fn start(
        namespace: &Namespace,
        implementation: &Implementation,
        interface: &str,
    ) -> Result<Self> {
        let mut command = namespace.command(&implementation.program);
        command.args(&implementation.arguments).arg(interface);
        command.envs(implementation.variables.iter().cloned());
        let mut start = || -> io::Result<_> {
            let log = File::from(memfd_create(c"log", MFdFlags::MFD_CLOEXEC)?);
            command.stdin(Stdio::null());
            command.stdout(log.try_clone()?).stderr(log.try_clone()?);
            Ok((command.spawn()?, log))
        };
        let (child, log) = start().map_err(|e| implementation.failed(e.to_string()))?;
        let sockets = namespace.run_directory().join("wireguard");
        let mut daemon = Self {
            implementation: implementation.clone(),
            child: Killed(child),
            interface: interface.to_owned(),
            socket: sockets.join(format!("{interface}.sock")),
            log,
        };
        daemon.wait_until_ready()?;
        Ok(daemon)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let outcome = eventually(PATIENCE, || match self.ended() {
            Some(status) => Some(Err(format!("ended with {status}"))),
            // One that only listens may not yet handle signals.
            None => ask(&self.socket, "get=1\n\n")
                .is_ok_and(|it| !it.is_empty())
                .then_some(Ok(())),
        });
        let silent = || Err(format!("does not answer at {}", self.socket.display()));
        outcome
            .unwrap_or_else(silent)
            .map_err(|problem| self.failed(format!("{problem}; {}", self.log())))
    }

    /// Replaces the whole configuration.
    pub fn configure(&self, config: &Config) -> Result<()> {
        let answer = self.request(&config.to_string())?;
        match answer.trim() {
            "errno=0" => Ok(()),
            other => Err(self.failed(format!("refused its configuration: {other}"))),
        }
    }

    /// Waits until a UDP socket is bound to `port` in the daemon's namespace.
    pub fn wait_until_listening(&self, port: u16) -> Result<()> {
        // Documentation/networking/proc_net_tcp.rst: the local address, a colon, the port.
        let local = format!(":{port:04X} ");
        let problem = format!("does not listen on port {port}");
        self.wait_until_in(&["udp", "udp6"], &local, &problem)
    }

    /// Waits until the kernel accepts packets to `address` of the daemon's interface. If the link was down
    /// when it got the address, this takes some time after the link comes up.
    pub(super) fn wait_until_addressed(&self, address: Ipv6Addr) -> Result<()> {
        // The destination and its prefix length in hexadecimal (net/ipv6/route.c, rt6_info_route).
        let local = format!("{:032x} 80 ", address.to_bits());
        let problem = format!("its host does not accept packets to {address}");
        self.wait_until_in(&["ipv6_route"], &local, &problem)
    }

    /// Waits until one of these tables below `/proc` of the daemon's network has this text.
    fn wait_until_in(&self, tables: &[&str], text: &str, problem: &str) -> Result<()> {
        let is_in = |table: &&str| {
            let table = fs::read_to_string(format!("/proc/{}/net/{table}", self.pid()));
            table.is_ok_and(|table| table.contains(text))
        };
        let found = eventually(PATIENCE, || tables.iter().any(is_in).then_some(()));
        found.ok_or_else(|| self.failed(problem))
    }

    /// Sends `request` unchanged to the UAPI socket, and reads the whole answer.
    pub fn request(&self, request: &str) -> Result<String> {
        ask(&self.socket, request).map_err(|e| self.failed(format!("no answer: {e}")))
    }

    /// The daemon's process.
    pub fn pid(&self) -> Pid {
        process_id(&self.child.0)
    }

    /// The interface for which it was started.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Path of the UAPI socket outside the namespace.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends `signal` to the daemon, unless it has already been waited for.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.pid(), signal).map_err(|e| self.failed(format!("{signal}: {e}")))
    }

    /// Waits until the daemon ends.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        eventually(PATIENCE, || self.ended())
            .ok_or_else(|| self.failed(format!("does not end; {}", self.log())))
    }

    /// Exit status of the daemon; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.0.try_wait().ok().flatten()
    }

    /// The daemon's standard output and error so far.
    pub fn log(&self) -> String {
        // The daemon writes at the offset of a descriptor that it shares with this process, so read through
        // one with an offset of its own.
        let path = format!("/proc/self/fd/{}", self.log.as_raw_fd());
        match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) => format!("its log cannot be read: {e}"),
        }
    }

    /// An error about this daemon.
    pub(crate) fn failed(&self, problem: impl Into<String>) -> LabError {
        self.implementation.failed(problem)
    }
}

fn ask(socket: &Path, request: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    io::read_to_string(stream)
}
