//! A tunnel's counters in a few lines.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

use convoy_report::{Counters, HISTOGRAMS, OuterCounters, Rate, Traffic};
use convoy_stats::{binary, grouped, percentile};

use super::{fields::optional, words::rate};

/// Number of histograms of batches.
pub(crate) const BATCHES: u16 = {
    let (mut count, mut at) = (0, 0);
    while at < HISTOGRAMS.len() {
        count += match HISTOGRAMS[at].short_title {
            Some(_) => 1,
            None => 0,
        };
        at += 1;
    }
    count
};

/// Lists the histograms of batches with their titles, in the order of a packet's path.
pub(crate) fn batch_figures() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = HISTOGRAMS.into_iter();
    all.filter_map(|it| Some((it.name, it.short_title?)))
}

/// The largest values of the ranges that share a bar.
const RANGES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// From a range with hardly any sample to one with nearly all.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The states that are said in one line, with their names.
const OFFLOADS: [(&str, &str); 4] = [
    ("gso", "GSO"),
    ("udp_gro", "GRO"),
    ("tun_offload_tcp", "TUN TCP"),
    ("tun_offload_udp", "TUN UDP"),
];

pub(super) fn write(out: &mut String, counters: &Counters, recent: Option<Rate>) -> fmt::Result {
    write_traffic(out, counters.inbound, counters.outbound)?;
    optional(out, "rate", recent.map(rate))?;
    let offloads: Vec<_> = offloads(counters).collect();
    let offloads = (!offloads.is_empty()).then(|| offloads.join(", "));
    optional(out, "offload", offloads)?;
    optional(out, "AEAD", counters.state.get("aead"))?;
    write_batches(out, counters)?;
    write_drops(out, &counters.drops)
}

/// Writes those of the tunnel through which another goes.
pub(super) fn write_outer(out: &mut String, counters: &OuterCounters) -> fmt::Result {
    write_traffic(out, counters.inbound, counters.outbound)?;
    write_drops(out, &counters.drops)
}

fn write_traffic(out: &mut String, inbound: Traffic, outbound: Traffic) -> fmt::Result {
    let (received, sent) = (inbound.bytes, outbound.bytes);
    let text = format!("{} received, {} sent", binary(received), binary(sent));
    optional(out, "traffic", (received + sent > 0).then_some(text))
}

fn write_drops(out: &mut String, drops: &BTreeMap<String, u64>) -> fmt::Result {
    let drops = drops.iter().filter(|(_, count)| **count > 0);
    let drops = drops.map(|(reason, count)| format!("{} {reason}", grouped(*count)));
    let drops: Vec<_> = drops.collect();
    let drops = (!drops.is_empty()).then(|| drops.join(", "));
    optional(out, "drops", drops)
}

/// Says what is on and what is off, such as `GSO on`.
pub(crate) fn offloads(counters: &Counters) -> impl Iterator<Item = String> {
    OFFLOADS.iter().filter_map(|(key, name)| {
        let state = counters.state.get(*key)?;
        Some(format!("{name} {state}"))
    })
}

/// A table of the histograms that have samples.
fn write_batches(out: &mut String, counters: &Counters) -> fmt::Result {
    let mut has_header = false;
    for (key, title) in batch_figures() {
        let Some(batches) = Batches::of(counters, key) else {
            continue;
        };
        if !has_header {
            writeln!(
                out,
                "  batches: {:>25} {:>6} {:>5} {:>5}  1–64",
                "count", "mean", "50 %", "99 %"
            )?;
            has_header = true;
        }
        writeln!(
            out,
            "    {title:<22} {:>9} {:>6.1} {:>5} {:>5}  {}",
            grouped(batches.samples),
            batches.mean,
            batches.half,
            batches.most,
            batches.bars
        )?;
    }
    Ok(())
}

/// A histogram in a line.
pub(crate) struct Batches {
    pub(crate) samples: u64,
    pub(crate) mean: f64,
    /// Half of the batches have at most this size.
    pub(crate) half: usize,
    /// 99 % of the batches have at most this size.
    pub(crate) most: usize,
    pub(crate) bars: String,
}

impl Batches {
    /// `None` if nothing was moved.
    pub(crate) fn of(counters: &Counters, key: &str) -> Option<Self> {
        let mean = counters.mean(key)?;
        let counts = counters.histogram(key).unwrap_or_default();
        // A read that finds nothing moves nothing.
        let samples = counts.iter().skip(1).sum();
        let moved = [&[0][..], counts.get(1..).unwrap_or_default()].concat();
        Some(Self {
            samples,
            mean,
            half: percentile(&moved, samples, 50),
            most: percentile(&moved, samples, 99),
            bars: bars(counts, samples),
        })
    }
}

/// One bar for each of the ranges.
fn bars(counts: &[u64], samples: u64) -> String {
    let mut bars = String::new();
    let mut from = 1;
    for to in RANGES {
        let within = counts.iter().take(to + 1).skip(from);
        let share = within.sum::<u64>() as f64 / samples as f64;
        from = to + 1;
        bars.push(match (share * BARS.len() as f64).ceil() as usize {
            0 => ' ',
            height => BARS[height.min(BARS.len()) - 1],
        });
    }
    bars.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_high_as_its_share() {
        let mut counts = [0; 65];
        counts[0] = 1_000;
        counts[1] = 80;
        counts[3] = 1;
        counts[4] = 4;
        counts[50] = 15;
        assert_eq!(bars(&counts, 100), "▇ ▁   ▂");
        assert_eq!(bars(&[0, 1], 1), "█");
        assert_eq!(bars(&[], 1), "");
    }

    #[test]
    fn reads_that_found_nothing_do_not_count() {
        let mut counters = Counters::default();
        let reads = vec![1_000_000, 1, 0, 0, 1];
        let key = "packets_per_read".to_owned();
        counters.histograms.insert(key, reads);
        let mut text = String::new();
        write(&mut text, &counters, None).unwrap();
        let expected = "    packets per TUN read           2    2.5     1     4  ▄ ▄";
        assert_eq!(text.lines().last(), Some(expected));
    }
}
