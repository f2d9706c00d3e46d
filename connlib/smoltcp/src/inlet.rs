//! Beginnings of flows to addresses that are not the stack's own, and a gateway's answers to them.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use super::{
    datagrams::{StackDatagrams, send},
    flow::with_room,
    listener::{Listening, StackListener},
    queue::Queue,
    shared::Shared,
    table::Table,
};
use convoy_network::{Datagrams, Listener};
use convoy_packet::{
    counters::{Counters, Dropped},
    datagram::{Received, UDP_HEADER},
    packet::{Packet, UDP, write_ip_header},
    segment::{Segment, Tuple},
    vnet::{DATA_VALID, VnetHeader},
};

/// Bytes of memory that are kept while no packet waits.
const KEPT: usize = 64 << 10;

/// Packets that wait for the gateway, and the listener of what it admits.
#[derive(Debug)]
pub(super) struct Arrivals {
    queue: Mutex<Queue<VnetHeader>>,
    admitted: Arc<Listening>,
}

impl Arrivals {
    fn new(admitted: Arc<Listening>) -> Self {
        Self {
            queue: Mutex::new(Queue::new(KEPT, Arc::default())),
            admitted,
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

    /// The stack has ended, or the gateway.
    pub(super) fn close(&self) {
        self.queue().close();
        drop(self.admitted.close());
    }

    fn queue(&self) -> MutexGuard<'_, Queue<VnetHeader>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a packet that carries a verified datagram; returns its length.
fn write_datagram(into: &mut [u8], received: &Received<'_>, datagram: &[u8]) -> usize {
    let Received { from, to, .. } = received;
    let length = UDP_HEADER + datagram.len();
    let at = write_ip_header(into, from.ip(), to.ip(), UDP, length);
    send::write_udp_header(&mut into[at..at + length], *from, *to, 0);
    into[at + UDP_HEADER..at + length].copy_from_slice(datagram);
    at + length
}

/// The gateway's end; dropping it closes it.
#[derive(Debug)]
pub struct Inlet {
    shared: Arc<Shared>,
    arrivals: Arc<Arrivals>,
}

impl Inlet {
    /// Takes the inlet, of which a stack has only one.
    pub(super) fn open(shared: &Arc<Shared>) -> Option<Self> {
        let any = SocketAddr::from(([0; 4], 0));
        let arrivals = Arc::new(Arrivals::new(Arc::new(Listening::new(any))));
        shared.arrivals.set(Arc::clone(&arrivals)).ok()?;
        Some(Self {
            shared: Arc::clone(shared),
            arrivals,
        })
    }

    /// Accepts the connections that were admitted.
    pub fn listener(&self) -> Listener {
        Listener::Other(Box::new(StackListener {
            shared: Arc::clone(&self.shared),
            listening: Arc::clone(&self.arrivals.admitted),
        }))
    }

    /// Returns the counters of the stack.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Waits until there is a packet; fails once nothing follows.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut queue = self.arrivals.queue();
        let ready = queue.poll_ready(context);
        ready.map(|()| match queue.is_closed() {
            true => Err(ErrorKind::NetworkDown.into()),
            false => Ok(()),
        })
    }

    /// The next packet; `WouldBlock` if there is none.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<(VnetHeader, usize)> {
        let (length, vnet) = self.arrivals.queue().pop(buffer)?;
        Ok((vnet, length))
    }

    /// Sends a packet, in fragments if it is longer than the MTU, or counts that it could not be.
    pub fn write(&self, packet: &[u8]) {
        // A failure was counted.
        let _ = with_room(|room| send::packet(&self.shared, packet, room));
    }

    /// Accepts the connection that a SYN begins.
    pub fn admit(&self, syn: &[u8]) -> Result<(), Dropped> {
        let shared = &self.shared;
        let packet = Packet::parse(VnetHeader::default(), syn)?;
        let segment = Segment::parse(packet.payload()).ok_or(Dropped::Malformed)?;
        let tuple = Tuple {
            local: (packet.destination, segment.destination_port).into(),
            remote: (packet.source, segment.source_port).into(),
        };
        let found = shared.table().find(&tuple);
        let flow = match found {
            // It was sent again.
            Some(flow) => {
                flow.lock().receive(shared, &packet, &segment)?;
                flow
            }
            None => {
                let opener = Arc::clone(&self.arrivals.admitted);
                let insert = Table::insert_admitted;
                shared.open((&packet, &segment), tuple, opener, insert)?.0
            }
        };
        shared.turn(&flow, &mut flow.lock());
        Ok(())
    }

    /// A socket for a flow's datagrams, with the target's address, as if the target were here.
    pub fn datagrams(&self, peer: SocketAddr, target: SocketAddr) -> io::Result<Datagrams> {
        let tuple = Tuple {
            local: target,
            remote: peer,
        };
        let bound = self.shared.table().bind_flow(tuple)?;
        let shared = Arc::clone(&self.shared);
        Ok(Datagrams::Other(Box::new(StackDatagrams { shared, bound })))
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        self.arrivals.close();
    }
}
