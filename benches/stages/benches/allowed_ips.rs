//! Looks addresses up among few and many allowed IPs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use convoy_proto::{allowed_ips::AllowedIps, config::Prefix};
use convoy_stages::measured;
use divan::{Bencher, black_box, counter::ItemsCount};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::each;

const ENTRIES: [usize; 3] = [1, 1_000, 130_000];
/// More addresses than the cache holds.
const ADDRESSES: usize = 1_024;

/// As for the packets of one flow: the cached result is used.
#[divan::bench(args = ENTRIES)]
fn one_address(bencher: Bencher<'_, '_>, entries: usize) {
    let (table, addresses) = table(entries, v4);
    bencher.bench_local(|| measured(|| table.lookup(black_box(addresses[0]))));
}

#[divan::bench(args = ENTRIES)]
fn many_v4(bencher: Bencher<'_, '_>, entries: usize) {
    many(bencher, &table(entries, v4));
}

#[divan::bench(args = ENTRIES)]
fn many_v6(bencher: Bencher<'_, '_>, entries: usize) {
    many(bencher, &table(entries, v6));
}

fn many(bencher: Bencher<'_, '_>, (table, addresses): &(AllowedIps<usize>, Vec<IpAddr>)) {
    each(bencher, ItemsCount::new(ADDRESSES), || {
        for address in addresses {
            black_box(table.lookup(*address));
        }
    });
}

/// Random long prefixes, and addresses within them.
fn table(entries: usize, prefix: fn(&mut StdRng) -> Prefix) -> (AllowedIps<usize>, Vec<IpAddr>) {
    let mut random = StdRng::seed_from_u64(7);
    let prefixes: Vec<_> = (0..entries).map(|_| prefix(&mut random)).collect();
    let mut table = AllowedIps::default();
    for (owner, prefix) in prefixes.iter().enumerate() {
        table.insert(*prefix, owner);
    }
    let any = |_| prefixes[random.random_range(0..entries)].address();
    (table, (0..ADDRESSES).map(any).collect())
}

fn v4(random: &mut StdRng) -> Prefix {
    let address = Ipv4Addr::from(random.random::<u32>());
    canonical(address.into(), random.random_range(16..=32))
}

fn v6(random: &mut StdRng) -> Prefix {
    let address = Ipv6Addr::from(random.random::<u128>());
    canonical(address.into(), random.random_range(32..=128))
}

fn canonical(address: IpAddr, prefix: u8) -> Prefix {
    Prefix::network_of(address, prefix).expect("a length of its family")
}
