//! A look at every daemon each second, and round trips beside the load.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use convoy_lab::Namespace;
use convoy_lab::measure::{self, Counters, log_tail, process};
use convoy_lab::traffic::{Agent, LatencyReport};

use super::bed::{Bed, SPOKES};
use super::events;
use super::flow::Load;
use super::record::{Handshake, Latency, Sample};
use crate::AGENT;

/// Seconds between two looks at the handshakes, of which there is at most one in five.
const HANDSHAKES_EVERY: u64 = 4;
/// Seconds between two lines for whoever watches.
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
pub(super) fn watch(bed: &Bed, load: &Load, probes: &Probes, secs: u64) -> anyhow::Result<Seen> {
    let keys = bed.spokes.iter().map(|spoke| spoke.keys.public_base64());
    let keys: Vec<_> = SPOKES.into_iter().zip(keys).collect();
    let mut seen = Seen::default();
    let mut earlier = Reading::of(bed, load)?;
    for second in 1..=secs {
        load.sleep_until(second as f64);
        let sampled = Reading::of(bed, load).and_then(|now| Ok((now.since(&earlier, bed)?, now)));
        match sampled {
            Ok((sample, now)) => {
                seen.samples.push(sample);
                earlier = now;
            }
            Err(error) => {
                seen.death = Some(format!("{error:#}"));
                break;
            }
        }
        if second % HANDSHAKES_EVERY == 0 {
            match events::latest_handshakes(&bed.hub) {
                Ok(shown) => take_handshakes(&mut seen.handshakes, &shown, &keys),
                // The hub has just ended: the next look tells more.
                Err(error) => seen.death = Some(format!("hub: {error:#}")),
            }
        }
        if second % LINE_EVERY == 0 {
            print_line(seen.samples.last(), probes.of(second.saturating_sub(2)));
        }
    }
    for (second, sample) in (0..).zip(&mut seen.samples) {
        sample.latency = probes.of(second);
    }
    Ok(seen)
}

/// All that is read at one moment.
struct Reading {
    at_s: f64,
    arrived: [u64; 2],
    /// By daemon: its use of the machine, its CPU seconds, its counters.
    daemons: Vec<(process::Usage, f64, Counters)>,
    /// CPU seconds of all programs, and of this one.
    busy_s: f64,
    own_s: f64,
}

impl Reading {
    /// Fails when a daemon has ended, with the end of its log.
    fn of(bed: &Bed, load: &Load) -> anyhow::Result<Self> {
        let (at_s, arrived) = (load.now(), load.arrived());
        let read = |end: &_| {
            let convoy_lab::wireguard::End { daemon, .. } = end;
            // Usage first, so that the request for counters is not among the descriptors.
            let usage = process::usage(daemon.pid())?;
            let cpu_s = process::cpu_time(daemon.pid())?.as_secs_f64();
            let counters = measure::counters(daemon)?.context("the daemon is not convoy")?;
            anyhow::Ok((usage, cpu_s, counters))
        };
        let daemons = bed
            .ends()
            .map(|end| read(end).with_context(|| log_tail(end)));
        Ok(Self {
            at_s,
            arrived,
            daemons: daemons.collect::<Result<_, _>>()?,
            busy_s: process::machine_busy()?.as_secs_f64(),
            own_s: process::cpu_time(convoy_lab::Pid::this())?.as_secs_f64(),
        })
    }

    fn since(&self, earlier: &Self, bed: &Bed) -> anyhow::Result<Sample> {
        let seconds = self.at_s - earlier.at_s;
        let mbps = |way: usize| {
            let bytes = self.arrived[way] - earlier.arrived[way];
            rounded(bytes as f64 * 8.0 / 1e6 / seconds, 1e1)
        };
        let usage = |of: fn(&process::Usage) -> u64| {
            self.daemons.iter().map(|(usage, _, _)| of(usage)).collect()
        };
        let cpu_s = |reading: &Self| {
            reading
                .daemons
                .iter()
                .map(|(_, cpu_s, _)| cpu_s)
                .sum::<f64>()
        };
        let ours = self.own_s - earlier.own_s + cpu_s(self) - cpu_s(earlier);
        // The clocks do not tick together.
        let others_s = (self.busy_s - earlier.busy_s - ours).max(0.0);
        let drops = bed.ends().zip(self.daemons.iter().zip(&earlier.daemons));
        let drops = drops.map(|(end, ((_, _, now), (_, _, earlier)))| {
            let drops = now
                .since(earlier)
                .drops
                .into_iter()
                .filter(|(_, count)| *count > 0);
            (
                end.namespace.label().to_owned(),
                drops.collect::<BTreeMap<_, _>>(),
            )
        });
        let Some((_, _, hub)) = self.daemons.first() else {
            bail!("there is no hub");
        };
        Ok(Sample {
            at_s: rounded(self.at_s, 1e3),
            up_mbps: mbps(0),
            down_mbps: mbps(1),
            latency: None,
            rss_kib: usage(|usage| usage.resident_kib),
            peak_kib: usage(|usage| usage.peak_kib),
            descriptors: usage(|usage| usage.descriptors),
            threads: usage(|usage| usage.threads),
            cpu_s: self
                .daemons
                .iter()
                .map(|(_, cpu_s, _)| rounded(*cpu_s, 1e2))
                .collect(),
            others_cpus: rounded(others_s / seconds, 1e2),
            hub_bytes: [hub.inbound.bytes, hub.outbound.bytes],
            drops: drops.filter(|(_, drops)| !drops.is_empty()).collect(),
        })
    }
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

fn print_line(sample: Option<&Sample>, latency: Option<Latency>) {
    let Some(Sample {
        at_s,
        up_mbps,
        down_mbps,
        rss_kib,
        descriptors,
        ..
    }) = sample
    else {
        return;
    };
    let ms = |of: fn(Latency) -> Option<f64>| crate::table::number(latency.and_then(of), 2);
    let (median, p99) = (
        ms(|latency| latency.median_ms),
        ms(|latency| latency.p99_ms),
    );
    println!(
        "{at_s:7.1} s  up {up_mbps:.0} down {down_mbps:.0} Mbit/s  ping {median} p99 {p99} ms  \
         RSS {} KiB  {} descriptors",
        rss_kib[0], descriptors[0]
    );
}

fn rounded(value: f64, to: f64) -> f64 {
    (value * to).round() / to
}

/// Round trips of all spokes, by the second in which they began.
#[derive(Default)]
pub(super) struct Probes(Mutex<BTreeMap<u64, Vec<LatencyReport>>>);

/// An agent in each spoke's namespace, and the address of the hub's echo.
pub(super) struct Probers {
    agents: Vec<Agent>,
    to: SocketAddr,
    // It serves the echo while it lives.
    _hub: Agent,
}

impl Probers {
    pub(super) fn start(bed: &Bed) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("find this program's file")?;
        let agent = |namespace: &Namespace| {
            let mut command = namespace.command(&program);
            command.arg(AGENT);
            Agent::spawn(command)
        };
        let mut hub = agent(&bed.hub.namespace)?;
        let to = SocketAddr::new(bed.hub.inner_v4(), hub.echo()?);
        let agents = bed.spokes.iter().map(|spoke| agent(&spoke.namespace));
        Ok(Self {
            agents: agents.collect::<Result<_, _>>()?,
            to,
            _hub: hub,
        })
    }

    /// An agent for each spoke, with the address that it probes.
    pub(super) fn each(&mut self) -> impl Iterator<Item = (&mut Agent, SocketAddr)> {
        self.agents.iter_mut().map(|agent| (agent, self.to))
    }
}

impl Probes {
    /// Probes once a second until the load ends; a second in which probes are lost takes longer.
    pub(super) fn run(&self, agent: &mut Agent, to: SocketAddr, load: &Load) -> anyhow::Result<()> {
        while !load.has_ended() {
            let began = load.now();
            let report = agent.ping(to, PROBING)?;
            let mut seconds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            seconds.entry(began as u64).or_default().push(report);
            drop(seconds);
            load.sleep_until(began.floor() + 1.0);
        }
        Ok(())
    }

    /// The probes of a second: the median of the spokes' medians, and the worst p99.
    fn of(&self, second: u64) -> Option<Latency> {
        let seconds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reports = seconds.get(&second)?;
        let medians = reports
            .iter()
            .filter_map(|report| report.median_ms)
            .collect();
        Some(Latency {
            sent: reports.iter().map(|report| report.sent).sum(),
            lost: reports
                .iter()
                .map(|report| report.sent - report.received)
                .sum(),
            median_ms: measure::Sample::of(medians).map(|sample| rounded(sample.median, 1e3)),
            p99_ms: reports
                .iter()
                .filter_map(|report| report.p99_ms)
                .reduce(f64::max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handshake_is_taken_once_and_none_from_a_peer_without() {
        let spokes = [(2, "aa=".to_owned()), (3, "bb=".to_owned())];
        let mut seen = Vec::new();
        take_handshakes(
            &mut seen,
            "aa=\t1700000000\nbb=\t0\ncc=\t1700000009\n",
            &spokes,
        );
        take_handshakes(&mut seen, "aa=\t1700000000\nbb=\t1700000001\n", &spokes);
        let seen: Vec<_> = seen
            .iter()
            .map(|handshake| (handshake.spoke, handshake.unix_s))
            .collect();
        assert_eq!(seen, [(2, 1_700_000_000), (3, 1_700_000_001)]);
    }

    #[test]
    fn the_probes_of_a_second_are_those_of_all_spokes() {
        let report = |received, median_ms, p99_ms| LatencyReport {
            sent: 90,
            received,
            median_ms,
            p99_ms,
        };
        let probes = Probes::default();
        let reports = vec![
            report(90, Some(1.0), Some(2.0)),
            report(80, Some(3.0), Some(9.0)),
            report(0, None, None),
        ];
        probes.0.lock().unwrap().insert(7, reports);
        let latency = probes.of(7).unwrap();
        assert_eq!((latency.sent, latency.lost), (270, 100));
        assert_eq!((latency.median_ms, latency.p99_ms), (Some(2.0), Some(9.0)));
        assert!(probes.of(8).is_none());
    }
}
