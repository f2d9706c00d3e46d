//! The stack's thread: takes packets from the device, and gives connections their turns.

mod answers;
mod inbound;

use std::{io::ErrorKind, sync::Arc, time::Instant};

use rustix::event::Timespec;

use self::answers::Answers;
use super::{device::LONGEST_MESSAGE, flow::Flow, fragments::Fragments, shared::Shared};

/// Messages received before connections have their turns.
const BATCH: usize = 64;
/// Connections whose time it is that have their turn before packets are received.
const MOST_DUE: usize = 256;
pub(super) struct Engine {
    shared: Arc<Shared>,
    buffer: Box<[u8]>,
    fragments: Fragments,
    /// Connections that have received something in this batch.
    touched: Vec<Arc<Flow>>,
    answers: Answers,
}

impl Engine {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            // One more than the longest, which tells longer ones.
            buffer: vec![0; LONGEST_MESSAGE + 1].into(),
            fragments: Fragments::default(),
            touched: Vec::with_capacity(BATCH),
            answers: Answers::new(Instant::now()),
        }
    }

    /// Runs until the stack is dropped, or the tunnel has closed its end.
    pub(super) fn run(mut self) {
        while !self.shared.is_over() && !self.shared.device.is_gone() {
            let is_busy = self.receive();
            self.send();
            let is_behind = self.take_turns();
            if self.shared.device.is_blocked() {
                self.resume();
            }
            if !is_busy && !is_behind {
                self.wait();
            }
        }
        self.shared.end();
        self.close();
    }

    /// Receives a batch; whether there may be more.
    fn receive(&mut self) -> bool {
        for _ in 0..BATCH {
            let mut buffer = std::mem::take(&mut self.buffer);
            let received = self.shared.device.receive(&mut buffer);
            if let Ok(length @ 1..) = received {
                self.take(&buffer, length);
            }
            self.buffer = buffer;
            match received {
                Ok(1..) => {}
                Ok(0) | Err(_) => return false,
            }
        }
        true
    }

    /// Lets those that have received something answer.
    fn send(&mut self) {
        for flow in self.touched.drain(..) {
            let mut inner = flow.lock();
            inner.is_touched = false;
            self.shared.turn(&flow, &mut inner);
        }
    }

    /// Gives those their turn whose time it is; whether there are more.
    fn take_turns(&mut self) -> bool {
        let now = self.shared.now().total_micros();
        for _ in 0..MOST_DUE {
            let due = self.shared.table().pop_due(now);
            let Some(flow) = due else {
                return false;
            };
            let mut inner = flow.lock();
            inner.deadline = None;
            self.shared.turn(&flow, &mut inner);
        }
        true
    }

    /// Sends what the device had no room for.
    fn resume(&mut self) {
        for flow in self.shared.flush() {
            let mut inner = flow.lock();
            inner.is_waiting = false;
            self.shared.turn(&flow, &mut inner);
        }
    }

    fn wait(&mut self) {
        let timeout = self.shared.table().sleep(self.shared.now());
        let timeout = timeout.map(|micros| Timespec {
            tv_sec: micros / 1_000_000,
            tv_nsec: micros % 1_000_000 * 1_000,
        });
        self.shared.device.wait_for_any(timeout);
        self.shared.table().wakes_at = i64::MIN;
    }

    fn close(&mut self) {
        let (listeners, bound) = self.shared.table().close();
        for listening in listeners {
            // All connections fail below.
            drop(listening.close());
        }
        bound.iter().for_each(|bound| bound.close());
        if let Some(arrivals) = self.shared.arrivals.get() {
            drop(arrivals.close());
        }
        let flows = self.shared.table().flows();
        for flow in flows {
            self.shared.fail(&mut flow.lock(), ErrorKind::NetworkDown);
        }
        self.shared.flush();
        self.shared.device.close();
    }
}
