//! Subscribers of the events, each with a bounded queue.

use tokio::sync::mpsc;

use super::model::{Event, What};

/// The most events queued for one subscriber. A slow subscriber misses later events; the next one that it gets says how
/// many.
pub const QUEUE: usize = 256;

/// All subscribers; `control` bounds their number.
#[derive(Debug, Default)]
pub(super) struct Subscribers(Vec<Subscriber>);

#[derive(Debug)]
struct Subscriber {
    queue: mpsc::Sender<Event>,
    /// Events lost since the last that had room.
    lost: u64,
}

impl Subscribers {
    pub(super) fn add(&mut self, queue: mpsc::Sender<Event>) {
        self.0.push(Subscriber { queue, lost: 0 });
    }

    /// Forgets subscribers that have left.
    pub(super) fn forget_closed(&mut self) {
        self.0.retain(|subscriber| !subscriber.queue.is_closed());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn publish(&mut self, event: &Event) {
        self.0.iter_mut().for_each(|it| it.publish(event));
    }
}

impl Subscriber {
    fn publish(&mut self, event: &Event) {
        if self.lost > 0 {
            let count = self.lost;
            let notice = Event::now(&event.interface, What::EventsLost { count });
            if self.queue.try_send(notice).is_ok() {
                self.lost = 0;
            }
        }
        if self.lost > 0 || self.queue.try_send(event.clone()).is_err() {
            self.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscriber_that_does_not_read_is_told_how_much_it_has_lost() {
        let (sender, mut receiver) = mpsc::channel(3);
        let mut subscribers = Subscribers::default();
        subscribers.add(sender);
        let mut publish = |seconds| {
            let what = What::Paused { seconds };
            subscribers.publish(&Event::now("wg0", what));
        };
        (0..5).for_each(&mut publish);
        let mut next = || receiver.try_recv().ok().map(|event| event.what);
        assert_eq!(next(), Some(What::Paused { seconds: 0 }));
        // There is room for the notice, but not for the event that brings it.
        publish(5);
        assert_eq!(next(), Some(What::Paused { seconds: 1 }));
        assert_eq!(next(), Some(What::Paused { seconds: 2 }));
        assert_eq!(next(), Some(What::EventsLost { count: 2 }));
        assert_eq!(next(), None);
        publish(6);
        assert_eq!(next(), Some(What::EventsLost { count: 1 }));
        assert_eq!(next(), Some(What::Paused { seconds: 6 }));
    }

    #[test]
    fn a_subscriber_that_leaves_is_forgotten() {
        let (sender, receiver) = mpsc::channel(3);
        let mut subscribers = Subscribers::default();
        subscribers.add(sender);
        subscribers.forget_closed();
        assert!(!subscribers.is_empty());
        drop(receiver);
        subscribers.forget_closed();
        assert!(subscribers.is_empty());
    }
}
