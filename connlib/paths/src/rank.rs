//! The order of pairs, and how much better a path must be to replace another.

use std::time::Duration;

use convoy_types::CandidateKind;

use crate::pair::Pair;

/// A path of the same rank replaces another if its round trip is shorter by a fifth and by this much.
const HYSTERESIS: Duration = Duration::from_millis(10);
/// The class of pairs with a relay on the way.
const RELAYED: u8 = 2;

/// The rank of a pair: the smaller, the better. Relays come last, two after one, and IPv6 before IPv4, as it has no NAT.
pub(crate) fn rank(pair: &Pair) -> (u8, bool) {
    let class = match pair.candidate.kind {
        CandidateKind::Relayed => RELAYED + u8::from(pair.is_by_relay()),
        _ if pair.is_by_relay() => RELAYED,
        CandidateKind::Host => 0,
        CandidateKind::Mapped | CandidateKind::Reflexive | CandidateKind::Learnt => 1,
    };
    (class, pair.candidate.address.is_ipv4())
}

/// Returns whether a relay is on the way.
pub(crate) fn is_relayed(pair: &Pair) -> bool {
    rank(pair).0 >= RELAYED
}

/// Returns whether `pair`, which has just answered, is to replace the hub. A relayed path that is slower is of no use.
pub(crate) fn beats_hub(pair: &Pair, hub: Option<Duration>) -> bool {
    match (pair.round_trip, hub) {
        (Some(new), Some(hub)) if is_relayed(pair) => new < hub + HYSTERESIS.max(hub / 5),
        _ => true,
    }
}

/// Returns whether `pair`, which has just answered, is to replace the path.
pub(crate) fn is_better(pair: &Pair, path: &Pair, now: Duration) -> bool {
    // A path that has gone silent is no match for one that answers.
    if path.is_silent(now) {
        return true;
    }
    if rank(pair) != rank(path) {
        return rank(pair) < rank(path);
    }
    match (pair.round_trip, path.round_trip) {
        (Some(new), Some(old)) => new + HYSTERESIS.max(old / 5) <= old,
        _ => false,
    }
}

/// Returns whether `pair` may turn out to be better than the path.
pub(crate) fn may_be_better(pair: &Pair, path: &Pair, now: Duration) -> bool {
    path.is_silent(now) || rank(pair) <= rank(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::tests::pair;

    #[test]
    fn host_goes_before_reflexive_before_relayed_and_ipv6_before_ipv4() {
        use CandidateKind::{Host, Learnt, Mapped, Reflexive, Relayed};
        let order = [
            (Host, "[2001:db8::1]:1"),
            (Host, "192.0.2.1:1"),
            (Learnt, "[2001:db8::1]:1"),
            (Mapped, "192.0.2.1:1"),
            (Relayed, "[2001:db8::1]:1"),
            (Relayed, "192.0.2.1:1"),
        ];
        let order = order.map(|(kind, address)| pair(kind, address, Some(100)));
        for better in 0..order.len() {
            for worse in better + 1..order.len() {
                assert!(is_better(&order[better], &order[worse], Duration::ZERO));
                assert!(!is_better(&order[worse], &order[better], Duration::ZERO));
                assert!(!may_be_better(
                    &order[worse],
                    &order[better],
                    Duration::ZERO
                ));
            }
        }
        let same = [Mapped, Reflexive, Learnt].map(|kind| rank(&pair(kind, "192.0.2.1:1", None)));
        assert_eq!(same, [same[0]; 3]);
    }

    #[test]
    fn within_a_rank_a_path_gives_way_to_one_shorter_by_a_fifth_and_ten_milliseconds() {
        let at = |ms| pair(CandidateKind::Host, "192.0.2.1:1", Some(ms));
        for (new, old, expected) in [
            (100, 100, false),
            (91, 100, false),
            (81, 100, false),
            (80, 100, true),
            (1, 10, false),
            (1, 11, true),
            (20, 31, true),
            (22, 31, false),
        ] {
            assert_eq!(
                is_better(&at(new), &at(old), Duration::ZERO),
                expected,
                "{new} {old}"
            );
        }
    }

    #[test]
    fn this_sides_relay_ranks_as_the_peers_and_both_come_last() {
        use CandidateKind::{Host, Reflexive, Relayed};
        let own = |kind| Pair::by_relay(pair(kind, "192.0.2.1:1", None).candidate);
        let theirs = rank(&pair(Relayed, "192.0.2.1:1", None));
        assert_eq!([Host, Reflexive].map(|kind| rank(&own(kind))), [theirs; 2]);
        assert!(rank(&own(Relayed)) > theirs);
    }

    #[test]
    fn a_relayed_path_replaces_the_hub_unless_it_is_slower_by_a_fifth_and_ten_milliseconds() {
        let ms = Duration::from_millis;
        for (new, hub, expected) in [
            (100, 100, true),
            (119, 100, true),
            (120, 100, false),
            (19, 10, true),
            (20, 10, false),
        ] {
            let relayed = pair(CandidateKind::Relayed, "192.0.2.1:1", Some(new));
            assert_eq!(beats_hub(&relayed, Some(ms(hub))), expected, "{new} {hub}");
            assert!(beats_hub(&relayed, None));
            let direct = pair(CandidateKind::Host, "192.0.2.1:1", Some(new));
            assert!(beats_hub(&direct, Some(ms(hub))));
        }
    }
}
