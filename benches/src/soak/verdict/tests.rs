use std::collections::BTreeMap;

use crate::origin::Origin;
use convoy_lab::measure::Host;

use super::*;
use crate::soak::{
    bed::SPOKES,
    events::{Event, Kind},
    flow::{Direction, Stall, Stream},
    record::Handshake,
    record::Header,
    record::Latency,
};

const BEGAN: u64 = 1_800_000_000;
const EACH: [Direction; 2] = [Direction::Up, Direction::Down];

/// A run of `secs` seconds in which nothing went wrong, and memory went up and down a little.
pub(super) fn record(secs: u64) -> Record {
    let streams = SPOKES
        .iter()
        .flat_map(|spoke| EACH.map(|direction| stream(*spoke, direction)));
    let handshakes = SPOKES.iter().flat_map(|spoke| {
        (0..=secs / 120).map(|number| Handshake {
            spoke: *spoke,
            unix_s: BEGAN + number * 120,
        })
    });
    Record {
        header: Header {
            origin: Origin {
                host: Host::of_this_machine(),
                commit: "0123456".to_owned(),
                started: String::new(),
                began_unix_s: BEGAN,
                command: Vec::new(),
                versions: Vec::new(),
            },
            secs,
            rate_mbps: 100.0,
            daemons: ["hub", "spoke 2"].map(str::to_owned).into(),
        },
        verdicts: Vec::new(),
        events: [(10, Kind::Port), (30, Kind::Flap), (50, Kind::Syncconf)]
            .map(|(at, kind)| event(at, kind))
            .into(),
        streams: streams.collect(),
        handshakes: handshakes.collect(),
        death: None,
        samples: (1..=secs).map(sample).collect(),
    }
}

fn stream(spoke: u8, direction: Direction) -> Stream {
    Stream {
        spoke,
        direction,
        sent_bytes: 1_000_000,
        verified_bytes: 1_000_000,
        stalls: Vec::new(),
        error: None,
    }
}

fn event(at: u64, kind: Kind) -> Event {
    Event {
        from_s: at as f64 + 0.001,
        until_s: at as f64 + 2.0,
        kind,
        spoke: (kind != Kind::Port).then_some(2),
        error: None,
    }
}

fn sample(second: u64) -> Sample {
    // Up and down by 400 KiB, and a peak of a megabyte now and then.
    let noise = second * 7_919 % 401 + if second.is_multiple_of(97) { 1_000 } else { 0 };
    Sample {
        at_s: second as f64,
        latency: Some(Latency {
            sent: 400,
            lost: 0,
            median_ms: Some(0.8),
            p99_ms: Some(if second.is_multiple_of(50) { 90.0 } else { 4.0 }),
        }),
        rss_kib: vec![14_000 + noise, 13_000],
        descriptors: vec![20 + u64::from(second.is_multiple_of(13)), 19],
        threads: vec![5, 5],
        ..Sample::default()
    }
}

fn failed(record: &Record) -> Vec<String> {
    let verdicts = judge(record).into_iter();
    verdicts.filter(|v| !v.passed).map(|v| v.what).collect()
}

/// The verdicts that fail after `change`.
fn failed_after(secs: u64, change: impl FnOnce(&mut Record)) -> Vec<String> {
    let mut record = record(secs);
    change(&mut record);
    failed(&record)
}

#[test]
fn a_run_in_which_memory_is_noisy_but_flat_passes() {
    for secs in [30, 300, 600, 4_000] {
        assert_eq!(failed(&record(secs)), [""; 0], "{secs} s");
    }
}

#[test]
fn a_leak_below_the_noise_is_found() {
    let leak = |per_second: u64| {
        move |record: &mut Record| {
            let samples = record.samples.iter_mut().zip(0..);
            samples.for_each(|(sample, second)| sample.rss_kib[1] += per_second * second);
        }
    };
    let both = ["memory flat (VmRSS, KiB)", "memory has no trend"];
    assert_eq!(failed_after(600, leak(3)), both);
    assert_eq!(failed_after(4_000, leak(1)), ["memory flat (VmRSS, KiB)"]);
}

#[test]
fn memory_that_grows_while_warming_up_is_no_leak() {
    let warm = |record: &mut Record| {
        let early = record.samples.iter_mut().take(100);
        early.for_each(|sample| sample.rss_kib[0] = 4_000);
    };
    assert_eq!(failed_after(600, warm), [""; 0]);
}

#[test]
fn one_descriptor_that_stays_open_is_found() {
    let leak = |record: &mut Record| {
        let late = record.samples.iter_mut().skip(400);
        late.for_each(|sample| sample.descriptors[0] += 1);
    };
    assert_eq!(failed_after(600, leak), ["descriptors flat"]);
    let thread = |record: &mut Record| {
        let late = record.samples.iter_mut().skip(400);
        late.for_each(|sample| sample.threads[1] += 1);
    };
    assert_eq!(failed_after(600, thread), ["threads flat"]);
}

#[test]
fn a_stall_is_forgiven_for_as_long_as_the_cable_was_out() {
    let stalled = |stream: usize, from_s: f64, until_s: f64| {
        failed_after(60, move |record| {
            let stall = Stall { from_s, until_s };
            record.streams[stream].stalls.push(stall);
        })
    };
    assert_eq!(stalled(0, 30.1, 34.9), [""; 0]);
    assert_eq!(stalled(0, 30.1, 35.5), ["streams go on"]);
    assert_eq!(stalled(0, 12.0, 14.9), [""; 0]);
    assert_eq!(stalled(0, 12.0, 15.5), ["streams go on"]);
    // The cable of another spoke.
    assert_eq!(stalled(2, 30.1, 34.9), ["streams go on"]);
}

#[test]
fn a_stream_that_lost_a_byte_or_ended_is_found() {
    let missing = |record: &mut Record| record.streams[3].verified_bytes -= 1;
    assert_eq!(failed_after(60, missing), ["data verified"]);
    let ended = |record: &mut Record| record.streams[3].error = Some("reset".to_owned());
    assert_eq!(failed_after(60, ended), ["data verified"]);
}

#[test]
fn a_session_that_is_not_renewed_is_found() {
    let once = |record: &mut Record| {
        record
            .handshakes
            .retain(|h| h.spoke != 4 || h.unix_s != BEGAN + 240);
    };
    assert_eq!(failed_after(600, once), ["handshakes renewed"]);
    let never = |record: &mut Record| record.handshakes.retain(|h| h.spoke != 4);
    assert_eq!(failed_after(60, never), ["handshakes renewed"]);
}

#[test]
fn sessions_that_only_events_renew_are_not_enough() {
    let events_only = |record: &mut Record| {
        let times = (0..=10).map(|number| BEGAN + number * 60);
        let handshakes = times.map(|unix_s| Handshake { spoke: 4, unix_s });
        record.handshakes.retain(|h| h.spoke != 4);
        record.handshakes.extend(handshakes);
    };
    assert_eq!(failed_after(600, events_only), ["handshakes renewed"]);
}

#[test]
fn long_round_trips_are_forgiven_in_events_only() {
    let slow = |seconds: std::ops::Range<usize>| {
        failed_after(100, move |record| {
            for sample in &mut record.samples[seconds] {
                let latency = sample.latency.as_mut().unwrap();
                (latency.median_ms, latency.p99_ms) = (Some(3.0), Some(30.0));
                latency.lost = 10;
            }
        })
    };
    assert_eq!(slow(30..36), [""; 0]);
    let tail = ["round trip under load, p99", "probes come back"];
    assert_eq!(slow(60..70), tail);
    let all = [&["round trip under load, median"], &tail[..]].concat();
    assert_eq!(slow(0..100), all);
}

#[test]
fn a_drop_is_explained_by_its_event_and_only_while_that_is_felt() {
    let dropped = |second: usize, reason: &str| {
        failed_after(100, |record| {
            let by_reason = BTreeMap::from([(reason.to_owned(), 7)]);
            record.samples[second]
                .drops
                .insert("hub".to_owned(), by_reason);
        })
    };
    assert_eq!(
        dropped(49, "outbound_no_route"),
        [""; 0],
        "begins while all is looked at"
    );
    assert_eq!(dropped(51, "outbound_no_route"), [""; 0]);
    assert_eq!(dropped(70, "outbound_no_route"), ["drops explained"]);
    assert_eq!(dropped(31, "outbound_no_route"), ["drops explained"]);
    assert_eq!(dropped(51, "inbound_bad_tag"), ["drops explained"]);
}

#[test]
fn a_machine_that_stood_still_or_worked_for_others_is_told() {
    let late = |by: f64| move |record: &mut Record| record.samples[17].at_s += by;
    assert_eq!(failed_after(60, late(0.4)), [""; 0]);
    assert_eq!(failed_after(60, late(1.1)), ["machine undisturbed"]);
    let busy = |share: f64| {
        move |record: &mut Record| {
            let cpus = record.header.origin.host.cpus as f64;
            let samples = record.samples.iter_mut();
            samples.for_each(|sample| sample.others_cpus = share * cpus);
        }
    };
    assert_eq!(failed_after(60, busy(0.1)), [""; 0]);
    assert_eq!(failed_after(60, busy(0.5)), ["machine undisturbed"]);
}

#[test]
fn a_daemon_that_died_and_an_event_that_failed_are_found() {
    let dead = |record: &mut Record| record.death = Some("hub: the process has ended".to_owned());
    assert_eq!(failed_after(60, dead), ["daemons alive"]);
    let cut = |record: &mut Record| record.samples.truncate(40);
    assert_eq!(failed_after(60, cut), ["daemons alive"]);
    let failed_event = |record: &mut Record| record.events[0].error = Some("no".to_owned());
    assert_eq!(failed_after(60, failed_event), ["events done"]);
}
