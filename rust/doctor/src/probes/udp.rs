//! A batch over loopback, by the sockets and the queue that a tunnel uses.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use convoy_gso::{
    BoundSockets, Destination, Flusher, GsoQueue, ReceiveBuffers, SocketOptions, UdpSockets,
    udp::Family,
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

/// The batch.
const DATAGRAMS: usize = 20;
const BYTES: usize = 1_000;

/// Ten times as long as a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(3);

/// Abilities of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Udp {
    /// Whether it cut one call's batch into datagrams.
    pub(crate) gso: bool,
    /// Whether it returned several datagrams in one buffer.
    pub(crate) gro: bool,
}

/// Sends the batch and receives it.
pub(super) async fn probe() -> io::Result<Udp> {
    let mut sender = sockets()?;
    let mut receiver = sockets()?;
    let localhost = IpAddr::from(Ipv4Addr::LOCALHOST);
    let destination = Destination {
        to: (localhost, receiver.port()).into(),
        source: None,
        ecn: 0,
    };
    let mut queue = GsoQueue::default();
    for _ in 0..DATAGRAMS {
        let appended = queue.append(&destination, &[0; BYTES]);
        appended.map_err(|_| io::Error::other("the queue is full"))?;
    }
    let mut flusher = Flusher::new(sender.segmentation());
    flusher.flush(&mut queue, &mut sender, Duration::ZERO);
    let gso = flusher.counters().segments[DATAGRAMS] == 1;
    let received = timeout(PATIENCE, receive(&mut receiver)).await;
    let most = received.map_err(|_| io::Error::other("loopback loses datagrams"))??;
    Ok(Udp { gso, gro: most > 1 })
}

/// Receives as many datagrams as were sent; returns how many the fullest buffer had.
async fn receive(sockets: &mut UdpSockets) -> io::Result<usize> {
    let mut buffers = ReceiveBuffers::default();
    let (mut received, mut most) = (0, 0);
    while received < DATAGRAMS {
        match sockets.receive(Family::V4, &mut buffers) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sockets.readable(Family::V4).await;
                continue;
            }
            outcome => drop(outcome?),
        }
        for segments in buffers.segments_per_buffer() {
            received += segments;
            most = most.max(segments);
        }
    }
    Ok(most)
}

fn sockets() -> io::Result<UdpSockets> {
    let options = SocketOptions {
        receive_offload: true,
        ..SocketOptions::default()
    };
    UdpSockets::register(BoundSockets::open(options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_cuts_a_batch_and_returns_it_in_one_buffer() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        let udp = runtime.block_on(probe()).unwrap();
        assert_eq!(
            udp,
            Udp {
                gso: true,
                gro: true
            }
        );
    }
}
