//! What the design was founded on, measured again.

use std::path::Path;

use convoy_benches::{markdown, results, speedtest::Speedtest};
use serde::de::DeserializeOwned;

use crate::{
    packet_rate::{self, PacketRates},
    profile::{self, Profile},
    section::rows,
    tunnel::{self, Contrast},
};

/// At these sizes the rate of plain `send_to` is said to be the same.
const FLAT: std::ops::RangeInclusive<usize> = 2..=256;
/// So many packets are said to be in a batch.
const IN_A_BATCH: std::ops::RangeInclusive<usize> = 10..=20;

/// One row.
struct Claim<'a> {
    what: &'a str,
    /// What those who first built a tunnel so have published.
    published: &'a str,
    here: Option<String>,
    command: &'a str,
}

pub(crate) fn section(results: &Path) -> anyhow::Result<String> {
    let speedtest: Option<Speedtest> = load(results, tunnel::SPEEDTEST)?;
    let profile: Option<Profile> = load(results, profile::FILE)?;
    let rates: Option<PacketRates> = load(results, packet_rate::FILE)?;
    let claims = [
        Claim {
            what: "GSO and batches raise throughput",
            published: "by about 60 %",
            here: gains(results)?,
            command: tunnel::COMMAND,
        },
        Claim {
            what: "the share of CPU time in `udp(v6)_sendmsg` falls",
            published: "from 34 % to 16 %",
            here: profile.as_ref().map(sending),
            command: profile::COMMAND,
        },
        Claim {
            what: "stack buffers and the copies out of them are cheap",
            published: "a single-digit share of CPU time",
            here: profile.as_ref().map(copies),
            command: profile::COMMAND,
        },
        Claim {
            what: "packets in one batch during an upload",
            published: "10 to 20",
            here: speedtest.as_ref().and_then(batches),
            command: tunnel::COMMAND,
        },
        Claim {
            what: "datagrams a second that one core sends by `send_to`",
            published: "about 450,000, of 2 bytes as of 256",
            here: rates.as_ref().and_then(flatness),
            command: packet_rate::COMMAND,
        },
    ];
    let head = ["claim", "published", "here", "by"];
    let row = |claim: Claim<'_>| {
        let command = format!("`{}`", claim.command);
        let missing = || format!("no result yet: see {command}");
        let here = claim.here.unwrap_or_else(missing);
        [
            claim.what.to_owned(),
            claim.published.to_owned(),
            here,
            command,
        ]
    };
    let table = markdown::table(&rows(head, claims.map(row)));
    Ok(format!(
        "\n## Founding claims reproduced\n\n`make report`, of the files that the sections below name. \
         Published figures are of another program on other machines.\n\n{table}"
    ))
}

fn load<T: DeserializeOwned>(results: &Path, file: &str) -> anyhow::Result<Option<T>> {
    Ok(results::load_if_there(&results.join(file))?)
}

/// With TUN offload and without, as far as they were measured.
fn gains(results: &Path) -> anyhow::Result<Option<String>> {
    let named = [
        (tunnel::SHAPE, "without TUN offload, GSO and batches of 50"),
        (tunnel::GSO, "with TUN offload, GSO"),
        (tunnel::TUN_OFFLOAD, "with GSO, TUN offload"),
    ];
    let mut told = Vec::new();
    for (file, what) in named {
        let contrast: Option<Contrast> = load(results, file)?;
        told.extend(contrast.and_then(|contrast| gain(what, &contrast)));
    }
    Ok((!told.is_empty()).then(|| told.join("; ")))
}

fn gain(what: &str, contrast: &Contrast) -> Option<String> {
    let gain = contrast.gain()?;
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    Some(format!(
        "{what}: {:+.0} % ({:+.0} to {:+.0} %), {:.1} to {:.1} Gbit/s",
        percent(gain.ratio.median),
        percent(gain.ratio.min),
        percent(gain.ratio.max),
        gain.without,
        gain.with
    ))
}

fn sending(profile: &Profile) -> String {
    let Profile { gso, no_gso, .. } = profile;
    let share = |part: &profile::Part| part.udp_sendmsg * 100.0;
    let mut told = format!(
        "of the sender from {:.0} % to {:.0} %, of both daemons from {:.0} % to {:.0} %",
        share(no_gso.sender()),
        share(gso.sender()),
        share(&no_gso.all),
        share(&gso.all)
    );
    if let Some((from, to)) = no_gso.sends_per_gb.zip(gso.sends_per_gb) {
        told += &format!("; sends for a GB from {from:.0} to {to:.0}");
    }
    told
}

/// The copies into the buffer count, too: they cannot be told apart.
fn copies(profile: &Profile) -> String {
    format!(
        "at most {:.1} % of the sender, copies into them included",
        profile.gso.sender().copies() * 100.0
    )
}

fn batches(speedtest: &Speedtest) -> Option<String> {
    let sends = &tunnel::upload(speedtest)?.segments_per_send;
    let within = sends.share(&IN_A_BATCH)? * 100.0;
    let above = sends.share(&(IN_A_BATCH.end() + 1..=usize::MAX))? * 100.0;
    Some(format!(
        "{} in the median UDP send; {within:.0} % of sends carry 10 to 20, {above:.0} % more",
        sends.median()?
    ))
}

fn flatness(rates: &PacketRates) -> Option<String> {
    let sizes = rates.sizes().into_iter().filter(|size| FLAT.contains(size));
    let kpps: Vec<_> = sizes
        .filter_map(|size| rates.kpps("send-to", size))
        .collect();
    let lowest = kpps.iter().copied().reduce(f64::min)?;
    let highest = kpps.iter().copied().reduce(f64::max)?;
    let apart = (highest / lowest - 1.0) * 100.0;
    Some(format!(
        "{lowest:.0} to {highest:.0} kpps on loopback, {apart:.0} % apart"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str =
        r#"{"kernel": "6", "cpu": null, "cpus": 2, "memory_mib": null, "root": true}"#;
    const ORIGIN: &str = r#"{"host": {"kernel": "6", "cpu": null, "cpus": 2, "memory_mib": null,
        "root": true}, "commit": "", "started": "", "began_unix_s": 0, "command": [], "versions": []}"#;

    #[test]
    fn a_gain_is_told_with_its_spread() {
        let sample = |median: f64, min: f64, max: f64| {
            format!(r#"{{"median": {median}, "min": {min}, "max": {max}, "values": []}}"#)
        };
        let [a, b] = [4.8, 3.0].map(|gbps| sample(gbps, gbps, gbps));
        let ratio = sample(1.6, 1.5, 1.75);
        let json = format!(
            r#"{{"origin": {ORIGIN}, "compare": {{"what": "shape", "rounds": 5,
            "a": {{"name": "gso, batch 50"}}, "b": {{"name": "no gso, batch 1"}},
            "tests": [{{"name": "tcp-up", "figure": "gbps", "a": {a}, "b": {b}, "ratio": {ratio}}}]}}}}"#
        );
        let told = gain("GSO", &serde_json::from_str(&json).unwrap()).unwrap();
        assert_eq!(told, "GSO: +60 % (+50 to +75 %), 3.0 to 4.8 Gbit/s");
    }

    #[test]
    fn shares_of_a_profile_are_told_in_percent_beside_the_sends() {
        let profile = profile::tests::profile();
        assert_eq!(
            sending(&profile),
            "of the sender from 34 % to 16 %, of both daemons from 17 % to 8 %; sends for a GB from \
             800000 to 25000"
        );
        assert!(copies(&profile).starts_with("at most 4.1 % of the sender"));
    }

    #[test]
    fn packets_in_a_batch_are_those_of_an_upload() {
        let mut counts = [0; 65];
        (counts[1], counts[15], counts[44]) = (1, 6, 3);
        let json = format!(
            r#"{{"origin": {ORIGIN}, "version": "0.1.0", "host": {HOST}, "runs": [{{"name": "tcp-down"}}, {{"name": "tcp-up",
                "histograms": {{"packets_per_read": [], "packets_per_batch": [],
                "segments_per_send": {counts:?}}}}}]}}"#
        );
        let told = batches(&serde_json::from_str(&json).unwrap()).unwrap();
        assert_eq!(
            told,
            "15 in the median UDP send; 60 % of sends carry 10 to 20, 30 % more"
        );
    }

    #[test]
    fn the_rates_of_small_datagrams_are_compared_with_each_other() {
        let series = |size: usize, pps: f64| {
            format!(
                r#"{{"path": "loopback", "method": "send-to", "sink": "closed", "ports": "own",
                    "threads": 1, "size": {size}, "rates": [{{"sent_pps": {pps}}}], "failures": []}}"#
            )
        };
        let series = [series(2, 450e3), series(256, 400e3), series(512, 1e3)].join(",");
        let json = format!(r#"{{"origin": {ORIGIN}, "window_ms": 1, "series": [{series}]}}"#);
        let rates: PacketRates = serde_json::from_str(&json).unwrap();
        let told = flatness(&rates).unwrap();
        assert_eq!(told, "400 to 450 kpps on loopback, 12 % apart");
    }
}
