//! The listening socket. It is opened before the process gives up its privileges.

use std::{
    fs::{self, Permissions},
    io,
    net::TcpListener,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{fs::PermissionsExt as _, net::UnixListener},
    },
    path::Path,
};

use anyhow::{Context, ensure};
use convoy_process::{
    self as process,
    socket::{self, SocketFile},
};
use nix::sys::socket::{getsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Address, MetricsArgs, token::Token};

/// Names the descriptor of the listening socket; set only by a supervisor that becomes another version.
pub const LISTENER: &str = "CONVOY_METRICS_FD";

/// The switches that mean what `args` say of metrics.
pub fn arguments(args: &MetricsArgs) -> Vec<String> {
    let address = args.metrics.as_ref();
    let address = address.map(|address| format!("--metrics={address}"));
    let file = args.metrics_token_file.as_deref();
    let file = file.map(|file| format!("--metrics-token-file={}", file.display()));
    address.into_iter().chain(file).collect()
}

/// A socket on which nobody answers yet.
#[derive(Debug)]
pub struct Listening {
    socket: Socket,
    /// Token that each request must bear; `None` if whoever can connect may ask.
    pub(super) token: Option<Token>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener, SocketFile),
    Tcp(TcpListener),
}

impl Listening {
    /// Listens where the command line says; `None` if it says nothing.
    pub fn open(args: &MetricsArgs) -> anyhow::Result<Option<Self>> {
        let Some(address) = &args.metrics else {
            return Ok(None);
        };
        let token = token_of(args)?;
        ensure!(
            token.is_some() || matches!(address, Address::Unix(_)),
            "--metrics {address} needs --metrics-token-file: every user of this machine can connect to it (a \
             Unix socket needs none)"
        );
        let socket = match address {
            Address::Unix(path) => unix(path),
            Address::Tcp(address) => TcpListener::bind(address)
                .map(Socket::Tcp)
                .map_err(Into::into),
        };
        let socket = socket.with_context(|| format!("cannot serve metrics on {address}"))?;
        Ok(Some(Self { socket, token }))
    }

    /// As [`Listening::open`], with the socket that another version has handed over, if it listens there. Call it once.
    pub fn inherit(args: &MetricsArgs) -> anyhow::Result<Option<Self>> {
        let socket = match (process::inherited_fd(LISTENER)?, &args.metrics) {
            (Some(fd), Some(address)) => adopt(fd, address),
            _ => None,
        };
        match socket {
            Some(socket) => Ok(Some(Self {
                socket,
                token: token_of(args)?,
            })),
            None => Self::open(args),
        }
    }

    /// Another descriptor of the socket, to be handed over.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        match &self.socket {
            Socket::Unix(listener, _) => listener.as_fd().try_clone_to_owned(),
            Socket::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
        }
    }

    /// The file of a Unix socket, to be removed at the end.
    pub fn file(&self) -> Option<&SocketFile> {
        match &self.socket {
            Socket::Unix(_, file) => Some(file),
            Socket::Tcp(_) => None,
        }
    }

    /// Call it within a tokio runtime.
    pub(super) fn accepting(self) -> io::Result<(Accepting, Option<Token>)> {
        let accepting = match self.socket {
            Socket::Unix(listener, _) => {
                listener.set_nonblocking(true)?;
                Accepting::Unix(tokio::net::UnixListener::from_std(listener)?)
            }
            Socket::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Accepting::Tcp(tokio::net::TcpListener::from_std(listener)?)
            }
        };
        Ok((accepting, self.token))
    }
}

/// Fails if a process that listens with these arguments could not be replaced by one that does the same.
pub fn ensure_reopenable(args: &MetricsArgs) -> anyhow::Result<()> {
    token_of(args)?;
    match &args.metrics {
        Some(Address::Unix(path)) => socket::ensure_bindable(path),
        _ => Ok(()),
    }
}

fn token_of(args: &MetricsArgs) -> anyhow::Result<Option<Token>> {
    let file = args.metrics_token_file.as_deref();
    let token = file.map(|file| {
        Token::read(file).with_context(|| format!("cannot use the token in {}", file.display()))
    });
    token.transpose()
}

/// `None` if the descriptor is no socket that listens at this address.
fn adopt(fd: OwnedFd, address: &Address) -> Option<Socket> {
    if !getsockopt(&fd, sockopt::AcceptConn).unwrap_or(false) {
        return None;
    }
    match address {
        Address::Unix(path) => {
            let listener = UnixListener::from(fd);
            let bound = listener.local_addr().ok()?;
            let is_there = bound.as_pathname() == Some(path.as_path());
            let file = is_there.then(|| SocketFile::of(path).ok()).flatten()?;
            Some(Socket::Unix(listener, file))
        }
        Address::Tcp(address) => {
            let listener = TcpListener::from(fd);
            (listener.local_addr().ok()? == *address).then_some(Socket::Tcp(listener))
        }
    }
}

/// Replaces a socket that nobody listens on.
fn unix(path: &Path) -> anyhow::Result<Socket> {
    let (listener, file) = socket::bind(path)?;
    if let Err(error) = fs::set_permissions(path, Permissions::from_mode(0o600)) {
        file.remove();
        return Err(error.into());
    }
    Ok(Socket::Unix(listener, file))
}

/// A socket that accepts connections.
#[derive(Debug)]
pub(super) enum Accepting {
    Unix(tokio::net::UnixListener),
    Tcp(tokio::net::TcpListener),
}

/// A connection of either kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Accepting {
    /// The next connection. Cancel-safe.
    pub(super) async fn next(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(Box::new(stream))
            }
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(Box::new(stream))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn nothing_is_opened_unless_asked_for() {
        assert!(open(&[]).unwrap().is_none());
    }

    #[test]
    fn a_unix_socket_is_for_its_owner_and_replaces_a_stale_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.metrics");
        let address = format!("unix:{}", path.display());
        drop(UnixListener::bind(&path).unwrap());
        let listening = open(&["--metrics", &address]).unwrap().unwrap();
        UnixStream::connect(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");
        let error = format!("{:#}", open(&["--metrics", &address]).unwrap_err());
        assert!(
            error.contains("already in use") && error.contains(&address),
            "{error}"
        );
        listening.file().unwrap().remove();
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_that_was_handed_over_is_used_only_if_it_listens_there() {
        let directory = tempfile::tempdir().unwrap();
        let [here, elsewhere] = ["here", "elsewhere"].map(|name| directory.path().join(name));
        let unix = |path: &Path| UnixListener::bind(path).unwrap();
        let listener = unix(&here);
        let handed_over = || OwnedFd::from(listener.try_clone().unwrap());
        let there = Address::Unix(elsewhere.clone());
        assert!(adopt(handed_over(), &there).is_none());
        let adopted = adopt(handed_over(), &Address::Unix(here.clone()));
        assert!(matches!(adopted, Some(Socket::Unix(..))));
        fs::remove_file(&here).unwrap();
        assert!(adopt(handed_over(), &Address::Unix(here)).is_none());
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(tcp.local_addr().unwrap());
        assert!(adopt(handed_over(), &address).is_none());
        assert!(adopt(tcp.try_clone().unwrap().into(), &there).is_none());
        assert!(matches!(adopt(tcp.into(), &address), Some(Socket::Tcp(_))));
        let file = fs::File::open("/dev/null").unwrap();
        assert!(adopt(file.into(), &address).is_none());
    }

    #[test]
    fn a_port_needs_a_token() {
        let error = open(&["--metrics", "127.0.0.1:9586"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("--metrics-token-file"), "{error}");
        let missing = [
            "--metrics",
            "127.0.0.1:9586",
            "--metrics-token-file",
            "/nowhere/token",
        ];
        let error = format!("{:#}", open(&missing).unwrap_err());
        assert!(error.contains("/nowhere/token"), "{error}");
    }

    #[test]
    fn switches_survive_their_way_to_another_process() {
        let line = "convoy --metrics=unix:/run/wg0.metrics --metrics-token-file=/run/token wg0";
        let words: Vec<_> = line.split(' ').collect();
        let args = Cli::try_parse_from(&words).unwrap().daemon.metrics;
        assert_eq!(arguments(&args), words[1..3]);
        assert!(
            arguments(
                &Cli::try_parse_from(["convoy", "wg0"])
                    .unwrap()
                    .daemon
                    .metrics
            )
            .is_empty()
        );
    }

    fn open(switches: &[&str]) -> anyhow::Result<Option<Listening>> {
        let line = [&["convoy"], switches, &["wg0"]].concat();
        Listening::open(&Cli::try_parse_from(line).unwrap().daemon.metrics)
    }
}
