//! The queue and the flush, before sockets that refuse at any time for any reason.

use std::{collections::VecDeque, io, net::SocketAddr, time::Duration};

use convoy_fuzz::{Result, Unstructured};
use convoy_gso::{
    Destination, Flushed, Flusher, GsoQueue, SendDatagrams,
    queue::{MAX_PAYLOAD, MAX_SEGMENTS, QUEUE_BYTES},
};

#[test]
#[cfg_attr(miri, ignore = "too slow there")]
fn fuzz_flushes() {
    convoy_fuzz::fuzz!(2000, 600, flushes);
}

const PINNED: [u8; 4] = [192, 0, 2, 200];
/// What a socket may say.
const ERRORS: [i32; 9] = [
    libc::EAGAIN,
    libc::ENOBUFS,
    libc::EIO,
    libc::EINVAL,
    libc::EMSGSIZE,
    libc::ENETUNREACH,
    libc::EADDRNOTAVAIL,
    libc::EPERM,
    libc::EHOSTUNREACH,
];

/// Every datagram leaves in the order of its address, or was refused for good and is counted.
fn flushes(input: &mut Unstructured<'_>) -> Result<()> {
    let mut queue = GsoQueue::default();
    let mut flusher = Flusher::new(input.ratio(7, 8)?);
    let mut twin = Twin::default();
    let mut now = Duration::from_secs(1000);
    let mut number = 0u32;
    while !input.is_empty() {
        match input.int_in_range(0..=7u8)? {
            0..=3 => {
                let run = input.int_in_range(1..=70)?;
                let (destination, len) = (destination(input)?, len(input)?);
                for _ in 0..run {
                    append(&mut queue, &mut twin, destination, len, number);
                    number += 1;
                }
            }
            4 => twin.refuse(input)?,
            5 => now += Duration::from_secs(input.int_in_range(0..=700)?),
            6 => {
                let mut datagram = number.to_be_bytes().to_vec();
                datagram.resize(148, 0xc0);
                let destination = destination(input)?;
                twin.control = Some(number);
                number += 1;
                // Its owner sends it again before anything else.
                twin.control_no_buffers = 0;
                while flusher.send_now(&destination, &datagram, &mut twin, now) != Flushed::Done {}
                twin.control = None;
            }
            _ => {
                twin.since_flush = 0;
                let flushed = flusher.flush(&mut queue, &mut twin, now);
                assert_eq!(flushed == Flushed::Done, queue.is_empty());
            }
        }
        flusher.lost_sources().for_each(drop);
        flusher.too_big().for_each(drop);
        assert!(flusher.refusing() <= 1024);
    }
    twin.errors.clear();
    assert_eq!(flusher.flush(&mut queue, &mut twin, now), Flushed::Done);
    let counters = flusher.counters();
    let lost = twin.check_queued();
    assert_eq!(
        lost as u64 + twin.lost_control,
        counters.failed + counters.too_big + counters.no_buffers
    );
    assert_eq!(twin.calls, counters.calls);
    Ok(())
}

fn append(queue: &mut GsoQueue, twin: &mut Twin, to: Destination, len: usize, number: u32) {
    let had_room = queue.has_room();
    let mut datagram = number.to_be_bytes().to_vec();
    datagram.resize(len, number as u8);
    match queue.append(&to, &datagram) {
        Ok(()) => {
            assert!((1..=MAX_PAYLOAD).contains(&len));
            let fate = Fate::default();
            twin.queued.push((to, datagram, fate));
            twin.since_flush += len;
        }
        Err(_) => assert!(!had_room || len > MAX_PAYLOAD),
    }
    assert!(twin.since_flush <= QUEUE_BYTES);
}

/// What became of one datagram.
#[derive(Clone, Debug, Default)]
struct Fate {
    sent: bool,
    /// The last refusal, and whether it was of a batch.
    refused: Option<(i32, bool)>,
    is_pinned: bool,
    no_buffers: u32,
}

#[derive(Default)]
struct Twin {
    /// In the order of appending.
    queued: Vec<(Destination, Vec<u8>, Fate)>,
    errors: VecDeque<Option<i32>>,
    calls: u64,
    /// Bytes that the queue took since the last flush.
    since_flush: usize,
    /// The number of the datagram that is sent ahead just now.
    control: Option<u32>,
    control_no_buffers: u32,
    lost_control: u64,
}

impl Twin {
    /// The next calls are refused, or not.
    fn refuse(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        for _ in 0..input.int_in_range(1..=8)? {
            let error = ERRORS
                .get(usize::from(input.arbitrary::<u8>()?) % 12)
                .copied();
            self.errors.push_back(error);
        }
        Ok(())
    }

    /// Those that were not sent were refused for good. Returns how many.
    fn check_queued(&self) -> usize {
        let lost = self.queued.iter().filter(|(_, _, fate)| !fate.sent);
        lost.inspect(|(_, _, fate)| {
            let (errno, was_batch) = fate.refused.expect("lost, and nobody refused it");
            let is_about_source = [libc::EINVAL, libc::ENETUNREACH, libc::EADDRNOTAVAIL];
            let is_final = match errno {
                libc::EAGAIN => false,
                libc::ENOBUFS => fate.no_buffers >= 4,
                libc::EIO | libc::EMSGSIZE => !was_batch,
                _ if is_about_source.contains(&errno) && fate.is_pinned => false,
                libc::EINVAL => !was_batch,
                _ => true,
            };
            assert!(is_final, "{fate:?}");
        })
        .count()
    }
}

impl SendDatagrams for Twin {
    fn send(
        &mut self,
        to: &Destination,
        contents: &[u8],
        segment: Option<usize>,
    ) -> io::Result<()> {
        self.calls += 1;
        let error = self.errors.pop_front().flatten();
        let len = segment.unwrap_or(contents.len());
        let segments: Vec<&[u8]> = contents.chunks(len).collect();
        assert!(contents.len() <= MAX_PAYLOAD && (1..=MAX_SEGMENTS).contains(&segments.len()));
        assert!(segment.is_none() || segments.len() > 1, "a batch of one");
        if let Some(number) = self.control {
            assert_eq!(contents[..4], number.to_be_bytes());
            let is_pinned = to.from.is_some();
            self.control_no_buffers += u32::from(error == Some(libc::ENOBUFS));
            let is_kept = match error {
                None | Some(libc::EAGAIN) => true,
                Some(libc::ENOBUFS) => self.control_no_buffers < 4,
                Some(libc::EINVAL | libc::ENETUNREACH | libc::EADDRNOTAVAIL) => is_pinned,
                Some(_) => false,
            };
            self.lost_control += u64::from(!is_kept);
            return error.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)));
        }
        // Those to this address that were neither sent nor passed over, in order.
        let mut offered = self.queued.iter_mut().filter(|(d, _, _)| d.to == to.to);
        let mut last_sent = true;
        for segment in segments.iter().copied() {
            let (destination, _, fate) = offered
                .find(|(_, datagram, fate)| !fate.sent && datagram == segment)
                .expect("the next one, or one behind those that were given up");
            assert!(destination.ecn == to.ecn);
            assert!(to.from.is_none() || to.from == destination.from);
            fate.is_pinned = to.from.is_some();
            fate.refused = error
                .map(|errno| (errno, segments.len() > 1))
                .or(fate.refused);
            fate.no_buffers += u32::from(error == Some(libc::ENOBUFS));
            fate.sent = error.is_none();
            last_sent = fate.sent;
        }
        // None may be sent behind this one that was appended before it.
        assert!(offered.all(|(_, _, fate)| !fate.sent), "overtaken");
        assert_eq!(last_sent, error.is_none());
        error.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    fn recover(&mut self) {}
}

fn destination(input: &mut Unstructured<'_>) -> Result<Destination> {
    let [which, how]: [u8; 2] = input.arbitrary()?;
    Ok(Destination {
        to: SocketAddr::from(([192, 0, 2, which % 3], 51820)),
        from: (how & 3 == 3).then_some(PINNED.into()),
        ecn: u8::from(how & 12 == 12),
    })
}

fn len(input: &mut Unstructured<'_>) -> Result<usize> {
    Ok(match input.arbitrary::<u8>()? {
        0 => input.int_in_range(4..=MAX_PAYLOAD + 1)?,
        short @ 1..16 => 32 + usize::from(short),
        16..128 => 1452,
        _ => 128,
    })
}
