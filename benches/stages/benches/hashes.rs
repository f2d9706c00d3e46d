//! Compares hashes on the keys that the daemon looks up: the standard library's SipHash, for keys that
//! others may choose, and FxHash, for keys that nobody else chooses.
//!
//! Clippy rejects FxHash without a stated reason (`clippy.toml`).

#![expect(
    clippy::disallowed_types,
    reason = "it is measured here; nobody chooses these keys"
)]

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use convoy_proto::config::PublicKey;
use divan::{Bencher, black_box, counter::ItemsCount};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rustc_hash::FxBuildHasher;

use crate::each;

const KEYS: usize = 10_000;
/// Keys looked up per repetition.
const LOOKED_UP: usize = 256;

/// As in `Node::by_index`, where every data message looks up a key.
#[divan::bench(types = [RandomState, FxBuildHasher])]
fn session_index<S: BuildHasher + Default>(bencher: Bencher<'_, '_>) {
    look_up::<S, _>(bencher, |random| random.random::<u32>());
}

/// As in `GsoQueue::newest`, where a datagram looks up its address if the previous one had another address.
#[divan::bench(types = [RandomState, FxBuildHasher])]
fn endpoint<S: BuildHasher + Default>(bencher: Bencher<'_, '_>) {
    look_up::<S, _>(bencher, |random| {
        SocketAddr::from((Ipv4Addr::from(random.random::<u32>()), 51820))
    });
}

/// As in `HandshakeLimiter::addresses`, where an initiation under load looks up its source.
#[divan::bench(types = [RandomState, FxBuildHasher])]
fn source_address<S: BuildHasher + Default>(bencher: Bencher<'_, '_>) {
    look_up::<S, _>(bencher, |random| {
        IpAddr::from(Ipv4Addr::from(random.random::<u32>()))
    });
}

/// As in `Node::by_key`, where an initiation looks up its peer.
#[divan::bench(types = [RandomState, FxBuildHasher])]
fn public_key<S: BuildHasher + Default>(bencher: Bencher<'_, '_>) {
    look_up::<S, _>(bencher, |random| PublicKey(random.random()));
}

fn look_up<S, K>(bencher: Bencher<'_, '_>, key: impl Fn(&mut StdRng) -> K)
where
    S: BuildHasher + Default,
    K: Hash + Eq + Copy,
{
    let mut random = StdRng::seed_from_u64(7);
    let keys: Vec<K> = (0..KEYS).map(|_| key(&mut random)).collect();
    let map: HashMap<K, usize, S> = keys.iter().copied().zip(0..).collect();
    let any = |_| keys[random.random_range(0..KEYS)];
    let asked: Vec<K> = (0..LOOKED_UP).map(any).collect();
    each(bencher, ItemsCount::new(LOOKED_UP), || {
        for key in &asked {
            black_box(map.get(key));
        }
    });
}
