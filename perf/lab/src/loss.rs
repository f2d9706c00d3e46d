//! A link that loses packets: nftables, since network emulation is not in every kernel.

use std::{
    env,
    ffi::OsString,
    io::{ErrorKind, Write as _},
    process::{Output, Stdio},
};

use serde_json::Value;

use crate::{error::LabError, namespace::Namespace};

/// The only table; the name that `nft list ruleset` shows.
const TABLE: &str = "inet convoy_loss";

/// Drops `percent` of the TCP and UDP packets that arrive on `interface`, from now on and instead of
/// what was asked before. A packet is what the kernel hands over in one piece: a batch, where the
/// sender's interface does not cut it.
///
/// # Errors
///
/// [`LabError::Program`] when `nft` is not installed, or refuses the rule.
pub fn lose_arriving(namespace: &Namespace, interface: &str, percent: f64) -> Result<(), LabError> {
    nft(namespace, &["-f", "-"], &ruleset(interface, percent)).map(|_| ())
}

/// Ends what [`lose_arriving`] began.
///
/// # Errors
///
/// [`LabError::Program`] when `nft` is not installed, or refuses.
pub fn lose_nothing(namespace: &Namespace) -> Result<(), LabError> {
    let rules = format!("table {TABLE}\ndelete table {TABLE}\n");
    nft(namespace, &["-f", "-"], &rules).map(|_| ())
}

/// How many packets [`lose_arriving`] has dropped in `namespace`.
///
/// # Errors
///
/// [`LabError::Program`] when `nft` does not tell.
pub fn lost(namespace: &Namespace) -> Result<u64, LabError> {
    let listed = nft(namespace, &["-j", "list ruleset"], "")?;
    let ruleset: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
    let rules = ruleset["nftables"].as_array().into_iter().flatten();
    let expressions = rules.filter_map(|rule| rule["rule"]["expr"].as_array());
    expressions
        .flatten()
        .find_map(|expression| expression["counter"]["packets"].as_u64())
        .ok_or_else(|| failed("there is no rule that drops"))
}

fn nft(namespace: &Namespace, arguments: &[&str], input: &str) -> Result<Output, LabError> {
    let spawned = namespace
        .command("nft")
        .args(arguments)
        .env("PATH", search_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut nft = spawned.map_err(|error| match error.kind() {
        ErrorKind::NotFound => failed(
            "not installed (fix: apt-get install nftables, or your distribution's package of \
             nftables)",
        ),
        _ => failed(&error.to_string()),
    })?;
    if let Some(mut to) = nft.stdin.take() {
        // What it does not read it says itself.
        let _ = to.write_all(input.as_bytes());
    }
    let output = nft.wait_with_output().map_err(|e| failed(&e.to_string()))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(failed(&format!(
            "refused the rule: {} (fix: `sudo modprobe nf_tables nft_numgen`)",
            reason.trim()
        )));
    }
    Ok(output)
}

/// With the directories of root, where a user's shell does not look.
fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

fn ruleset(interface: &str, percent: f64) -> String {
    let of_ten_thousand = (percent * 100.0).round() as u32;
    format!(
        "table {TABLE}
        delete table {TABLE}
        table {TABLE} {{
            chain arriving {{
                type filter hook input priority 0
                iifname \"{interface}\" meta l4proto {{ tcp, udp }} \
                    numgen random mod 10000 < {of_ten_thousand} counter drop
            }}
        }}
"
    )
}

fn failed(problem: &str) -> LabError {
    LabError::Program {
        program: "nft",
        problem: problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_becomes_a_share_of_ten_thousand() {
        let rules = ruleset("veth0", 0.25);
        assert!(rules.contains("mod 10000 < 25 counter drop"), "{rules}");
    }
}
