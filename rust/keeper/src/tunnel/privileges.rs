//! Lends the tunnel process the supervisor's privileges, but only for its UDP sockets and, with a TURN server by TCP or
//! TLS, TCP sockets ([`convoy_daemon::supervised::privileges`]).

use std::{
    collections::VecDeque,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixDatagram as StdUnixDatagram,
    },
    sync::{Arc, Mutex, PoisonError},
};

use convoy_daemon::supervised::privileges::{MAX_BYTES, Prepared, Wish};
use convoy_gso::udp::{Flow, OwnPrivileges, Privileged};
use convoy_process::descriptors;
use rustix::net::{SendFlags, send};
use tokio::{io::Interest, net::UnixDatagram, task::JoinHandle};
use tracing::{debug, warn};

/// Most marks that the tunnel may use, the latest ones: after a failed change, it keeps a former one.
const MOST_MARKS: usize = 16;

/// Most sockets that come with a request: one for each address family.
const MOST_SOCKETS: usize = 2;

/// Serves the tunnel's requests, from the first mark that it is allowed until this is dropped.
#[derive(Debug)]
pub(super) struct Lent {
    marks: Marks,
    /// `None` while it is being served, and for a tunnel that has these privileges itself.
    line: Option<OwnedFd>,
    serving: Option<JoinHandle<()>>,
}

/// The marks that the tunnel may use, beside none.
#[derive(Clone, Debug, Default)]
struct Marks(Arc<Mutex<VecDeque<u32>>>);

impl Lent {
    pub(super) fn over(line: Option<OwnedFd>) -> Self {
        Self {
            marks: Marks::default(),
            line,
            serving: None,
        }
    }

    /// Allows the tunnel to use this mark; call it within a tokio runtime.
    pub(super) fn allow(&mut self, mark: u32) {
        self.marks.allow(mark);
        let Some(line) = self.line.take() else { return };
        let marks = self.marks.clone();
        self.serving = Some(tokio::spawn(async move {
            if let Err(error) = serve(line, &marks).await {
                debug!("The tunnel process needs no privileges any more: {error}");
            }
        }));
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

impl Marks {
    fn allow(&self, mark: u32) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.retain(|it| *it != mark);
        if marks.len() == MOST_MARKS {
            marks.pop_front();
        }
        marks.push_back(mark);
    }

    fn check(&self, mark: u32) -> io::Result<()> {
        match self.contain(mark) {
            true => Ok(()),
            false => {
                warn!("the tunnel process wants the mark {mark:#x}, which is not its own: refused");
                Err(io::Error::from_raw_os_error(libc::EPERM))
            }
        }
    }

    fn contain(&self, mark: u32) -> bool {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mark == 0 || marks.contains(&mark)
    }
}

async fn serve(line: OwnedFd, marks: &Marks) -> io::Result<()> {
    let line = StdUnixDatagram::from(line);
    line.set_nonblocking(true)?;
    let line = UnixDatagram::from_std(line)?;
    let mut buffer = [0; MAX_BYTES];
    loop {
        let receive = || descriptors::try_receive(&line, &mut buffer);
        let (length, sockets) = line.async_io(Interest::READABLE, receive).await?;
        let Some(sockets) = sockets else {
            // The tunnel may ask again later.
            warn!("cannot receive the tunnel's sockets: too many, or no descriptors are left");
            continue;
        };
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Ok(wish) = serde_json::from_slice(&buffer[..length]) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if let Some(answer) = fulfil(wish, &sockets, marks) {
            // The tunnel waits for its answers and reads them at once. If there is no room, it has asked for too much.
            let answer = serde_json::to_vec(&answer)?;
            send(&line, &answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        }
    }
}

fn fulfil(wish: Wish, sockets: &[OwnedFd], marks: &Marks) -> Option<Prepared> {
    match wish {
        Wish::Prepare { id, mark } => {
            let prepared = prepare(sockets, mark, marks);
            Some(answer(id, prepared))
        }
        Wish::PrepareStream { id, mark } => {
            let prepared = prepare_stream(sockets, mark, marks);
            Some(answer(id, prepared))
        }
        Wish::ForgetMtu {
            to,
            source,
            port,
            mark,
        } => {
            OwnPrivileges.forget_learnt_mtu(&Flow {
                to,
                source: (source, port),
                mark,
            });
            None
        }
        Wish::Unknown => None,
    }
}

fn answer(id: u64, prepared: io::Result<()>) -> Prepared {
    let error = prepared.err();
    let error = error.map(|error| error.raw_os_error().unwrap_or(libc::EINVAL));
    Prepared { id, error }
}

fn prepare(sockets: &[OwnedFd], mark: u32, marks: &Marks) -> io::Result<()> {
    marks.check(mark)?;
    if sockets.len() > MOST_SOCKETS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    OwnPrivileges.prepare(&sockets, mark)
}

fn prepare_stream(sockets: &[OwnedFd], mark: u32, marks: &Marks) -> io::Result<()> {
    marks.check(mark)?;
    let [socket] = sockets else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    OwnPrivileges.prepare_stream(socket.as_fd(), mark)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use tokio::time::{Duration, timeout};

    use super::*;

    const OWN: u32 = 7;

    #[test]
    fn only_udp_sockets_get_only_the_tunnels_own_marks() {
        let marks = Marks::default();
        marks.allow(OWN);
        let udp = || OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let wish = |sockets: &[OwnedFd], mark| {
            let prepared = fulfil(Wish::Prepare { id: 3, mark }, sockets, &marks).unwrap();
            assert_eq!(prepared.id, 3);
            prepared.error
        };
        // Any process may use no mark.
        assert_eq!(wish(&[udp(), udp()], 0), None);
        // Only root may set one.
        assert!([None, Some(libc::EPERM)].contains(&wish(&[udp()], OWN)));
        assert_eq!(wish(&[udp()], OWN + 1), Some(libc::EPERM));
        assert_eq!(wish(&[tcp()], 0), Some(libc::EINVAL));
        assert!(wish(&[file()], 0).is_some());
        assert_eq!(wish(&[udp(), udp(), udp()], 0), Some(libc::EINVAL));
        assert_eq!(fulfil(Wish::Unknown, &[udp()], &marks), None);
    }

    #[test]
    fn only_one_tcp_socket_gets_only_the_tunnels_own_mark() {
        let marks = Marks::default();
        marks.allow(OWN);
        let udp = || OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let wish = |sockets: &[OwnedFd], mark| {
            let wish = Wish::PrepareStream { id: 3, mark };
            fulfil(wish, sockets, &marks).unwrap().error
        };
        assert_eq!(wish(&[tcp()], 0), None);
        // Only root may set one.
        assert!([None, Some(libc::EPERM)].contains(&wish(&[tcp()], OWN)));
        assert_eq!(wish(&[tcp()], OWN + 1), Some(libc::EPERM));
        assert_eq!(wish(&[udp()], 0), Some(libc::EINVAL));
        assert_eq!(wish(&[tcp(), tcp()], 0), Some(libc::EINVAL));
        assert_eq!(wish(&[], 0), Some(libc::EINVAL));
    }

    #[test]
    fn the_latest_marks_are_the_tunnels() {
        let marks = Marks::default();
        (1..=100).for_each(|mark| marks.allow(mark));
        let most = u32::try_from(MOST_MARKS).unwrap();
        assert!((101 - most..=100).all(|mark| marks.contain(mark)));
        assert!(!marks.contain(100 - most) && marks.contain(0));
    }

    #[tokio::test]
    async fn nonsense_or_silence_ends_it_and_calls_that_wait_do_not_hold_it_up() {
        for said in [
            &b"nonsense"[..],
            b"{\"type\":\"prepare\"}",
            &[b'x'; 4_096],
            b"",
        ] {
            let (ours, theirs) = pair();
            match said.is_empty() {
                true => drop(theirs),
                false => {
                    send(&theirs, said, SendFlags::empty()).unwrap();
                    // It stays open meanwhile.
                    std::mem::forget(theirs);
                }
            }
            let marks = Marks::default();
            let served = timeout(Duration::from_secs(20), serve(ours, &marks));
            served.await.unwrap().unwrap_err();
        }
        // No socket at all.
        let file = std::fs::File::open("/dev/null").unwrap();
        serve(file.into(), &Marks::default()).await.unwrap_err();
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }
}
