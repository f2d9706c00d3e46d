//! A model of the queue: its rules without its buffers, map and copies.

use convoy_gso::{Destination, queue::MAX_SEGMENTS};
use convoy_types::MAX_UDP_PAYLOAD;

/// The queued batches, in the order in which they were opened.
#[derive(Default)]
pub(crate) struct Model(Vec<(Destination, Vec<usize>)>);

impl Model {
    pub(crate) fn append(&mut self, to: Destination, len: usize) {
        let newest = self.0.iter_mut().rev().find(|(d, _)| d.to == to.to);
        match newest {
            Some((destination, lens)) if *destination == to && may_extend(lens, len) => {
                lens.push(len);
            }
            _ => self.0.push((to, vec![len])),
        }
    }

    /// The sends of a flush in which the kernel accepts everything.
    pub(crate) fn sends(self) -> Vec<(Destination, Vec<usize>)> {
        self.0
    }
}

/// The kernel cuts a send into equal segments, of which only the last may be shorter.
fn may_extend(lens: &[usize], len: usize) -> bool {
    let are_equal = lens.iter().all(|other| *other == lens[0]);
    let fits = lens.iter().sum::<usize>() + len <= MAX_UDP_PAYLOAD && lens.len() < MAX_SEGMENTS;
    are_equal && len <= lens[0] && fits
}
