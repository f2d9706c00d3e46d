//! The verdicts on a run, each with its figure and its bound.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use convoy_lab::traffic::LatencyReport;
use serde::{Deserialize, Serialize};

use super::events::{Event, Kind};
use super::hub::SPOKES;
use super::record::{Record, Sample};
use super::streams::{Stall, Stream};

/// How long an event may have effects after its end, in seconds.
const SETTLING: f64 = 5.0;
/// The warm-up, which is not counted, in seconds; in a short run a quarter of it.
const WARM_UP: f64 = 120.0;
/// How late a sample may be, in seconds.
const LATE: f64 = 0.5;
/// How much of all CPUs other programs may use.
const OTHERS: f64 = 0.25;
/// Rekey-After-Time of the paper (section 6.1), after which the next packet renews the session.
const REKEY_AFTER: u64 = 120;
/// A lost attempt is repeated after five seconds; an outage takes two.
const REKEY_SLACK: u64 = 12;
/// TCP waits up to as long again as the way was closed, and for its first timeout.
const STALL_SECONDS: f64 = 3.0;
/// How much more memory a daemon may have at the end than after the warm-up.
const GROWTH_KIB: f64 = 1_024.0;
/// How steeply its memory may rise.
const SLOPE_KIB_PER_MINUTE: f64 = 100.0;
/// A slope over fewer seconds after the warm-up says nothing.
const SLOPE_SECONDS: usize = 180;
/// The number of stretches whose medians give a slope.
const STRETCHES: usize = 200;
/// Descriptors that UAPI clients and a change of port need for a moment.
const MOMENTARY: f64 = 8.0;
/// Round trips on an idle machine with two cores.
const MEDIAN_MS: f64 = 2.0;
const P99_MS: f64 = 20.0;
/// Seconds that may be worse, as a share of all.
const WORSE: f64 = 0.05;
/// Probes that may be lost without an event, as a share of all.
const LOST: f64 = 0.001;
/// How long the kernel sends packets of its own on new interfaces, in seconds.
const STARTING: f64 = 10.0;

/// One conclusion.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub(super) what: String,
    pub(super) passed: bool,
    pub(super) found: String,
    pub(super) bound: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what, found, bound, ..
        } = self;
        let passed = if self.passed { "yes" } else { "**no**" };
        writeln!(f, "- {what}: {passed}. {found} (bound: {bound}).")
    }
}

/// All verdicts on a run.
pub(super) fn judge(record: &Record) -> Vec<Verdict> {
    vec![
        alive(record),
        undisturbed(record),
        events(record),
        handshakes(record),
        data(record),
        stalls(record),
        growth(record),
        slope(record),
        flat(record, "descriptors flat", |sample| &sample.descriptors),
        flat(record, "threads flat", |sample| &sample.threads),
        median_round_trip(record),
        p99_round_trip(record),
        lost_probes(record),
        drops(record),
    ]
}

fn verdict(what: &str, passed: bool, found: String, bound: impl Into<String>) -> Verdict {
    Verdict {
        what: what.to_owned(),
        passed,
        found,
        bound: bound.into(),
    }
}

fn alive(record: &Record) -> Verdict {
    let seconds = record.samples.len() as u64;
    let passed = record.death.is_none() && seconds >= record.secs;
    let found = record.death.clone();
    let found = found.unwrap_or_else(|| format!("all for {seconds} s"));
    verdict("daemons alive", passed, found, "no daemon ends early")
}

/// A machine that stands still, or works for others, says little about a daemon.
fn undisturbed(record: &Record) -> Verdict {
    let due = record.samples.iter().zip(1..);
    let late = due.map(|(sample, second)| sample.at_s - f64::from(second));
    let latest = late.fold(0.0, f64::max);
    let others = median(record.samples.iter().map(|sample| sample.others_cpus));
    let share = others / record.origin.host.cpus as f64;
    let found = format!(
        "other programs used {:.0} % of it in the median second; a sample was {latest:.1} s late",
        share * 100.0
    );
    let bound = format!(
        "{:.0} %, and {LATE} s: else stalls and round trips are not the daemons'",
        OTHERS * 100.0
    );
    let passed = latest <= LATE && share <= OTHERS;
    verdict("machine undisturbed", passed, found, bound)
}

/// Every planned change could be made.
fn events(record: &Record) -> Verdict {
    let events = &record.events;
    let failed: Vec<_> = events.iter().filter_map(|it| it.error.as_deref()).collect();
    let [ports, flaps, syncconfs] = [Kind::Port, Kind::Flap, Kind::Syncconf]
        .map(|kind| events.iter().filter(|event| event.kind == kind).count());
    let mut found = format!("{ports} port changes, {flaps} flaps, {syncconfs} syncconfs");
    if !failed.is_empty() {
        found += &format!("; {}", failed.join("; "));
    }
    verdict("events done", failed.is_empty(), found, "all of them")
}

/// No session is used for longer than the protocol allows, and each spoke renewed one because of its age.
fn handshakes(record: &Record) -> Verdict {
    let limit = REKEY_AFTER + REKEY_SLACK;
    let spokes = SPOKES.map(|spoke| ages(record, spoke));
    let oldest = spokes.iter().flatten().copied().max().unwrap_or(0);
    let seen = spokes.each_ref().map(Vec::len);
    // The last one goes on.
    let by_age = spokes.each_ref().map(|ages| {
        let ended = ages.iter().rev().skip(1);
        ended.filter(|age| **age >= REKEY_AFTER).count()
    });
    // A spoke whose peer was removed starts again with a new session.
    let is_long_enough = record.secs >= 2 * limit + 60 * SPOKES.len() as u64;
    let expected = usize::from(is_long_enough);
    let is_renewed = by_age.iter().all(|count| *count >= expected);
    verdict(
        "handshakes renewed",
        !seen.contains(&0) && oldest <= limit && is_renewed,
        format!(
            "{seen:?} by spoke, {by_age:?} of them because the session was {REKEY_AFTER} s old; \
             the oldest became {oldest} s"
        ),
        format!("none older than {limit} s; each spoke renewed by age at least {expected} times"),
    )
}

/// How old each session of a spoke became, in seconds; the last one, until the end.
fn ages(record: &Record, spoke: u8) -> Vec<u64> {
    let own = record.handshakes.iter().filter(|it| it.spoke == spoke);
    let mut times: Vec<_> = own.map(|handshake| handshake.unix_s).collect();
    times.sort_unstable();
    times.push(record.origin.began_unix_s + record.secs);
    let ages = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    ages.collect()
}

/// Everything that was sent arrived, as it was sent.
fn data(record: &Record) -> Verdict {
    let streams = &record.streams;
    let broken = streams.iter().filter_map(|stream| {
        let is_short = stream.verified_bytes != stream.sent_bytes;
        let missing = is_short.then_some("bytes are missing");
        let why = stream.error.as_deref().or(missing)?;
        Some(format!("; {stream}: {why}"))
    });
    let broken: String = broken.collect();
    let bytes: u64 = streams.iter().map(|stream| stream.verified_bytes).sum();
    let passed = !streams.is_empty() && broken.is_empty();
    let (gigabytes, count) = (bytes as f64 / 1e9, streams.len());
    let found = format!("{gigabytes:.1} GB over {count} streams{broken}");
    let bound = "every byte of every stream arrives as it was sent";
    verdict("data verified", passed, found, bound)
}

/// No stream stood still for long.
fn stalls(record: &Record) -> Verdict {
    let all = record.streams.iter().flat_map(|stream| {
        let stalls = stream.stalls.iter();
        stalls.map(move |stall| (stream, stall, without_outage(record, stream, stall)))
    });
    let longest = all.max_by(|a, b| a.2.total_cmp(&b.2));
    let found = longest.map_or("none".to_owned(), |(stream, stall, length)| {
        format!(
            "the longest {:.1} s, {length:.1} s without the cable's outage, of {stream} at {:.0} s",
            stall.until_s - stall.from_s,
            stall.from_s
        )
    });
    let passed = longest.is_none_or(|(_, _, length)| length <= STALL_SECONDS);
    let bound =
        format!("no silence longer than {STALL_SECONDS} s, besides that of a cable that is out");
    verdict("streams go on", passed, found, bound)
}

/// How long a stall was, less the time in which the spoke's cable was out.
fn without_outage(record: &Record, stream: &Stream, stall: &Stall) -> f64 {
    let outages = record
        .events
        .iter()
        .filter(|event| event.kind == Kind::Flap);
    let own = outages.filter(|event| event.spoke == Some(stream.spoke));
    let common = own.map(|event| {
        let common = stall.until_s.min(event.until_s) - stall.from_s.max(event.from_s);
        common.max(0.0)
    });
    stall.until_s - stall.from_s - common.sum::<f64>()
}

/// Median memory of the last tenth against that of the first.
fn growth(record: &Record) -> Verdict {
    let courses = courses(record, |sample| &sample.rss_kib);
    let passed = courses.iter().all(|it| it.last - it.first <= GROWTH_KIB);
    let found = courses.iter().map(
        |Course {
             daemon,
             first,
             last,
             ..
         }| { format!("{daemon} {:+.0} of {first:.0}", last - first) },
    );
    let bound = format!(
        "at most {GROWTH_KIB} KiB more in the last tenth than in the first after {} s",
        warm_up(record)
    );
    verdict("memory flat (VmRSS, KiB)", passed, joined(found), bound)
}

/// The trend of memory, whatever it does from second to second.
fn slope(record: &Record) -> Verdict {
    let what = "memory has no trend";
    let bound = format!("at most {SLOPE_KIB_PER_MINUTE} KiB a minute");
    let courses = courses(record, |sample| &sample.rss_kib);
    if courses.iter().any(|it| it.values.len() < SLOPE_SECONDS) {
        return verdict(what, true, "too short a run to tell".to_owned(), bound);
    }
    let slopes = courses
        .iter()
        .map(|it| (it.daemon, slope_of(&it.values) * 60.0));
    let slopes: Vec<_> = slopes.collect();
    let passed = slopes
        .iter()
        .all(|(_, slope)| *slope <= SLOPE_KIB_PER_MINUTE);
    let found = slopes
        .iter()
        .map(|(daemon, slope)| format!("{daemon} {slope:+.1}"));
    verdict(what, passed, joined(found) + " KiB a minute", bound)
}

/// As many at the end as after the warm-up, and never many more.
fn flat(record: &Record, what: &str, of: fn(&Sample) -> &[u64]) -> Verdict {
    let courses = courses(record, of);
    let is_flat = |it: &Course| it.first == it.last && it.most() <= it.last + MOMENTARY;
    let found = courses.iter().map(|it| {
        let Course {
            daemon,
            first,
            last,
            ..
        } = it;
        format!("{daemon} {first} → {last} (most {})", it.most())
    });
    let bound =
        format!("the same number in the last tenth as in the first; never {MOMENTARY} more");
    verdict(what, courses.iter().all(is_flat), joined(found), bound)
}

/// The values of one daemon after the warm-up, and the medians of their first and last tenth.
struct Course<'a> {
    daemon: &'a str,
    values: Vec<f64>,
    first: f64,
    last: f64,
}

impl Course<'_> {
    fn most(&self) -> f64 {
        self.values.iter().copied().fold(0.0, f64::max)
    }
}

fn courses(record: &Record, of: fn(&Sample) -> &[u64]) -> Vec<Course<'_>> {
    let warm_up = warm_up(record);
    let course = |(number, daemon)| {
        let samples = record.samples.iter().filter(|it| it.at_s > warm_up);
        let values: Vec<_> = samples.map(|sample| of(sample)[number] as f64).collect();
        let tenth = (values.len() / 10).clamp(10, 3_600).min(values.len());
        Course {
            daemon,
            first: median(values.iter().take(tenth).copied()),
            last: median(values.iter().rev().take(tenth).copied()),
            values,
        }
    };
    let daemons = record.daemons.iter().map(String::as_str);
    daemons.enumerate().map(course).collect()
}

fn warm_up(record: &Record) -> f64 {
    WARM_UP.min(record.secs as f64 / 4.0)
}

/// The median of the slopes between all pairs of values (Theil 1950, Sen 1968), over medians of stretches: single
/// peaks do not move it.
fn slope_of(values: &[f64]) -> f64 {
    let stretch = values.len().div_ceil(STRETCHES);
    let middles = values
        .chunks(stretch)
        .map(|part| median(part.iter().copied()));
    let middles: Vec<_> = middles.collect();
    let slope =
        |from: usize, to: usize| (middles[to] - middles[from]) / ((to - from) * stretch) as f64;
    let pairs =
        (0..middles.len()).flat_map(|from| (from + 1..middles.len()).map(move |to| (from, to)));
    median(pairs.map(|(from, to)| slope(from, to)))
}

/// The usual round trip beside the load.
fn median_round_trip(record: &Record) -> Verdict {
    let medians = quiet_seconds(record, |latency| latency.median_ms);
    let (found, seconds) = (median(medians.iter().copied()), medians.len());
    verdict(
        "round trip under load, median",
        seconds > 0 && found <= MEDIAN_MS,
        format!("{found:.2} ms in the median of {seconds} quiet seconds"),
        format!("{MEDIAN_MS} ms"),
    )
}

/// The long round trips beside the load.
fn p99_round_trip(record: &Record) -> Verdict {
    let p99s = quiet_seconds(record, |latency| latency.p99_ms);
    let usual = median(p99s.iter().copied());
    let worse = quantile(p99s.iter().copied(), 1.0 - WORSE);
    verdict(
        "round trip under load, p99",
        !p99s.is_empty() && worse <= P99_MS,
        format!("{usual:.2} ms in the median second, {worse:.2} ms in the worst of 20"),
        format!("{P99_MS} ms in 19 of 20 quiet seconds"),
    )
}

/// Nothing repairs UDP: where nothing happens, nothing is lost.
fn lost_probes(record: &Record) -> Verdict {
    let sum = |of: fn(&LatencyReport) -> u64| quiet(record).map(|it| of(&it)).sum::<u64>();
    let sent = sum(|latency| latency.sent);
    let lost = sent - sum(|latency| latency.received);
    verdict(
        "probes come back",
        sent > 0 && lost as f64 <= LOST * sent as f64,
        format!("{lost} of {sent} lost in quiet seconds"),
        format!("at most {} %", LOST * 100.0),
    )
}

fn quiet_seconds(record: &Record, of: fn(LatencyReport) -> Option<f64>) -> Vec<f64> {
    quiet(record).filter_map(of).collect()
}

/// The round trips of seconds in which no event can be felt.
fn quiet(record: &Record) -> impl Iterator<Item = LatencyReport> {
    let is_disturbed = |sample: &Sample| {
        record.events.iter().any(|event| {
            let has_begun = event.from_s < sample.at_s + 1.0;
            has_begun && sample.at_s - 1.0 < event.until_s + SETTLING
        })
    };
    let steady = record.samples.iter().filter(|it| it.at_s > SETTLING);
    let quiet = steady.filter(move |sample| !is_disturbed(sample));
    quiet.filter_map(|sample| sample.latency)
}

/// Every drop has a reason that an event explains, near that event.
fn drops(record: &Record) -> Verdict {
    let (mut explained, mut others) = (BTreeMap::new(), BTreeMap::new());
    for sample in &record.samples {
        for (reason, count) in sample.drops.values().flatten() {
            let explains = |event: &Event| {
                let has_begun = event.from_s <= sample.at_s + LATE;
                let is_felt = has_begun && sample.at_s - 1.0 <= event.until_s + SETTLING;
                is_felt && reasons(event.kind).contains(&reason.as_str())
            };
            // The kernel reports the multicast groups of a new interface, which no peer has.
            let is_of_start = sample.at_s < STARTING && reason == "outbound_no_route";
            let is_known = is_of_start || record.events.iter().any(explains);
            let group = if is_known {
                &mut explained
            } else {
                &mut others
            };
            *group.entry(reason.as_str()).or_insert(0) += count;
        }
    }
    let list = |group: &BTreeMap<&str, u64>| match group.is_empty() {
        true => "none".to_owned(),
        false => joined(
            group
                .iter()
                .map(|(reason, count)| format!("{reason} {count}")),
        ),
    };
    let found = format!(
        "unexplained: {}; explained: {}",
        list(&others),
        list(&explained)
    );
    let bound = format!("only of reasons that an event has, within {SETTLING} s of it");
    verdict("drops explained", others.is_empty(), found, bound)
}

/// The reasons for which a daemon may drop packets after an event.
fn reasons(kind: Kind) -> &'static [&'static str] {
    match kind {
        // The spokes' datagrams to the former port; no way out.
        Kind::Port | Kind::Flap => &["outbound_send_failed"],
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

fn joined(found: impl Iterator<Item = String>) -> String {
    found.collect::<Vec<_>>().join(", ")
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

/// 0 of no values.
fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let index = (share * last as f64).round() as usize;
    values.get(index).copied().unwrap_or(0.0)
}
