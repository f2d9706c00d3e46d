//! Numbered packets from one friend to the other, each of them answered, and a tally of those lost and overtaken.

use std::{
    fmt,
    net::{SocketAddr, UdpSocket},
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use convoy_lab::eventually;

use super::friend::Friend;
use crate::scene::DEADLINE;

const PORT: u16 = 7_200;
/// Between two numbers.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a thread waits for a packet before it looks whether to end.
const LOOK: Duration = Duration::from_millis(20);
/// Time for the last packets to arrive.
const LATE: Duration = Duration::from_secs(3);

/// Stands for the end, behind all numbers.
const END: u32 = u32::MAX;

/// Numbers under way: the requests, and the answers, which the other end numbers by itself.
pub(crate) struct Numbers {
    ways: [Arc<Way>; 2],
    are_over: Arc<AtomicBool>,
    sender: JoinHandle<()>,
    receivers: [JoinHandle<()>; 2],
}

/// One direction.
#[derive(Default)]
struct Way {
    sent: AtomicU32,
    /// In the order of arrival.
    arrived: Mutex<Vec<u32>>,
}

/// A moment: by direction, the first number that had not arrived, and the first that had not been sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    due: [u32; 2],
    next: [u32; 2],
}

/// Numbers of one direction: how many were sent, and which arrived, in that order.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    sent: u32,
    arrived: Vec<u32>,
}

/// The tallies there and back.
#[derive(Debug)]
pub(crate) struct Tallies(pub(crate) [Tally; 2]);

impl Numbers {
    /// Starts to send from one friend to the other.
    pub(crate) fn start(from: &Friend, to: &Friend) -> Self {
        let bind = |friend: &Friend| {
            let at = SocketAddr::new(friend.inside.parse().unwrap(), PORT);
            let socket = friend.place.run(|| UdpSocket::bind(at)).unwrap().unwrap();
            socket.set_read_timeout(Some(LOOK)).unwrap();
            (socket, at)
        };
        let ((near, back_to), (far, there_to)) = (bind(from), bind(to));
        let ways: [Arc<Way>; 2] = Default::default();
        let are_over = Arc::<AtomicBool>::default();
        let [there, back] = ways.clone();
        let (flag, socket) = (Arc::clone(&are_over), near.try_clone().unwrap());
        let sender = thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                there.send(&socket, there_to);
                thread::sleep(PAUSE);
            }
        });
        let answerer = {
            let there = Arc::clone(&ways[0]);
            thread::spawn(move || {
                while let Some(is_new) = there.receive(&far) {
                    if is_new {
                        back.send(&far, back_to);
                    }
                }
            })
        };
        let back = Arc::clone(&ways[1]);
        let receiver = thread::spawn(move || while back.receive(&near).is_some() {});
        Self {
            ways,
            are_over,
            sender,
            receivers: [answerer, receiver],
        }
    }

    /// Returns the present moment.
    pub(crate) fn mark(&self) -> Mark {
        let due = |way: &Arc<Way>| way.arrived().iter().max().map_or(0, |it| it + 1);
        // Numbers arrive meanwhile: look at what has arrived first.
        let due = self.ways.each_ref().map(due);
        let next = self.ways.each_ref().map(|way| way.sent());
        Mark { due, next }
    }

    /// Waits until this many have been sent.
    pub(crate) fn reach(&self, count: u32) {
        let are_sent = || (self.ways[0].sent() >= count).then_some(());
        assert!(eventually(12 * DEADLINE, are_sent).is_some());
    }

    /// Waits until numbers arrive, in both directions, that were sent from now on.
    pub(crate) fn go_on(&self) {
        let now = self.mark();
        let arrive = || {
            let later = self.mark();
            let is_later = |n: usize| later.due[n] > now.next[n];
            (is_later(0) && is_later(1)).then_some(())
        };
        let found = eventually(3 * DEADLINE, arrive);
        assert!(found.is_some(), "nothing arrives after {now:?}");
    }

    /// Sends no more, waits for the last ones, and prints their tallies under this name.
    pub(crate) fn end(self, what: &str) -> Tallies {
        self.are_over.store(true, Ordering::Relaxed);
        self.sender.join().unwrap();
        let have_arrived = || {
            let is_all = |way: &Arc<Way>| way.arrived().len() >= way.sent() as usize;
            self.ways.iter().all(is_all).then_some(())
        };
        // A lost number never arrives.
        let _ = eventually(LATE, have_arrived);
        let tallies = Tallies(self.ways.each_ref().map(|way| Tally {
            sent: way.sent(),
            arrived: way.arrived().clone(),
        }));
        for way in &self.ways {
            way.arrived().push(END);
        }
        for receiver in self.receivers {
            receiver.join().unwrap();
        }
        println!("{what}: {tallies}");
        tallies
    }
}

impl Way {
    fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }

    fn arrived(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.arrived.lock().unwrap()
    }

    fn send(&self, socket: &UdpSocket, to: SocketAddr) {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        // A number that cannot be sent is lost like any other.
        let _ = socket.send_to(&number.to_be_bytes(), to);
    }

    /// Waits a while for a number; returns whether there was one, or `None` at the end.
    fn receive(&self, socket: &UdpSocket) -> Option<bool> {
        let mut number = [0; 4];
        let received = socket.recv(&mut number);
        let mut arrived = self.arrived();
        if arrived.last() == Some(&END) {
            return None;
        }
        let is_new = matches!(received, Ok(4));
        if is_new {
            arrived.push(u32::from_be_bytes(number));
        }
        Some(is_new)
    }
}

impl Tallies {
    /// Requires that all numbers have arrived.
    pub(crate) fn lose_nothing(&self) -> &Self {
        for tally in &self.0 {
            assert_eq!(tally.lost(), [0; 0], "lost: {self}");
        }
        self
    }

    /// Requires that all that were lost were under way after the first of these moments and before the second.
    pub(crate) fn lose_only_between(&self, from: Mark, to: Mark) -> &Self {
        for (n, tally) in self.0.iter().enumerate() {
            let window: Range<u32> = from.due[n]..to.next[n];
            let mut lost = tally.lost().into_iter();
            let other = lost.find(|number| !window.contains(number));
            assert_eq!(other, None, "lost outside of {window:?}: {self}");
        }
        self
    }

    /// Requires that each number arrived once, and [in order on each path](Tally::is_in_order_on_each_path).
    pub(crate) fn keep_order_on_each_path(&self) {
        for tally in &self.0 {
            let overtaken = tally.overtaken();
            let is_in_order = tally.is_in_order_on_each_path();
            assert!(is_in_order, "doubled or overtaken: {overtaken:?}: {self}");
        }
    }
}

impl Tally {
    /// Numbers that never arrived.
    fn lost(&self) -> Vec<u32> {
        let mut has_arrived = vec![false; self.sent as usize];
        for number in &self.arrived {
            has_arrived[*number as usize] = true;
        }
        let all = (0..self.sent).zip(has_arrived);
        all.filter_map(|(number, it)| (!it).then_some(number))
            .collect()
    }

    /// Returns whether each number arrived once and, but for one switch to a faster path, in order: only what the
    /// former path still carried was overtaken, by nothing but what the new one carries.
    fn is_in_order_on_each_path(&self) -> bool {
        let (overtaken, mut all) = (self.overtaken(), self.arrived.clone());
        all.sort_unstable();
        let is_once = all.is_sorted_by(|one, next| one < next);
        let first = self.first_that_overtook();
        is_once && overtaken.is_sorted() && overtaken.iter().all(|it| Some(*it) < first)
    }

    /// Numbers that arrived after a greater one.
    fn overtaken(&self) -> Vec<u32> {
        let mut greatest = 0;
        let mut late = self.arrived.clone();
        late.retain(|number| {
            let is_late = *number < greatest;
            greatest = greatest.max(*number);
            is_late
        });
        late
    }

    /// The smallest number that arrived before a smaller one.
    fn first_that_overtook(&self) -> Option<u32> {
        let mut smallest = u32::MAX;
        let mut first = None;
        for number in self.arrived.iter().rev() {
            if *number > smallest {
                first = Some(first.map_or(*number, |it: u32| it.min(*number)));
            }
            smallest = smallest.min(*number);
        }
        first
    }
}

impl fmt::Display for Tallies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (way, tally) in ["there", "back"].iter().zip(&self.0) {
            let lost = tally.lost();
            let overtaken = tally.overtaken().len();
            write!(f, "{way} {} sent, {} lost", tally.sent, lost.len())?;
            if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
                write!(f, " ({first} to {last})")?;
            }
            write!(f, ", {overtaken} overtaken; ")?;
        }
        Ok(())
    }
}

#[test]
fn only_what_the_former_path_still_carried_may_be_overtaken() {
    let tally = |arrived: &[u32]| Tally {
        sent: 8,
        arrived: arrived.to_vec(),
    };
    let keeps = |arrived| tally(arrived).is_in_order_on_each_path();
    assert!(keeps(&[0, 1, 2, 3, 4, 5, 6, 7]));
    assert!(
        keeps(&[0, 1, 4, 2, 5, 3, 6, 7]),
        "4 is the first that went the new way"
    );
    assert!(
        !keeps(&[0, 1, 4, 3, 2, 5, 6, 7]),
        "disorder on the former way"
    );
    assert!(!keeps(&[0, 1, 4, 6, 5, 2, 3, 7]), "disorder on the new way");
    assert!(!keeps(&[0, 1, 2, 3, 3, 4, 5, 6, 7]), "doubled");
    assert_eq!(tally(&[0, 1, 2, 5, 7]).lost(), [3, 4, 6]);
}
