use std::net::IpAddr;

use convoy_packet::{
    packet::{FRAGMENT, FRAGMENT_HEADER, ip_header_len, seal_ipv4, set_class, write_ip_header},
    vnet::VnetHeader,
};

use super::*;

const NOW: Duration = Duration::from_secs(100);
const CUT: usize = 16;

#[test]
fn fragments_become_one_datagram_in_any_order_even_if_some_come_twice() {
    for source in sources() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let mut bench = Bench::default();
            let parts = cut(source, 7, &datagram(60));
            assert_eq!(parts.len(), order.len());
            for (nth, n) in order.into_iter().enumerate() {
                assert!(bench.fragments.whole().is_none());
                bench.add(&parts[n]);
                if nth < 3 {
                    bench.add(&parts[order[0]]);
                    assert_eq!(bench.dropped(), (nth as u64 + 1, 0));
                }
            }
            let whole = bench.fragments.whole().expect("a datagram");
            assert_eq!((whole.source, &whole.bytes), (source, &datagram(60)));
            bench.fragments.advance();
            assert_eq!(bench.fragments.next_expiry(), None);
        }
    }
}

#[test]
fn an_overlap_discards_the_datagram_with_what_comes_later() {
    for source in sources() {
        let parts = cut(source, 7, &datagram(60));
        let other = datagram(60).iter().map(|it| it ^ 1).collect::<Vec<_>>();
        for forged in [
            part(source, 7, 8, &other[8..24], false),
            part(source, 7, 16, &other[16..32], false),
            part(source, 7, 16, &other[16..40], true),
            part(source, 7, 0, &other[..40], false),
        ] {
            let mut bench = Bench::default();
            bench.add(&parts[1]);
            bench.add(&forged);
            assert_eq!(bench.dropped(), (2, 0));
            for late in &parts {
                bench.add(late);
            }
            assert!(bench.fragments.whole().is_none());
            assert_eq!(bench.dropped(), (6, 0));
            // Its number is free again some time later.
            bench.now += PATIENCE;
            bench.expire();
            parts.iter().for_each(|late| bench.add(late));
            assert!(bench.fragments.whole().is_some());
            assert_eq!(bench.dropped(), (6, 0));
        }
    }
}

#[test]
fn ends_that_contradict_each_other_discard_the_datagram() {
    for source in sources() {
        let bytes = datagram(60);
        for (first, second) in [
            ((48, 60, true), (48, 56, true)),
            ((16, 32, true), (32, 48, false)),
            ((32, 48, false), (16, 32, true)),
        ] {
            let mut bench = Bench::default();
            for (from, to, is_last) in [first, second] {
                bench.add(&part(source, 7, from, &bytes[from..to], is_last));
            }
            assert_eq!(bench.dropped(), (2, 0), "{first:?}, {second:?}");
        }
    }
}

#[test]
fn fragments_that_no_host_makes_are_dropped_alone() {
    for source in sources() {
        let mut bench = Bench::default();
        let parts = cut(source, 7, &datagram(60));
        bench.add(&parts[0]);
        bench.add(&part(source, 7, 16, &[1; 15], false));
        bench.add(&part(source, 7, 16, &[], false));
        bench.add(&part(source, 7, 65_528, &[1; 100], true));
        assert_eq!(bench.dropped(), (3, 0));
        parts[1..].iter().for_each(|it| bench.add(it));
        assert!(bench.fragments.whole().is_some());
    }
}

#[test]
fn fragments_of_other_protocols_are_dropped() {
    for source in sources() {
        let mut bench = Bench::default();
        let mut first = part(source, 7, 0, &[1; 16], false);
        match source {
            IpAddr::V4(_) => {
                first[9] = 1;
                seal_ipv4(&mut first);
            }
            IpAddr::V6(_) => first[40] = 58,
        }
        bench.add(&first);
        assert_eq!(bench.dropped(), (1, 0));
        assert_eq!(bench.fragments.next_expiry(), None);
    }
}

#[test]
fn a_datagram_that_stays_incomplete_is_given_up_in_time() {
    let mut bench = Bench::default();
    let parts = cut(sources()[0], 7, &datagram(60));
    bench.add(&parts[0]);
    bench.now += PATIENCE / 2;
    bench.add(&parts[1]);
    let other = cut(sources()[0], 8, &datagram(60));
    bench.add(&other[0]);
    assert_eq!(bench.fragments.next_expiry(), Some(NOW + PATIENCE));
    assert!(!bench.expire());
    bench.now = NOW + PATIENCE;
    assert!(bench.expire());
    assert_eq!(bench.dropped(), (0, 2));
    let next = NOW + PATIENCE * 3 / 2;
    assert_eq!(bench.fragments.next_expiry(), Some(next));
    other[1..].iter().for_each(|it| bench.add(it));
    assert!(bench.fragments.whole().is_some());
    bench.now = next;
    assert!(!bench.expire(), "nothing is left");
}

#[test]
fn a_flood_takes_a_bounded_memory_and_displaces_only_its_own() {
    let [flood, other] = sources();
    let parts = cut(other, 7, &datagram(60));
    for (at, length) in [(0, 16), (65_400, 64)] {
        let mut bench = Bench::default();
        bench.add(&parts[0]);
        for ident in 0..1_000 {
            bench.add(&part(flood, ident, at, &vec![1; length], false));
            assert!(bench.fragments.incomplete.len() <= MAX_INCOMPLETE);
            let all = bench.fragments.incomplete.iter();
            assert!(all.map(|it| it.bytes.capacity()).sum::<usize>() <= MAX_BYTES);
        }
        let (unfit, given_up) = bench.dropped();
        let held = bench.fragments.incomplete.len() as u64;
        assert_eq!((unfit, given_up + held), (0, 1_001));
        parts[1..].iter().for_each(|it| bench.add(it));
        assert!(bench.fragments.whole().is_some());
    }
}

#[test]
fn gaps_beyond_bound_discard_the_datagram() {
    let mut bench = Bench::default();
    for n in 0..40 {
        bench.add(&part(sources()[0], 7, 16 * n, &[1; 8], false));
    }
    assert_eq!(bench.dropped(), (40, 0));
}

#[test]
fn a_mark_of_congestion_on_any_fragment_is_one_of_the_datagram() {
    for source in sources() {
        for (marks, expected) in [
            ([2, 2, 2, 2], Some(2)),
            ([2, 3, 2, 2], Some(3)),
            ([1, 2, 2, 2], Some(1)),
            ([0, 0, 0, 0], Some(0)),
            ([0, 0, 3, 0], None),
        ] {
            let mut bench = Bench::default();
            let mut parts = cut(source, 7, &datagram(60));
            for (part, mark) in parts.iter_mut().zip(marks) {
                set_class(part, mark);
                bench.add(part);
            }
            let ecn = bench.fragments.whole().map(|it| it.ecn);
            assert_eq!(ecn, expected, "{marks:?}");
            assert_eq!(bench.dropped().0, if ecn.is_none() { 4 } else { 0 });
        }
    }
}

#[test]
fn clearing_tells_the_number_of_packets() {
    let mut bench = Bench::default();
    let [first, second] = sources();
    cut(first, 7, &datagram(60))
        .iter()
        .for_each(|it| bench.add(it));
    bench.add(&cut(second, 7, &datagram(60))[1]);
    assert_eq!(bench.fragments.clear(), 5);
    assert!(bench.fragments.whole().is_none());
    assert_eq!(bench.fragments.next_expiry(), None);
}

/// Fragments, and what was dropped of them.
struct Bench {
    fragments: Fragments,
    drops: Drops,
    now: Duration,
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            fragments: Fragments::default(),
            drops: Drops::default(),
            now: NOW,
        }
    }
}

impl Bench {
    fn add(&mut self, bytes: &[u8]) {
        let packet = Packet::parse(VnetHeader::default(), bytes).expect("a packet");
        let fragment = packet.fragment.expect("a fragment");
        self.fragments
            .add(&packet, fragment, self.now, &mut self.drops);
    }

    fn expire(&mut self) -> bool {
        self.fragments.expire(self.now, &mut self.drops)
    }

    /// Fragments that did not fit, and those of datagrams that were given up.
    fn dropped(&self) -> (u64, u64) {
        let of = |reason| self.drops.of(reason);
        (
            of(DropReason::InboundViaFragment),
            of(DropReason::InboundViaIncomplete),
        )
    }
}

fn sources() -> [IpAddr; 2] {
    ["192.0.2.3", "2001:db8::3"].map(|it| it.parse().expect("an address"))
}

fn datagram(length: usize) -> Vec<u8> {
    (0..length).map(|n| n as u8).collect()
}

fn cut(source: IpAddr, ident: u32, datagram: &[u8]) -> Vec<Vec<u8>> {
    let count = datagram.len().div_ceil(CUT);
    let parts = datagram.chunks(CUT).enumerate();
    let parts = parts.map(|(n, bytes)| part(source, ident, n * CUT, bytes, n + 1 == count));
    parts.collect()
}

/// A fragment of UDP.
pub(crate) fn part(
    source: IpAddr,
    ident: u32,
    offset: usize,
    bytes: &[u8],
    is_last: bool,
) -> Vec<u8> {
    let header = ip_header_len(source);
    let mut packet = vec![0; header];
    match source {
        IpAddr::V4(_) => {
            packet.extend(bytes);
            let own = [10, 9, 0, 1].into();
            write_ip_header(&mut packet, source, own, UDP, bytes.len());
            packet[4..6].copy_from_slice(&(ident as u16).to_be_bytes());
            let more = if is_last { 0 } else { 0x2000 };
            let place = (offset / 8) as u16 | more;
            packet[6..8].copy_from_slice(&place.to_be_bytes());
            seal_ipv4(&mut packet);
        }
        IpAddr::V6(_) => {
            let place = offset as u16 | u16::from(!is_last);
            packet.extend([UDP, 0]);
            packet.extend(place.to_be_bytes());
            packet.extend(ident.to_be_bytes());
            packet.extend(bytes);
            let own = "fd00:9::1".parse().expect("an address");
            let length = FRAGMENT_HEADER + bytes.len();
            write_ip_header(&mut packet, source, own, FRAGMENT, length);
        }
    }
    packet
}
