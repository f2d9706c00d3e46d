//! Fuzzes the queue and the flush against sockets that may refuse any send, for any reason.

mod model;
mod twin;

use std::{net::SocketAddr, time::Duration};

use convoy_fuzz::{Result, Unstructured};
use convoy_gso::{Destination, Flushed, Flusher, GsoQueue, queue::QUEUE_BYTES};
use convoy_types::MAX_UDP_PAYLOAD;
use model::Model;
use twin::{ERRORS, Twin};

#[test]
#[cfg_attr(miri, ignore = "too slow there")]
fn fuzz_flushes() {
    convoy_fuzz::run("flushes", 2000, 600, flushes);
}

const PINNED: [u8; 4] = [192, 0, 2, 200];

/// Checks that the datagrams to each address leave in order, except those refused for good, which are
/// counted. Without refusals they must leave in exactly the batches of the model.
fn flushes(input: &mut Unstructured<'_>) -> Result<()> {
    let mut attempt = Attempt::new(input.ratio(7, 8)?);
    while !input.is_empty() {
        match input.int_in_range(0..=7u8)? {
            0..=3 => {
                let run = input.int_in_range(1..=70)?;
                let (destination, len) = (destination(input)?, len(input)?);
                for _ in 0..run {
                    attempt.append(destination, len);
                }
            }
            4 => attempt.refuse(input)?,
            5 => attempt.twin.now += Duration::from_secs(input.int_in_range(0..=700)?),
            6 => attempt.send_ahead(destination(input)?, input.ratio(1, 4)?),
            _ => attempt.flush(),
        }
        attempt.check();
    }
    attempt.twin.errors.clear();
    attempt.flush();
    attempt.check();
    attempt.check_counters();
    Ok(())
}

struct Attempt {
    queue: GsoQueue,
    flusher: Flusher,
    twin: Twin,
    /// The queued batches; `None` once the queue was full or was sent in part.
    model: Option<Model>,
    number: u32,
    /// Bytes appended since the last flush.
    since_flush: usize,
}

impl Attempt {
    fn new(segmentation: bool) -> Self {
        Self {
            queue: GsoQueue::default(),
            flusher: Flusher::new(segmentation),
            twin: Twin::new(segmentation),
            model: Some(Model::default()),
            number: 0,
            since_flush: 0,
        }
    }

    fn append(&mut self, to: Destination, len: usize) {
        let had_room = self.queue.has_room();
        let mut datagram = self.number.to_be_bytes().to_vec();
        datagram.resize(len, self.number as u8);
        self.number += 1;
        match self.queue.append(&to, &datagram) {
            Ok(()) => {
                assert!((1..=MAX_UDP_PAYLOAD).contains(&len));
                self.since_flush += len;
                self.model = self.model.take().filter(|_| had_room);
                if let Some(model) = &mut self.model {
                    model.append(to, len);
                }
                self.twin.expect(to, datagram);
            }
            Err(_) => assert!(!had_room || len > MAX_UDP_PAYLOAD),
        }
        assert!(self.since_flush <= QUEUE_BYTES);
    }

    /// Chooses the results of the next calls.
    fn refuse(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        for _ in 0..input.int_in_range(1..=8)? {
            let error = ERRORS.get(usize::from(input.arbitrary::<u8>()?) % 12);
            self.twin.errors.push_back(error.copied());
        }
        Ok(())
    }

    /// Sends a handshake message ahead of the queue: once, or until the flusher is done with it.
    fn send_ahead(&mut self, to: Destination, once: bool) {
        let mut datagram = self.number.to_be_bytes().to_vec();
        datagram.resize(148, 0xc0);
        let (now, flusher) = (self.twin.now, &mut self.flusher);
        self.twin.begin_ahead(self.number, once);
        self.number += 1;
        if once {
            flusher.send_once(&to, &datagram, &mut self.twin);
        } else {
            while flusher.send_now(&to, &datagram, &mut self.twin, now) != Flushed::Done {}
        }
        self.twin.end_ahead();
    }

    fn flush(&mut self) {
        let now = self.twin.now;
        let is_accepting_all = self.twin.errors.is_empty() && !self.twin.is_refusing();
        let expected = self.model.take().filter(|_| is_accepting_all);
        self.since_flush = 0;
        self.twin.sends.clear();
        let flushed = self.flusher.flush(&mut self.queue, &mut self.twin, now);
        assert_eq!(flushed == Flushed::Done, self.queue.is_empty());
        if let Some(expected) = expected {
            assert_eq!(self.twin.sends, expected.sends());
        }
        self.model = self.queue.is_empty().then(Model::default);
    }

    /// Checks that the flusher reports lost sources and long datagrams, each once.
    fn check(&mut self) {
        let lost: Vec<_> = self.flusher.lost_sources().collect();
        assert_eq!(lost, std::mem::take(&mut self.twin.lost_sources));
        let too_big: Vec<_> = self.flusher.too_big().collect();
        assert_eq!(too_big, std::mem::take(&mut self.twin.too_big));
        assert!(self.flusher.refusing() <= 1024);
    }

    fn check_counters(&self) {
        let counters = self.flusher.counters();
        let lost = self.twin.check_queued() as u64 + self.twin.lost_ahead;
        let counted = counters.failed + counters.too_big + counters.no_buffers;
        assert_eq!(lost, counted);
        assert_eq!(self.twin.calls, counters.calls);
        assert_eq!(self.twin.refused_batches, counters.refused_batches);
        assert_eq!(self.twin.segments, counters.segments);
    }
}

fn destination(input: &mut Unstructured<'_>) -> Result<Destination> {
    let [which, how]: [u8; 2] = input.arbitrary()?;
    Ok(Destination {
        to: SocketAddr::from(([192, 0, 2, which % 3], 51820)),
        source: (how & 3 == 3).then_some(PINNED.into()),
        ecn: u8::from(how & 12 == 12),
    })
}

fn len(input: &mut Unstructured<'_>) -> Result<usize> {
    Ok(match input.arbitrary::<u8>()? {
        0 => input.int_in_range(4..=MAX_UDP_PAYLOAD + 1)?,
        short @ 1..16 => 32 + usize::from(short),
        16..128 => 1452,
        _ => 128,
    })
}
