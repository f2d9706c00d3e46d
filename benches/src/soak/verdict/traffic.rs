//! The traffic: data, stalls, round trips.

use super::{Verdict, median as median_of, quantile, quiet, verdict};
use crate::soak::{
    events::Kind,
    flow::{Stall, Stream},
    record::Latency,
    record::Record,
};

/// TCP waits up to as long again as the way was closed, and for its first timeout.
const STALL_SECONDS: f64 = 3.0;
/// Of an idle machine with two cores.
const MEDIAN_MS: f64 = 2.0;
const P99_MS: f64 = 20.0;
/// Seconds that may be worse, as a share of all.
const WORSE: f64 = 0.05;
/// Probes that may be lost without an event, as a share of all.
const LOST: f64 = 0.001;

/// All that was sent arrived, and as it was sent.
pub(super) fn data(record: &Record) -> Verdict {
    let whole =
        |stream: &Stream| stream.error.is_none() && stream.verified_bytes == stream.sent_bytes;
    let broken = record.streams.iter().filter(|stream| !whole(stream));
    let broken: Vec<_> = broken
        .map(|stream| {
            let why = stream.error.as_deref().unwrap_or("bytes are missing");
            format!("; spoke {} {}: {why}", stream.spoke, stream.direction)
        })
        .collect();
    let gigabytes = record.streams.iter().map(|s| s.verified_bytes).sum::<u64>() as f64 / 1e9;
    verdict(
        "data verified",
        !record.streams.is_empty() && broken.is_empty(),
        format!(
            "{gigabytes:.1} GB over {} streams{}",
            record.streams.len(),
            broken.concat()
        ),
        "every byte of every stream arrives as it was sent".to_owned(),
    )
}

/// No stream stood still for long.
pub(super) fn stalls(record: &Record) -> Verdict {
    let all = record.streams.iter().flat_map(|stream| {
        let stalls = stream.stalls.iter();
        stalls.map(move |stall| (stream, stall, without_outage(record, stream, stall)))
    });
    let longest = all.max_by(|a, b| a.2.total_cmp(&b.2));
    let found = longest.map_or("none".to_owned(), |(stream, stall, length)| {
        format!(
            "the longest {:.1} s, {length:.1} s without the cable's outage, of spoke {} {} at {:.0} s",
            stall.until_s - stall.from_s,
            stream.spoke,
            stream.direction,
            stall.from_s
        )
    });
    verdict(
        "streams go on",
        longest.is_none_or(|(_, _, length)| length <= STALL_SECONDS),
        found,
        format!("no silence longer than {STALL_SECONDS} s, besides that of a cable that is out"),
    )
}

/// How long a stall was, less the time in which the spoke's cable was out.
fn without_outage(record: &Record, stream: &Stream, stall: &Stall) -> f64 {
    let outages = record
        .events
        .iter()
        .filter(|event| event.kind == Kind::Flap && event.spoke == Some(stream.spoke));
    let common = outages.map(|event| {
        let common = stall.until_s.min(event.until_s) - stall.from_s.max(event.from_s);
        common.max(0.0)
    });
    stall.until_s - stall.from_s - common.sum::<f64>()
}

/// The usual round trip beside the load.
pub(super) fn median(record: &Record) -> Verdict {
    let medians = seconds(record, |latency| latency.median_ms);
    let found = median_of(medians.iter().copied());
    verdict(
        "round trip under load, median",
        !medians.is_empty() && found <= MEDIAN_MS,
        format!(
            "{found:.2} ms in the median of {} quiet seconds",
            medians.len()
        ),
        format!("{MEDIAN_MS} ms"),
    )
}

/// The long round trips beside the load.
pub(super) fn p99(record: &Record) -> Verdict {
    let p99s = seconds(record, |latency| latency.p99_ms);
    let usual = median_of(p99s.iter().copied());
    let worse = quantile(p99s.iter().copied(), 1.0 - WORSE);
    verdict(
        "round trip under load, p99",
        !p99s.is_empty() && worse <= P99_MS,
        format!("{usual:.2} ms in the median second, {worse:.2} ms in the worst of 20"),
        format!("{P99_MS} ms in 19 of 20 quiet seconds"),
    )
}

/// UDP has nobody to repair it: where nothing happens, nothing is lost.
pub(super) fn lost_probes(record: &Record) -> Verdict {
    let latencies = quiet(record).filter_map(|sample| sample.latency);
    let (sent, lost) = latencies.fold((0, 0), |(sent, lost), latency| {
        (sent + latency.sent, lost + latency.lost)
    });
    verdict(
        "probes come back",
        sent > 0 && lost as f64 <= LOST * sent as f64,
        format!("{lost} of {sent} lost in quiet seconds"),
        format!("at most {} %", LOST * 100.0),
    )
}

fn seconds(record: &Record, of: fn(Latency) -> Option<f64>) -> Vec<f64> {
    let latencies = quiet(record).filter_map(|sample| sample.latency);
    latencies.filter_map(of).collect()
}
