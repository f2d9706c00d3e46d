//! Outbound packets that have a counter each and wait to be sealed together.

use arrayvec::ArrayVec;
use convoy_aead::{SLOTS, SealInPlace};
use convoy_noise::Session;
use convoy_turn::HEADER_LEN;
use convoy_types::Destination;

use crate::{
    counters::DropReason,
    messages::{DATA_HEADER, DATA_OVERHEAD},
    mss::MssClamp,
    node::Node,
    relays::{RelayId, Wrapping},
    seams::DatagramSink,
};

/// Bytes of a slot: it holds a data message of any ordinary MTU.
const SLOT_BYTES: usize = 2048;
/// Bytes ahead of each message, for the header of ChannelData; as many as keep the message aligned.
pub(crate) const HEADROOM: usize = 16;

/// The stack buffer in which packets are encrypted, at most 16 at a time.
///
/// INVARIANT: it is empty between two calls of a [`Node`], when a packet is held and when a jumbo packet
/// is sealed, so that no packet overtakes another of its peer.
pub struct Staging {
    memory: [[u8; SLOT_BYTES]; SLOTS],
    staged: ArrayVec<Staged, SLOTS>,
}

/// A packet in its slot.
struct Staged {
    peer: usize,
    /// The local index of the session whose counter it has.
    session: u32,
    counter: u64,
    destination: Destination,
    /// Length of the packet without padding, in bytes.
    packet_len: usize,
    /// Length of the message, in bytes.
    len: usize,
    /// Length of the header of ChannelData ahead of it, in bytes; 0 if the message goes directly.
    header_len: usize,
    /// The TURN server to whose stream it goes.
    stream: Option<RelayId>,
}

/// One packet about to be sealed.
pub(crate) struct Outgoing<'a> {
    pub(crate) peer: usize,
    pub(crate) destination: Destination,
    /// Length of the packet without padding, in bytes.
    pub(crate) packet_len: usize,
    pub(crate) padded: &'a [u8],
    /// The header of ChannelData ahead of the message, if a TURN server relays it.
    pub(crate) relayed: Option<Wrapping>,
}

impl Default for Staging {
    fn default() -> Self {
        Self {
            memory: [[0; SLOT_BYTES]; SLOTS],
            staged: ArrayVec::new(),
        }
    }
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Staging({})", self.staged.len())
    }
}

impl Staging {
    /// Returns whether there is room for another packet, here and later in `sink`.
    pub(crate) fn has_room(&self, sink: &impl DatagramSink) -> bool {
        self.staged.len() < SLOTS.min(sink.room())
    }

    /// Returns whether a packet of `padded` bytes, padding included, fits a slot.
    pub(crate) fn fits(padded: usize) -> bool {
        HEADROOM + padded + DATA_OVERHEAD <= SLOT_BYTES
    }

    /// Copies a packet to the next slot, clamps the copy, and takes a counter of `session` for it.
    ///
    /// The original stays as it is: the next segment of a super-packet takes its header from there.
    pub(crate) fn stage(
        &mut self,
        outgoing: &Outgoing<'_>,
        session: &mut Session,
        clamp: MssClamp,
    ) {
        let Outgoing { peer, padded, .. } = *outgoing;
        let counter = session.reserve();
        let slot = &mut self.memory[self.staged.len()];
        let (mut header_len, mut stream) = (0, None);
        if let Some(wrapping) = outgoing.relayed {
            slot[HEADROOM - HEADER_LEN..HEADROOM].copy_from_slice(&wrapping.header);
            (header_len, stream) = (HEADER_LEN, wrapping.stream);
        }
        let slot = &mut slot[HEADROOM..];
        session.write_header(counter, slot);
        let text = &mut slot[DATA_HEADER..][..padded.len()];
        text.copy_from_slice(padded);
        clamp.apply(text);
        self.staged.push(Staged {
            peer,
            session: session.local,
            counter,
            destination: outgoing.destination,
            packet_len: outgoing.packet_len,
            len: padded.len() + DATA_OVERHEAD,
            header_len,
            stream,
        });
    }
}

impl Node {
    /// Seals all staged packets, and appends them to `sink` in their order.
    pub(crate) fn seal_staged(&mut self, staging: &mut Staging, sink: &mut impl DatagramSink) {
        let Staging { memory, staged } = staging;
        let mut slots = ArrayVec::<_, SLOTS>::new();
        for (staged, slot) in staged.iter().zip(&mut *memory) {
            let session = self.peers[staged.peer].sessions.get(staged.session);
            let text = &mut slot[HEADROOM..][DATA_HEADER..staged.len];
            slots.extend(
                session.and_then(|session| {
                    SealInPlace::new(&session.sealing, staged.counter, text).ok()
                }),
            );
        }
        // INVARIANT: no session ends while packets are staged in it, and each slot has room for a tag.
        let is_sealed = slots.len() == staged.len();
        self.aead.seal_in_place(&mut slots);
        drop(slots);
        for (staged, slot) in staged.drain(..).zip(memory) {
            let datagram = &slot[HEADROOM - staged.header_len..HEADROOM + staged.len];
            let appended = match staged.stream {
                None => sink.append(&staged.destination, datagram),
                Some(relay) => sink.append_frame(relay, datagram),
            };
            if !is_sealed || appended.is_err() {
                self.counters.drops.add(DropReason::OutboundQueueFull, 1);
                continue;
            }
            self.count_sent(staged.peer, staged.packet_len, staged.len);
        }
    }

    /// Counts a packet that was appended to the sink in a datagram of `len` bytes.
    pub(crate) fn count_sent(&mut self, id: usize, packet_len: usize, len: usize) {
        let peer = &mut self.peers[id];
        peer.tx_bytes += len as u64;
        peer.tx_packets += 1;
        self.counters.outbound_bytes += packet_len as u64;
        self.counters.outbound_packets += 1;
    }
}
