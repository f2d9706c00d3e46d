//! The verdicts on a run, each with its finding and its bound.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use convoy_lab::measure::process::Usage;
use itertools::Itertools as _;

use super::events::{Event, FLAP};
use super::hub::SPOKES;
use super::samples::{Observed, Sample};
use super::streams::Stream;

/// Seconds after its end in which an event may still have effects.
const SETTLING: f64 = 5.0;
/// Seconds of warm-up, which do not count; in a short run a quarter of it.
const WARM_UP: f64 = 120.0;
/// Maximum delay of a sample in seconds.
const LATE: f64 = 0.5;
/// Maximum share of all CPUs that other programs may use.
const OTHERS_PERCENT: f64 = 25.0;
/// Rekey-After-Time of the paper (section 6.1), after which the next packet renews the session.
const REKEY_AFTER: u64 = 120;
/// Adds an outage of two seconds and two retransmissions after five seconds each.
const OLDEST: u64 = REKEY_AFTER + 12;
/// After an outage, TCP's backoff may last as long again, plus its first timeout.
const SILENT_SECONDS: f64 = 3.0;
/// Maximum memory growth of a daemon from the end of the warm-up, and its maximum slope.
const GROWTH_KIB: f64 = 1_024.0;
const KIB_PER_MINUTE: f64 = 100.0;
/// Over fewer seconds after the warm-up, a slope means nothing.
const SLOPE_SECONDS: usize = 180;
/// Descriptors that UAPI clients and port changes need temporarily.
const MOMENTARY: f64 = 8.0;
/// Round trips on an idle machine with two cores; one second in 20 may be worse.
const MEDIAN_MS: f64 = 2.0;
const P99_MS: f64 = 20.0;
const USUAL_SECONDS: f64 = 0.95;
/// Probes that may be lost without an event.
const LOST_PERCENT: f64 = 0.1;
/// Seconds in which the kernel sends packets of its own on new interfaces.
const STARTING: f64 = 10.0;

/// Subject, whether the bound is met, and the whole verdict in words.
pub(super) type Verdict = (&'static str, bool, String);

/// Whether the bound is met, and the finding.
type Finding = (bool, String);

pub(super) fn judge(observed: &Observed) -> Vec<Verdict> {
    let each = |of, judge| of_each(observed, of, judge);
    let memory: fn(&Usage) -> u64 = |usage| usage.resident_kib;
    let [median, p99, lost] = round_trips(observed);
    let number = "the same number in the last tenth as in the first; never 8 more";
    #[rustfmt::skip]
    let verdicts = [
        ("daemons alive", alive(observed), "no daemon ends early".to_owned()),
        ("machine undisturbed", undisturbed(observed), format!("{OTHERS_PERCENT} % used by others, {LATE} s delay")),
        ("events done", events(observed), "all of them".to_owned()),
        ("handshakes renewed", handshakes(observed), format!("each spoke by age; none older than {OLDEST} s")),
        ("data verified", data(observed), "every byte arrives as it was sent".to_owned()),
        ("streams go on", silence(observed), format!("{SILENT_SECONDS} s, except during a cable's outage")),
        ("memory flat (VmRSS, KiB)", each(memory, growth), format!("{GROWTH_KIB} KiB more in the last tenth than in the first")),
        ("memory has no trend", each(memory, slope), format!("{KIB_PER_MINUTE} KiB per minute")),
        ("descriptors flat", each(|usage| usage.descriptors, flat), number.to_owned()),
        ("threads flat", each(|usage| usage.threads, flat), number.to_owned()),
        ("round trip under load, median", median, format!("{MEDIAN_MS} ms")),
        ("round trip under load, p99", p99, format!("{P99_MS} ms in 19 of 20 quiet seconds")),
        ("probes come back", lost, format!("{LOST_PERCENT} % lost")),
        ("drops explained", drops(observed), format!("only for reasons that an event within {SETTLING} s explains")),
    ];
    let verdict = |(what, (passed, found), bound)| {
        let mark = if passed { "yes" } else { "**no**" };
        let text = format!("{what}: {mark}. {found} (bound: {bound}).");
        (what, passed, text)
    };
    verdicts.map(verdict).into()
}

fn alive(observed: &Observed) -> Finding {
    let seconds = observed.samples.len() as u64;
    match &observed.death {
        Some(death) => (false, death.clone()),
        None => (seconds >= observed.secs, format!("all for {seconds} s")),
    }
}

/// Findings about a daemon mean little if the machine stalls or works for others.
fn undisturbed(observed: &Observed) -> Finding {
    let due = observed.samples.iter().zip(1..);
    let late = due.map(|(sample, second)| sample.at_s - f64::from(second));
    let latest = late.fold(0.0, f64::max);
    let percent = quantile(0.5, observed.samples.iter().map(|it| it.others_percent));
    let found = format!("other programs used {percent:.0} %; worst sample delay {latest:.1} s");
    (latest <= LATE && percent <= OTHERS_PERCENT, found)
}

fn events(observed: &Observed) -> Finding {
    let events = &observed.events;
    let failed = events.iter().filter(|event| event.error.is_some());
    let failed: Vec<_> = failed.collect();
    match failed.is_empty() {
        true => (true, format!("{} events", events.len())),
        false => (false, format!("failed: {failed:?}")),
    }
}

/// No session is older than the protocol allows, and each spoke has renewed one because of its age.
fn handshakes(observed: &Observed) -> Finding {
    let spokes = SPOKES.map(|spoke| ages(observed, spoke));
    let oldest = spokes.iter().flatten().copied().max().unwrap_or(0);
    let seen = spokes.each_ref().map(Vec::len);
    // The last session goes on.
    let by_age = spokes.each_ref().map(|ages| {
        let ended = ages.iter().rev().skip(1);
        ended.filter(|age| **age >= REKEY_AFTER).count()
    });
    // A removed peer starts again with a new session.
    let is_short = observed.secs < 2 * OLDEST + 60 * SPOKES.len() as u64;
    let is_renewed = is_short || !by_age.contains(&0);
    let found = format!("{seen:?} by spoke, {by_age:?} by age; the oldest reached {oldest} s");
    (!seen.contains(&0) && oldest <= OLDEST && is_renewed, found)
}

/// The age in seconds that each session of a spoke reached; for the last one, at the end of the run.
fn ages(observed: &Observed, spoke: u8) -> Vec<u64> {
    let own = observed.handshakes.iter().filter(|it| it.0 == spoke);
    let end = observed.began_unix_s + observed.secs;
    let ages = own.map(|(_, unix_s)| *unix_s).chain([end]).tuple_windows();
    ages.map(|(one, next)| next.saturating_sub(one)).collect()
}

fn data(observed: &Observed) -> Finding {
    let streams = &observed.streams;
    let is_broken = |it: &&Stream| it.error.is_some() || it.verified_bytes != it.sent_bytes;
    let broken: Vec<_> = streams.iter().filter(is_broken).collect();
    let (count, bytes) = (streams.len(), streams.iter().map(|it| it.verified_bytes));
    let gigabytes = bytes.sum::<u64>() as f64 / 1e9;
    match broken.is_empty() {
        true => (count > 0, format!("{gigabytes:.1} GB over {count} streams")),
        false => (false, format!("{gigabytes:.1} GB; {broken:?}")),
    }
}

/// No stream is silent for long, except those of a spoke whose cable is unplugged.
fn silence(observed: &Observed) -> Finding {
    let mut longest = (0.0, "none".to_owned());
    for (number, stream) in observed.streams.iter().enumerate() {
        let is_outage = |it: &&Event| it.kind == FLAP && it.spoke == Some(stream.spoke);
        let mut length = 0.0;
        for sample in &observed.samples {
            let (from, until) = (sample.at_s - 1.0, sample.at_s);
            let out = |it: &Event| (until.min(it.until_s) - from.max(it.from_s)).max(0.0);
            let outages = observed.events.iter().filter(is_outage).map(out);
            length = match sample.silent.contains(&number) {
                true => length + 1.0 - outages.sum::<f64>(),
                false => 0.0,
            };
            if length > longest.0 {
                let (spoke, way) = (stream.spoke, stream.direction);
                let found = format!("{length:.1} s, of spoke {spoke} {way:?} at {from:.0} s");
                longest = (length, found);
            }
        }
    }
    (longest.0 < SILENT_SECONDS - LATE, longest.1)
}

/// One figure of one daemon after the warm-up: its maximum, and the medians of the first and the last tenth.
struct Course {
    seconds: usize,
    most: f64,
    first: f64,
    last: f64,
}

/// Passes if a figure of every daemon passes.
fn of_each(observed: &Observed, of: fn(&Usage) -> u64, judge: fn(&Course) -> Finding) -> Finding {
    let warm_up = WARM_UP.min(observed.secs as f64 / 4.0);
    let judged = observed.daemons.iter().enumerate().map(|(number, daemon)| {
        let samples = observed.samples.iter().filter(|it| it.at_s > warm_up);
        let values: Vec<_> = samples.map(|it| of(&it.usage[number]) as f64).collect();
        let tenth = (values.len() / 10).clamp(10, 3_600).min(values.len());
        let (passed, found) = judge(&Course {
            seconds: values.len(),
            most: values.iter().copied().fold(0.0, f64::max),
            first: quantile(0.5, values.iter().take(tenth).copied()),
            last: quantile(0.5, values.iter().rev().take(tenth).copied()),
        });
        (passed, format!("{daemon} {found}"))
    });
    let (passed, found): (Vec<_>, Vec<_>) = judged.unzip();
    (!passed.contains(&false), found.join(", "))
}

fn growth(Course { first, last, .. }: &Course) -> Finding {
    let growth = last - first;
    (growth <= GROWTH_KIB, format!("{growth:+.0} of {first:.0}"))
}

fn slope(it: &Course) -> Finding {
    let slope = (it.last - it.first) / (0.9 * it.seconds as f64 / 60.0);
    match it.seconds < SLOPE_SECONDS {
        true => (true, "(too short a run)".to_owned()),
        false => (slope <= KIB_PER_MINUTE, format!("{slope:+.1}")),
    }
}

/// As many at the end as after the warm-up, and never many more.
fn flat(it: &Course) -> Finding {
    let (first, last, most) = (it.first, it.last, it.most);
    let is_flat = first == last && most <= last + MOMENTARY;
    (is_flat, format!("{first} → {last} (most {most})"))
}

/// In seconds without effects of an event, round trips are short and no probe is lost; nothing retransmits UDP.
fn round_trips(observed: &Observed) -> [Finding; 3] {
    let is_quiet = |it: &&Sample| {
        it.at_s > SETTLING && !observed.events.iter().any(|event| is_felt(event, it))
    };
    let quiet = observed.samples.iter().filter(is_quiet);
    let quiet: Vec<_> = quiet.filter_map(|sample| sample.latency).collect();
    let p99s = || quiet.iter().filter_map(|it| it.p99_ms);
    let median = quantile(0.5, quiet.iter().filter_map(|it| it.median_ms));
    let (usual, worse) = (quantile(0.5, p99s()), quantile(USUAL_SECONDS, p99s()));
    let sent: u64 = quiet.iter().map(|it| it.sent).sum();
    let lost = sent - quiet.iter().map(|it| it.received).sum::<u64>();
    let is_answered = p99s().next().is_some();
    let is_little = sent > 0 && lost as f64 * 100.0 <= LOST_PERCENT * sent as f64;
    let seconds = quiet.len();
    #[rustfmt::skip]
    let findings = [
        (is_answered && median <= MEDIAN_MS, format!("{median:.2} ms in the median of {seconds} quiet seconds")),
        (is_answered && worse <= P99_MS, format!("{usual:.2} ms in the median second, {worse:.2} ms in the worst of 20")),
        (is_little, format!("{lost} of {sent} lost in quiet seconds")),
    ];
    findings
}

/// Returns whether an event can have effects in the second of a sample.
fn is_felt(event: &Event, sample: &Sample) -> bool {
    event.from_s <= sample.at_s + LATE && sample.at_s - 1.0 <= event.until_s + SETTLING
}

/// An event near each drop explains its reason.
fn drops(observed: &Observed) -> Finding {
    let (mut explained, mut others) = (BTreeMap::new(), BTreeMap::new());
    for sample in &observed.samples {
        for (reason, count) in &sample.drops {
            let explains = |event: &Event| {
                is_felt(event, sample) && event.kind.drops.contains(&reason.as_str())
            };
            // On a new interface the kernel joins multicast groups, to which no peer routes.
            let is_of_start = sample.at_s < STARTING && reason == "outbound_no_route";
            let group = match is_of_start || observed.events.iter().any(explains) {
                true => &mut explained,
                false => &mut others,
            };
            *group.entry(reason.as_str()).or_insert(0) += count;
        }
    }
    let found = format!("unexplained: {others:?}; explained: {explained:?}");
    (others.is_empty(), found)
}

/// 0 for an empty list.
fn quantile(share: f64, values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let index = (share * last as f64).round() as usize;
    values.get(index).copied().unwrap_or(0.0)
}
