//! Packets that begin flows to addresses that are not the stack's own, for a gateway.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{datagrams::send, flow::Flow, listening::Listening, queue::Queue, room::with_room};
use convoy_packet::{
    counters::{Counters, Dropped},
    datagram::{Received, UDP_HEADER},
    packet::{Packet, UDP, set_class, write_ip_header},
    vnet::{DATA_VALID, VnetHeader},
};

/// Bytes of memory that are kept while no packet waits.
const KEPT: usize = 64 << 10;

/// Packets that wait for the gateway, and the listener of what it admits.
#[derive(Debug)]
pub(super) struct Arrivals {
    queue: Mutex<Queue<VnetHeader>>,
    pub(super) admitted: Arc<Listening>,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        let any = SocketAddr::from(([0; 4], 0));
        Self {
            queue: Mutex::new(Queue::new(KEPT, Arc::default())),
            admitted: Arc::new(Listening::new(any)),
        }
    }

    pub(super) fn push(&self, packet: &Packet<'_>) -> Result<(), Dropped> {
        self.queue().push(packet.vnet, packet.bytes)
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
                if let Err(reason) = self.queue().push(checked, &room[..length]) {
                    counters.drop(reason);
                }
            }
        });
        Ok(())
    }

    /// Takes nothing more, because the stack has ended, or the gateway. Returns the connections that nobody has accepted.
    pub(super) fn close(&self) -> VecDeque<Arc<Flow>> {
        self.queue().close();
        self.admitted.close()
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue<VnetHeader>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
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
