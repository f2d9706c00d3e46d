//! A look at every daemon each second, and round trips beside the load.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context as _;
use convoy_lab::Pid;
use convoy_lab::measure::{self, Counters, Ends, log_tail, process};
use convoy_lab::traffic::{Agent, LatencyReport};
use convoy_lab::wireguard::End;

use super::events::wg;
use super::hub::{Hub, SPOKES};
use super::record::{Handshake, Sample};
use super::streams::Load;
use crate::AGENT;

/// Seconds between two looks at the handshakes, of which there is at most one in five.
const HANDSHAKES_EVERY: u64 = 4;
/// Seconds between two lines of progress.
const LINE_EVERY: u64 = 10;
/// The part of a second in which probes are sent, one every 10 ms: the last must be back by its end.
const PROBING: Duration = Duration::from_millis(900);

/// Everything that was seen.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) samples: Vec<Sample>,
    pub(super) handshakes: Vec<Handshake>,
    /// The first daemon that ended, with the end of its log.
    pub(super) death: Option<String>,
}

/// Samples for `secs` seconds, or until a daemon ends.
pub(super) fn watch(hub: &Hub, load: &Load, secs: u64) -> anyhow::Result<Seen> {
    let mut seen = Seen::default();
    let mut earlier = Reading::of(hub, load)?;
    for second in 1..=secs {
        load.sleep_until(second as f64);
        let now = match Reading::of(hub, load) {
            Ok(now) => now,
            Err(error) => {
                seen.death = Some(format!("{error:#}"));
                break;
            }
        };
        let sample = now.since(&earlier, hub);
        if second % LINE_EVERY == 0 {
            println!(
                "{:7.1} s  up {:.0} down {:.0} Mbit/s  RSS {} KiB  {} descriptors",
                sample.at_s,
                sample.up_mbps,
                sample.down_mbps,
                sample.rss_kib[0],
                sample.descriptors[0]
            );
        }
        if second % HANDSHAKES_EVERY == 0 {
            match wg(&hub.hub, "show", &["latest-handshakes"], "") {
                Ok(shown) => take_handshakes(&mut seen.handshakes, &shown, &keys(hub)),
                // The hub has just ended: the next look tells more.
                Err(error) => seen.death = Some(format!("hub: {error:#}")),
            }
        }
        seen.samples.push(sample);
        earlier = now;
    }
    Ok(seen)
}

/// Everything that is read at one moment.
struct Reading {
    at_s: f64,
    arrived: [u64; 2],
    daemons: Vec<Daemon>,
    /// CPU seconds of all programs, and of this one.
    busy_s: f64,
    own_s: f64,
}

struct Daemon {
    usage: process::Usage,
    cpu_s: f64,
    counters: Counters,
}

impl Reading {
    /// Fails when a daemon has ended, with the end of its log.
    fn of(hub: &Hub, load: &Load) -> anyhow::Result<Self> {
        let (at_s, arrived) = (load.now(), load.arrived());
        let daemons = hub
            .daemons()
            .map(|end| Daemon::read(end).with_context(|| log_tail(end)));
        Ok(Self {
            at_s,
            arrived,
            daemons: daemons.collect::<Result<_, _>>()?,
            busy_s: process::machine_busy()?.as_secs_f64(),
            own_s: process::cpu_time(Pid::this())?.as_secs_f64(),
        })
    }

    fn since(&self, earlier: &Self, hub: &Hub) -> Sample {
        let seconds = self.at_s - earlier.at_s;
        let mbps = |way: usize| {
            let bytes = self.arrived[way] - earlier.arrived[way];
            rounded(bytes as f64 * 8.0 / 1e6 / seconds, 1e1)
        };
        let of = |figure: fn(&Daemon) -> u64| self.daemons.iter().map(figure).collect();
        let ours_s = |reading: &Self| {
            let cpu_s = reading.daemons.iter().map(|daemon| daemon.cpu_s);
            reading.own_s + cpu_s.sum::<f64>()
        };
        // The clocks do not tick together.
        let others_s = self.busy_s - ours_s(self) - (earlier.busy_s - ours_s(earlier));
        let drops = self.daemons.iter().zip(&earlier.daemons).zip(hub.daemons());
        let drops = drops.map(|((now, earlier), end)| {
            let drops = now.counters.since(&earlier.counters).drops.into_iter();
            let drops = drops.filter(|(_, count)| *count > 0);
            (
                end.namespace.label().to_owned(),
                drops.collect::<BTreeMap<_, _>>(),
            )
        });
        Sample {
            at_s: rounded(self.at_s, 1e3),
            up_mbps: mbps(0),
            down_mbps: mbps(1),
            latency: None,
            rss_kib: of(|daemon| daemon.usage.resident_kib),
            descriptors: of(|daemon| daemon.usage.descriptors),
            threads: of(|daemon| daemon.usage.threads),
            cpu_s: self
                .daemons
                .iter()
                .map(|it| rounded(it.cpu_s, 1e2))
                .collect(),
            others_cpus: rounded(others_s.max(0.0) / seconds, 1e2),
            drops: drops.filter(|(_, drops)| !drops.is_empty()).collect(),
        }
    }
}

impl Daemon {
    fn read(end: &End) -> anyhow::Result<Self> {
        let daemon = &end.daemon;
        Ok(Self {
            // First, so that the request for counters is not among the descriptors.
            usage: process::usage(daemon.pid())?,
            cpu_s: process::cpu_time(daemon.pid())?.as_secs_f64(),
            counters: measure::counters(daemon)?.context("the daemon is not convoy")?,
        })
    }
}

fn rounded(value: f64, to: f64) -> f64 {
    (value * to).round() / to
}

fn keys(hub: &Hub) -> Vec<(u8, String)> {
    let keys = hub.spokes.iter().map(|spoke| spoke.keys.public_base64());
    SPOKES.into_iter().zip(keys).collect()
}

/// Takes the output of `wg show IFACE latest-handshakes`, each handshake once.
fn take_handshakes(seen: &mut Vec<Handshake>, shown: &str, spokes: &[(u8, String)]) {
    for (key, time) in shown.lines().filter_map(|line| line.split_once('\t')) {
        let spoke = spokes.iter().find(|(_, known)| known == key);
        // A peer that has had no handshake shows 0.
        if let (Some(&(spoke, _)), Ok(unix_s @ 1..)) = (spoke, time.trim().parse()) {
            let handshake = Handshake { spoke, unix_s };
            if !seen.contains(&handshake) {
                seen.push(handshake);
            }
        }
    }
}

/// The round trips of one spoke, and the second in which they began.
pub(super) type RoundTrips = (u64, LatencyReport);

/// Agents at a spoke and at the hub.
pub(super) fn probers(hub: &Hub, spoke: &End) -> anyhow::Result<Ends> {
    let program = std::env::current_exe().context("find this program's file")?;
    let agent = |end: &End| {
        let mut command = end.namespace.command(&program);
        command.arg(AGENT);
        Agent::spawn(command)
    };
    Ok(Ends::new(agent(spoke)?, agent(spoke)?, agent(&hub.hub)?)?)
}

/// Probes `to` once a second until the load ends; a second in which probes are lost takes longer.
pub(super) fn probe(ends: &mut Ends, to: IpAddr, load: &Load) -> Vec<RoundTrips> {
    let mut found = Vec::new();
    while !load.has_ended() {
        let began = load.now();
        // Without agents there are no more round trips, which fails a verdict.
        let Ok(report) = ends.ping(to, PROBING) else {
            break;
        };
        found.push((began as u64, report));
        load.continues_until(began.floor() + 1.0);
    }
    found
}

/// Adds to each sample the round trips of its second: the median of the spokes' medians, and the worst p99.
pub(super) fn add_round_trips(samples: &mut [Sample], found: Vec<RoundTrips>) {
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
        let mut seen = Vec::new();
        let shown = ["aa=\t17\nbb=\t0\ncc=\t19\n", "aa=\t17\nbb=\t18\n"];
        for shown in shown {
            take_handshakes(&mut seen, shown, &spokes);
        }
        let seen: Vec<_> = seen.iter().map(|it| (it.spoke, it.unix_s)).collect();
        assert_eq!(seen, [(2, 17), (3, 18)]);
    }

    #[test]
    fn the_probes_of_a_second_are_those_of_all_spokes() {
        let report = |received, median_ms, p99_ms| LatencyReport {
            sent: 90,
            received,
            median_ms,
            p99_ms,
        };
        let mut samples = vec![Sample::default(); 9];
        let reports = [
            report(90, Some(1.0), Some(2.0)),
            report(80, Some(3.0), Some(9.0)),
            report(0, None, None),
        ];
        add_round_trips(&mut samples, reports.map(|report| (7, report)).into());
        let latency = samples[7].latency.unwrap();
        assert_eq!((latency.sent, latency.received), (270, 170));
        assert_eq!((latency.median_ms, latency.p99_ms), (Some(2.0), Some(9.0)));
        assert!(samples[8].latency.is_none());
    }
}
