use convoy_lab::measure::Direction;
use convoy_lab::traffic::LatencyReport;

use super::super::events::{Kind, PORT_CHANGE, SYNCCONF};
use super::*;

const BEGAN: u64 = 1_800_000_000;

/// A run of `secs` seconds without faults, in which memory fluctuates a little.
fn observed(secs: u64) -> Observed {
    let stream = |spoke, direction| Stream {
        spoke,
        direction,
        sent_bytes: 1_000_000,
        verified_bytes: 1_000_000,
        error: None,
    };
    let streams =
        SPOKES.map(|spoke| [stream(spoke, Direction::Up), stream(spoke, Direction::Down)]);
    let handshakes = SPOKES.iter().flat_map(|spoke| {
        let times = (0..=secs / 120).map(|number| BEGAN + number * 120);
        times.map(|unix_s| (*spoke, unix_s))
    });
    let event = |kind: Kind| Event {
        from_s: kind.second as f64 + 0.001,
        until_s: kind.second as f64 + 2.0,
        kind,
        spoke: (kind != PORT_CHANGE).then_some(2),
        error: None,
    };
    Observed {
        began_unix_s: BEGAN,
        secs,
        daemons: ["hub", "spoke 2"].map(str::to_owned).into(),
        events: [PORT_CHANGE, FLAP, SYNCCONF].map(event).into(),
        streams: streams.concat(),
        handshakes: handshakes.collect(),
        death: None,
        samples: (1..=secs).map(sample).collect(),
    }
}

fn sample(second: u64) -> Sample {
    let every = |period, most| u64::from(second.is_multiple_of(period)) * most;
    // Fluctuates by 400 KiB, with an occasional peak of a megabyte.
    let resident_kib = 14_000 + second * 7_919 % 401 + every(97, 1_000);
    Sample {
        at_s: second as f64,
        latency: latency(400, 0.8, 4.0 + every(50, 86) as f64),
        usage: vec![usage(resident_kib, 20 + every(13, 1)), usage(13_000, 19)],
        ..Sample::default()
    }
}

fn latency(received: u64, median_ms: f64, p99_ms: f64) -> Option<LatencyReport> {
    Some(LatencyReport {
        sent: 400,
        received,
        median_ms: Some(median_ms),
        p99_ms: Some(p99_ms),
    })
}

fn usage(resident_kib: u64, descriptors: u64) -> Usage {
    Usage {
        resident_kib,
        descriptors,
        threads: 5,
        ..Usage::default()
    }
}

fn silence(observed: &mut Observed, stream: usize, from_s: f64, until_s: f64) {
    let samples = observed.samples.iter_mut();
    let silent = samples.filter(|it| it.at_s - 1.0 >= from_s && it.at_s <= until_s);
    silent.for_each(|sample| sample.silent.push(stream));
}

fn leak(observed: &mut Observed, kib_per_second: u64) {
    let samples = observed.samples.iter_mut().zip(0..);
    samples.for_each(|(sample, second)| sample.usage[1].resident_kib += kib_per_second * second);
}

fn slow(observed: &mut Observed, seconds: std::ops::Range<usize>) {
    for sample in &mut observed.samples[seconds] {
        sample.latency = latency(390, 3.0, 30.0);
    }
}

fn dropped(observed: &mut Observed, second: usize, reason: &str) {
    observed.samples[second].drops.insert(reason.to_owned(), 7);
}

fn busy(observed: &mut Observed, share: f64) {
    for sample in &mut observed.samples {
        sample.others_percent = share * 100.0;
    }
}

/// Alters the run without faults.
type Change = fn(&mut Observed);

const MEMORY: [&str; 2] = ["memory flat (VmRSS, KiB)", "memory has no trend"];
const ROUND_TRIPS: [&str; 3] = [
    "round trip under load, median",
    "round trip under load, p99",
    "probes come back",
];
const STREAMS: &[&str] = &["streams go on"];
const HANDSHAKES: &[&str] = &["handshakes renewed"];
const DROPS: &[&str] = &["drops explained"];

/// Each has the run's seconds, and the verdicts that must then fail.
#[rustfmt::skip]
const CASES: &[(&str, u64, Change, &[&str])] = &[
    ("nothing, shortly", 30, |_| {}, &[]),
    ("nothing", 600, |_| {}, &[]),
    ("nothing, for long", 4_000, |_| {}, &[]),
    ("a death", 60, |it| it.death = Some("hub: it has ended".to_owned()), &["daemons alive"]),
    ("an early end", 60, |it| it.samples.truncate(40), &["daemons alive"]),
    ("a late sample", 60, |it| it.samples[17].at_s += 0.4, &[]),
    ("a standstill", 60, |it| it.samples[17].at_s += 1.1, &["machine undisturbed"]),
    ("some work for others", 60, |it| busy(it, 0.1), &[]),
    ("work for others", 60, |it| busy(it, 0.5), &["machine undisturbed"]),
    ("a failed event", 60, |it| it.events[0].error = Some("no".to_owned()), &["events done"]),
    ("a missing byte", 60, |it| it.streams[3].verified_bytes -= 1, &["data verified"]),
    ("a reset", 60, |it| it.streams[3].error = Some("reset".to_owned()), &["data verified"]),
    ("silence in an outage", 60, |it| silence(it, 0, 30.1, 34.9), &[]),
    ("a longer one", 60, |it| silence(it, 0, 30.1, 35.5), STREAMS),
    ("one in another's outage", 60, |it| silence(it, 2, 30.1, 34.9), STREAMS),
    ("a short silence", 60, |it| silence(it, 0, 12.0, 14.9), &[]),
    ("a long silence", 60, |it| silence(it, 0, 12.0, 15.5), STREAMS),
    ("a leak below the noise", 600, |it| leak(it, 3), &MEMORY),
    ("a slow leak", 4_000, |it| leak(it, 1), &[MEMORY[0]]),
    ("memory that grows while warming up", 600,
        |it| it.samples[..100].iter_mut().for_each(|it| it.usage[0].resident_kib = 4_000), &[]),
    ("a descriptor that stays open", 600,
        |it| it.samples[400..].iter_mut().for_each(|it| it.usage[0].descriptors += 1), &["descriptors flat"]),
    ("a thread that stays", 600,
        |it| it.samples[400..].iter_mut().for_each(|it| it.usage[1].threads += 1), &["threads flat"]),
    ("a session not renewed in time", 600,
        |it| it.handshakes.retain(|it| *it != (4, BEGAN + 240)), HANDSHAKES),
    ("a spoke without a session", 60, |it| it.handshakes.retain(|it| it.0 != 4), HANDSHAKES),
    ("sessions that only events renew", 600, |it| {
        it.handshakes.retain(|it| it.0 != 4);
        it.handshakes.extend((0..=10).map(|number| (4, BEGAN + number * 60)));
    }, HANDSHAKES),
    ("slow round trips in an event", 100, |it| slow(it, 30..36), &[]),
    ("slow round trips for a while", 100, |it| slow(it, 60..70), &[ROUND_TRIPS[1], ROUND_TRIPS[2]]),
    ("slow round trips", 100, |it| slow(it, 0..100), &ROUND_TRIPS),
    ("a drop as its event begins", 100, |it| dropped(it, 49, "outbound_no_route"), &[]),
    ("a drop after its event", 100, |it| dropped(it, 51, "outbound_no_route"), &[]),
    ("a drop long after its event", 100, |it| dropped(it, 70, "outbound_no_route"), DROPS),
    ("a drop in another event", 100, |it| dropped(it, 31, "outbound_no_route"), DROPS),
    ("a drop that no event explains", 100, |it| dropped(it, 51, "inbound_bad_tag"), DROPS),
];

#[test]
fn each_fault_fails_its_verdicts_and_no_other() {
    for (fault, secs, change, expected) in CASES {
        let mut observed = observed(*secs);
        change(&mut observed);
        let failed = judge(&observed)
            .into_iter()
            .filter(|(_, passed, _)| !passed);
        let failed: Vec<_> = failed.map(|(what, ..)| what).collect();
        assert_eq!(failed, *expected, "{fault}");
    }
}
