use std::time::Instant;

use convoy_packet::{
    counters::Counters,
    packet::{Fragment, Packet},
};
use convoy_smoltcp::fragments::Fragments;

/// Puts packets together from their fragments, as many as [`Fragments`] keeps.
#[derive(Debug)]
pub(super) struct Reassembly {
    begun: Instant,
    fragments: Fragments,
}

impl Default for Reassembly {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            fragments: Fragments::default(),
        }
    }
}

impl Reassembly {
    /// Adds a fragment of a peer; returns the packet that it completes.
    pub(super) fn add(
        &mut self,
        packet: &Packet<'_>,
        fragment: Fragment,
        peer: u32,
        counters: &Counters,
    ) -> Option<Vec<u8>> {
        let now = self.begun.elapsed().as_micros() as i64;
        self.fragments.add(packet, fragment, peer, now, counters)
    }
}
