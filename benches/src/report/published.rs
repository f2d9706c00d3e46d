//! Figures that others have published about GSO, batches and copies, beside the same figures measured here.

use std::iter::repeat_n;
use std::path::Path;

use convoy_lab::measure::Sample;
use convoy_rows::row::{Row, Run};
use convoy_rows::table;

use crate::packets::{CLOSED_LOOPBACK, SEND_TO};
use crate::record::{BELOW_SENDMSG, BOTH, COPIES, SENDS};
use crate::speedtest::{SEGMENTS_PER_SEND, UPLOAD};

type Answer = fn(&Run) -> Option<String>;

/// Figures in words, as published, and their counterparts in result files.
#[rustfmt::skip]
const FIGURES: [(&str, &str, &str, Answer); 8] = [
    ("gain: GSO and batches of 50, no TUN offload", "about +60 %", "speedtest-shape.jsonl", gain),
    ("gain: GSO, with TUN offload", "about +60 %", "speedtest-gso.jsonl", gain),
    ("gain: TUN offload, with GSO", "about +60 %", "speedtest-tun-offload.jsonl", gain),
    ("CPU share of `udp(v6)_sendmsg`, sender", "34 % → 16 %", "profile.jsonl", |run| change(run, "sender")),
    ("the same, both daemons", "", "profile.jsonl", sending),
    ("stack buffers and copies from them", "< 10 % of CPU time", "profile.jsonl", copies),
    ("packets per UDP send, upload", "10 to 20", "speedtest.jsonl", batches),
    ("one core's rate with `send_to`", "450 kpps, 2 to 256 B", "packet_rate.jsonl", flatness),
];

/// Payload sizes over which the rate of plain `send_to` is said to be flat.
const MOST_FLAT: f64 = 256.0;

pub(super) fn section(directory: &Path) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    for (what, published, file, answer) in FIGURES {
        let here = Run::load(&directory.join(file))?.as_ref().and_then(answer);
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
    let rate = ("", "Gbit/s");
    let mut rates = run.rows.iter().filter(|row| row.is_of(UPLOAD, rate));
    let (with, without) = (&rates.next()?.contender, &rates.next_back()?.contender);
    let ratio = run.ratio(UPLOAD, [with, without], rate)?;
    let [median, min, max] = [ratio.median, ratio.min, ratio.max].map(|it| (it - 1.0) * 100.0);
    let median_of = |contender| Some(run.sample(UPLOAD, contender, rate)?.median);
    let (with, without) = (median_of(with)?, median_of(without)?);
    Some(format!(
        "{median:+.0} % ({min:+.0} to {max:+.0} %), {without:.1} → {with:.1} Gbit/s"
    ))
}

fn change(run: &Run, contender: &str) -> Option<String> {
    let share = |scene| Some(run.sample(scene, contender, BELOW_SENDMSG)?.median);
    let (without, with) = (share("no-gso")?, share("gso")?);
    Some(format!("{without:.0} % → {with:.0} %"))
}

fn sending(run: &Run) -> Option<String> {
    let sends = |scene| Some(run.sample(scene, BOTH, SENDS)?.median);
    let (both, from, to) = (change(run, BOTH)?, sends("no-gso")?, sends("gso")?);
    Some(format!("{both}; sends per GB {from:.0} → {to:.0}"))
}

/// Includes the copies into the buffers: the samples cannot tell them apart.
fn copies(run: &Run) -> Option<String> {
    let percent = run.sample("gso", "sender", COPIES)?.median;
    Some(format!(
        "≤ {percent:.1} % of the sender, with copies to them"
    ))
}

/// Tells how full the sends were; empty ones do not count.
fn batches(run: &Run) -> Option<String> {
    let rows = run.rows.iter().filter(|row| row.scene == SEGMENTS_PER_SEND);
    let rows = rows.filter(|row| row.place() > 0.0);
    let sizes = rows.flat_map(|row| repeat_n(row.place(), row.value as usize));
    let sizes = Sample::of(sizes.collect())?;
    let percent = |is_in: fn(f64) -> bool| {
        let count = sizes.values.iter().filter(|size| is_in(**size)).count();
        100.0 * count as f64 / sizes.values.len() as f64
    };
    let within = percent(|it| (10.0..=20.0).contains(&it));
    let above = percent(|it| it > 20.0);
    let median = sizes.median;
    Some(format!(
        "median {median}; {within:.0} % in 10 to 20, {above:.0} % above"
    ))
}

fn flatness(run: &Run) -> Option<String> {
    let rate_at = |size: f64| {
        let sent = (CLOSED_LOOPBACK, ("sent", "kpps"));
        let is_here = |row: &Row| row.contender == SEND_TO && row.at == Some(size);
        let rates = run.select(|row| row.is_of(sent.0, sent.1) && is_here(row));
        Some(Sample::of(rates)?.median)
    };
    let sizes = run.rows.iter().filter_map(|row| row.at);
    let flat = sizes.filter(|size| *size <= MOST_FLAT);
    let rates = Sample::of(flat.filter_map(rate_at).collect())?;
    let (lowest, highest) = (rates.min, rates.max);
    let apart = (highest / lowest - 1.0) * 100.0;
    Some(format!(
        "{lowest:.0} to {highest:.0} kpps on loopback, {apart:.0} % spread"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

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
