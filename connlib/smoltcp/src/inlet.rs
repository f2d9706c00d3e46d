//! The gateway's end of a stack: takes what begins flows to addresses that are not the stack's own, and answers it.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

use super::{
    arrivals::Arrivals,
    datagrams::{StackDatagrams, send},
    listener::StackListener,
    room::with_room,
    shared::Shared,
    table::Table,
};
use convoy_network::{Datagrams, Listener};
use convoy_packet::{
    counters::{Counters, Dropped},
    packet::Packet,
    segment::{Segment, Tuple},
    vnet::VnetHeader,
};

/// The gateway's end; dropping it closes it.
#[derive(Debug)]
pub struct Inlet {
    shared: Arc<Shared>,
    arrivals: Arc<Arrivals>,
}

impl Inlet {
    /// Takes the inlet, of which a stack has only one.
    pub(super) fn open(shared: &Arc<Shared>) -> Option<Self> {
        let arrivals = Arc::new(Arrivals::new(Arc::clone(&shared.settings.peers)));
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
        let ready = self.arrivals.poll_ready(context);
        ready.map(|is_closed| match is_closed {
            true => Err(ErrorKind::NetworkDown.into()),
            false => Ok(()),
        })
    }

    /// The next packet; `WouldBlock` if there is none.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<(VnetHeader, usize)> {
        let (length, vnet) = self.arrivals.pop(buffer)?;
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
        self.shared.abandon(self.arrivals.close());
    }
}
