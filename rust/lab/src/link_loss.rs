//! A link that loses datagrams: nftables, since network emulation is not in every kernel.

use std::env;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write as _};
use std::process::{Output, Stdio};

use crate::{error::LabError, namespace::Namespace};

/// Drops `percent` of the UDP datagrams to `port` that arrive on `interface`.
///
/// # Errors
///
/// [`LabError::Rules`] when there is no `nft`, or when it refuses the rule.
pub fn drop_datagrams(
    namespace: &Namespace,
    interface: &str,
    port: u16,
    percent: f64,
) -> Result<(), LabError> {
    let output = apply(namespace, &ruleset(interface, port, percent)).map_err(|error| {
        LabError::Rules(if error.kind() == ErrorKind::NotFound {
            "the program `nft` is needed (fix: apt-get install nftables, or your distribution's \
             package of nftables)"
                .to_owned()
        } else {
            error.to_string()
        })
    })?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(LabError::Rules(format!(
        "nft refused the rule: {} (fix: `sudo modprobe nf_tables nft_numgen`)",
        reason.trim()
    )))
}

fn apply(namespace: &Namespace, rules: &str) -> io::Result<Output> {
    let mut nft = namespace
        .command("nft")
        .args(["-f", "-"])
        .env("PATH", search_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = nft.stdin.take() {
        input.write_all(rules.as_bytes())?;
    }
    nft.wait_with_output()
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
