//! In-memory sockets that refuse on demand and check each send against the rules.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::SocketAddr,
    time::Duration,
};

use convoy_gso::{Destination, SendDatagrams, queue::MAX_SEGMENTS};
use convoy_types::MAX_UDP_PAYLOAD;

/// The errors of a socket.
pub(crate) const ERRORS: [i32; 9] = [
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
const ABOUT_SOURCE: [i32; 3] = [libc::EINVAL, libc::ENETUNREACH, libc::EADDRNOTAVAIL];

/// The fate of one datagram.
#[derive(Clone, Debug, Default)]
struct Fate {
    sent: bool,
    /// The errno of the last refusal, and whether it refused a batch.
    refused: Option<(i32, bool)>,
    /// Whether it was last sent with a pinned source.
    is_pinned: bool,
    /// Whether its pinned source was refused, or that of a datagram that may share its batch.
    lost_source: bool,
    no_buffers: u32,
}

pub(crate) struct Twin {
    pub(crate) now: Duration,
    pub(crate) errors: VecDeque<Option<i32>>,
    /// Successful sends of queued datagrams since the owner last cleared this.
    pub(crate) sends: Vec<(Destination, Vec<usize>)>,
    /// Addresses whose pinned source was refused since the owner last took this.
    pub(crate) lost_sources: Vec<SocketAddr>,
    /// Datagrams that were too long, even alone, since the owner last took this.
    pub(crate) too_big: Vec<(SocketAddr, usize)>,
    pub(crate) calls: u64,
    pub(crate) segments: [u64; 65],
    pub(crate) refused_batches: u64,
    pub(crate) lost_ahead: u64,
    /// Every datagram appended, in order.
    queued: Vec<(Destination, Vec<u8>, Fate)>,
    segmentation: bool,
    /// For each address, when it takes batches again, and the pause in seconds if one was too big.
    refusing: HashMap<SocketAddr, (Duration, u64)>,
    ahead: Option<Ahead>,
}

/// The datagram that is being sent ahead.
struct Ahead {
    number: u32,
    once: bool,
    no_buffers: u32,
}

impl Twin {
    pub(crate) fn new(segmentation: bool) -> Self {
        Self {
            now: Duration::from_secs(1000),
            errors: VecDeque::new(),
            sends: Vec::new(),
            lost_sources: Vec::new(),
            too_big: Vec::new(),
            calls: 0,
            segments: [0; 65],
            refused_batches: 0,
            lost_ahead: 0,
            queued: Vec::new(),
            segmentation,
            refusing: HashMap::new(),
            ahead: None,
        }
    }

    pub(crate) fn expect(&mut self, to: Destination, datagram: Vec<u8>) {
        self.queued.push((to, datagram, Fate::default()));
    }

    pub(crate) fn begin_ahead(&mut self, number: u32, once: bool) {
        self.ahead = Some(Ahead {
            number,
            once,
            no_buffers: 0,
        });
    }

    pub(crate) fn end_ahead(&mut self) {
        self.ahead = None;
    }

    /// Returns whether segmentation is off for some address, or for all.
    pub(crate) fn is_refusing(&self) -> bool {
        !self.segmentation || self.refusing.values().any(|(until, _)| self.now < *until)
    }

    /// Checks that each datagram not sent was refused for good; returns their number.
    pub(crate) fn check_queued(&self) -> usize {
        let lost = self.queued.iter().filter(|(_, _, fate)| !fate.sent);
        lost.inspect(|(_, _, fate)| {
            let (errno, was_batch) = fate.refused.expect("lost without a refusal");
            let is_final = match errno {
                libc::EAGAIN => false,
                libc::ENOBUFS => fate.no_buffers >= 4,
                libc::EIO | libc::EMSGSIZE => !was_batch,
                _ if ABOUT_SOURCE.contains(&errno) && fate.is_pinned => false,
                libc::EINVAL => !was_batch,
                _ => true,
            };
            assert!(is_final, "{fate:?}");
        })
        .count()
    }

    fn send_ahead(&mut self, to: &Destination, contents: &[u8], error: Option<i32>) {
        let ahead = self.ahead.as_mut().expect("a datagram is sent ahead");
        assert_eq!(contents[..4], ahead.number.to_be_bytes());
        ahead.no_buffers += u32::from(error == Some(libc::ENOBUFS));
        let is_kept = match error {
            None => true,
            Some(_) if ahead.once => false,
            Some(libc::EAGAIN) => true,
            Some(libc::ENOBUFS) => ahead.no_buffers < 4,
            Some(errno) if ABOUT_SOURCE.contains(&errno) && to.source.is_some() => {
                self.lost_sources.push(to.to);
                true
            }
            Some(_) => false,
        };
        self.lost_ahead += u64::from(!is_kept);
    }

    fn send_queued(&mut self, to: &Destination, segments: &[&[u8]], error: Option<i32>) {
        // The datagrams to this address, in the order of appending.
        let mut offered = self.queued.iter_mut().filter(|(d, _, _)| d.to == to.to);
        let is_source_lost =
            to.source.is_some() && error.is_some_and(|e| ABOUT_SOURCE.contains(&e));
        for segment in segments.iter().copied() {
            let (destination, _, fate) = offered
                .find(|(_, datagram, fate)| !fate.sent && datagram == segment)
                .expect("the next one, or one after those given up");
            assert!(destination.ecn == to.ecn);
            let is_unpinned = to.source.is_none() && fate.lost_source;
            assert!(is_unpinned || to.source == destination.source);
            fate.is_pinned = to.source.is_some();
            let refused = error.map(|errno| (errno, segments.len() > 1));
            fate.refused = refused.or(fate.refused);
            fate.no_buffers += u32::from(error == Some(libc::ENOBUFS));
            fate.sent = error.is_none();
        }
        // No datagram that was appended later may have been sent already.
        assert!(offered.all(|(_, _, fate)| !fate.sent), "overtaken");
        if is_source_lost {
            self.lost_sources.push(to.to);
            let waiting = self.queued.iter_mut().filter(|(d, _, _)| d.to == to.to);
            waiting.for_each(|(_, _, fate)| fate.lost_source = true);
        } else if error == Some(libc::EMSGSIZE) && segments.len() == 1 {
            self.too_big.push((to.to, segments[0].len()));
        }
        self.note_batch(to, segments, error);
    }

    /// Checks that an address that has refused a batch gets no other for a while.
    fn note_batch(&mut self, to: &Destination, segments: &[&[u8]], error: Option<i32>) {
        if segments.len() > 1 {
            let last = self.refusing.get(&to.to).copied();
            let is_off = last.is_some_and(|(until, _)| self.now < until);
            assert!(
                self.segmentation && !is_off,
                "a batch to an address that refuses them"
            );
            let seconds = match error {
                Some(libc::EMSGSIZE) => last
                    .filter(|(until, _)| self.now < *until + Duration::from_secs(600))
                    .map_or(5, |(_, seconds)| (2 * seconds).clamp(5, 600)),
                Some(libc::EINVAL) if to.source.is_some() => 0,
                Some(libc::EIO | libc::EINVAL) => 60,
                _ => 0,
            };
            if seconds > 0 {
                self.refused_batches += 1;
                let until = self.now + Duration::from_secs(seconds);
                let is_too_big = error == Some(libc::EMSGSIZE);
                let doubling = if is_too_big { seconds } else { 0 };
                self.refusing.insert(to.to, (until, doubling));
            }
        }
        if error.is_none() {
            let lens = segments.iter().map(|segment| segment.len());
            self.sends.push((*to, lens.collect()));
        }
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
        assert!(contents.len() <= MAX_UDP_PAYLOAD && (1..=MAX_SEGMENTS).contains(&segments.len()));
        assert!(segment.is_none() || segments.len() > 1, "a batch of one");
        self.segments[segments.len()] += u64::from(error.is_none());
        if self.ahead.is_some() {
            self.send_ahead(to, contents, error);
        } else {
            self.send_queued(to, &segments, error);
        }
        error.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    fn forget_learnt_mtu(&mut self, _: SocketAddr) {}

    fn recover(&mut self) {}
}
