//! Firewalls of this host, as far as they can be read reliably: chains that drop what no rule accepts.

use std::process::Stdio;

use convoy_host::{Clash, firewall_table};
use serde::Deserialize;
use tokio::process::Command;

use super::{finding::Finding, profiling::installed};

const ID: &str = "firewall";

/// Tables of Convoy's own begin so.
const OWN: &str = "convoy_";

/// The hooks that datagrams and packets of a tunnel pass.
const HOOKS: [&str; 2] = ["input", "output"];

/// A chain as `nft -j list chains` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Chain {
    pub(super) family: String,
    pub(super) table: String,
    pub(super) hook: Option<String>,
    pub(super) policy: Option<String>,
}

#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    chain: Option<Chain>,
}

/// All chains, or why they cannot be read.
pub(super) async fn gather() -> Result<Vec<Chain>, String> {
    let program = installed("nft").ok_or("nft is not installed")?;
    let mut command = Command::new(program);
    command.args(["-j", "list", "chains"]).stdin(Stdio::null());
    let output = command.kill_on_drop(true).output().await;
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.lines().next().unwrap_or("nft failed").to_owned());
    }
    parse(&output.stdout).map_err(|error| error.to_string())
}

fn parse(json: &[u8]) -> serde_json::Result<Vec<Chain>> {
    let listing: Listing = serde_json::from_slice(json)?;
    Ok(listing
        .nftables
        .into_iter()
        .filter_map(|item| item.chain)
        .collect())
}

/// Judges the chains.
pub(super) fn judge(chains: &Result<Vec<Chain>, String>) -> Finding {
    let chains = match chains {
        Ok(chains) => chains,
        Err(reason) => {
            let what = format!(
                "The firewall cannot be read: {}.",
                reason.trim_end_matches('.')
            );
            return Finding::note(ID, what, "Run `convoy doctor` as root, with nft installed.");
        }
    };
    let drops =
        |chain: &&Chain| chain.policy.as_deref() == Some("drop") && !chain.table.starts_with(OWN);
    let mut closed = Vec::new();
    for chain in chains.iter().filter(drops) {
        let hook = chain.hook.as_deref().filter(|hook| HOOKS.contains(hook));
        closed.extend(hook.map(|hook| format!("{} {} ({hook})", chain.family, chain.table)));
    }
    if closed.is_empty() {
        return Finding::ok(
            ID,
            "No firewall of nftables drops what its rules do not name.",
        );
    }
    Finding::note(
        ID,
        format!(
            "These tables drop what their rules do not accept: {}.",
            closed.join(", ")
        ),
        "If the peer does not answer, see whether `nft list ruleset` accepts UDP to its port.",
    )
}

/// Judges kill switches beside other tunnels: what leaves by those is dropped. `switches` are the tunnels whose kill
/// switch is closed, `vpns` the interfaces of other VPNs.
pub(super) fn judge_beside(name: &str, switches: &[String], vpns: &[String]) -> Vec<Finding> {
    const ID: &str = "other-kill-switch";
    let others = switches.iter().filter(|other| *other != name);
    let drops = |closed: &str, dropped: &str| {
        let Clash { what, fix } = Clash::of(closed, dropped);
        Finding::warning(ID, what + ".", fix)
    };
    let own = switches.iter().filter(|own| *own == name);
    let own = own.flat_map(|own| vpns.iter().map(|vpn| drops(own, vpn)));
    others.map(|other| drops(other, name)).chain(own).collect()
}

/// The tunnels of these whose kill switch is closed.
pub(super) fn switches(chains: &Result<Vec<Chain>, String>, tunnels: &[String]) -> Vec<String> {
    let is_closed = |tunnel: &&String| {
        let table = firewall_table(tunnel);
        let mut chains = chains.iter().flatten();
        chains.any(|chain| {
            chain.table == table
                && chain.hook.as_deref() == Some("output")
                && chain.policy.as_deref() == Some("drop")
        })
    };
    tunnels.iter().filter(is_closed).cloned().collect()
}

/// Judges whether a kill switch can be closed.
pub(super) fn judge_kill_switch(has_nft: bool) -> Finding {
    const ID: &str = "kill-switch";
    match has_nft {
        true => Finding::ok(ID, "nft, which the kill switch needs, is installed."),
        false => Finding::error(
            ID,
            "The configuration has a kill switch, but nft, which it needs, is not installed.",
            "`apt-get install nftables`, or your distribution's package of it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    const LISTING: &[u8] = br#"{"nftables": [
        {"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
        {"chain": {"family": "inet", "table": "convoy_wg0", "name": "out", "handle": 1,
                   "type": "filter", "hook": "output", "prio": 0, "policy": "drop"}},
        {"chain": {"family": "ip", "table": "nat", "name": "mine", "handle": 2}},
        {"chain": {"family": "inet", "table": "filter", "name": "forward", "handle": 3,
                   "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}}
    ]}"#;

    #[test]
    fn chains_that_drop_are_told_but_not_convoys_own_nor_those_of_forwarding() {
        let mut chains = parse(LISTING).unwrap();
        assert_eq!(chains.len(), 3);
        assert_eq!(judge(&Ok(chains.clone())).severity, Severity::Ok);
        chains[2].hook = Some("input".to_owned());
        let finding = judge(&Ok(chains));
        assert_eq!(finding.severity, Severity::Note);
        assert!(
            finding.what.contains("inet filter (input)"),
            "{}",
            finding.what
        );
    }

    #[test]
    fn a_firewall_that_cannot_be_read_is_no_failure() {
        let finding = judge(&Err("Operation not permitted".to_owned()));
        assert_eq!(finding.severity, Severity::Note);
        assert!(parse(b"{}").is_err());
    }

    #[test]
    fn a_closed_kill_switch_is_told_to_other_tunnels_only() {
        let chains = Ok(parse(LISTING).unwrap());
        let [wg0, wg1] = ["wg0", "wg1"].map(str::to_owned);
        let closed = switches(&chains, &[wg0.clone(), wg1.clone()]);
        assert_eq!(closed, ["wg0"]);
        let told = judge_beside("wg1", &closed, &[]);
        assert!(
            told[0].what.contains("of wg0 drops what leaves by wg1"),
            "{told:?}"
        );
        assert_eq!(judge_beside("wg0", &closed, &[]), []);
        let told = judge_beside("wg0", &closed, &[wg1]);
        assert!(
            told[0].what.contains("of wg0 drops what leaves by wg1"),
            "{told:?}"
        );
        assert_eq!(judge_beside("wg1", &[], &[wg0]), []);
    }

    #[test]
    fn a_kill_switch_needs_nft() {
        assert_eq!(judge_kill_switch(true).severity, Severity::Ok);
        assert_eq!(judge_kill_switch(false).severity, Severity::Error);
    }
}
