//! Flows of datagrams: each has a socket inside, with the target's address, and one outside.
//!
//! ```text
//!  first datagrams ── inlet ──▶ early ──┐
//!  peer ◀────────▶ inside, bound to the target, connected to the peer ◀──▶ outside ◀──▶ target
//! ```

use std::{
    io::{self, ErrorKind},
    os::fd::AsRawFd,
    sync::Arc,
};

use nix::sys::socket::{SockaddrStorage, bind, setsockopt, sockopt::ReuseAddr};
use tokio::{
    net::UdpSocket,
    sync::mpsc,
    task::{JoinSet, yield_now},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    Share, errors,
    gateway::{CONNECT_LIMIT, Ends, Shared, refused},
    scratch::with_scratch,
};
use crate::{
    counters::Refusal,
    dial::reason,
    expiry::{Expiry, RETRY},
    network::{Datagrams, Family, SocketKind, any_of, transparent},
    stack::{
        Dropped,
        datagram::{self, UDP_HEADER},
        icmp::Unreachable,
        packet::{Packet, UDP},
    },
};

/// Datagrams moved in one direction before others have their turn.
const BATCH: usize = 64;

/// A flow's place among all; dropping it makes it free.
struct Place {
    shared: Arc<Shared>,
    ends: Ends,
}

/// Passes a datagram on to its flow, which it begins if there is none.
pub(super) fn receive(
    shared: &Arc<Shared>,
    tasks: &mut JoinSet<()>,
    packet: &Packet<'_>,
) -> Result<(), Dropped> {
    let received = datagram::parse(packet)?;
    let ends = Ends {
        peer: received.from,
        target: received.to,
    };
    let datagram = received.payload.into();
    let flows = &shared.flows_of_datagrams;
    let Some(datagram) = flows.pass_on(ends, datagram, &shared.udp) else {
        return Ok(());
    };
    match shared.admit(ends) {
        Ok(shares) => {
            let waiting = flows.begin(ends, datagram);
            let place = Place {
                shared: Arc::clone(shared),
                ends,
            };
            tasks.spawn(place.serve(waiting, shares));
        }
        Err(refusal) => {
            refused(&shared.udp, ends, refusal);
            shared.answers.prohibit(packet);
        }
    }
    Ok(())
}

impl Place {
    async fn serve(self, early: mpsc::Receiver<Box<[u8]>>, (_share, pending): (Share, Share)) {
        match Box::pin(self.open(pending)).await {
            Ok((inside, outside)) => {
                let _open = self.shared.udp.open();
                self.exchange(&inside, &outside, early).await;
            }
            Err(refusal) => {
                refused(&self.shared.udp, self.ends, refusal);
                if let Some(why) = errors::unreachable(refusal) {
                    self.unreachable(why);
                }
                sleep(RETRY).await;
            }
        }
    }

    async fn open(&self, _pending: Share) -> Result<(UdpSocket, UdpSocket), Refusal> {
        let outside = errors::ask_for(self.outside().await.map_err(|error| reason(&error))?);
        let inside = timeout(CONNECT_LIMIT, self.inside()).await;
        let inside = inside.map_err(|_| Refusal::TimedOut)?;
        let inside = inside.map_err(|error| reason(&error))?;
        Ok((inside, outside))
    }

    async fn outside(&self) -> io::Result<UdpSocket> {
        let target = self.ends.target;
        let socket = self.shared.outside.datagrams(any_of(&target)).await?;
        socket.connect(target).await?;
        match socket {
            Datagrams::Kernel(socket) => Ok(socket),
            Datagrams::Other(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// From here on, the kernel finds this socket for the flow's datagrams.
    async fn inside(&self) -> io::Result<UdpSocket> {
        let Ends { peer, target } = self.ends;
        let family = Family::of(&target);
        let opened = self.shared.inside.open(SocketKind::Udp, family).await?;
        transparent::permit(&opened, target.is_ipv6())?;
        // Other flows have the same target.
        setsockopt(&opened, ReuseAddr, &true)?;
        bind(opened.as_raw_fd(), &SockaddrStorage::from(target))?;
        let socket = UdpSocket::from_std(opened.into())?;
        socket.connect(peer).await?;
        socket.writable().await?;
        Ok(socket)
    }

    async fn exchange(
        &self,
        inside: &UdpSocket,
        outside: &UdpSocket,
        mut early: mpsc::Receiver<Box<[u8]>>,
    ) {
        let expiry = Expiry::new();
        loop {
            tokio::select! {
                biased;
                // The table holds a sender, so there is always another.
                Some(datagram) = early.recv() => {
                    expiry.touch();
                    self.send(outside, &datagram);
                }
                _ = inside.readable() => self.question(inside, outside, &expiry),
                error = errors::ready(outside) => {
                    if let Some(error) = error {
                        self.pass_on(outside, &error);
                    }
                    self.answer(inside, outside, &expiry);
                }
                () = sleep_until(expiry.at()) => if expiry.at() <= Instant::now() {
                    return;
                },
            }
            yield_now().await;
        }
    }

    /// Moves datagrams from the peer to the target.
    fn question(&self, inside: &UdpSocket, outside: &UdpSocket, expiry: &Expiry) {
        for _ in 0..BATCH {
            let moved = with_scratch(|scratch| {
                let length = inside.try_recv(scratch)?;
                self.send(outside, &scratch[..length]);
                Ok(())
            });
            match moved {
                Ok(()) => expiry.touch(),
                Err(error) if is_over(&error) => return,
                // The peer refuses the port: its socket may open later.
                Err(_) => {}
            }
        }
    }

    /// Moves datagrams from the target to the peer.
    fn answer(&self, inside: &UdpSocket, outside: &UdpSocket, expiry: &Expiry) {
        let udp = &self.shared.udp;
        for _ in 0..BATCH {
            let moved = with_scratch(|scratch| {
                let length = outside.try_recv(scratch)?;
                match inside.try_send(&scratch[..length]) {
                    Ok(sent) => udp.moved.count_inbound(sent),
                    Err(_) => udp.drop_datagrams(1),
                }
                Ok(())
            });
            match moved {
                Ok(()) => expiry.answer(),
                Err(error) if is_over(&error) => return,
                Err(error) => self.pass_on(outside, &error),
            }
        }
    }

    fn send(&self, outside: &UdpSocket, datagram: &[u8]) {
        let udp = &self.shared.udp;
        match outside.try_send(datagram) {
            Ok(sent) => udp.moved.count_outbound(sent),
            Err(error) => {
                udp.drop_datagrams(1);
                if !is_over(&error) {
                    self.pass_on(outside, &error);
                }
            }
        }
    }

    /// Tells the peer what the network outside says about a datagram.
    fn pass_on(&self, outside: &UdpSocket, error: &io::Error) {
        errors::forget_details(outside);
        if let Some(why) = errors::unreachable(reason(error)) {
            self.unreachable(why);
        }
    }

    fn unreachable(&self, why: Unreachable) {
        let Ends { peer, target } = self.ends;
        let [a, b] = peer.port().to_be_bytes();
        let [c, d] = target.port().to_be_bytes();
        let header = [a, b, c, d, 0, UDP_HEADER as u8, 0, 0];
        let answers = &self.shared.answers;
        answers.unreachable_flow(why, (peer.ip(), target.ip()), UDP, header);
    }
}

fn is_over(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.flows_of_datagrams.end(self.ends);
    }
}
