//! Observations of a run, and their rows: a sample of every daemon each second, handshakes, and round trips.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use convoy_lab::Pid;
use convoy_lab::measure::process::{self, Usage};
use convoy_lab::measure::{self, Counters, Ends, log_tail};
use convoy_lab::traffic::LatencyReport;
use convoy_rows::plot::EVENTS;
use convoy_rows::row::{Row, Run};

use super::events::{Event, wg};
use super::hub::{Hub, SPOKES};
use super::streams::{Load, STREAMS, Stream};

/// Seconds between two readings of the handshakes: no session renews more often than every five seconds.
const HANDSHAKES_EVERY: u64 = 4;
/// Seconds between two lines of progress.
const LINE_EVERY: u64 = 10;
/// The part of a second in which probes are sent, one every 10 ms; the last must return by the end of the second.
const PROBING: Duration = Duration::from_millis(900);

/// A whole run. Times are seconds since the start of the load unless noted.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Start of the load in seconds since 1970-01-01 UTC.
    pub(super) began_unix_s: u64,
    /// Duration of the load.
    pub(super) secs: u64,
    /// The hub, which is under test, then the spokes.
    pub(super) daemons: Vec<String>,
    pub(super) events: Vec<Event>,
    pub(super) streams: Vec<Stream>,
    /// Handshakes of the hub: the spoke, and the time in seconds since 1970-01-01 UTC.
    pub(super) handshakes: BTreeSet<(u8, u64)>,
    /// The daemon that ended early, and the end of its log.
    pub(super) death: Option<String>,
    pub(super) samples: Vec<Sample>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) at_s: f64,
    /// Mbit/s of verified TCP payload since the previous sample, at the hub and at the spokes.
    pub(super) up_mbps: f64,
    pub(super) down_mbps: f64,
    /// Indices in [`Observed::streams`] of streams that received nothing since the previous sample.
    pub(super) silent: Vec<usize>,
    /// Round trips of the probes sent in this second; `None` if an outage delayed them.
    pub(super) latency: Option<LatencyReport>,
    /// In the order of [`Observed::daemons`].
    pub(super) usage: Vec<Usage>,
    /// Share of all CPUs that other programs used since the previous sample, in percent.
    pub(super) others_percent: f64,
    /// Drops since the previous sample, by reason; reasons without drops are omitted.
    pub(super) drops: BTreeMap<String, u64>,
}

impl Observed {
    /// Adds the rows of every second, and the events.
    pub(super) fn add(&self, run: &mut Run) {
        for (number, sample) in self.samples.iter().enumerate() {
            let mut add = |scene: &str, contender: &str, unit: &str, value: f64| {
                run.push(Row::new(scene, contender, ("", unit), 0, value).at(sample.at_s));
            };
            add("TCP goodput", "spokes to hub", "Mbit/s", sample.up_mbps);
            add("TCP goodput", "hub to spokes", "Mbit/s", sample.down_mbps);
            let latency = sample.latency.iter();
            let latency = latency.flat_map(|it| [("median", it.median_ms), ("p99", it.p99_ms)]);
            for (figure, ms) in latency {
                add("round trip", figure, "ms", ms.unwrap_or(f64::NAN));
            }
            for (place, (daemon, usage)) in self.daemons.iter().zip(&sample.usage).enumerate() {
                let mib = usage.resident_kib as f64 / 1_024.0;
                add("memory, VmRSS", daemon, "MiB", mib);
                // A line needs a point where it bends.
                let open = |sample: &Sample| Some(sample.usage.get(place)?.descriptors);
                let before = number.checked_sub(1).and_then(|it| open(&self.samples[it]));
                if number + 1 == self.samples.len() || before != open(sample) {
                    add("descriptors", daemon, "open", usage.descriptors as f64);
                }
            }
            let drops = sample.drops.values().sum::<u64>();
            add("drops", "all daemons", "packets/s", drops as f64);
        }
        for event in &self.events {
            let row = Row::new(EVENTS, event.kind.name, ("until", "s"), 0, event.until_s);
            run.push(row.at(event.from_s));
        }
    }
}

/// Adds one sample per second, and the handshakes, to `observed`. If a daemon ends, fails with the end of its log.
pub(super) fn watch(hub: &Hub, load: &Load, observed: &mut Observed) -> Result<()> {
    let mut totals = Totals::default();
    sample(hub, load, &mut totals)?;
    for second in 1..=observed.secs {
        load.continues_until(second as f64);
        let sample = sample(hub, load, &mut totals)?;
        if second % LINE_EVERY == 0 {
            let (up, down) = (sample.up_mbps, sample.down_mbps);
            let rss_kib: Vec<_> = sample.usage.iter().map(|it| it.resident_kib).collect();
            println!("{second} s: up {up:.0}, down {down:.0} Mbit/s, RSS {rss_kib:?} KiB");
        }
        observed.samples.push(sample);
        if second % HANDSHAKES_EVERY == 0 {
            let shown = wg(&hub.hub, "show", &["latest-handshakes"])?;
            let keys = hub.spokes.iter().map(|spoke| spoke.keys.public_base64());
            let keys: Vec<_> = SPOKES.into_iter().zip(keys).collect();
            take_handshakes(&mut observed.handshakes, &shown, &keys);
        }
    }
    Ok(())
}

/// All cumulative counts.
#[derive(Default)]
struct Totals {
    at_s: f64,
    arrived: [u64; STREAMS],
    /// One entry per daemon.
    counters: Vec<Counters>,
    /// CPU seconds of all other programs.
    others_s: f64,
}

/// Takes a sample and updates `totals`.
fn sample(hub: &Hub, load: &Load, totals: &mut Totals) -> Result<Sample> {
    let mut now = Totals {
        at_s: load.now(),
        arrived: load.arrived(),
        ..Totals::default()
    };
    let seconds = now.at_s - totals.at_s;
    let moved = |stream: &usize| now.arrived[*stream] - totals.arrived[*stream];
    let mbps = |way| {
        let bytes: u64 = (way..STREAMS).step_by(2).map(|it| moved(&it)).sum();
        rounded(bytes as f64 * 8.0 / 1e6 / seconds, 1e1)
    };
    let mut sample = Sample {
        at_s: rounded(now.at_s, 1e3),
        up_mbps: mbps(0),
        down_mbps: mbps(1),
        silent: (0..STREAMS).filter(|stream| moved(stream) == 0).collect(),
        ..Sample::default()
    };
    let mut ours = process::cpu_time(Pid::this())?;
    for (number, end) in hub.daemons().enumerate() {
        let read = || {
            let pid = end.daemon.pid();
            // Counters last: the descriptor for requesting them does not count.
            let (usage, cpu) = (process::usage(pid)?, process::cpu_time(pid)?);
            let counters = measure::counters(&end.daemon)?;
            anyhow::Ok((usage, cpu, counters.context("the daemon is not Convoy")?))
        };
        let (usage, cpu, counters) = read().with_context(|| log_tail(end))?;
        sample.usage.push(usage);
        if let Some(then) = totals.counters.get(number) {
            for (reason, count) in counters.since(then).drops {
                *sample.drops.entry(reason).or_default() += count;
            }
        }
        now.counters.push(counters);
        ours += cpu;
    }
    sample.drops.retain(|_, count| *count > 0);
    // The clocks of different processes advance at different moments.
    now.others_s = process::machine_busy()?.as_secs_f64() - ours.as_secs_f64();
    let others_s = (now.others_s - totals.others_s).max(0.0);
    sample.others_percent = 100.0 * others_s / seconds / hub.cpus;
    *totals = now;
    Ok(sample)
}

fn rounded(value: f64, to: f64) -> f64 {
    (value * to).round() / to
}

/// Parses `wg show IFACE latest-handshakes`, and adds each handshake.
fn take_handshakes(seen: &mut BTreeSet<(u8, u64)>, shown: &str, spokes: &[(u8, String)]) {
    for (key, time) in shown.lines().filter_map(|line| line.split_once('\t')) {
        let spoke = spokes.iter().find(|(_, known)| known == key);
        // 0 stands for a peer without a handshake.
        if let (Some(&(spoke, _)), Ok(unix_s @ 1..)) = (spoke, time.trim().parse()) {
            seen.insert((spoke, unix_s));
        }
    }
}

/// The round trips of one spoke, and the second in which they began.
pub(super) type RoundTrips = (u64, LatencyReport);

/// Sends probes to `to` every second until the load ends; a second in which probes are lost takes longer.
pub(super) fn probe(ends: &mut Ends, to: IpAddr, load: &Load) -> Vec<RoundTrips> {
    let mut found = Vec::new();
    while !load.has_ended() {
        let began = load.now();
        // If an agent fails, no more round trips are recorded, which fails a verdict.
        let Ok(report) = ends.ping(to, PROBING) else {
            break;
        };
        found.push((began as u64, report));
        load.continues_until(began.floor() + 1.0);
    }
    found
}

/// Adds the round trips of each second to its sample: the median of the spokes' medians, and the worst p99.
pub(super) fn add_round_trips(samples: &mut [Sample], found: &[RoundTrips]) {
    for (second, sample) in (0..).zip(samples) {
        let own = found.iter().filter(|(began, _)| *began == second);
        let own: Vec<_> = own.map(|(_, report)| report).collect();
        let medians = own.iter().filter_map(|report| report.median_ms);
        let median = measure::Sample::of(medians.collect());
        sample.latency = (!own.is_empty()).then(|| LatencyReport {
            sent: own.iter().map(|report| report.sent).sum(),
            received: own.iter().map(|report| report.received).sum(),
            median_ms: median.map(|sample| rounded(sample.median, 1e3)),
            p99_ms: own.iter().filter_map(|it| it.p99_ms).reduce(f64::max),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handshake_is_taken_once_and_none_from_a_peer_without() {
        let spokes = [(2, "aa=".to_owned()), (3, "bb=".to_owned())];
        let mut seen = BTreeSet::new();
        for shown in ["aa=\t17\nbb=\t0\ncc=\t19\n", "aa=\t17\nbb=\t18\n"] {
            take_handshakes(&mut seen, shown, &spokes);
        }
        assert_eq!(seen, [(2, 17), (3, 18)].into());
    }

    #[test]
    fn the_probes_of_a_second_are_those_of_all_spokes() {
        let report = |received, median_ms, p99_ms| LatencyReport {
            sent: 90,
            received,
            median_ms,
            p99_ms,
        };
        let reports = [
            report(90, Some(1.0), Some(2.0)),
            report(80, Some(3.0), Some(9.0)),
            report(0, None, None),
        ];
        let mut samples = vec![Sample::default(); 9];
        add_round_trips(&mut samples, &reports.map(|report| (7, report)));
        let latency = samples[7].latency.unwrap();
        assert_eq!((latency.sent, latency.received), (270, 170));
        assert_eq!((latency.median_ms, latency.p99_ms), (Some(2.0), Some(9.0)));
        assert!(samples[8].latency.is_none());
    }
}
