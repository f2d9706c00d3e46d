//! Paced UDP: a sender with an absolute schedule and a receiver that counts.
//!
//! Every packet begins with 16 bytes: the flow's mark and the packet's number, little-endian.

mod batch;
pub(crate) mod pace;
mod receiver;

use std::net::UdpSocket;
use std::time::Duration;

use nix::errno::Errno;

use super::protocol::Side;
use super::scope::{Answers, Scope, connected_udp};
use super::{UdpLoad, UdpSent};
use crate::error::{Doing as _, Result};
pub(super) use batch::HEADER;
use batch::Outbox;
use pace::Pace;

/// Share of its schedule that a sender must send in time to have held the rate.
const HELD: f64 = 0.99;
/// Time past its schedule for which a sender continues, to make up for its last wake-up.
const GRACE: Duration = Duration::from_millis(2);

/// Sends or receives one flow.
pub(super) fn run(
    side: Side,
    load: &UdpLoad,
    run: u64,
    scope: Scope,
    answers: &mut Answers<'_>,
) -> Result<()> {
    scope.take_precedence();
    let port = match side {
        Side::Near(target) => {
            let socket = connected_udp(target.to)?;
            answers.send(&())?;
            return answers.send(&send(&socket, load, run)?);
        }
        Side::Far { port } => port,
    };
    let socket = scope.bind_udp(port)?;
    receiver::enlarge_buffer(&socket)?;
    // Answered only once the buffer is large: the flow may begin at once.
    let port = socket.local_addr().doing("bind a UDP socket")?.port();
    answers.send(&port)?;
    answers.send(&receiver::receive(&socket, load, run)?)
}

/// Sends the schedule of `load` over a connected socket.
fn send(socket: &UdpSocket, load: &UdpLoad, run: u64) -> Result<UdpSent> {
    let mut outbox = Outbox::new(load.payload, run);
    let mut number = 0;
    let deadline = load.duration + GRACE;
    let send = |due| {
        let end = number + due;
        while number < end {
            number += match outbox.send(socket, number, end - number) {
                Ok(sent) => sent,
                // A queue on the way is full: the packet is lost, as in a router.
                Err(Errno::ENOBUFS) => 1,
                // An ICMP message about an earlier packet; nothing was sent.
                Err(Errno::ECONNREFUSED | Errno::EINTR) => 0,
                Err(errno) => return Err(errno),
            };
        }
        Ok(())
    };
    let pace = Pace::new(load.rate_pps, load.packets());
    let took = pace.drive(|now| now > deadline, send);
    Ok(UdpSent {
        seconds: took.doing("send over UDP")?.as_secs_f64(),
        packets: number,
        held_rate: number as f64 >= HELD * load.packets() as f64,
    })
}
