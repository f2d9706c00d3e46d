//! A bounded pool, last in, first out: the buffer used last is the likeliest to be in the cache.

use std::{
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// Lends at most `limit` items, each created when first needed.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    state: Mutex<State<T>>,
    returned: Condvar,
    room: Notify,
    limit: usize,
    make: fn() -> T,
}

#[derive(Debug)]
struct State<T> {
    free: Vec<Box<T>>,
    made: usize,
    closed: bool,
    /// Whether a thread sleeps in [`Pool::take_blocking`]: notifying nobody would be a system call, too.
    is_awaited: bool,
    /// Whether the last [`Pool::take`] found nothing, so that [`Pool::room`] is to complete.
    wanted: bool,
}

impl<T> Pool<T> {
    pub(crate) fn new(limit: usize, make: fn() -> T) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                free: Vec::with_capacity(limit),
                made: 0,
                closed: false,
                is_awaited: false,
                wanted: false,
            }),
            returned: Condvar::new(),
            room: Notify::new(),
            limit,
            make,
        })
    }

    /// Takes an item; `None` if all are lent, and then [`Pool::room`] completes when one comes back.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Lease<T>> {
        let mut state = self.lock();
        let item = self.pick(&mut state);
        state.wanted = item.is_none();
        item
    }

    /// Takes an item; `None` once the pool is closed. If all are lent, waits until half of them are back:
    /// a wake-up for each would cost more than the work on it.
    pub(crate) fn take_blocking(self: &Arc<Self>) -> Option<Lease<T>> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(item) = self.pick(&mut state) {
                return Some(item);
            }
            state.is_awaited = true;
            state = self
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends every [`Pool::take_blocking`], now and later.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.returned.notify_all();
    }

    /// Completes once an item comes back after [`Pool::take`] found none. Cancel-safe.
    pub(crate) async fn room(&self) {
        self.room.notified().await;
    }

    /// Visits the items that are not lent out.
    pub(crate) fn for_each_free(&self, visit: impl FnMut(&mut T)) {
        self.lock().free.iter_mut().map(Box::as_mut).for_each(visit);
    }

    fn pick(self: &Arc<Self>, state: &mut State<T>) -> Option<Lease<T>> {
        let item = match state.free.pop() {
            Some(item) => item,
            None if state.made < self.limit => {
                state.made += 1;
                Box::new((self.make)())
            }
            None => return None,
        };
        Some(Lease {
            item: ManuallyDrop::new(item),
            pool: Arc::clone(self),
        })
    }

    fn give_back(&self, item: Box<T>) {
        let mut state = self.lock();
        state.free.push(item);
        let wanted = std::mem::take(&mut state.wanted);
        let is_half_back = state.free.len() >= self.limit.div_ceil(2);
        let wakes = is_half_back && std::mem::take(&mut state.is_awaited);
        drop(state);
        if wakes {
            self.returned.notify_all();
        }
        if wanted {
            self.room.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An item on loan from a [`Pool`]; dropping it returns the item.
#[derive(Debug)]
pub(crate) struct Lease<T> {
    item: ManuallyDrop<Box<T>>,
    pool: Arc<Pool<T>>,
}

impl<T> Deref for Lease<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T> DerefMut for Lease<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.item
    }
}

impl<T> Drop for Lease<T> {
    fn drop(&mut self) {
        // SAFETY: the item is taken only here, and nothing accesses it after the drop.
        let item = unsafe { ManuallyDrop::take(&mut self.item) };
        self.pool.give_back(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_items_are_made_than_the_limit() {
        let pool = Pool::new(2, || 0u8);
        let first = pool.take().unwrap();
        let _second = pool.take().unwrap();
        assert!(pool.take().is_none());
        drop(first);
        assert!(pool.take().is_some());
    }

    #[test]
    fn the_item_returned_last_is_taken_first() {
        let pool = Pool::new(2, || 0u8);
        let (mut first, second) = (pool.take().unwrap(), pool.take().unwrap());
        *first = 1;
        drop(second);
        drop(first);
        assert_eq!(*pool.take().unwrap(), 1);
    }

    #[test]
    fn a_blocked_taker_gets_the_returned_item_or_the_news_that_the_pool_closed() {
        let pool = Pool::new(1, || 7u8);
        let held = pool.take().unwrap();
        let taker = std::thread::spawn({
            let pool = Arc::clone(&pool);
            move || {
                (
                    pool.take_blocking().map(|item| *item),
                    pool.close(),
                    pool.take_blocking().is_none(),
                )
            }
        });
        drop(held);
        assert_eq!(taker.join().unwrap(), (Some(7), (), true));
    }

    #[test]
    fn a_blocked_taker_sleeps_until_half_of_the_items_are_back() {
        let pool = Pool::new(4, || 0u8);
        let mut held: Vec<_> = (0..4).filter_map(|_| pool.take()).collect();
        let taker = std::thread::spawn({
            let pool = Arc::clone(&pool);
            move || pool.take_blocking().is_some()
        });
        while !pool.lock().is_awaited {
            std::thread::yield_now();
        }
        held.pop();
        assert!(pool.lock().is_awaited);
        held.pop();
        assert!(taker.join().unwrap());
    }

    #[tokio::test]
    async fn room_is_reported_to_whoever_found_none() {
        let pool = Pool::new(1, || 0u8);
        let held = pool.take();
        assert!(pool.take().is_none());
        drop(held);
        pool.room().await;
        assert!(pool.take().is_some());
    }
}
