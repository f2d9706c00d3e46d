//! The queue that carries batches from the event loop to the writer thread.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

/// A bounded queue. Adding items and waking the receiver are separate steps, so that several items cost
/// one wake-up.
#[derive(Debug)]
pub(crate) struct HandOver<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    limit: usize,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    /// Whether the receiver sleeps: notifying nobody would still be a system call.
    is_awaited: bool,
    closed: bool,
}

impl<T> HandOver<T> {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                items: VecDeque::with_capacity(limit),
                is_awaited: false,
                closed: false,
            }),
            changed: Condvar::new(),
            limit,
        })
    }

    /// Appends an item. A receiver that is awake may take it at once; one that sleeps stays asleep until
    /// [`HandOver::wake`].
    ///
    /// # Errors
    /// The item itself if the queue is full.
    pub(crate) fn put(&self, item: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.items.len() == self.limit {
            return Err(item);
        }
        state.items.push_back(item);
        Ok(())
    }

    /// Wakes the receiver if it sleeps.
    pub(crate) fn wake(&self) {
        let is_awaited = std::mem::take(&mut self.lock().is_awaited);
        if is_awaited {
            self.changed.notify_one();
        }
    }

    /// Takes the oldest item, waiting for one if need be; `None` once the queue is closed and empty.
    pub(crate) fn take_blocking(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state.is_awaited = true;
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Closes the queue: once it is empty, [`HandOver::take_blocking`] returns `None`.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    #[test]
    fn items_come_out_in_order_and_a_full_queue_gives_one_back() {
        let queue = HandOver::new(2);
        assert_eq!((queue.put(1), queue.put(2)), (Ok(()), Ok(())));
        assert_eq!(queue.put(3), Err(3));
        queue.close();
        let taken = [(); 3].map(|()| queue.take_blocking());
        assert_eq!(taken, [Some(1), Some(2), None]);
    }

    #[test]
    fn whoever_sleeps_is_woken_once_for_several_items() {
        let queue = HandOver::new(3);
        let taker = thread::spawn({
            let queue = Arc::clone(&queue);
            move || [(); 3].map(|()| queue.take_blocking())
        });
        while !queue.lock().is_awaited {
            thread::sleep(Duration::from_millis(1));
        }
        (0..3).for_each(|item| queue.put(item).unwrap());
        assert!(queue.lock().is_awaited);
        queue.wake();
        assert_eq!(taker.join().unwrap(), [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn closing_ends_a_wait() {
        let queue = HandOver::<u8>::new(1);
        let taker = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.take_blocking()
        });
        queue.close();
        assert_eq!(taker.join().unwrap(), None);
    }
}
