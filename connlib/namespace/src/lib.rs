//! The namespace engine: a network of our own for a user without privileges.
//!
//! ```text
//!  owner                                    holder: the same program in new namespaces
//!  Namespace ──── what is wanted ─────────▶ user: the caller's uid and gid, no other
//!            ◀─── TUN, sockets ──────────── network: lo, and the TUN with addresses and routes
//!            (a socket pair)                mounts: only if files are to be private
//! ```
//!
//! 1. [`Namespace::start`] starts the holder, a command that calls [`hold`]. Once it returns, the interface is up.
//! 2. [`Namespace::tun`] is the device, for whoever moves its packets outside.
//! 3. [`Namespace::udp`] and [`Namespace::tcp`] give sockets that were made inside. A socket stays in the network in
//!    which it was made, so that this process may bind, connect and listen with it.
//! 4. [`Spaces::enter`] moves a process with one thread inside, for a command that is to see nothing else.
//!
//! Decisions:
//!
//! - **The holder is a process of its own**, as only a process with one thread may enter a user namespace.
//! - **It ends with its owner**: it reads from the socket pair, which the kernel closes however the owner ends. A
//!   death signal (`PR_SET_PDEATHSIG`) would be tied to the thread that has started the holder. It first kills what
//!   is left inside.
//! - **The caller's uid and gid stay the same inside**, so that files belong to whom they did.
//!
//! Programs and the gateway call it. Outside its namespaces it changes nothing, and it keeps nothing on disk.
//!
//! Deliberately left out: moving the packets, and looking names up.

mod birth;
mod error;
mod holder;
mod inlet;
mod inside;
mod mounts;
mod network;
mod protocol;
mod settings;
mod spaces;

use std::{
    fs,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use nix::{errno::Errno, unistd::Pid};

pub use error::NamespaceError;
pub use holder::hold;
pub use inlet::Inlet;
pub use settings::{Files, Settings};
pub use spaces::Spaces;

use convoy_process::{
    descriptors::MOST,
    message::{self, Lost},
};
use protocol::{Answer, Request, SocketKind};

/// A namespace and what came out of it; dropping it ends the holder and all processes inside.
///
/// The kernel removes the network once nobody has the TUN or a socket of it open.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
    /// `None` once the holder is to end.
    socket: Mutex<Option<UnixStream>>,
    tun: OwnedFd,
    spaces: Spaces,
    inlet: Option<Inlet>,
    warnings: Vec<String>,
}

impl Namespace {
    /// Starts `holder`, a command that calls [`hold`], in new namespaces, and waits until the network is as
    /// `settings` say. Its standard streams are replaced.
    ///
    /// # Errors
    /// [`NamespaceError::User`] or [`NamespaceError::Tun`] if this system has none for this user, with the fix.
    pub fn start(mut holder: Command, settings: &Settings) -> Result<Self, NamespaceError> {
        let (socket, theirs) = UnixStream::pair().map_err(NamespaceError::holder)?;
        holder.stdin(OwnedFd::from(theirs));
        holder.stdout(Stdio::null()).stderr(Stdio::null());
        birth::in_new_namespaces(&mut holder);
        let child = holder.spawn();
        // It holds the other end of the socket pair.
        drop(holder);
        let mut child = child.map_err(NamespaceError::user)?;
        let made = set_up(&socket, settings);
        let made = made.inspect_err(|_| {
            drop(socket.shutdown(std::net::Shutdown::Both));
            // It ends, as its owner has gone.
            drop(child.wait());
        })?;
        Ok(Self {
            holder: child,
            socket: Mutex::new(Some(socket)),
            tun: made.tun,
            spaces: made.spaces,
            inlet: made.inlet,
            warnings: made.warnings,
        })
    }

    /// Returns where flows of peers come out, if the settings ask for that.
    pub fn take_inlet(&mut self) -> Option<Inlet> {
        self.inlet.take()
    }

    /// The TUN. It has a virtio header, unless the settings or the kernel refuse it: see
    /// [`convoy_tun::Device::adopt`].
    pub fn tun(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }

    /// Returns the namespaces that a process enters to be inside.
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// The process that holds the namespaces, a child of this one.
    #[must_use]
    pub fn holder(&self) -> Pid {
        Pid::from_raw(self.holder.id().cast_signed())
    }

    /// Returns what is less than it should be.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns whether the kernel still sends what programs inside wrote before they closed their connections.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        let holder = self.holder.id();
        ["tcp", "tcp6"].iter().any(|table| {
            let table = fs::read_to_string(format!("/proc/{holder}/net/{table}"));
            inside::is_sending(&table.unwrap_or_default())
        })
    }

    /// At most [`MOST`] new UDP sockets, neither bound nor connected; they do not block.
    ///
    /// # Errors
    /// [`NamespaceError::Ended`] if the holder was killed; [`NamespaceError::Socket`] if the kernel refuses one, or this
    /// process has no descriptors left.
    pub fn udp(&self, ipv6: bool, count: usize) -> Result<Vec<OwnedFd>, NamespaceError> {
        self.sockets(SocketKind::Udp, ipv6, count)
    }

    /// At most [`MOST`] new TCP sockets, as for [`Namespace::udp`].
    ///
    /// # Errors
    /// As for [`Namespace::udp`].
    pub fn tcp(&self, ipv6: bool, count: usize) -> Result<Vec<OwnedFd>, NamespaceError> {
        self.sockets(SocketKind::Tcp, ipv6, count)
    }

    fn sockets(
        &self,
        kind: SocketKind,
        ipv6: bool,
        count: usize,
    ) -> Result<Vec<OwnedFd>, NamespaceError> {
        let count = count.min(MOST);
        let guard = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = guard.as_ref().ok_or(NamespaceError::Ended)?;
        let request = Request::Sockets { kind, ipv6, count };
        message::send(socket, &request, &[]).map_err(|_| NamespaceError::Ended)?;
        match message::receive(socket) {
            Ok((Answer::Sockets, sockets)) => Ok(sockets),
            Ok((Answer::Refused(refusal), _)) => Err(refusal.into()),
            Err(Lost::Io(error)) if error.raw_os_error() == Some(Errno::EMFILE as i32) => {
                Err(NamespaceError::Socket(error))
            }
            Ok(_) | Err(_) => Err(NamespaceError::Ended),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let socket = self.socket.get_mut();
        drop(socket.unwrap_or_else(PoisonError::into_inner).take());
        // An error means that it is already gone.
        drop(self.holder.wait());
        // The holder has done so, unless it was killed.
        let [_, _, network] = self.spaces.descriptors();
        inside::end_all(network);
    }
}

/// Everything that the holder has set up.
struct SetUp {
    warnings: Vec<String>,
    tun: OwnedFd,
    spaces: Spaces,
    inlet: Option<Inlet>,
}

/// Makes the holder set everything up.
fn set_up(socket: &UnixStream, settings: &Settings) -> Result<SetUp, NamespaceError> {
    message::send(socket, &Request::SetUp(settings.clone()), &[])
        .map_err(|_| NamespaceError::Ended)?;
    match message::receive(socket) {
        Ok((Answer::Ready { warnings }, descriptors)) => {
            let mut descriptors = descriptors.into_iter();
            let spaces = Spaces::of(descriptors.by_ref().take(3).collect());
            let tun = descriptors.next();
            let inlet = descriptors.next().map(|device| Inlet {
                device,
                listeners: descriptors.collect(),
            });
            Ok(SetUp {
                warnings,
                tun: tun.ok_or(NamespaceError::Ended)?,
                spaces: spaces.ok_or(NamespaceError::Ended)?,
                inlet,
            })
        }
        Ok((Answer::Refused(refusal), _)) => Err(refusal.into()),
        Ok(_) | Err(_) => Err(NamespaceError::Ended),
    }
}
