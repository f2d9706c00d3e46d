//! Sends a flow at a constant rate.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::set_timerslack;

use super::batch::Outbox;
use super::pace::Pace;
use crate::traffic::error::Doing as _;
use crate::traffic::{TrafficError, UdpJob, UdpSent};

/// The share of its schedule that a sender must have sent in time to have held the rate.
const HELD: f64 = 0.99;
/// How much longer than its schedule a sender goes on, to make up for the last wake-up.
const GRACE: Duration = Duration::from_millis(2);

/// Sends `job`'s schedule over a connected socket.
pub(super) fn send(socket: &UdpSocket, job: &UdpJob) -> Result<UdpSent, TrafficError> {
    // The kernel may otherwise let each short sleep run 50 µs late to spare wake-ups.
    set_timerslack(1).doing("set the timer slack")?;
    let mut outbox = Outbox::new(job.payload, job.run);
    let mut pace = Pace::new(job.rate_pps, job.packets());
    let mut number = 0;

    let begin = Instant::now();
    let deadline = Duration::from_secs_f64(job.seconds) + GRACE;
    while !pace.is_complete() {
        let now = begin.elapsed();
        if now > deadline {
            break;
        }
        let due = pace.due(now);
        let end = number + due;
        while number < end {
            number += send_some(socket, &mut outbox, number, end - number)?;
        }
        pace.sent(due);
        let wait = pace.next_turn(now).min(deadline);
        std::thread::sleep(wait.saturating_sub(begin.elapsed()));
    }
    Ok(UdpSent {
        packets: number,
        seconds: begin.elapsed().as_secs_f64(),
        held_rate: number as f64 >= HELD * job.packets() as f64,
    })
}

/// Sends up to `count` packets and returns how many numbers were used.
fn send_some(
    socket: &UdpSocket,
    outbox: &mut Outbox,
    first: u64,
    count: u64,
) -> Result<u64, TrafficError> {
    match outbox.send(socket, first, count) {
        Ok(sent) => Ok(sent),
        // A full queue on the way: this packet is lost like one that a router drops.
        Err(Errno::ENOBUFS) => Ok(1),
        // An ICMP message about an earlier packet; nothing was sent.
        Err(Errno::ECONNREFUSED | Errno::EINTR) => Ok(0),
        Err(errno) => Err(errno).doing("send over UDP"),
    }
}
