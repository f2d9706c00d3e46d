//! Sockets and answers of an agent: where it may listen, and whom it may talk to.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};
use serde::Serialize;

use crate::error::{Doing as _, Result};

/// Where an agent may listen, and the only host that it may talk to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope {
    pub(super) bind: IpAddr,
    pub(super) peer: Option<IpAddr>,
}

impl Scope {
    /// Every address that the agent's namespace reaches: the controller is on the same host.
    pub(super) const NAMESPACE: Self = Self {
        bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        peer: None,
    };

    pub(super) fn is_of_namespace(self) -> bool {
        self.peer.is_none()
    }

    pub(super) fn admits(self, address: SocketAddr) -> bool {
        self.peer
            .is_none_or(|peer| peer == address.ip().to_canonical())
    }

    /// Listens on `port` (0: any); `accept` gives up after `patience`.
    pub(super) fn listen(self, port: u16, patience: Duration) -> Result<(TcpListener, u16)> {
        let doing = "listen on TCP";
        let listener = TcpListener::bind((self.bind, port)).doing(doing)?;
        // On Linux, accept(2) also observes the receive timeout (socket(7)).
        let patience = TimeVal::milliseconds(patience.as_millis() as i64);
        setsockopt(&listener, sockopt::ReceiveTimeout, &patience).doing(doing)?;
        let port = listener.local_addr().doing(doing)?.port();
        Ok((listener, port))
    }

    /// A UDP socket on `port` (0: any).
    pub(super) fn bind_udp(self, port: u16) -> Result<UdpSocket> {
        UdpSocket::bind((self.bind, port)).doing("bind a UDP socket")
    }

    /// Gives the calling thread precedence over all ordinary threads for the rest of its life, if root.
    ///
    /// If the generator shares a machine with the daemons, it then offers the requested load as if from
    /// another machine. For a caller on another host nothing changes: that caller must not take this host's
    /// CPUs from their owner.
    pub(super) fn take_precedence(self) {
        if self.peer.is_some() {
            return;
        }
        // The kernel's `struct sched_param` holds only the priority.
        let priority: libc::c_int = 1;
        // A direct system call, since musl's sched_setscheduler does nothing. Without root it is refused.
        // SAFETY: process 0 is the calling thread, and `priority` outlives the call.
        unsafe {
            let (call, policy) = (libc::SYS_sched_setscheduler, libc::SCHED_RR);
            libc::syscall(call, 0, policy, &raw const priority)
        };
    }
}

/// Connects a UDP socket.
pub(super) fn connected_udp(to: SocketAddr) -> Result<UdpSocket> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).doing("bind a UDP socket")?;
    socket.connect(to).doing("connect a UDP socket")?;
    Ok(socket)
}

/// The answers of one agent: one line each with a `Result`, whose error is a reason in words.
pub(super) struct Answers<'a>(pub(super) &'a mut (dyn Write + Send));

impl Answers<'_> {
    pub(super) fn send(&mut self, answer: &impl Serialize) -> Result<()> {
        self.line(&Ok::<_, String>(answer))
    }

    pub(super) fn line(&mut self, answer: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(answer).doing("encode an answer")?;
        line.push(b'\n');
        self.0.write_all(&line).doing("answer")?;
        self.0.flush().doing("answer")
    }
}
