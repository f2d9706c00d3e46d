//! A link that loses packets, with nftables, since not every kernel has network emulation.
//!
//! Calls fail with [`Program`](crate::LabError::Program) if `nft` is not installed or refuses.

use crate::{error::Result, namespace::Namespace, tool};

/// The only table, under the name that `nft list ruleset` shows.
const TABLE: &str = "inet convoy_loss";

/// From now on drops `percent` of the TCP and UDP packets that arrive on `interface`; replaces an
/// earlier setting. The unit is what the kernel hands over: a whole batch, unless the sender's
/// interface cuts it.
pub fn lose_arriving(namespace: &Namespace, interface: &str, percent: f64) -> Result<()> {
    let of_ten_thousand = (percent * 100.0).round() as u32;
    let rules = format!(
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
    );
    tool::run(namespace, "nft", &["-f", "-"], &rules)
}

/// Ends the loss that [`lose_arriving`] began.
pub fn lose_nothing(namespace: &Namespace) -> Result<()> {
    let rules = format!("table {TABLE}\ndelete table {TABLE}\n");
    tool::run(namespace, "nft", &["-f", "-"], &rules)
}
