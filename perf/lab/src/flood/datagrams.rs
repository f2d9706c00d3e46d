//! The payloads of a flood.

use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

/// Number of different payloads, sent in a cycle.
const PAYLOADS: usize = 4096;
/// The same for trains, which are larger.
const TRAINS: usize = 64;
/// Longest UDP payload on Ethernet.
const LONGEST: usize = 1500 - 28;
/// Bytes of a handshake initiation (paper §5.4.2).
const INITIATION: usize = 148;

/// Payloads for a flood, each for one call: single datagrams or trains.
#[derive(Clone, Debug)]
pub struct Datagrams {
    payloads: Vec<Vec<u8>>,
    segment: Option<u16>,
}

impl Datagrams {
    /// Random bytes of random lengths.
    pub fn noise() -> Self {
        let mut random = random();
        Self::each((0..PAYLOADS).map(|_| {
            let len = random.random_range(0..=LONGEST);
            bytes(&mut random, len)
        }))
    }

    /// Messages with the type and length of handshake initiations, but random contents: both MACs are wrong.
    pub fn wrong_macs() -> Self {
        let mut random = random();
        Self::each((0..PAYLOADS).map(|_| {
            let mut initiation = bytes(&mut random, INITIATION);
            initiation[..4].copy_from_slice(&[1, 0, 0, 0]);
            initiation
        }))
    }

    /// Captured datagrams, unchanged.
    pub fn replayed(captured: Vec<Vec<u8>>) -> Self {
        Self::each(captured.into_iter())
    }

    /// Captured initiations with a wrong MAC2 (proof of address).
    pub fn wrong_cookies(captured: &[Vec<u8>]) -> Self {
        let mut random = random();
        let initiations = captured.iter().cycle().take(PAYLOADS).cloned();
        Self::each(initiations.map(|mut initiation| {
            let mac2 = initiation.len().saturating_sub(16);
            random.fill_bytes(&mut initiation[mac2..]);
            initiation
        }))
    }

    /// Captured initiations, alternately unchanged and with a wrong MAC2.
    pub fn with_and_without_mac2(captured: &[Vec<u8>]) -> Self {
        let wrong = Self::wrong_cookies(captured).payloads;
        let pairs = captured.iter().cycle().cloned().zip(wrong);
        Self::each(pairs.flat_map(|(without, with)| [without, with]))
    }

    /// Captured data messages with counters that their session has not reached: only the tag is wrong.
    pub fn forged(mut captured: Vec<Vec<u8>>) -> Self {
        // Beyond what the session reaches meanwhile, and all different.
        const AHEAD: u64 = 1 << 40;
        for (n, message) in (AHEAD..).zip(&mut captured) {
            if let Some(counter) = message.get_mut(8..16) {
                counter.copy_from_slice(&n.to_le_bytes());
            }
        }
        Self::each(captured.into_iter())
    }

    /// Trains of up to 64 KiB with a shorter last segment: data messages for no session, interleaved with
    /// noise.
    ///
    /// A train has at most 64 segments of `segment` bytes, since kernels before Linux 6.9 refuse more.
    pub fn trains(segment: u16) -> Self {
        let mut random = random();
        let whole = usize::from(segment);
        let segments = (65_507 / whole).min(64);
        let len = (segments - 1) * whole + whole.div_ceil(3);
        let trains = (0..TRAINS).map(|_| {
            let mut train = bytes(&mut random, len);
            for message in train.chunks_mut(whole).step_by(2) {
                let header = message.len().min(4);
                message[..header].copy_from_slice(&[4, 0, 0, 0][..header]);
            }
            train
        });
        let segment = Some(segment);
        Self {
            segment,
            ..Self::each(trains)
        }
    }

    /// The payload of call `number`, and the length of the segments that the kernel cuts it into.
    pub(super) fn payload(&self, number: u64) -> (&[u8], Option<u16>) {
        let count = self.payloads.len().max(1) as u64;
        let payload = self.payloads.get((number % count) as usize);
        (payload.map_or(&[], Vec::as_slice), self.segment)
    }

    /// Average number of datagrams per call.
    pub(super) fn per_call(&self) -> f64 {
        let datagrams: u64 = self.payloads.iter().map(|p| self.count(p.len())).sum();
        datagrams as f64 / self.payloads.len().max(1) as f64
    }

    /// Number of datagrams in a payload of `len` bytes.
    pub(super) fn count(&self, len: usize) -> u64 {
        let segment = self.segment.map_or(len, usize::from);
        len.div_ceil(segment.max(1)).max(1) as u64
    }

    fn each(payloads: impl Iterator<Item = Vec<u8>>) -> Self {
        Self {
            payloads: payloads.collect(),
            segment: None,
        }
    }
}

fn bytes(random: &mut StdRng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill_bytes(&mut bytes);
    bytes
}

/// The same in every run, so that floods can be compared.
fn random() -> StdRng {
    StdRng::seed_from_u64(1)
}
