//! Echo requests: those with one identifier from a peer to a target are a flow, with a ping socket outside.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    pin::pin,
    sync::Arc,
};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use tokio::{
    net::UdpSocket,
    sync::mpsc,
    task::{JoinSet, yield_now},
    time::timeout,
};

use super::{
    ends::Ends,
    errors,
    flows::Message,
    scratch::with_scratch,
    shared::{Shared, refused},
};
use convoy_network::{
    Datagrams,
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
    icmp::{Unreachable, echo_ident, is_intact, make_echo_reply},
    packet::{ICMPV4, ICMPV6, Packet, ip_header_len, set_class},
};

/// A flow's place among all; dropping it makes it free.
struct Place {
    shared: Arc<Shared>,
    /// The peer's port is the identifier.
    ends: Ends,
    /// ICMP header of the latest request.
    header: [u8; 8],
    /// How many routers the latest request may pass, if that is to find something out.
    hops: Option<u8>,
    expiry: Arc<Expiry>,
}

/// Passes an echo request on to its flow, which it begins if there is none.
pub(super) fn receive(
    shared: &Arc<Shared>,
    tasks: &mut JoinSet<()>,
    (packet, hops): (&Packet<'_>, u8),
) -> Result<(), Dropped> {
    if !is_intact(packet) {
        return Err(Dropped::BadChecksum);
    }
    let ident = echo_ident(packet).ok_or(Dropped::UnknownProtocol)?;
    let ends = Ends {
        peer: (packet.source, ident).into(),
        target: (packet.destination, 0).into(),
    };
    let flows = &shared.flows_of_echoes;
    let kept = (packet.payload(), hops, packet.class());
    let Some(request) = shared.keep(kept, packet.source, &shared.icmp) else {
        return Ok(());
    };
    let Some(request) = flows.pass_on(ends, request, &shared.icmp) else {
        return Ok(());
    };
    let expiry = Arc::new(Expiry::of_echoes());
    match shared.admission.admit_flow(ends, &expiry) {
        Ok((occupant, _)) => {
            let requests = flows.begin(ends, request);
            let place = Place {
                shared: Arc::clone(shared),
                ends,
                header: [0; 8],
                hops: None,
                expiry,
            };
            tasks.spawn(place.serve(requests, occupant));
        }
        Err(refusal) => {
            refused(&shared.icmp, ends, refusal);
            shared.answers.prohibit(packet);
        }
    }
    Ok(())
}

impl Place {
    async fn serve(mut self, mut requests: mpsc::Receiver<Message>, _occupant: Occupant) {
        match self.open().await {
            Ok(outside) => {
                let shared = Arc::clone(&self.shared);
                let _open = shared.icmp.open();
                outside.ask_for_errors();
                outside.ask_for_classes();
                self.exchange(&outside, requests).await;
                if self.expiry.is_replaced() {
                    refused(&shared.icmp, self.ends, Refusal::Replaced);
                }
            }
            Err(refusal) => {
                refused(&self.shared.icmp, self.ends, refusal);
                if let Ok(request) = requests.try_recv() {
                    self.note(&request);
                }
                let why = errors::unreachable(refusal).unwrap_or(Unreachable::Prohibited);
                self.unreachable((why, None), self.header);
                drop(requests);
                let _ = timeout(RETRY, self.expiry.reached()).await;
            }
        }
    }

    async fn open(&self) -> Result<Datagrams, Refusal> {
        self.shared.admission.settle(self.ends).await?;
        let opened = ping_socket(self.ends.target).await;
        opened.map_err(|error| match error.kind() {
            // The sysctl net.ipv4.ping_group_range leaves this user out.
            ErrorKind::PermissionDenied => Refusal::Unsupported,
            _ => reason(&error),
        })
    }

    async fn exchange(&mut self, outside: &Datagrams, mut requests: mpsc::Receiver<Message>) {
        let expiry = Arc::clone(&self.expiry);
        let mut expired = pin!(expiry.reached());
        loop {
            tokio::select! {
                // The table holds a sender, so there is always another.
                Some(request) = requests.recv() => {
                    expiry.question();
                    self.note(&request);
                    self.send(outside, &request);
                }
                reports = outside.ready() => {
                    self.pass_on(&reports);
                    self.answer_all(outside);
                }
                () = &mut expired => return,
            }
            yield_now().await;
        }
    }

    fn answer_all(&self, outside: &Datagrams) {
        with_batch(|batch| match outside.try_receive(batch) {
            Ok(()) => {
                self.expiry.answer();
                for train in batch.trains() {
                    let class = train.class();
                    let reply = |it: &[u8]| answer(&self.shared, self.ends, it, class);
                    train.datagrams().for_each(reply);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => self.pass_on(&outside.reports(error)),
        });
    }

    fn note(&mut self, request: &Message) {
        if let Some(header) = request.bytes.first_chunk() {
            self.header = *header;
        }
    }

    fn send(&mut self, outside: &Datagrams, request: &Message) {
        let wanted = hops::of_probe(request.hops);
        if wanted != self.hops {
            outside.set_hops(wanted);
            self.hops = wanted;
        }
        let icmp = &self.shared.icmp;
        match outside.try_send_of_class(&request.bytes, request.bytes.class()) {
            Ok(sent) => icmp.moved.count_outbound(sent),
            Err(error) => {
                icmp.drop_datagrams(1);
                self.pass_on(&outside.reports(error));
            }
        }
    }

    /// Tells the peer what the network outside says about requests.
    fn pass_on(&self, reports: &[Report]) {
        let [_, _, _, _, a, b, ..] = self.header;
        for report in reports {
            // Which request it is about; the identifier is this host's.
            let header = report.quoted.map_or(self.header, |it| {
                let [kind, code, .., c, d] = it;
                [kind, code, 0, 0, a, b, c, d]
            });
            if let Some(heard) = errors::of_report(report, self.ends.target.ip()) {
                self.unreachable(heard, header);
            }
        }
    }

    fn unreachable(&self, heard: (Unreachable, Option<IpAddr>), header: [u8; 8]) {
        let (peer, target) = (self.ends.peer.ip(), self.ends.target.ip());
        let protocol = if target.is_ipv4() { ICMPV4 } else { ICMPV6 };
        let answers = &self.shared.answers;
        answers.unreachable_flow(heard, (peer, target), protocol, header);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.flows_of_echoes.end(self.ends);
    }
}

/// Passes a reply on to the peer, or counts that it does not fit a packet.
pub(super) fn answer(shared: &Shared, Ends { peer, target }: Ends, reply: &[u8], class: u8) {
    let Shared { icmp, answers, .. } = shared;
    let at = ip_header_len(target.ip());
    with_scratch(|scratch| {
        let Some(packet) = scratch.get_mut(..at + reply.len()) else {
            return icmp.drop_datagrams(1);
        };
        packet[at..].copy_from_slice(reply);
        // Otherwise the kernel would not have taken it for a reply.
        if make_echo_reply(packet, (target.ip(), peer.ip()), peer.port()).is_some() {
            set_class(packet, class);
            icmp.moved.count_inbound(reply.len());
            answers.send(packet);
        }
    });
}

/// A socket of this host for echo requests to a target and its replies.
async fn ping_socket(target: SocketAddr) -> io::Result<Datagrams> {
    let (family, protocol) = match target {
        SocketAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
        SocketAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let opened: OwnedFd = socket(family, SockType::Datagram, flags, protocol)?;
    let socket = Datagrams::Kernel(UdpSocket::from_std(opened.into())?);
    socket.connect(target).await?;
    Ok(socket)
}
