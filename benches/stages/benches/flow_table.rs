//! The map from a connection's two ends to the connection, as in `connlib/smoltcp/src/table.rs`: with the standard
//! library's SipHash, with FxHash, and with a hash whose collisions nobody can foresee, for keys that peers choose.
//!
//! A hash reads a key as `derive(Hash)` writes it, field by field, or packed into as few words as it has.

#![expect(
    clippy::disallowed_types,
    reason = "it is measured here, also on keys that collide"
)]

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use divan::{Bencher, black_box, counter::ItemsCount};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rustc_hash::{FxBuildHasher, FxSeededState};

use crate::each;

const FLOWS: [usize; 3] = [100, 1_000, 8_000];
/// Keys looked up, or removed and inserted, per repetition.
const TOUCHED: usize = 64;

/// A way to hash a connection's ends.
trait Way {
    type Key: Key;
    type State: BuildHasher;

    const STATE: fn() -> Self::State;
}

trait Key: Hash + Eq + Copy + From<Tuple> {
    /// An address that a peer can choose so that FxHash, whatever its seed, is the same for each of them: it adds a word,
    /// multiplies, and adds the next one, which takes back here what the first one has added.
    fn colliding(index: usize) -> Ipv6Addr;
}

/// By which FxHash multiplies.
const MULTIPLIER: u64 = 0xf135_7aea_2e62_a9c5;

/// As `derive(Hash)` writes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Tuple {
    local: SocketAddr,
    remote: SocketAddr,
}

/// The same, hashed as few words.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Packed(Tuple);

/// Defines ways to hash, each with its key and its hash.
macro_rules! ways {
    ($($way:ident: $key:ty, $state:ty, $new:expr;)*) => {$(
        struct $way;

        impl Way for $way {
            type Key = $key;
            type State = $state;

            const STATE: fn() -> $state = || $new;
        }
    )*};
}

ways! {
    DerivedSip: Tuple, RandomState, RandomState::new();
    DerivedFx: Tuple, FxBuildHasher, FxBuildHasher;
    PackedSip: Packed, RandomState, RandomState::new();
    PackedSeededFx: Packed, FxSeededState, FxSeededState::with_seed(rand::random::<u64>() as usize);
    PackedMultilinear: Packed, Multilinear, Multilinear { numbers: rand::random(), taken: 0, sum: 0 };
}

#[divan::bench(types = [DerivedSip, DerivedFx, PackedSip, PackedSeededFx, PackedMultilinear], args = FLOWS)]
fn look_up_v4<W: Way>(bencher: Bencher<'_, '_>, flows: usize) {
    look_up::<W>(bencher, &random(flows, true));
}

#[divan::bench(types = [DerivedSip, DerivedFx, PackedSip, PackedSeededFx, PackedMultilinear], args = FLOWS)]
fn look_up_v6<W: Way>(bencher: Bencher<'_, '_>, flows: usize) {
    look_up::<W>(bencher, &random(flows, false));
}

#[divan::bench(types = [DerivedSip, DerivedFx, PackedSip, PackedSeededFx, PackedMultilinear], args = FLOWS)]
fn look_up_hostile<W: Way>(bencher: Bencher<'_, '_>, flows: usize) {
    look_up::<W>(bencher, &hostile::<W>(flows));
}

#[divan::bench(types = [DerivedSip, DerivedFx, PackedSip, PackedSeededFx, PackedMultilinear], args = FLOWS)]
fn remove_and_insert_v4<W: Way>(bencher: Bencher<'_, '_>, flows: usize) {
    remove_and_insert::<W>(bencher, &random(flows, true));
}

#[divan::bench(types = [DerivedSip, DerivedFx, PackedSip, PackedSeededFx, PackedMultilinear], args = FLOWS)]
fn remove_and_insert_hostile<W: Way>(bencher: Bencher<'_, '_>, flows: usize) {
    remove_and_insert::<W>(bencher, &hostile::<W>(flows));
}

fn look_up<W: Way>(bencher: Bencher<'_, '_>, tuples: &[Tuple]) {
    let (map, touched) = table::<W>(tuples);
    each(bencher, ItemsCount::new(TOUCHED), || {
        for tuple in &touched {
            black_box(map.get(&W::Key::from(*tuple)));
        }
    });
}

fn remove_and_insert<W: Way>(bencher: Bencher<'_, '_>, tuples: &[Tuple]) {
    let (mut map, touched) = table::<W>(tuples);
    each(bencher, ItemsCount::new(TOUCHED), || {
        for tuple in &touched {
            let value = map.remove(&W::Key::from(*tuple)).unwrap_or(0);
            map.insert(W::Key::from(*tuple), value);
        }
    });
}

fn table<W: Way>(tuples: &[Tuple]) -> (HashMap<W::Key, usize, W::State>, Vec<Tuple>) {
    let mut map = HashMap::with_hasher((W::STATE)());
    map.extend(tuples.iter().map(|tuple| W::Key::from(*tuple)).zip(0..));
    let mut random = StdRng::seed_from_u64(8);
    let any = |_| tuples[random.random_range(0..tuples.len())];
    (map, (0..TOUCHED).map(any).collect())
}

/// Connections of a few peers to the ports of servers anywhere.
fn random(flows: usize, is_ipv4: bool) -> Vec<Tuple> {
    let mut random = StdRng::seed_from_u64(7);
    let mut tuple = |_| {
        let peer = random.random_range(2..10);
        let port = random.random_range(32_768..61_000);
        let [local, remote]: [IpAddr; 2] = match is_ipv4 {
            true => [
                [10, 9, 0, peer].into(),
                Ipv4Addr::from_bits(random.random()).into(),
            ],
            false => [
                [0xfd09, 0, 0, 0, 0, 0, 0, peer.into()].into(),
                Ipv6Addr::from_bits(random.random()).into(),
            ],
        };
        Tuple {
            local: SocketAddr::new(local, port),
            remote: SocketAddr::new(remote, [53, 80, 443][random.random_range(0..3)]),
        }
    };
    (0..flows).map(&mut tuple).collect()
}

/// Connections of one peer to addresses that it has chosen.
fn hostile<W: Way>(flows: usize) -> Vec<Tuple> {
    let local = SocketAddr::new(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2).into(), 40_000);
    let tuple = |index| Tuple {
        local,
        remote: SocketAddr::new(W::Key::colliding(index).into(), 443),
    };
    let tuples: Vec<_> = (0..flows).map(tuple).collect();
    let hash = |tuple: &Tuple| FxBuildHasher.hash_one(W::Key::from(*tuple));
    assert!(tuples.iter().all(|tuple| hash(tuple) == hash(&tuples[0])));
    tuples
}

impl Key for Tuple {
    fn colliding(index: usize) -> Ipv6Addr {
        // The first bytes are the lowest ones, and those of the network's prefix.
        let step = (index as u64) << 32;
        let network = 0xb80d_0120 + step;
        let host = step.wrapping_mul(MULTIPLIER).wrapping_neg();
        let bytes = u128::from(host) << 64 | u128::from(network);
        Ipv6Addr::from(bytes.to_le_bytes())
    }
}

impl Key for Packed {
    fn colliding(index: usize) -> Ipv6Addr {
        let step = index as u64;
        let network = 0x2001_0db8_0000_0000 + step;
        let host = step.wrapping_mul(MULTIPLIER).wrapping_neg();
        Ipv6Addr::from_bits(u128::from(network) << 64 | u128::from(host))
    }
}

impl From<Tuple> for Packed {
    fn from(tuple: Tuple) -> Self {
        Self(tuple)
    }
}

impl Hash for Packed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Tuple { local, remote } = self.0;
        match (local.ip(), remote.ip()) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                state.write_u64(u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()));
            }
            (local, remote) => {
                for address in [local, remote] {
                    let bits = match address {
                        IpAddr::V4(it) => it.to_ipv6_mapped().to_bits(),
                        IpAddr::V6(it) => it.to_bits(),
                    };
                    state.write_u64((bits >> 64) as u64);
                    state.write_u64(bits as u64);
                }
            }
        }
        state.write_u32(u32::from(local.port()) << 16 | u32::from(remote.port()));
    }
}

/// Adds the halves of all words, each multiplied by a random number of its own, and keeps the upper half of the sum. Two
/// keys that were chosen without knowledge of the numbers collide with a probability of 2⁻³² (Dietzfelbinger, "Universal
/// hashing and k-wise independent random variables via integer arithmetic without primes", 1996).
#[derive(Clone, Copy)]
struct Multilinear {
    numbers: [u64; 10],
    taken: usize,
    sum: u64,
}

impl BuildHasher for Multilinear {
    type Hasher = Self;

    #[inline]
    fn build_hasher(&self) -> Self {
        let (taken, sum) = (1, self.numbers[0]);
        Self {
            taken,
            sum,
            ..*self
        }
    }
}

impl Hasher for Multilinear {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        let number = self.numbers[self.taken % self.numbers.len()];
        self.sum = self.sum.wrapping_add(number.wrapping_mul(word.into()));
        self.taken += 1;
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.write_u32((word >> 32) as u32);
        self.write_u32(word as u32);
    }

    /// The map takes its place from the lowest bits and a tag from the highest ones.
    #[inline]
    fn finish(&self) -> u64 {
        let upper = self.sum >> 32;
        upper << 32 | upper
    }
}
