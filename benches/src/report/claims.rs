//! The claims that the design is founded on, measured again.

use std::ops::RangeInclusive;

use super::profile::{self, Profile};
use super::tunnel::{self, Contrast};
use super::{Page, table};
use crate::packets::{self, record::Method};
use crate::speedtest::Speedtest;

/// Sizes at which the rate of plain `send_to` is said to be the same.
const FLAT: RangeInclusive<usize> = 2..=256;
/// The number of packets that is said to be in a batch.
const IN_A_BATCH: RangeInclusive<usize> = 10..=20;

pub(super) fn section(page: &mut Page) -> anyhow::Result<()> {
    let speedtest: Option<Speedtest> = page.load(tunnel::FILE)?;
    let profile: Option<Profile> = page.load(profile::FILE)?;
    let rates: Option<packets::record::Record> = page.load(packets::FILE)?;
    let mut claims = Vec::new();
    for (file, how) in tunnel::CONTRASTS {
        let contrast: Option<Contrast> = page.load(file)?;
        let here = contrast.as_ref().and_then(gain);
        claims.push((format!("gain: {how}"), "about +60 %", here));
    }
    let sending = profile.as_ref().map(sending);
    let [sender, both] = sending.map_or([None, None], |shares| shares.map(Some));
    claims.extend([
        (
            "CPU share of `udp(v6)_sendmsg`, sender".to_owned(),
            "34 % → 16 %",
            sender,
        ),
        ("the same of both daemons".to_owned(), "", both),
        (
            "stack buffers and copies out of them".to_owned(),
            "< 10 % of CPU time",
            profile.as_ref().map(copies),
        ),
        (
            "packets in a UDP send, upload".to_owned(),
            "10 to 20",
            speedtest.as_ref().and_then(batches),
        ),
        (
            "one core's rate by `send_to`".to_owned(),
            "450 kpps, 2 to 256 B",
            rates.as_ref().and_then(flatness),
        ),
    ]);
    let rows = claims.into_iter().map(|(what, published, here)| {
        [
            what,
            published.to_owned(),
            here.unwrap_or_else(|| "no result yet".to_owned()),
        ]
    });
    let table = table(["claim", "published", "here"], rows);
    page.text += &format!(
        "\n## Founding claims reproduced\n\n`make report`, from the results of `make speedtest-results`, \
         `make profile-results` and `make packet-rate` below. Published\nfigures are of another program on other \
         machines.\n\n{table}"
    );
    Ok(())
}

fn gain(contrast: &Contrast) -> Option<String> {
    let (with, without, ratio) = contrast.gain()?;
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let (median, min, max) = (
        percent(ratio.median),
        percent(ratio.min),
        percent(ratio.max),
    );
    Some(format!(
        "{median:+.0} % ({min:+.0} to {max:+.0} %), {without:.1} → {with:.1} Gbit/s"
    ))
}

/// Of the sender, and of both daemons.
fn sending(Profile { gso, no_gso, .. }: &Profile) -> [String; 2] {
    let shares =
        |before: f64, after: f64| format!("{:.0} % → {:.0} %", before * 100.0, after * 100.0);
    let mut both = shares(no_gso.all.udp_sendmsg, gso.all.udp_sendmsg);
    if let Some((from, to)) = no_gso.sends_per_gb.zip(gso.sends_per_gb) {
        both += &format!("; sends for a GB {from:.0} → {to:.0}");
    }
    [
        shares(no_gso.sender().udp_sendmsg, gso.sender().udp_sendmsg),
        both,
    ]
}

/// The copies into the buffer count, too: they cannot be separated.
fn copies(profile: &Profile) -> String {
    format!(
        "≤ {:.1} % of the sender, with copies into them",
        profile.gso.sender().copies() * 100.0
    )
}

fn batches(speedtest: &Speedtest) -> Option<String> {
    let sends = &tunnel::upload(speedtest)?.segments_per_send;
    let percent = |range| Some(sends.share(&range)? * 100.0);
    let (within, above) = (
        percent(IN_A_BATCH)?,
        percent(IN_A_BATCH.end() + 1..=usize::MAX)?,
    );
    Some(format!(
        "median {}; {within:.0} % carry 10 to 20, {above:.0} % more",
        sends.median()?
    ))
}

fn flatness(rates: &packets::record::Record) -> Option<String> {
    let sizes = rates.sizes().into_iter().filter(|size| FLAT.contains(size));
    let kpps: Vec<_> = sizes
        .filter_map(|size| rates.kpps(Method::SendTo, size))
        .collect();
    let lowest = kpps.iter().copied().reduce(f64::min)?;
    let highest = kpps.iter().copied().reduce(f64::max)?;
    let apart = (highest / lowest - 1.0) * 100.0;
    Some(format!(
        "{lowest:.0} to {highest:.0} kpps on loopback, {apart:.0} % apart"
    ))
}
