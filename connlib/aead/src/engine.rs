//! Runs a batch: chooses the implementation by cost, fills the lanes, distributes the tags.

#[cfg(target_arch = "x86_64")]
use crate::lanes::Avx512;
use crate::{
    SLOTS,
    dispatch::Costs,
    kernel::crypt,
    lanes::{Array, Lanes},
    slot::Slot,
    wipe,
};

/// The implementation that computes a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Engine {
    Ring,
    Array(Array),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Engine {
    /// Seals or opens all slots. Bit n of the result is set if slot n is authentic.
    pub(crate) fn process<S: Slot>(self, costs: Costs, slots: &mut [S]) -> u16 {
        assert!(slots.len() <= SLOTS, "a batch has at most {SLOTS} slots");
        slots.iter_mut().for_each(Slot::begin);
        let lens = slots.iter().map(Slot::len);
        let batched = match self {
            Self::Ring => None,
            _ => costs.longest_in_batch(lens),
        };
        let Some(longest) = batched else {
            return by_ring(slots.iter_mut().enumerate());
        };
        let in_batch = match self {
            Self::Ring => 0,
            Self::Array(lanes) => by_batch(lanes, slots, longest),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(lanes) => by_batch(lanes, slots, longest),
        };
        let others = slots.iter_mut().enumerate();
        in_batch | by_ring(others.filter(|(_, slot)| slot.len() > longest))
    }
}

fn by_ring<'a, S: Slot + 'a>(slots: impl Iterator<Item = (usize, &'a mut S)>) -> u16 {
    slots.fold(0, |authentic, (n, slot)| {
        authentic | u16::from(slot.by_ring()) << n
    })
}

/// Processes the slots whose texts are no longer than `longest`, in bytes.
fn by_batch<L: Lanes, S: Slot>(lanes: L, slots: &mut [S], longest: usize) -> u16 {
    wipe::leave_no_trace::<{ wipe::BATCH }, _>(|| {
        let tags = crypt(lanes, in_batch(slots, longest).map(|(_, slot)| slot.lane()));
        let finished = in_batch(slots, longest).zip(tags);
        let authentic = finished.fold(0, |authentic, ((n, slot), tag)| {
            authentic | u16::from(slot.finish(tag)) << n
        });
        lanes.clear_registers();
        authentic
    })
}

fn in_batch<S: Slot>(slots: &mut [S], longest: usize) -> impl Iterator<Item = (usize, &mut S)> {
    let slots = slots.iter_mut().enumerate();
    slots.filter(move |(_, slot)| slot.len() <= longest)
}
