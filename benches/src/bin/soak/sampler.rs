//! A look at everything, every second.

use anyhow::Context as _;
use convoy_lab::{measure::log_tail, wireguard::End};

use crate::{
    bed::{Bed, SPOKES},
    changes,
    counters::Counters,
    flow::{Direction, Load},
    handshakes::{Handshake, Handshakes},
    machine::Machine,
    probe::{self, Probes},
    process::Process,
    record::Sample,
};

/// Seconds between two looks at the handshakes, of which there is at most one in five.
const HANDSHAKES_EVERY: u64 = 4;
/// Seconds between two lines for whoever watches.
const LINE_EVERY: u64 = 10;

/// All that is looked at.
pub(crate) struct Sampler<'a> {
    bed: &'a Bed,
    load: &'a Load,
    probes: &'a Probes,
    keys: Vec<(u8, String)>,
    seen: Seen,
    /// At the sample before.
    counters: Vec<Counters>,
    arrived: [u64; 2],
    machine: Machine,
    daemons_cpu_s: f64,
}

/// What was seen.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) samples: Vec<Sample>,
    pub(crate) handshakes: Vec<Handshake>,
    /// The first daemon that ended.
    pub(crate) death: Option<String>,
}

impl<'a> Sampler<'a> {
    pub(crate) fn new(bed: &'a Bed, load: &'a Load, probes: &'a Probes) -> anyhow::Result<Self> {
        let counters = bed.ends().map(|end| Counters::read(&end.daemon));
        let keys = bed.spokes.iter().map(|spoke| spoke.keys.public_base64());
        Ok(Self {
            bed,
            load,
            probes,
            keys: SPOKES.into_iter().zip(keys).collect(),
            seen: Seen::default(),
            counters: counters.collect::<Result<_, _>>()?,
            arrived: [0; 2],
            machine: Machine::read()?,
            daemons_cpu_s: 0.0,
        })
    }

    /// Looks for `secs` seconds, or until a daemon ends.
    pub(crate) fn run(mut self, secs: u64) -> Seen {
        let mut handshakes = Handshakes::default();
        for second in 1..=secs {
            self.load.clock.sleep_until(second as f64);
            match self.sample() {
                Ok(sample) => self.seen.samples.push(sample),
                Err(error) => {
                    self.seen.death = Some(format!("{error:#}"));
                    break;
                }
            }
            self.fill_in_latency(second);
            if second % HANDSHAKES_EVERY == 0 {
                match changes::latest_handshakes(&self.bed.hub) {
                    Ok(shown) => handshakes.take(&shown, &self.keys),
                    // Of a daemon that has just ended: the next look tells more.
                    Err(error) => self.seen.death = Some(format!("hub: {error:#}")),
                }
            }
            if second % LINE_EVERY == 0 {
                self.print_line();
            }
        }
        self.seen.handshakes = handshakes.0;
        self.seen
    }

    /// Fails when a daemon has ended, with what it wrote last.
    fn sample(&mut self) -> anyhow::Result<Sample> {
        let before = self.seen.samples.last().map_or(0.0, |sample| sample.at_s);
        let now = self.load.clock.now();
        let arrived = [Direction::Up, Direction::Down].map(|way| self.load.arrived(way));
        let mbps = |way: usize| {
            let bytes = arrived[way] - self.arrived[way];
            rounded(bytes as f64 * 8.0 / 1e6 / (now - before), 1e1)
        };
        let mut sample = Sample {
            at_s: rounded(now, 1e3),
            up_mbps: mbps(0),
            down_mbps: mbps(1),
            ..Sample::default()
        };
        for (number, end) in self.bed.ends().enumerate() {
            self.look_at(number, end, &mut sample)
                .with_context(|| log_tail(end))?;
        }
        self.arrived = arrived;
        sample.others_cpus = rounded(self.others_cpu(&sample) / (now - before), 1e2);
        Ok(sample)
    }

    fn look_at(&mut self, number: usize, end: &End, sample: &mut Sample) -> anyhow::Result<()> {
        // First, so that our own question is not among the descriptors.
        sample.take_process(&Process::read(end.daemon.pid())?);
        let counters = Counters::read(&end.daemon)?;
        let drops = counters.drops_since(&self.counters[number]);
        if !drops.is_empty() {
            sample.drops.insert(end.namespace.label().to_owned(), drops);
        }
        if number == 0 {
            sample.hub_bytes = [counters.inbound.bytes, counters.outbound.bytes];
        }
        self.counters[number] = counters;
        Ok(())
    }

    /// CPU seconds of other programs since the sample before.
    fn others_cpu(&mut self, sample: &Sample) -> f64 {
        let daemons_cpu_s = sample.cpu_s.iter().sum();
        let daemons = daemons_cpu_s - self.daemons_cpu_s;
        self.daemons_cpu_s = daemons_cpu_s;
        // Without it there is nothing to be told.
        let machine = Machine::read().unwrap_or(self.machine);
        let others = machine.others_since(&self.machine, daemons);
        self.machine = machine;
        others
    }

    /// The probes of a second are complete once the last of them is lost.
    fn fill_in_latency(&mut self, second: u64) {
        let Some(complete) = second.checked_sub(probe::PATIENCE + 1) else {
            return;
        };
        let latency = self.probes.take(complete);
        if let Some(sample) = self.seen.samples.get_mut(complete as usize) {
            sample.latency = Some(latency);
        }
    }

    fn print_line(&self) {
        let samples = &self.seen.samples;
        let Some(sample) = samples.last() else {
            return;
        };
        let latency = samples.iter().rev().find_map(|sample| sample.latency);
        let milliseconds =
            |value: Option<f64>| value.map_or("–".to_owned(), |ms| format!("{ms:.2}"));
        println!(
            "{:7.1} s  up {:.0} down {:.0} Mbit/s  ping {} p99 {} ms  RSS {} KiB  {} descriptors",
            sample.at_s,
            sample.up_mbps,
            sample.down_mbps,
            milliseconds(latency.and_then(|latency| latency.median_ms)),
            milliseconds(latency.and_then(|latency| latency.p99_ms)),
            sample.rss_kib[0],
            sample.descriptors[0],
        );
    }
}

impl Sample {
    fn take_process(&mut self, process: &Process) {
        self.rss_kib.push(process.rss_kib);
        self.peak_kib.push(process.peak_kib);
        self.descriptors.push(process.descriptors);
        self.threads.push(process.threads);
        self.cpu_s.push(rounded(process.cpu_s, 1e2));
    }
}

fn rounded(value: f64, to: f64) -> f64 {
    (value * to).round() / to
}
