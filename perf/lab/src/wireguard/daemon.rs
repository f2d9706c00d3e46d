//! A running daemon: start, configure, signal, wait.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Seek, Write},
    net::{Ipv6Addr, Shutdown},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::{
        memfd::{MFdFlags, memfd_create},
        signal::{Signal, kill},
    },
    unistd::Pid,
};

use crate::{error::LabError, eventually::eventually, namespace::Namespace, wireguard::Config};

/// How long a daemon may take to start, to answer, and to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program that behaves as `wireguard-go`, and how to start it.
#[derive(Clone, Debug)]
pub struct Implementation {
    program: PathBuf,
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

    /// One more argument before the interface's name; `-f` (stay in the foreground) is there.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// One more variable of its environment.
    #[must_use]
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    fn failed(&self, problem: impl Into<String>) -> LabError {
        LabError::Daemon {
            program: self.program.display().to_string(),
            problem: problem.into(),
        }
    }
}

/// A daemon in the foreground of its namespace; killed when dropped.
pub struct Daemon {
    implementation: Implementation,
    child: Child,
    interface: String,
    socket: PathBuf,
    log: File,
}

impl Daemon {
    /// Starts `implementation` for a new interface, and waits until it answers.
    ///
    /// # Errors
    ///
    /// [`LabError::Daemon`] when it cannot be started, ends at once, or does not answer in time;
    /// with what it wrote.
    pub fn start(
        namespace: &Namespace,
        implementation: &Implementation,
        interface: &str,
    ) -> Result<Self, LabError> {
        let failed = |e: io::Error| implementation.failed(e.to_string());
        let log =
            File::from(memfd_create(c"log", MFdFlags::MFD_CLOEXEC).map_err(|e| failed(e.into()))?);
        let writer = || log.try_clone().map(Stdio::from).map_err(failed);
        let child = namespace
            .command(&implementation.program)
            .args(&implementation.arguments)
            .envs(implementation.variables.iter().cloned())
            .arg(interface)
            .stdin(Stdio::null())
            .stdout(writer()?)
            .stderr(writer()?)
            .spawn()
            .map_err(failed)?;
        let socket = namespace
            .run_directory()
            .join("wireguard")
            .join(format!("{interface}.sock"));
        let implementation = implementation.clone();
        let mut daemon = Self {
            implementation,
            child,
            interface: interface.to_owned(),
            socket,
            log,
        };
        daemon.wait_until_ready()?;
        Ok(daemon)
    }

    /// Replaces the whole configuration.
    ///
    /// # Errors
    ///
    /// [`LabError::Daemon`] when the daemon does not take it.
    pub fn configure(&self, config: &Config) -> Result<(), LabError> {
        let answer = self.request(&config.to_string())?;
        if answer.trim() == "errno=0" {
            return Ok(());
        }
        Err(self
            .implementation
            .failed(format!("refused its configuration: {}", answer.trim())))
    }

    /// Waits until there is a UDP socket on `port` in the daemon's namespace.
    ///
    /// # Errors
    ///
    /// [`LabError::Daemon`] when there is none in time.
    pub fn wait_until_listening(&self, port: u16) -> Result<(), LabError> {
        // Documentation/networking/proc_net_tcp.rst: the local address, a colon, the port.
        let local = format!(":{port:04X} ");
        let is_listening = || {
            let tables = ["udp", "udp6"].map(|table| format!("/proc/{}/net/{table}", self.pid()));
            let has_it = |path| fs::read_to_string(path).is_ok_and(|table| table.contains(&local));
            tables.into_iter().any(has_it).then_some(())
        };
        eventually(PATIENCE, is_listening).ok_or_else(|| {
            let problem = format!("does not listen on port {port}");
            self.implementation.failed(problem)
        })
    }

    /// Waits until the kernel takes packets to `address`, which the daemon's interface has: where the
    /// link was down when it got the address, that is some time after the link is up.
    ///
    /// # Errors
    ///
    /// [`LabError::Daemon`] when it does not in time.
    pub(super) fn wait_until_addressed(&self, address: Ipv6Addr) -> Result<(), LabError> {
        // The destination and its length in hexadecimal (net/ipv6/route.c, rt6_info_route).
        let local = format!("{:032x} 80 ", address.to_bits());
        let path = format!("/proc/{}/net/ipv6_route", self.pid());
        let is_local = || {
            let routes = fs::read_to_string(&path).unwrap_or_default();
            routes.contains(&local).then_some(())
        };
        eventually(PATIENCE, is_local).ok_or_else(|| {
            let problem = format!("its host does not take packets to {address}");
            self.implementation.failed(problem)
        })
    }

    /// Sends `request` to the UAPI socket as it is, and reads to the end of the answer.
    ///
    /// # Errors
    ///
    /// [`LabError::Daemon`] when the daemon does not answer.
    pub fn request(&self, request: &str) -> Result<String, LabError> {
        self.ask(request)
            .map_err(|e| self.implementation.failed(format!("no answer: {e}")))
    }

    /// The daemon's process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        // Process numbers are below 2²² (PID_MAX_LIMIT).
        Pid::from_raw(self.child.id() as libc::pid_t)
    }

    /// The interface that it was started for.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The UAPI socket, as seen from outside the namespace.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends `signal` to the daemon.
    ///
    /// # Errors
    ///
    /// [`LabError::Daemon`] when it has been waited for already.
    pub fn signal(&self, signal: Signal) -> Result<(), LabError> {
        kill(self.pid(), signal).map_err(|e| self.implementation.failed(format!("{signal}: {e}")))
    }

    /// How the daemon ended, once it has.
    ///
    /// # Errors
    ///
    /// [`LabError::Daemon`] when it still runs after 20 seconds.
    pub fn wait(&mut self) -> Result<ExitStatus, LabError> {
        eventually(PATIENCE, || self.ended()).ok_or_else(|| {
            self.implementation
                .failed(format!("does not end; {}", self.log()))
        })
    }

    /// How the daemon ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// What the daemon has written to its standard output and error so far.
    #[must_use]
    pub fn log(&self) -> String {
        let mut bytes = Vec::new();
        // The daemon writes at the offset of the descriptor that it shares with us: read through
        // one with an offset of its own.
        let path = format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&self.log)
        );
        let read = File::open(path).and_then(|mut file| {
            file.rewind()?;
            file.read_to_end(&mut bytes)
        });
        match read {
            Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) => format!("its log cannot be read: {e}"),
        }
    }

    /// An error about this daemon.
    pub(crate) fn failed(&self, problem: impl Into<String>) -> LabError {
        self.implementation.failed(problem)
    }

    fn wait_until_ready(&mut self) -> Result<(), LabError> {
        let outcome = eventually(PATIENCE, || match self.ended() {
            Some(status) => Some(Err(status)),
            None => UnixStream::connect(&self.socket).ok().map(Ok),
        });
        match outcome {
            Some(Ok(_)) => Ok(()),
            Some(Err(status)) => Err(self
                .implementation
                .failed(format!("ended with {status}; {}", self.log()))),
            None => Err(self.implementation.failed(format!(
                "does not answer at {}; {}",
                self.socket.display(),
                self.log()
            ))),
        }
    }

    fn ask(&self, request: &str) -> io::Result<String> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail only for a child that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
