//! Echo requests: those with one identifier from a peer to a target are a flow, with a ping socket outside.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    os::fd::OwnedFd,
    pin::pin,
    sync::Arc,
};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use tokio::{
    net::UdpSocket,
    sync::mpsc,
    task::{JoinSet, yield_now},
    time::sleep,
};

use super::{
    Share, errors,
    gateway::{Ends, Shared, refused},
    scratch::with_scratch,
};
use crate::{
    counters::Refusal,
    dial::reason,
    expiry::{Expiry, RETRY},
    stack::{
        Dropped,
        icmp::{Unreachable, echo_ident, is_intact, make_echo_reply},
        packet::{ICMPV4, ICMPV6, Packet, ip_header_len},
    },
};

/// Replies before others have their turn.
const BATCH: usize = 64;

/// A flow's place among all; dropping it makes it free.
struct Place {
    shared: Arc<Shared>,
    /// The peer's port is the identifier.
    ends: Ends,
    /// ICMP header of the latest request.
    header: [u8; 8],
}

/// Passes an echo request on to its flow, which it begins if there is none.
pub(super) fn receive(
    shared: &Arc<Shared>,
    tasks: &mut JoinSet<()>,
    packet: &Packet<'_>,
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
    let Some(request) = flows.pass_on(ends, packet.payload().into(), &shared.icmp) else {
        return Ok(());
    };
    match shared.admission.admit(ends) {
        Ok((share, _)) => {
            let requests = flows.begin(ends, request);
            let place = Place {
                shared: Arc::clone(shared),
                ends,
                header: [0; 8],
            };
            tasks.spawn(place.serve(requests, share));
        }
        Err(refusal) => {
            refused(&shared.icmp, ends, refusal);
            shared.answers.prohibit(packet);
        }
    }
    Ok(())
}

impl Place {
    async fn serve(mut self, mut requests: mpsc::Receiver<Box<[u8]>>, _share: Share) {
        match ping_socket(self.ends.target).await {
            Ok(outside) => {
                let shared = Arc::clone(&self.shared);
                let _open = shared.icmp.open();
                errors::ask_for(&outside);
                self.exchange(&outside, requests).await;
            }
            Err(error) => {
                let refusal = match error.kind() {
                    // The sysctl net.ipv4.ping_group_range leaves this user out.
                    ErrorKind::PermissionDenied => Refusal::Unsupported,
                    _ => reason(&error),
                };
                refused(&self.shared.icmp, self.ends, refusal);
                if let Ok(request) = requests.try_recv() {
                    self.note(&request);
                }
                self.unreachable(errors::unreachable(refusal).unwrap_or(Unreachable::Prohibited));
                sleep(RETRY).await;
            }
        }
    }

    async fn exchange(&mut self, outside: &UdpSocket, mut requests: mpsc::Receiver<Box<[u8]>>) {
        let expiry = Expiry::new();
        let mut expired = pin!(expiry.reached());
        loop {
            tokio::select! {
                // The table holds a sender, so there is always another.
                Some(request) = requests.recv() => {
                    expiry.touch();
                    self.note(&request);
                    self.send(outside, &request);
                }
                error = errors::ready(outside) => {
                    if let Some(error) = error {
                        self.pass_on(outside, &error);
                    }
                    self.answer_all(outside, &expiry);
                }
                () = &mut expired => return,
            }
            yield_now().await;
        }
    }

    fn answer_all(&self, outside: &UdpSocket, expiry: &Expiry) {
        for _ in 0..BATCH {
            match self.answer(outside) {
                Ok(()) => expiry.answer(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => self.pass_on(outside, &error),
            }
        }
    }

    fn note(&mut self, request: &[u8]) {
        if let Some(header) = request.first_chunk() {
            self.header = *header;
        }
    }

    fn send(&self, outside: &UdpSocket, request: &[u8]) {
        let icmp = &self.shared.icmp;
        match outside.try_send(request) {
            Ok(sent) => icmp.moved.count_outbound(sent),
            Err(error) => {
                icmp.drop_datagrams(1);
                self.pass_on(outside, &error);
            }
        }
    }

    fn answer(&self, outside: &UdpSocket) -> io::Result<()> {
        let Ends { peer, target } = self.ends;
        let Shared { icmp, answers, .. } = &*self.shared;
        let at = ip_header_len(target.ip());
        with_scratch(|scratch| {
            let length = outside.try_recv(&mut scratch[at..])?;
            let packet = &mut scratch[..at + length];
            // Otherwise the kernel would not have taken it for a reply.
            if make_echo_reply(packet, (target.ip(), peer.ip()), peer.port()).is_some() {
                icmp.moved.count_inbound(length);
                answers.send(packet);
            }
            Ok(())
        })
    }

    /// Tells the peer what the network outside says about a request.
    fn pass_on(&self, outside: &UdpSocket, error: &io::Error) {
        errors::forget_details(outside);
        if let Some(why) = errors::unreachable(reason(error)) {
            self.unreachable(why);
        }
    }

    fn unreachable(&self, why: Unreachable) {
        let (peer, target) = (self.ends.peer.ip(), self.ends.target.ip());
        let protocol = if target.is_ipv4() { ICMPV4 } else { ICMPV6 };
        let answers = &self.shared.answers;
        answers.unreachable_flow(why, (peer, target), protocol, self.header);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.flows_of_echoes.end(self.ends);
    }
}

/// A socket of this host for echo requests to a target and its replies.
async fn ping_socket(target: SocketAddr) -> io::Result<UdpSocket> {
    let (family, protocol) = match target {
        SocketAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
        SocketAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let opened: OwnedFd = socket(family, SockType::Datagram, flags, protocol)?;
    let socket = UdpSocket::from_std(opened.into())?;
    socket.connect(target).await?;
    socket.writable().await?;
    Ok(socket)
}
