//! Two stacks on a link that loses segments.

use std::{
    collections::VecDeque,
    os::fd::AsFd,
    sync::Mutex,
    thread::{self, JoinHandle},
    time::Instant,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use convoy_packet::{
    packet::{IPV4_HEADER, seal_ipv4},
    segment::{FIN, PSH, SYN, Segment},
    vnet::VNET_LEN,
};

/// Whether a packet from one of the ends is lost.
type Loses = dyn FnMut(usize, &[u8]) -> bool + Send;
/// Hears of a packet from one of the ends that is delivered.
type Hears = dyn FnMut(usize, &[u8]) + Send;
/// Packets that overtake one from one of the ends.
type Overtakes = dyn FnMut(usize, &[u8]) -> usize + Send;

/// The longest that a packet waits for others to overtake it.
const PATIENCE: Duration = Duration::from_millis(5);

/// A link between two stacks: takes super-packets apart, loses some segments, and delivers the others later.
struct Link {
    ends: [OwnedFd; 2],
    delay: Duration,
    loses: Box<Loses>,
    hears: Box<Hears>,
    overtakes: Box<Overtakes>,
    under_way: [VecDeque<(Instant, Vec<u8>)>; 2],
    /// Packets to each end that wait until this number of others has overtaken them.
    held: [Vec<(usize, Instant, Vec<u8>)>; 2],
}

impl Link {
    fn run(mut self) {
        let mut buffer = vec![0; 70_000];
        loop {
            let mut waits = [
                PollFd::new(&self.ends[0], PollFlags::IN),
                PollFd::new(&self.ends[1], PollFlags::IN),
            ];
            let is_idle = self.under_way.iter().all(VecDeque::is_empty)
                && self.held.iter().all(Vec::is_empty);
            let limit = if is_idle {
                Duration::from_secs(60)
            } else {
                Duration::from_micros(200)
            };
            let limit = Timespec::try_from(limit).unwrap();
            poll(&mut waits, Some(&limit)).unwrap();
            if waits.iter().any(|it| it.revents().contains(PollFlags::HUP)) {
                return;
            }
            for from in [0, 1] {
                while let Ok(length @ 1..) = rustix::io::read(&self.ends[from], &mut buffer) {
                    let at = Instant::now() + self.delay;
                    for message in segments(&buffer[..length]) {
                        if !(self.loses)(from, &message[VNET_LEN..]) {
                            self.pass(from, at, message);
                        }
                    }
                }
                self.release(1 - from, |_, at| at + PATIENCE < Instant::now());
            }
            let ends = self.ends.iter().zip(&mut self.under_way);
            for (from, (end, queue)) in [1, 0].into_iter().zip(ends) {
                while queue.front().is_some_and(|(at, _)| *at <= Instant::now()) {
                    (self.hears)(from, &queue[0].1[VNET_LEN..]);
                    if rustix::io::write(end.as_fd(), &queue[0].1) == Err(rustix::io::Errno::AGAIN)
                    {
                        break;
                    }
                    queue.pop_front();
                }
            }
        }
    }
}

impl Link {
    fn pass(&mut self, from: usize, at: Instant, message: Vec<u8>) {
        let by = (self.overtakes)(from, &message[VNET_LEN..]);
        if by > 0 {
            return self.held[1 - from].push((by, at, message));
        }
        self.under_way[1 - from].push_back((at, message));
        for (by, _, _) in &mut self.held[1 - from] {
            *by -= 1;
        }
        self.release(1 - from, |by, _| by == 0);
    }

    fn release(&mut self, to: usize, is_over: impl Fn(usize, Instant) -> bool) {
        let over = self.held[to].extract_if(.., |(by, at, _)| is_over(*by, *at));
        self.under_way[to].extend(over.map(|(_, at, message)| (at, message)));
    }
}

/// Takes a message apart as a TUN's other end does.
fn segments(message: &[u8]) -> Vec<Vec<u8>> {
    let half = |at: usize| usize::from(u16::from_ne_bytes([message[at], message[at + 1]]));
    let (headers, each) = (half(2), half(4));
    if message[1] == 0 {
        return vec![message.to_vec()];
    }
    let (head, payload) = message.split_at(VNET_LEN + headers);
    let pieces = payload.chunks(each);
    let last = pieces.len() - 1;
    let cut = |(index, piece): (usize, &[u8])| {
        let mut message = [head, piece].concat();
        message[1] = 0;
        message[4..6].fill(0);
        let packet = &mut message[VNET_LEN..];
        let length = packet.len();
        let at = if packet[0] >> 4 == 4 {
            packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            seal_ipv4(packet);
            IPV4_HEADER
        } else {
            packet[4..6].copy_from_slice(&((length - 40) as u16).to_be_bytes());
            40
        };
        let sequence = Segment::parse(&packet[at..]).unwrap().sequence;
        let sequence = sequence.wrapping_add((index * each) as u32);
        packet[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
        if index < last {
            packet[at + 13] &= !(PSH | FIN);
        }
        message
    };
    pieces.enumerate().map(cut).collect()
}

/// Two stacks with a link between them, and its thread.
fn linked(
    delay: Duration,
    loses: impl FnMut(usize, &[u8]) -> bool + Send + 'static,
) -> (Stack, Stack, JoinHandle<()>) {
    linked_by(delay, loses, |_, _| {}, |_, _| 0)
}

fn linked_by(
    delay: Duration,
    loses: impl FnMut(usize, &[u8]) -> bool + Send + 'static,
    hears: impl FnMut(usize, &[u8]) + Send + 'static,
    overtakes: impl FnMut(usize, &[u8]) -> usize + Send + 'static,
) -> (Stack, Stack, JoinHandle<()>) {
    let [(a, near), (b, far)] = [(); 2].map(|()| device_pair().unwrap());
    let link = Link {
        ends: [near, far],
        delay,
        loses: Box::new(loses),
        hears: Box::new(hears),
        overtakes: Box::new(overtakes),
        under_way: Default::default(),
        held: Default::default(),
    };
    let link = thread::spawn(|| link.run());
    (stack(a, [A, A6], 1420), stack(b, [B, B6], 1420), link)
}

/// Loses this part of all segments.
fn at_random(part: f64, seed: u64) -> impl FnMut(usize, &[u8]) -> bool + Send {
    let mut rng = StdRng::seed_from_u64(seed);
    move |_, _| rng.random_bool(part)
}

fn payload_len(packet: &[u8]) -> usize {
    let at = if packet[0] >> 4 == 4 { IPV4_HEADER } else { 40 };
    Segment::parse(&packet[at..]).unwrap().payload_len
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_loses_one_in_a_hundred_is_no_row_of_timeouts() {
    for (address, seed) in [(B, 1), (B6, 2)] {
        let (a, b, link) = linked(Duration::ZERO, at_random(0.01, seed));
        let (client, server) = within(connected(&a, &b, address)).await;
        let begun = Instant::now();
        exchange(client, server, 4 << 20).await;
        // 6,000 segments lost 60 times: more than a minute of timeouts.
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(15), "{took:?}");
        assert!(a.counters().resent_bytes > 0);
        // Hardly more goes again than was lost.
        assert!(a.counters().resent_bytes < 1 << 20, "{:?}", a.counters());
        drop((a, b));
        link.join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_lost_of_a_short_answer_arrives_within_a_second() {
    for lost in 0..8 {
        let mut seen = 0;
        let loses = move |from, packet: &[u8]| {
            let counts = from == 1 && payload_len(packet) > 0;
            seen += usize::from(counts);
            counts && seen == lost + 1
        };
        let (a, b, link) = linked(Duration::from_millis(5), loses);
        let (mut client, mut server) = within(connected(&a, &b, B)).await;
        let begun = Instant::now();
        server.write_all(&[7; 10_000]).await.unwrap();
        let mut answer = vec![0; 10_000];
        within(client.read_exact(&mut answer)).await.unwrap();
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(1), "{lost}: {took:?}");
        drop((client, server, a, b));
        link.join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_lost_twice_goes_a_third_time() {
    let mut gone = std::collections::HashMap::new();
    let loses = move |from, packet: &[u8]| {
        let segment = Segment::parse(&packet[IPV4_HEADER..]).unwrap();
        let count: &mut usize = gone.entry(segment.sequence).or_default();
        let loses = from == 0
            && segment.payload_len > 0
            && *count < 2
            && segment.sequence.is_multiple_of(7);
        *count += usize::from(loses);
        loses
    };
    let (a, b, link) = linked(Duration::from_millis(2), loses);
    let (client, server) = within(connected(&a, &b, B)).await;
    let sending = tokio::spawn(send(client, 1 << 20, 3));
    let received = within(receive(server)).await;
    assert_eq!(received, (1 << 20, sending.await.unwrap()));
    drop((a, b));
    link.join().unwrap();
}

/// Which round trip each segment of the server belongs to: the one after that whose acknowledgement it had heard.
#[derive(Default)]
struct RoundTrips {
    sent: Vec<(u32, usize)>,
    heard: usize,
}

impl RoundTrips {
    fn sent(&mut self, segment: &Segment) {
        if segment.payload_len > 0 {
            self.sent.push((segment.end(), self.heard + 1));
        }
    }

    fn acknowledged(&mut self, number: u32) {
        let is_known = |end: u32| number.wrapping_sub(end) as i32 >= 0;
        let known = self.sent.iter().filter(|(end, _)| is_known(*end));
        let last = known.map(|(_, round_trip)| *round_trip).max();
        self.heard = self.heard.max(last.unwrap_or(0));
    }

    fn count(&self) -> usize {
        let all = self.sent.iter().map(|(_, round_trip)| *round_trip);
        all.max().unwrap_or(0)
    }
}

/// 14, 28 and 56 kB, and the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_100_kilobytes_takes_four_round_trips() {
    // If the machine stalls for longer than a timeout, start over.
    for _ in 0..20 {
        let (round_trips, resent) = round_trips_of_a_page().await;
        if resent == 0 {
            assert_eq!(round_trips, 4);
            return;
        }
    }
    panic!("the machine is too slow to tell");
}

/// Returns how many round trips a page of 100 kB took, and how many bytes of it went again.
async fn round_trips_of_a_page() -> (usize, u64) {
    let all = Arc::new(Mutex::new(RoundTrips::default()));
    let [sending, hearing] = [(); 2].map(|()| Arc::clone(&all));
    let parsed = |packet: &[u8]| Segment::parse(&packet[IPV4_HEADER..]).unwrap();
    let loses = move |from, packet: &[u8]| {
        if from == 1 {
            sending.lock().unwrap().sent(&parsed(packet));
        }
        false
    };
    let hears = move |from, packet: &[u8]| {
        if from == 0 {
            let number = parsed(packet).acknowledged;
            hearing.lock().unwrap().acknowledged(number);
        }
    };
    let (a, b, link) = linked_by(Duration::from_millis(25), loses, hears, |_, _| 0);
    let (mut client, mut server) = within(connected(&a, &b, B)).await;
    let writing = tokio::spawn(async move {
        server.write_all(&[7; 100_000]).await.unwrap();
        server
    });
    let mut page = vec![0; 100_000];
    within(client.read_exact(&mut page)).await.unwrap();
    let resent = b.counters().resent_bytes;
    drop((writing.await.unwrap(), client, a, b));
    link.join().unwrap();
    let count = all.lock().unwrap().count();
    (count, resent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_that_drops_long_packets_without_a_word_is_found_out() {
    let (a, b, link) = linked(Duration::ZERO, |_, packet| packet.len() > 1300);
    let (client, server) = within(connected(&a, &b, B)).await;
    let sending = tokio::spawn(send(client, 1 << 20, 3));
    let received = within(receive(server)).await;
    assert_eq!(received, (1 << 20, sending.await.unwrap()));
    assert_eq!(a.counters().path_mtu_changes, 1);
    drop((a, b));
    link.join().unwrap();
}

/// One in fifty is overtaken by 3 to 30 others: 60 of 3,000.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_path_that_reorders_segments_hardly_any_go_again() {
    let mut rng = StdRng::seed_from_u64(5);
    let overtakes = move |from, packet: &[u8]| {
        let is_late = from == 0 && payload_len(packet) > 0 && rng.random_ratio(1, 50);
        if is_late { rng.random_range(3..=30) } else { 0 }
    };
    let (a, b, link) = linked_by(Duration::from_millis(5), |_, _| false, |_, _| {}, overtakes);
    let (client, server) = within(connected(&a, &b, B)).await;
    let sending = tokio::spawn(send(client, 4 << 20, 3));
    let received = within(receive(server)).await;
    assert_eq!(received, (4 << 20, sending.await.unwrap()));
    let resent = a.counters().resent_bytes;
    assert!(resent < 30 * 1380, "{resent}");
    drop((a, b));
    link.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_begins_and_ends_although_each_first_segment_without_data_is_lost() {
    let mut gone = std::collections::HashSet::new();
    let loses = move |from, packet: &[u8]| {
        let segment = Segment::parse(&packet[IPV4_HEADER..]).unwrap();
        let marks = segment.flags & (SYN | FIN);
        marks != 0 && segment.payload_len == 0 && gone.insert((from, marks))
    };
    let (a, b, link) = linked(Duration::from_millis(2), loses);
    let (client, server) = within(connected(&a, &b, B)).await;
    exchange(client, server, 100_000).await;
    until(|| a.flows() + b.flows() == 0).await;
    drop((a, b));
    link.join().unwrap();
}
