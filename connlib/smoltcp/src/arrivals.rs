//! Packets that begin flows to addresses that are not the stack's own, for a gateway.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use super::{
    datagrams::send,
    flow::Flow,
    listening::Listening,
    queue::{MOST_BYTES, MOST_MESSAGES, Queue},
    room::with_room,
};
use convoy_network::peers::Peers;
use convoy_packet::{
    counters::{Counters, Dropped},
    datagram::{Received, UDP_HEADER},
    packet::{Packet, UDP, set_class, write_ip_header},
    vnet::{DATA_VALID, VnetHeader},
};

/// Bytes of memory that are kept while no packet waits.
const KEPT: usize = 64 << 10;
/// How many times as much as is left to others the packets of a peer may take.
const SHARE: usize = 4;

/// Packets that wait for the gateway, and the listener of what it admits.
#[derive(Debug)]
pub(super) struct Arrivals {
    waiting: Mutex<Waiting>,
    peers: Arc<Peers>,
    pub(super) admitted: Arc<Listening>,
}

/// Packets with their virtio headers and their peers.
#[derive(Debug)]
struct Waiting {
    queue: Queue<(VnetHeader, Option<u32>)>,
    of_peers: HashMap<Option<u32>, Share>,
}

/// Waiting packets of a peer.
#[derive(Debug, Default)]
struct Share {
    packets: usize,
    bytes: usize,
}

impl Arrivals {
    pub(super) fn new(peers: Arc<Peers>) -> Self {
        let any = SocketAddr::from(([0; 4], 0));
        Self {
            waiting: Mutex::new(Waiting {
                queue: Queue::new(KEPT, Arc::default()),
                of_peers: HashMap::new(),
            }),
            peers,
            admitted: Arc::new(Listening::new(any)),
        }
    }

    pub(super) fn push(&self, packet: &Packet<'_>) -> Result<(), Dropped> {
        self.push_from(packet.source, packet.vnet, packet.bytes)
    }

    fn push_from(&self, from: IpAddr, vnet: VnetHeader, packet: &[u8]) -> Result<(), Dropped> {
        let peer = self.peers.of(from);
        self.waiting().push(peer, vnet, packet)
    }

    /// The next packet; `WouldBlock` if there is none.
    pub(super) fn pop(&self, buffer: &mut [u8]) -> io::Result<(usize, VnetHeader)> {
        self.waiting().pop(buffer)
    }

    /// Waits for a packet, or the end; returns whether it is the end.
    pub(super) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<bool> {
        let mut waiting = self.waiting();
        let ready = waiting.queue.poll_ready(context);
        ready.map(|()| waiting.queue.is_closed())
    }

    /// Adds a packet with datagrams, each in a packet of its own; counts those that there is no room for.
    pub(super) fn push_datagrams(
        &self,
        packet: &Packet<'_>,
        received: &Received<'_>,
        counters: &Counters,
    ) -> Result<(), Dropped> {
        let Some(each) = packet.vnet.datagram_len() else {
            return self.push(packet);
        };
        let checked = VnetHeader {
            flags: DATA_VALID,
            ..VnetHeader::default()
        };
        with_room(|room| {
            for datagram in received.payload.chunks(each) {
                let length = write_datagram(room, received, datagram);
                let pushed = self.push_from(packet.source, checked, &room[..length]);
                if let Err(reason) = pushed {
                    counters.drop(reason);
                }
            }
        });
        Ok(())
    }

    /// Takes nothing more, because the stack has ended, or the gateway. Returns the connections that nobody has accepted.
    pub(super) fn close(&self) -> VecDeque<Arc<Flow>> {
        self.waiting().queue.close();
        self.admitted.close()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Adds a packet, unless its peer would leave too little to others.
    fn push(&mut self, peer: Option<u32>, vnet: VnetHeader, packet: &[u8]) -> Result<(), Dropped> {
        let (packets, bytes) = self.queue.held();
        let own = self.of_peers.entry(peer).or_default();
        let is_too_much = own.packets >= SHARE * (MOST_MESSAGES - packets)
            || own.bytes + packet.len() > SHARE * (MOST_BYTES - bytes);
        if is_too_much {
            return Err(Dropped::QueueFull);
        }
        self.queue.push((vnet, peer), packet)?;
        own.packets += 1;
        own.bytes += packet.len();
        Ok(())
    }

    fn pop(&mut self, buffer: &mut [u8]) -> io::Result<(usize, VnetHeader)> {
        let (_, before) = self.queue.held();
        let (length, (vnet, peer)) = self.queue.pop(buffer)?;
        let (packets, after) = self.queue.held();
        if packets == 0 {
            self.of_peers.clear();
        } else if let Some(own) = self.of_peers.get_mut(&peer) {
            own.packets -= 1;
            own.bytes -= before - after;
        }
        Ok((length, vnet))
    }
}

/// Writes a packet that carries a verified datagram; returns its length.
fn write_datagram(into: &mut [u8], received: &Received<'_>, datagram: &[u8]) -> usize {
    let Received {
        from, to, class, ..
    } = received;
    let length = UDP_HEADER + datagram.len();
    let at = write_ip_header(into, from.ip(), to.ip(), UDP, length);
    set_class(into, *class);
    send::write_udp_header(&mut into[at..at + length], *from, *to, 0);
    into[at + UDP_HEADER..at + length].copy_from_slice(datagram);
    at + length
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOODING: [u8; 4] = [10, 0, 0, 1];
    const OTHER: [u8; 4] = [10, 0, 0, 2];

    fn arrivals() -> Arrivals {
        let prefix = |(peer, address): (u32, [u8; 4])| {
            let prefix = convoy_types::Prefix::network_of(address.into(), 32);
            (prefix.unwrap(), peer)
        };
        let peers = [(1, FLOODING), (2, OTHER)].map(prefix);
        Arrivals::new(Arc::new(Peers::new(peers)))
    }

    fn push(arrivals: &Arrivals, from: [u8; 4], length: usize) -> Result<(), Dropped> {
        arrivals.push_from(from.into(), VnetHeader::default(), &vec![0; length])
    }

    #[test]
    fn packets_of_a_peer_that_floods_leave_room_for_those_of_others() {
        for length in [40, 1_400] {
            let arrivals = arrivals();
            while push(&arrivals, FLOODING, length).is_ok() {}
            for _ in 0..20 {
                assert_eq!(push(&arrivals, OTHER, length), Ok(()), "{length}");
            }
            assert_eq!(push(&arrivals, FLOODING, length), Err(Dropped::QueueFull));
            assert!(arrivals.pop(&mut [0; 2_000]).is_ok());
            while push(&arrivals, FLOODING, length).is_ok() {}
            while arrivals.pop(&mut [0; 2_000]).is_ok() {}
            assert!(arrivals.waiting().of_peers.is_empty());
        }
    }

    #[test]
    fn the_longest_packet_has_room_while_nothing_waits() {
        assert_eq!(push(&arrivals(), FLOODING, 65_535), Ok(()));
    }
}
