//! What the design was founded on, measured again.

use std::path::Path;

use convoy_benches::{markdown, results, speedtest::Speedtest};
use serde::Deserialize;

use crate::{
    packet_rate::{self, PacketRates},
    section::rows,
    tunnel::{self, Contrast},
};

/// CPU time by group, of a profile under TCP; a share is of all samples, from 0 to 1.
///
/// The file is to hold the two configurations `gso` and `no-gso`, each with the groups `udp_sendmsg`
/// (all below the kernel's function of that name, or its IPv6 sister) and `stack_copies`.
#[derive(Debug, Deserialize)]
struct Profile {
    gso: Shares,
    #[serde(rename = "no-gso")]
    no_gso: Shares,
}

#[derive(Debug, Deserialize)]
struct Shares {
    udp_sendmsg: f64,
    stack_copies: f64,
}

const PROFILE: &str = "profile.json";
const PROFILE_COMMAND: &str = "convoy speedtest --profile DIR --compare gso";
/// At these sizes the rate of plain `send_to` is said to be the same.
const FLAT: std::ops::RangeInclusive<usize> = 2..=256;

pub(crate) fn section(results: &Path) -> anyhow::Result<String> {
    let shape: Option<Contrast> = results::load_if_there(&results.join(tunnel::SHAPE))?;
    let speedtest: Option<Speedtest> = results::load_if_there(&results.join(tunnel::SPEEDTEST))?;
    let profile: Option<Profile> = results::load_if_there(&results.join(PROFILE))?;
    let rates: Option<PacketRates> = results::load_if_there(&results.join(packet_rate::FILE))?;
    let claims = [
        (
            "GSO and batches raise throughput by about 60 %",
            shape.as_ref().and_then(gain),
            tunnel::COMMAND,
        ),
        (
            "the share of CPU time in `udp(v6)_sendmsg` falls from 34 % to 16 %",
            profile.as_ref().map(sending),
            PROFILE_COMMAND,
        ),
        (
            "stack buffers and their copies take a single-digit share of CPU time",
            profile.as_ref().map(copies),
            PROFILE_COMMAND,
        ),
        (
            "10 to 20 packets travel in one batch during an upload",
            speedtest.as_ref().and_then(batches),
            tunnel::COMMAND,
        ),
        (
            "one core sends about 450,000 datagrams a second by `send_to`, of 2 bytes as of 256",
            rates.as_ref().and_then(flatness),
            packet_rate::COMMAND,
        ),
    ];
    let head = ["claim", "measured", "by"];
    let row = |(claim, measured, command): (&str, Option<String>, &str)| {
        let missing = || format!("no result yet: see `{command}`");
        let measured = measured.unwrap_or_else(missing);
        [claim.to_owned(), measured, format!("`{command}`")]
    };
    let table = markdown::table(&rows(head, claims.map(row)));
    Ok(format!(
        "\n## Founding claims reproduced\n\n`make report`, of the files that the sections below name.\n\n{table}"
    ))
}

fn gain(shape: &Contrast) -> Option<String> {
    let ratio = shape.throughput()?;
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    Some(format!(
        "{:+.0} % ({:+.0} to {:+.0} %) against no GSO and batches of one, both without TUN offload",
        percent(ratio.median),
        percent(ratio.min),
        percent(ratio.max)
    ))
}

fn sending(profile: &Profile) -> String {
    let share = |shares: &Shares| shares.udp_sendmsg * 100.0;
    let (from, to) = (share(&profile.no_gso), share(&profile.gso));
    format!("from {from:.0} % to {to:.0} %")
}

fn copies(profile: &Profile) -> String {
    format!("{:.1} %", profile.gso.stack_copies * 100.0)
}

fn batches(speedtest: &Speedtest) -> Option<String> {
    let mut runs = speedtest.runs.iter();
    let upload = runs.find(|run| run.name == "tcp-up")?;
    let (read, sent) = (upload.packets_per_read?, upload.segments_per_send?);
    Some(format!("{read:.1} in a TUN read, {sent:.1} in a UDP send"))
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

    #[test]
    fn a_gain_is_told_with_its_spread() {
        let json = r#"{"version": "0.1.0", "compare": {"what": "shape", "rounds": 5,
            "a": {"name": "gso, batch 50"}, "b": {"name": "no gso, batch 1"},
            "tests": [{"name": "tcp-up", "figure": "gbps", "a": null, "b": null,
                "ratio": {"median": 1.6, "min": 1.5, "max": 1.75, "values": [1.6]}}]}}"#;
        let told = gain(&serde_json::from_str(json).unwrap()).unwrap();
        assert!(told.starts_with("+60 % (+50 to +75 %)"), "{told}");
    }

    #[test]
    fn shares_of_a_profile_are_told_in_percent() {
        let json = r#"{"gso": {"udp_sendmsg": 0.16, "stack_copies": 0.041},
            "no-gso": {"udp_sendmsg": 0.34, "stack_copies": 0.05}}"#;
        let profile: Profile = serde_json::from_str(json).unwrap();
        assert_eq!(sending(&profile), "from 34 % to 16 %");
        assert_eq!(copies(&profile), "4.1 %");
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
        let json = format!(
            r#"{{"origin": {{"host": {{"kernel": "6", "cpu": null, "cpus": 2, "memory_mib": null,
                "root": true}}, "commit": "", "started": "", "began_unix_s": 0, "command": [],
                "versions": []}}, "window_ms": 1, "series": [{series}]}}"#
        );
        let rates: PacketRates = serde_json::from_str(&json).unwrap();
        let told = flatness(&rates).unwrap();
        assert_eq!(told, "400 to 450 kpps on loopback, 12 % apart");
    }
}
