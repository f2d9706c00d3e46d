//! The queue's memory: two classes of buffers, recycled last-in-first-out.

/// Bytes of a small buffer: one datagram of an ordinary MTU. A quiet destination costs no more.
pub(crate) const SMALL: usize = 2048;
/// Bytes of a large buffer: the largest UDP payload, so a full GSO batch.
pub(crate) const LARGE: usize = 64 * 1024;

/// Buffers in use and buffers kept for reuse, never more than `limit` bytes together.
#[derive(Debug)]
pub(crate) struct Buffers {
    small: Vec<Box<[u8]>>,
    large: Vec<Box<[u8]>>,
    in_use: usize,
    allocated: usize,
    limit: usize,
}

impl Buffers {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            small: Vec::new(),
            large: Vec::new(),
            in_use: 0,
            allocated: 0,
            limit,
        }
    }

    /// Returns whether a large buffer is available now.
    pub(crate) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Large buffers that are available now.
    pub(crate) fn room(&self) -> usize {
        (self.limit - self.in_use) / LARGE
    }

    /// Takes a buffer of at least `len` bytes; `None` if that would exceed the limit.
    pub(crate) fn take(&mut self, len: usize) -> Option<Box<[u8]>> {
        let class = if len <= SMALL { SMALL } else { LARGE };
        if self.in_use + class > self.limit {
            return None;
        }
        let recycled = match class {
            SMALL => self.small.pop(),
            _ => self.large.pop(),
        };
        let buffer = recycled.unwrap_or_else(|| self.allocate(class));
        self.in_use += class;
        Some(buffer)
    }

    /// Keeps `buffer` for the next [`Self::take`].
    pub(crate) fn give_back(&mut self, buffer: Box<[u8]>) {
        self.in_use -= buffer.len();
        match buffer.len() {
            SMALL => self.small.push(buffer),
            _ => self.large.push(buffer),
        }
    }

    /// Allocates a buffer; first frees unused ones of either class to stay within the limit.
    fn allocate(&mut self, class: usize) -> Box<[u8]> {
        while self.allocated + class > self.limit {
            let Some(unused) = self.small.pop().or_else(|| self.large.pop()) else {
                break;
            };
            self.allocated -= unused.len();
        }
        self.allocated += class;
        vec![0; class].into_boxed_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_below_the_limit_whichever_class_was_used_before() {
        let limit = 4 * LARGE;
        let mut buffers = Buffers::new(limit);
        for len in [100, LARGE, 100, LARGE] {
            let taken: Vec<_> = std::iter::from_fn(|| buffers.take(len)).collect();
            assert_eq!(
                taken.len(),
                limit / if len <= SMALL { SMALL } else { LARGE }
            );
            assert!(buffers.allocated <= limit);
            taken.into_iter().for_each(|b| buffers.give_back(b));
            assert_eq!(buffers.in_use, 0);
        }
    }
}
