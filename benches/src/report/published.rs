//! Figures that others have published about GSO, batches and copies, beside the same figures measured here.

use std::path::Path;

use convoy_lab::measure::Sample;
use convoy_rows::row::Run;
use convoy_rows::table;

use crate::packets::CLOSED_LOOPBACK;
use crate::record::{BELOW_SENDMSG, BOTH, COPIES, SENDS};
use crate::speedtest::{SEGMENTS_PER_SEND, UPLOAD};

/// A figure in words, as published, and its counterpart in a result file.
type Figure = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Run) -> Option<String>,
);

const FIGURES: [Figure; 8] = [
    (
        "gain: GSO and batches of 50, no TUN offload",
        "about +60 %",
        "speedtest-shape.jsonl",
        gain,
    ),
    (
        "gain: GSO, with TUN offload",
        "about +60 %",
        "speedtest-gso.jsonl",
        gain,
    ),
    (
        "gain: TUN offload, with GSO",
        "about +60 %",
        "speedtest-tun-offload.jsonl",
        gain,
    ),
    (
        "CPU share of `udp(v6)_sendmsg`, sender",
        "34 % → 16 %",
        "profile.jsonl",
        |run| change(run, "sender"),
    ),
    ("the same, both daemons", "", "profile.jsonl", sending),
    (
        "stack buffers and copies from them",
        "< 10 % of CPU time",
        "profile.jsonl",
        copies,
    ),
    (
        "packets per UDP send, upload",
        "10 to 20",
        "speedtest.jsonl",
        batches,
    ),
    (
        "one core's rate with `send_to`",
        "450 kpps, 2 to 256 B",
        "packet_rate.jsonl",
        flatness,
    ),
];

/// Payload sizes over which the rate of plain `send_to` is said to be flat.
const MOST_FLAT: f64 = 256.0;

pub(super) fn section(directory: &Path) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    for (what, published, file, answer) in FIGURES {
        let run = Run::load(&directory.join(file))?;
        let here = run.as_ref().and_then(answer);
        let here = here.unwrap_or_else(|| "no result yet".to_owned());
        rows.push(vec![what.to_owned(), published.to_owned(), here]);
    }
    let table = table::markdown("figure | published | here", rows);
    Ok(format!(
        "\n## What batching brings: published figures and ours\n\nFrom the results of `make speedtest-results`, `make \
         profile-results` and `make packet-rate`. The published figures are\nthose of another program on other machines, \
         whose design Convoy shares.\n\n{table}"
    ))
}

/// The gain in throughput of the first configuration over the second.
fn gain(run: &Run) -> Option<String> {
    let is_rate = |row: &&convoy_rows::row::Row| row.scene == UPLOAD && row.unit == "Gbit/s";
    let rates: Vec<_> = run.rows.iter().filter(is_rate).collect();
    let (first, last) = (&rates.first()?.contender, &rates.last()?.contender);
    let of = |name: &String| -> Vec<f64> {
        let own = rates.iter().filter(|row| row.contender == *name);
        own.map(|row| row.value).collect()
    };
    let (with, without) = (of(first), of(last));
    let ratio = Sample::of_ratios(&with, &without)?;
    let [median, min, max] = [ratio.median, ratio.min, ratio.max].map(|it| (it - 1.0) * 100.0);
    let (with, without) = (Sample::of(with)?.median, Sample::of(without)?.median);
    Some(format!(
        "{median:+.0} % ({min:+.0} to {max:+.0} %), {without:.1} → {with:.1} Gbit/s"
    ))
}

/// A figure of a profile, with GSO or without.
fn profiled(run: &Run, scene: &str, contender: &str, (figure, unit): (&str, &str)) -> Option<f64> {
    let mut rows = run
        .rows
        .iter()
        .filter(|row| row.scene == scene && row.contender == contender);
    Some(
        rows.find(|row| row.figure == figure && row.unit == unit)?
            .value,
    )
}

fn change(run: &Run, contender: &str) -> Option<String> {
    let share = |scene| profiled(run, scene, contender, BELOW_SENDMSG);
    Some(format!(
        "{:.0} % → {:.0} %",
        share("no-gso")?,
        share("gso")?
    ))
}

fn sending(run: &Run) -> Option<String> {
    let sends = |scene| profiled(run, scene, BOTH, SENDS);
    let (both, from, to) = (change(run, BOTH)?, sends("no-gso")?, sends("gso")?);
    Some(format!("{both}; sends per GB {from:.0} → {to:.0}"))
}

/// Includes the copies into the buffers: the samples cannot tell them apart.
fn copies(run: &Run) -> Option<String> {
    let percent = profiled(run, "gso", "sender", COPIES)?;
    Some(format!(
        "≤ {percent:.1} % of the sender, with copies to them"
    ))
}

/// Tells how full the sends were; empty ones do not count.
fn batches(run: &Run) -> Option<String> {
    let rows = run.rows.iter().filter(|row| row.scene == SEGMENTS_PER_SEND);
    let sizes: Vec<_> = rows.filter_map(|row| Some((row.at?, row.value))).collect();
    let share = |is_in: &dyn Fn(f64) -> bool| {
        let sum = |all: &mut dyn Iterator<Item = &(f64, f64)>| all.map(|it| it.1).sum::<f64>();
        let within = sum(&mut sizes.iter().filter(|it| it.0 > 0.0 && is_in(it.0)));
        within / sum(&mut sizes.iter().filter(|it| it.0 > 0.0))
    };
    let mut sorted = sizes.iter().map(|it| it.0);
    let median = sorted.find(|size| share(&|it| it <= *size) >= 0.5)?;
    let [within, above] = [
        share(&|it| (10.0..=20.0).contains(&it)),
        share(&|it| it > 20.0),
    ];
    Some(format!(
        "median {median}; {:.0} % in 10 to 20, {:.0} % above",
        within * 100.0,
        above * 100.0
    ))
}

fn flatness(run: &Run) -> Option<String> {
    let is_in = |size: f64| {
        let rates = run.by_round(|row| {
            let is_sent = row.scene == CLOSED_LOOPBACK && row.contender == "send_to";
            is_sent && row.unit == "kpps" && row.at == Some(size)
        });
        Some(Sample::of(rates.into_values().collect())?.median)
    };
    let mut sizes: Vec<_> = run.rows.iter().filter_map(|row| row.at).collect();
    sizes.retain(|size| *size <= MOST_FLAT);
    let rates: Vec<_> = sizes.into_iter().filter_map(is_in).collect();
    let lowest = rates.iter().copied().reduce(f64::min)?;
    let highest = rates.iter().copied().reduce(f64::max)?;
    let apart = (highest / lowest - 1.0) * 100.0;
    Some(format!(
        "{lowest:.0} to {highest:.0} kpps on loopback, {apart:.0} % spread"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoy_rows::row::Row;

    #[test]
    fn shares_and_the_median_leave_empty_batches_out() {
        let mut run = Run::new(Vec::new());
        for (size, count) in [(0.0, 1_000.0), (1.0, 2.0), (20.0, 5.0), (64.0, 3.0)] {
            run.push(Row::new(SEGMENTS_PER_SEND, "convoy", ("", "times"), 0, count).at(size));
        }
        let expected = "median 20; 50 % in 10 to 20, 30 % above";
        assert_eq!(batches(&run).as_deref(), Some(expected));
    }
}
