//! The changes to the tunnels, and their effects.

use std::collections::BTreeMap;

use super::{LATE, SETTLING, Verdict, verdict};
use crate::soak::{
    bed::SPOKES,
    events::{Event, Kind},
    record::{Record, Sample},
};

/// Rekey-After-Time of the paper (section 6.1), after which the next packet renews the session.
const REKEY_AFTER: u64 = 120;
/// An attempt that is lost is repeated after five seconds; an outage takes two.
const REKEY_SLACK: u64 = 12;

/// How long the kernel sends packets of its own on new interfaces, in seconds.
const STARTING: f64 = 10.0;

/// Everything that was planned could be done.
pub(super) fn events(record: &Record) -> Verdict {
    let failed = record
        .events
        .iter()
        .filter_map(|event| event.error.as_deref());
    let failed: Vec<_> = failed.collect();
    let count = |kind| {
        record
            .events
            .iter()
            .filter(|event| event.kind == kind)
            .count()
    };
    let mut found = format!(
        "{} port changes, {} flaps, {} syncconfs",
        count(Kind::Port),
        count(Kind::Flap),
        count(Kind::Syncconf)
    );
    if !failed.is_empty() {
        found = format!("{found}; {}", failed.join("; "));
    }
    verdict(
        "events done",
        failed.is_empty(),
        found,
        "all of them".to_owned(),
    )
}

/// No session is used for longer than the protocol allows, and some ended of their own accord.
pub(super) fn handshakes(record: &Record) -> Verdict {
    let limit = REKEY_AFTER + REKEY_SLACK;
    let spokes = SPOKES.map(|spoke| ages(record, spoke));
    let oldest = spokes.iter().flatten().copied().max().unwrap_or(0);
    let each = |count: fn(&[u64]) -> usize| spokes.each_ref().map(|ages| count(ages));
    let seen = each(<[_]>::len);
    // The last one goes on.
    let by_age = each(|ages| {
        let ended = ages.iter().rev().skip(1);
        ended.filter(|age| **age >= REKEY_AFTER).count()
    });
    // A spoke whose peer was taken away starts again with a new session.
    let long_enough = record.header.secs >= 2 * limit + 60 * SPOKES.len() as u64;
    let expected = usize::from(long_enough);
    verdict(
        "handshakes renewed",
        !seen.contains(&0) && oldest <= limit && by_age.iter().all(|count| *count >= expected),
        format!(
            "{seen:?} by spoke, {by_age:?} of them because the session was {REKEY_AFTER} s old; \
             the oldest became {oldest} s"
        ),
        format!("none older than {limit} s; each spoke renewed by age at least {expected} times"),
    )
}

/// How old each session of a spoke became, in seconds; of the last one, until the end.
fn ages(record: &Record, spoke: u8) -> Vec<u64> {
    let own = record
        .handshakes
        .iter()
        .filter(|handshake| handshake.spoke == spoke);
    let mut times: Vec<_> = own.map(|handshake| handshake.unix_s).collect();
    times.sort_unstable();
    times.push(record.header.origin.began_unix_s + record.header.secs);
    times
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .collect()
}

/// Every drop has a reason that an event explains, near that event.
pub(super) fn drops(record: &Record) -> Verdict {
    let (mut explained, mut others) = (BTreeMap::new(), BTreeMap::new());
    for sample in &record.samples {
        for (reason, count) in sample.drops.values().flatten() {
            let explains = |event: &Event| {
                felt(event, sample) && reasons(event.kind).contains(&reason.as_str())
            };
            let known = at_start(sample, reason) || record.events.iter().any(explains);
            let group = if known { &mut explained } else { &mut others };
            *group.entry(reason.as_str()).or_insert(0) += count;
        }
    }
    let list = |group: &BTreeMap<&str, u64>| {
        let entries = group
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"));
        let text = entries.collect::<Vec<_>>().join(", ");
        if text.is_empty() {
            "none".to_owned()
        } else {
            text
        }
    };
    verdict(
        "drops explained",
        others.is_empty(),
        format!(
            "unexplained: {}; explained: {}",
            list(&others),
            list(&explained)
        ),
        format!("only of reasons that an event has, within {SETTLING} s of it"),
    )
}

/// The kernel reports the multicast groups of a new interface, which no peer has.
fn at_start(sample: &Sample, reason: &str) -> bool {
    sample.at_s < STARTING && reason == "outbound_no_route"
}

/// Whether an event can have an effect in the second before a sample, or while it is taken.
fn felt(event: &Event, sample: &Sample) -> bool {
    event.from_s <= sample.at_s + LATE && sample.at_s - 1.0 <= event.until_s + SETTLING
}

/// The reasons for which a daemon may drop packets after an event.
fn reasons(kind: Kind) -> &'static [&'static str] {
    match kind {
        // The spokes' datagrams to the port that was.
        Kind::Port => &["outbound_send_failed"],
        // No way out.
        Kind::Flap => &["outbound_send_failed"],
        // Packets for a peer that is none, its datagrams, and handshakes begun by both.
        Kind::Syncconf => &[
            "outbound_no_route",
            "outbound_peer_removed",
            "outbound_held_overflow",
            "inbound_unknown_session",
            "inbound_unknown_peer",
        ],
    }
}
