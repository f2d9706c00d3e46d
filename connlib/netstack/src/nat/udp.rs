//! Flows of datagrams: each has a socket inside, with the target's address, and one outside.
//!
//! ```text
//!  first datagrams ── inlet ──▶ early ──┐
//!  peer ◀────────▶ inside, bound to the target, connected to the peer ◀──▶ outside ◀──▶ target
//! ```

use std::{
    io::{self, ErrorKind},
    pin::pin,
    sync::Arc,
};

use tokio::{
    sync::mpsc,
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};

use super::{
    Share, errors,
    gateway::{CONNECT_LIMIT, Ends, Shared, refused},
};
use crate::{
    counters::Refusal,
    dial::reason,
    expiry::{Expiry, RETRY},
    network::{Datagrams, Sent, any_of, with_batch},
    stack::{
        Dropped,
        datagram::{self, UDP_HEADER},
        icmp::Unreachable,
        packet::{Packet, UDP},
    },
};

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
    match shared.admission.admit(ends) {
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

    async fn open(&self, _pending: Share) -> Result<(Datagrams, Datagrams), Refusal> {
        let outside = self.outside().await.map_err(|error| reason(&error))?;
        let inside = self.shared.answers.inside.datagrams(self.ends);
        let inside = timeout(CONNECT_LIMIT, inside).await;
        let inside = inside.map_err(|_| Refusal::TimedOut)?;
        let inside = inside.map_err(|error| reason(&error))?;
        Ok((inside, outside))
    }

    async fn outside(&self) -> io::Result<Datagrams> {
        let target = self.ends.target;
        let socket = self.shared.outside.datagrams(any_of(&target)).await?;
        socket.prepare_for_batches();
        socket.connect(target).await?;
        socket.ask_for_errors();
        Ok(socket)
    }

    async fn exchange(
        &self,
        inside: &Datagrams,
        outside: &Datagrams,
        mut early: mpsc::Receiver<Box<[u8]>>,
    ) {
        let expiry = Expiry::new();
        let mut expired = pin!(expiry.reached());
        loop {
            tokio::select! {
                // What came first is sent first.
                biased;
                // The table holds a sender, so there is always another.
                Some(datagram) = early.recv() => {
                    let mut sent = Sent::default();
                    sent.note(outside.try_send(&datagram));
                    self.asked(sent, &expiry);
                    continue;
                }
                // The error is that the peer refuses the port: its socket may open later.
                _ = inside.ready() => {}
                error = outside.ready() => self.pass_on(error),
                () = &mut expired => return,
            }
            // Each direction has its turn, however much the other one has.
            self.question(inside, outside, &expiry);
            self.answer(inside, outside, &expiry);
            yield_now().await;
        }
    }

    /// Moves datagrams from the peer to the target.
    fn question(&self, inside: &Datagrams, outside: &Datagrams, expiry: &Expiry) {
        with_batch(|batch| {
            if inside.try_receive(batch).is_ok() {
                for train in batch.trains() {
                    self.asked(outside.try_send_train(&train, None), expiry);
                }
            }
        });
    }

    /// Notes what became of datagrams for the target.
    fn asked(&self, sent: Sent, expiry: &Expiry) {
        let udp = &self.shared.udp;
        expiry.touch();
        udp.moved.count_outbound(sent.bytes);
        udp.drop_datagrams(sent.lost);
        self.pass_on(sent.error);
    }

    /// Moves datagrams from the target to the peer.
    fn answer(&self, inside: &Datagrams, outside: &Datagrams, expiry: &Expiry) {
        let udp = &self.shared.udp;
        with_batch(|batch| match outside.try_receive(batch) {
            Ok(()) => {
                expiry.answer();
                for train in batch.trains() {
                    let Sent { bytes, lost, .. } = inside.try_send_train(&train, None);
                    udp.moved.count_inbound(bytes);
                    udp.drop_datagrams(lost);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => self.pass_on(Some(error)),
        });
    }

    /// Tells the peer what the network outside says about a datagram.
    fn pass_on(&self, error: Option<io::Error>) {
        let why = error.and_then(|error| errors::unreachable(reason(&error)));
        if let Some(why) = why {
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

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.flows_of_datagrams.end(self.ends);
    }
}
