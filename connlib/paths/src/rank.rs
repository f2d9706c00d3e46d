//! The order of pairs, and how much better a path must be to replace another.

use std::time::Duration;

use convoy_types::CandidateKind;

use crate::pair::Pair;

/// A path of the same rank replaces another if its round trip is shorter by a fifth and by this much.
const HYSTERESIS: Duration = Duration::from_millis(10);

/// The rank of a pair: the smaller, the better. Relays come last, and IPv6 before IPv4, as it has no NAT.
pub(crate) fn rank(pair: &Pair) -> (u8, bool) {
    let class = match pair.candidate.kind {
        CandidateKind::Host => 0,
        CandidateKind::Mapped | CandidateKind::Reflexive | CandidateKind::Learnt => 1,
        CandidateKind::Relayed => 2,
    };
    (class, pair.candidate.address.is_ipv4())
}

/// Whether `pair`, which has just answered, is to replace the path.
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

/// Whether `pair` may turn out to be better than the path.
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
}
