//! The smoltcp engine.

use std::{
    future::ready,
    io,
    task::{Context, Poll},
};

use super::inside::Inside;
use crate::ends::Ends;
use convoy_network::{Answer, Datagrams};
use convoy_packet::{counters::Counters, vnet::VnetHeader};
use convoy_smoltcp::inlet::Inlet;

impl Inside for Inlet {
    fn counters(&self) -> &Counters {
        self.counters()
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_readable(context)
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<(VnetHeader, usize)> {
        self.read(buffer)
    }

    fn is_behind_router(&self) -> bool {
        false
    }

    fn write(&self, packet: &mut [u8]) {
        self.write(packet);
    }

    fn admit(&self, syn: &[u8]) {
        if let Err(reason) = self.admit(syn) {
            self.counters().drop(reason);
        }
    }

    fn datagrams(&self, Ends { peer, target }: Ends) -> Answer<'_, Datagrams> {
        Box::pin(ready(self.datagrams(peer, target)))
    }
}
