//! Datagrams sent and counted by one thread, which keeps a window of them on the way.

use std::io::IoSliceMut;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::{Duration, Instant};

use convoy_lab::flood::send_from;
use nix::errno::Errno;
use nix::sys::prctl::set_timerslack;
use nix::sys::socket::{MsgFlags, MultiHeaders, recvmmsg};

/// Datagrams on the way: as many as keep a daemon busy, and fewer than any queue on the way holds.
const WINDOW: usize = 1_900;
/// Silence after which datagrams on the way count as lost.
const PATIENCE: Duration = Duration::from_millis(100);
/// Pause when there is nothing to do: short beside the time in which a window passes.
const NAP: Duration = Duration::from_micros(50);
/// Messages per call that receives.
const BATCH: usize = 64;

/// A socket, and the length of each datagram there.
type End<'a> = (&'a UdpSocket, usize);

/// Consecutive datagrams from one address to another.
pub(super) struct Train {
    pub(super) source: Ipv4Addr,
    pub(super) to: SocketAddrV4,
    pub(super) bytes: Vec<u8>,
}

/// Counts of one or more flows.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) sent: usize,
    pub(super) arrived: usize,
    /// Until the last arrival.
    pub(super) time: Duration,
    /// In which the window was full and nothing had arrived.
    pub(super) waited: Duration,
}

impl Flow {
    /// Sends all `trains` from one end and counts the datagrams that arrive at the other.
    pub(super) fn carry(&mut self, [from, at]: [End<'_>; 2], trains: &[Train]) -> nix::Result<()> {
        // By default the kernel may delay each short sleep by 50 µs to merge wake-ups.
        set_timerslack(1)?;
        let mut headers = MultiHeaders::preallocate(BATCH, None);
        let (began, earlier) = (Instant::now(), self.time);
        let (mut heard, mut settled) = (began, self.sent);
        let mut trains = trains.iter().peekable();
        while trains.peek().is_some() || settled < self.sent {
            let now = Instant::now();
            let arrived = receive(at, &mut headers)?;
            self.arrived += arrived;
            settled = (settled + arrived).min(self.sent);
            if arrived > 0 {
                self.time = earlier + (now - began);
                heard = now;
            } else if now - heard > PATIENCE {
                (settled, heard) = (self.sent, now);
            }
            let before = self.sent;
            while let Some(train) = trains.next_if(|_| self.sent - settled < WINDOW) {
                self.sent += train.send(from)?;
            }
            if arrived == 0 && self.sent == before {
                thread::sleep(NAP);
                self.waited += now.elapsed();
            }
        }
        Ok(())
    }
}

impl Train {
    /// Returns the number of datagrams.
    fn send(&self, (from, len): End<'_>) -> nix::Result<usize> {
        let datagrams = self.bytes.len() / len;
        let segment = (datagrams > 1).then_some(len as u16);
        match send_from(from, self.source, self.to, &self.bytes, segment) {
            // A queue on the way is full: lost, as in a router.
            Ok(()) | Err(Errno::ENOBUFS) => Ok(datagrams),
            Err(errno) => Err(errno),
        }
    }
}

/// Takes what has arrived and counts the datagrams by their lengths; copies only the first byte of a message.
fn receive((at, len): End<'_>, headers: &mut MultiHeaders<()>) -> nix::Result<usize> {
    let mut starts = [[0]; BATCH];
    let mut slices = starts.each_mut().map(|start| [IoSliceMut::new(start)]);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
    match recvmmsg(at.as_raw_fd(), headers, &mut slices, flags, None) {
        // A train may arrive as one message; keepalives are too short to count.
        Ok(messages) => Ok(messages.map(|it| it.bytes / len).sum()),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
        Err(errno) => Err(errno),
    }
}
