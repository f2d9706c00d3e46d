//! The replay window: the counters that a session has received.
//!
//! It is a ring of blocks, as RFC 6479 describes. The window moves by whole blocks, so that a block is
//! cleared at once instead of bit by bit. It is as wide as the reference's.

use convoy_types::counters::DropReason;

const BLOCK_BITS: u64 = u64::BITS as u64;
const BLOCKS: u64 = 128;

/// How far a counter may be behind the newest: all blocks of the ring but one.
const WIDTH: u64 = (BLOCKS - 1) * BLOCK_BITS;

/// The counters received so far.
#[derive(Debug)]
pub struct ReplayWindow {
    newest: u64,
    blocks: [u64; BLOCKS as usize],
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self {
            newest: 0,
            blocks: [0; BLOCKS as usize],
        }
    }
}

impl ReplayWindow {
    /// Returns whether a message with this counter may be opened; the counter is not authentic yet.
    pub fn check(&self, counter: u64) -> Result<(), DropReason> {
        if counter > self.newest {
            return Ok(());
        }
        if self.newest - counter > WIDTH {
            return Err(DropReason::InboundBehindWindow);
        }
        let (block, bit) = place(counter);
        match self.blocks[block] & bit {
            0 => Ok(()),
            _ => Err(DropReason::InboundReplay),
        }
    }

    /// Marks the counter of an authentic message as received, after checking it again.
    pub fn mark(&mut self, counter: u64) -> Result<(), DropReason> {
        self.check(counter)?;
        if counter > self.newest {
            let last = self.newest / BLOCK_BITS;
            let passed = (counter / BLOCK_BITS - last).min(BLOCKS);
            for block in last + 1..=last + passed {
                self.blocks[(block % BLOCKS) as usize] = 0;
            }
            self.newest = counter;
        }
        let (block, bit) = place(counter);
        self.blocks[block] |= bit;
        Ok(())
    }
}

/// The block of a counter, and its bit there.
fn place(counter: u64) -> (usize, u64) {
    let block = counter / BLOCK_BITS % BLOCKS;
    (block as usize, 1 << (counter % BLOCK_BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// The obvious implementation.
    #[derive(Default)]
    struct Model {
        newest: u64,
        seen: HashSet<u64>,
    }

    impl Model {
        fn mark(&mut self, counter: u64) -> Result<(), DropReason> {
            if self.newest.saturating_sub(counter) > WIDTH {
                return Err(DropReason::InboundBehindWindow);
            }
            if !self.seen.insert(counter) {
                return Err(DropReason::InboundReplay);
            }
            self.newest = self.newest.max(counter);
            Ok(())
        }
    }

    /// Steps from one counter to the next: mostly small, sometimes around the width, rarely huge.
    fn step() -> impl Strategy<Value = i64> {
        let width = WIDTH as i64;
        prop_oneof![
            4 => -70..=70_i64,
            2 => -width - 70..=width + 70,
            1 => -3 * width..=3 * width,
            1 => 0..=1_i64 << 40,
        ]
    }

    proptest! {
        #[test]
        fn the_window_agrees_with_a_set(
            start in prop_oneof![Just(0), 0..100_000_u64, u64::MAX - 1_000_000..u64::MAX],
            steps in proptest::collection::vec(step(), 1..400),
        ) {
            let (mut window, mut model) = (ReplayWindow::default(), Model::default());
            let mut counter = start;
            for step in steps {
                let checked = window.check(counter);
                let marked = model.mark(counter);
                prop_assert_eq!(checked, marked, "checked {}", counter);
                prop_assert_eq!(window.mark(counter), marked, "marked {}", counter);
                prop_assert_eq!(window.mark(counter).is_err(), true, "marked twice: {}", counter);
                counter = counter.saturating_add_signed(step);
            }
        }
    }

    #[test]
    fn the_whole_width_may_be_reordered_but_not_repeated() {
        for newest in 2 * WIDTH..2 * WIDTH + 2 * BLOCK_BITS {
            let mut window = ReplayWindow::default();
            assert_eq!(window.mark(newest), Ok(()));
            let behind = newest - WIDTH - 1;
            assert_eq!(window.mark(behind), Err(DropReason::InboundBehindWindow));
            for late in newest - WIDTH..newest {
                assert_eq!(window.mark(late), Ok(()), "{late} after {newest}");
            }
            for again in newest - WIDTH..=newest {
                assert_eq!(window.check(again), Err(DropReason::InboundReplay));
            }
        }
    }

    #[test]
    fn a_check_alone_changes_nothing() {
        let mut window = ReplayWindow::default();
        assert_eq!(window.check(1_000_000), Ok(()));
        assert_eq!(window.mark(0), Ok(()));
    }
}
