//! A link that loses datagrams: nftables, since network emulation is not in every kernel.

use std::env;
use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use convoy_lab::Namespace;

/// Drops `percent` of the UDP datagrams to `port` that arrive on `interface`.
pub(super) fn drop_datagrams(
    namespace: &Namespace,
    interface: &str,
    port: u16,
    percent: f64,
) -> anyhow::Result<()> {
    let spawned = namespace
        .command("nft")
        .args(["-f", "-"])
        .env("PATH", search_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut nft = match spawned {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "--loss needs the program `nft` (fix: apt-get install nftables, or your \
             distribution's package of nftables)"
        ),
        other => other.context("start nft")?,
    };
    if let Some(mut input) = nft.stdin.take() {
        input.write_all(ruleset(interface, port, percent).as_bytes())?;
    }
    let output = nft.wait_with_output()?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!(
            "--loss: nft refused the rule: {} (fix: `sudo modprobe nf_tables nft_numgen`)",
            reason.trim()
        );
    }
    Ok(())
}

/// With the directories of root, where a user's shell does not look.
fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

fn ruleset(interface: &str, port: u16, percent: f64) -> String {
    let of_ten_thousand = (percent * 100.0).round() as u32;
    format!(
        "table inet convoy {{
            chain loss {{
                type filter hook input priority 0
                iifname \"{interface}\" udp dport {port} \
                    numgen random mod 10000 < {of_ten_thousand} drop
            }}
        }}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_becomes_a_share_of_ten_thousand() {
        let rules = ruleset("veth0", 51_820, 0.25);
        assert!(rules.contains("mod 10000 < 25 drop"), "{rules}");
    }
}
