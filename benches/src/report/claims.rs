//! The founding claims of the design, measured here.

use std::ops::RangeInclusive;
use std::path::Path;

use super::contrast::{self, Contrast};
use super::profile::{self, Profile};
use crate::packets::{self, Method};
use crate::results;
use crate::speedtest::{self, Speedtest};
use crate::table;

/// Payload sizes over which the rate of plain `send_to` is claimed to be flat.
const FLAT: RangeInclusive<f64> = 2.0..=256.0;
/// The claimed number of packets per batch.
const IN_A_BATCH: RangeInclusive<usize> = 10..=20;

pub(super) fn section(directory: &Path) -> anyhow::Result<String> {
    let speedtest: Option<Speedtest> = results::load(&directory.join(speedtest::FILE))?;
    let profile: Option<Profile> = results::load(&directory.join(profile::FILE))?;
    let rates: Option<packets::Record> = results::load(&directory.join(packets::FILE))?;
    let (speedtest, profile, rates) = (speedtest.as_ref(), profile.as_ref(), rates.as_ref());
    let row = |claim: &str, published: &str, here: Option<String>| {
        let here = here.unwrap_or_else(|| "no result yet".to_owned());
        vec![claim.to_owned(), published.to_owned(), here]
    };
    let mut rows = Vec::new();
    for (file, how) in contrast::FILES {
        let contrast: Option<Contrast> = results::load(&directory.join(file))?;
        let here = contrast.and_then(|contrast| contrast.gain());
        rows.push(row(&format!("gain: {how}"), "about +60 %", here));
    }
    let sender = profile.map(|it| it.change(|side| side.sender().udp_sendmsg));
    let copies = profile.map(copies);
    let batches = speedtest.and_then(batches);
    let flatness = rates.and_then(flatness);
    rows.extend([
        row(
            "CPU share of `udp(v6)_sendmsg`, sender",
            "34 % → 16 %",
            sender,
        ),
        row("the same, both daemons", "", profile.map(sending)),
        row(
            "stack buffers and copies from them",
            "< 10 % of CPU time",
            copies,
        ),
        row("packets per UDP send, upload", "10 to 20", batches),
        row(
            "one core's rate with `send_to`",
            "450 kpps, 2 to 256 B",
            flatness,
        ),
    ]);
    let table = table::markdown("claim | published | here", rows);
    Ok(format!(
        "\n## Founding claims reproduced\n\n`make report`, from the results of `make speedtest-results`, \
         `make profile-results` and `make packet-rate` below. Published\nfigures come from another program on other \
         machines.\n\n{table}"
    ))
}

fn sending(profile: &Profile) -> String {
    let both = profile.change(|side| side.all.udp_sendmsg);
    let (from, to) = (profile.no_gso.sends_per_gb, profile.gso.sends_per_gb);
    match from.zip(to) {
        Some((from, to)) => format!("{both}; sends per GB {from:.0} → {to:.0}"),
        None => both,
    }
}

/// Includes the copies into the buffers: the samples cannot tell them apart.
fn copies(profile: &Profile) -> String {
    let percent = profile.gso.sender().copies() * 100.0;
    format!("≤ {percent:.1} % of the sender, with copies to them")
}

fn batches(speedtest: &Speedtest) -> Option<String> {
    let sends = &speedtest.upload()?.segments_per_send;
    let percent = |range| Some(sends.share(&range)? * 100.0);
    let above = percent(IN_A_BATCH.end() + 1..=usize::MAX)?;
    let (median, within) = (sends.median()?, percent(IN_A_BATCH)?);
    Some(format!(
        "median {median}; {within:.0} % in 10 to 20, {above:.0} % above"
    ))
}

fn flatness(rates: &packets::Record) -> Option<String> {
    let rates = rates.kpps(Method::SendTo).into_iter();
    let rates = rates.filter(|(size, _)| FLAT.contains(size));
    let kpps: Vec<_> = rates.map(|(_, kpps)| kpps).collect();
    let lowest = kpps.iter().copied().reduce(f64::min)?;
    let highest = kpps.iter().copied().reduce(f64::max)?;
    let apart = (highest / lowest - 1.0) * 100.0;
    Some(format!(
        "{lowest:.0} to {highest:.0} kpps on loopback, {apart:.0} % spread"
    ))
}
