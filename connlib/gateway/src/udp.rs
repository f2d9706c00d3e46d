//! Flows of datagrams: each has a socket inside, with the target's address, and one outside.
//!
//! ```text
//!  first datagrams ── inlet ──▶ early ──┐
//!  peer ◀────────▶ inside, bound to the target, connected to the peer ◀──▶ outside ◀──▶ target
//! ```

use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
};

use tokio::{
    sync::mpsc,
    task::{JoinSet, yield_now},
    time::timeout,
};

use super::{
    ends::Ends,
    errors,
    flows::Message,
    mapping::Mapping,
    shared::{CONNECT_LIMIT, Shared, refused},
};
use convoy_network::shares::Share;
use convoy_network::{
    Datagrams, Sent,
    counters::Refusal,
    dial::reason,
    errors::Report,
    expiry::{Expiry, RETRY},
    hops,
    occupants::Occupant,
    with_batch,
};
use convoy_packet::{
    counters::Dropped,
    datagram::{self, UDP_HEADER},
    icmp::Unreachable,
    packet::{Packet, UDP},
};

/// A flow's place among all; dropping it makes it free.
struct Place {
    shared: Arc<Shared>,
    ends: Ends,
    mapping: Arc<Mapping>,
    expiry: Arc<Expiry>,
}

/// Passes a datagram on to its flow, which it begins if there is none.
pub(super) fn receive(
    shared: &Arc<Shared>,
    tasks: &mut JoinSet<()>,
    (packet, hops): (&Packet<'_>, u8),
) -> Result<(), Dropped> {
    let received = datagram::parse(packet)?;
    let ends = Ends {
        peer: received.from,
        target: received.to,
    };
    let kept = (received.payload, hops, received.class);
    let Some(datagram) = shared.keep(kept, ends.peer.ip(), &shared.udp) else {
        return Ok(());
    };
    let flows = &shared.flows_of_datagrams;
    let Some(datagram) = flows.pass_on(ends, datagram, &shared.udp) else {
        return Ok(());
    };
    let expiry = Arc::new(Expiry::of_datagrams());
    match shared.admission.admit_flow(ends, &expiry) {
        Ok(shares) => {
            let waiting = flows.begin(ends, datagram);
            let place = Place {
                shared: Arc::clone(shared),
                ends,
                mapping: shared.mappings.of(ends.peer),
                expiry,
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
    async fn serve(self, early: mpsc::Receiver<Message>, (_occupant, pending): (Occupant, Share)) {
        let opened = tokio::select! {
            opened = Box::pin(self.open(pending)) => opened,
            () = self.expiry.reached() => Err(Refusal::Replaced),
        };
        match opened {
            Ok((inside, outside)) => {
                let _open = self.shared.udp.open();
                self.exchange(&inside, &outside, early).await;
                if self.expiry.is_replaced() {
                    refused(&self.shared.udp, self.ends, Refusal::Replaced);
                }
            }
            Err(refusal) => {
                refused(&self.shared.udp, self.ends, refusal);
                if let Some(why) = errors::unreachable(refusal) {
                    self.unreachable(why, None);
                }
                drop(early);
                let _ = timeout(RETRY, self.expiry.reached()).await;
            }
        }
    }

    async fn open(&self, _pending: Share) -> Result<(Datagrams, Datagrams), Refusal> {
        self.shared.admission.settle(self.ends).await?;
        let network = self.shared.outside.as_ref();
        let outside = self.mapping.open(network, self.ends.target).await;
        let outside = outside.map_err(|error| reason(&error))?;
        let inside = self.shared.answers.inside.datagrams(self.ends);
        let inside = timeout(CONNECT_LIMIT, inside).await;
        let inside = inside.map_err(|_| Refusal::TimedOut)?;
        let inside = inside.map_err(|error| reason(&error))?;
        Ok((inside, outside))
    }

    async fn exchange(
        &self,
        inside: &Datagrams,
        outside: &Datagrams,
        mut early: mpsc::Receiver<Message>,
    ) {
        let mut expired = pin!(self.expiry.reached());
        loop {
            tokio::select! {
                // What came first is sent first.
                biased;
                // The table holds a sender, so there is always another.
                Some(datagram) = early.recv() => {
                    self.send_early(outside, &datagram);
                    continue;
                }
                // The error is that the peer refuses the port: its socket may open later.
                _ = inside.ready() => {}
                reports = outside.ready() => self.pass_on(&reports),
                () = &mut expired => return,
            }
            // Each direction has its turn, however much the other one has.
            self.question(inside, outside);
            self.answer(inside, outside);
            yield_now().await;
        }
    }

    fn send_early(&self, outside: &Datagrams, datagram: &Message) {
        let probe = hops::of_probe(datagram.hops);
        if probe.is_some() {
            outside.set_hops(probe);
        }
        let mut sent = Sent::default();
        let Message { bytes, .. } = datagram;
        sent.note(outside.try_send_of_class(bytes, bytes.class()));
        self.asked(outside, sent);
        if probe.is_some() {
            outside.set_hops(None);
        }
    }

    /// Moves datagrams from the peer to the target.
    fn question(&self, inside: &Datagrams, outside: &Datagrams) {
        with_batch(|batch| {
            if inside.try_receive(batch).is_ok() {
                for train in batch.trains() {
                    self.asked(outside, outside.try_send_train(&train, None));
                }
            }
        });
    }

    /// Notes what became of datagrams for the target.
    fn asked(&self, outside: &Datagrams, sent: Sent) {
        let udp = &self.shared.udp;
        self.expiry.question();
        udp.moved.count_outbound(sent.bytes);
        udp.drop_datagrams(sent.lost);
        if let Some(error) = sent.error {
            self.pass_on(&outside.reports(error));
        }
    }

    /// Moves datagrams from the target to the peer.
    fn answer(&self, inside: &Datagrams, outside: &Datagrams) {
        let udp = &self.shared.udp;
        with_batch(|batch| match outside.try_receive(batch) {
            Ok(()) => {
                self.expiry.answer();
                for train in batch.trains() {
                    if !self.is_from_target(train.from()) {
                        train.datagrams().for_each(|_| udp.refuse(Refusal::Denied));
                        continue;
                    }
                    let Sent { bytes, lost, .. } = inside.try_send_train(&train, None);
                    udp.moved.count_inbound(bytes);
                    udp.drop_datagrams(lost);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => self.pass_on(&outside.reports(error)),
        });
    }

    /// Returns whether it was not sent by a stranger before the socket was connected.
    fn is_from_target(&self, from: SocketAddr) -> bool {
        let target = self.ends.target;
        (from.ip(), from.port()) == (target.ip(), target.port())
    }

    /// Tells the peer what the network outside says about datagrams.
    fn pass_on(&self, reports: &[Report]) {
        for report in reports {
            if let Some((why, from)) = errors::of_report(report, self.ends.target.ip()) {
                self.unreachable(why, from);
            }
        }
    }

    fn unreachable(&self, why: Unreachable, from: Option<IpAddr>) {
        let Ends { peer, target } = self.ends;
        let [a, b] = peer.port().to_be_bytes();
        let [c, d] = target.port().to_be_bytes();
        let header = [a, b, c, d, 0, UDP_HEADER as u8, 0, 0];
        let answers = &self.shared.answers;
        answers.unreachable_flow((why, from), (peer.ip(), target.ip()), UDP, header);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.flows_of_datagrams.end(self.ends);
    }
}
