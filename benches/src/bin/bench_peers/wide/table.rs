//! A report of the wide set in Markdown.

use convoy_benches::{
    markdown,
    peers::{self, WIDE_LEGEND},
};

use super::report::Report;
use crate::outcome::told_failures;

/// Both tables, with what must be known to read them.
pub(super) fn markdown(report: &Report) -> String {
    let mut text = report.header.markdown();
    for table in &report.tables {
        text += &format!("\n### {}\n\n", table.title);
        text += &markdown::table(&peers::wide(table));
    }
    for absent in &report.absent {
        text += &absent.told();
    }
    text += WIDE_LEGEND;
    let rows = report.tables.iter().flat_map(|table| &table.rows);
    text += peers::limited(rows.flat_map(|row| &row.cells));
    text + &told_failures(&report.turns)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{RATE, report};
    use super::*;

    #[test]
    fn a_row_has_medians_and_a_ratio_that_is_paired_by_repetition() {
        let report = report();
        let rows = peers::wide(&report.tables[0]);
        let rate = rows.iter().find(|cells| cells[0] == RATE.title());
        let expected = [
            "TCP up, 8 streams, Gbit/s",
            "20.00",
            "5.00",
            "2.00",
            "1.00 \\*",
            "wireguard-go",
            "2.50",
            "2.00–3.00",
        ];
        assert_eq!(rate.unwrap()[..], expected);
    }

    #[test]
    fn who_is_absent_and_what_failed_is_told() {
        let text = markdown(&report());
        let absent = "**Not measured: openvpn-dco**: the kernel has no part for it";
        assert!(text.contains(absent), "{text}");
        let failed = "Failed: tailscale in repetition 2: Udp64: the daemon ended";
        assert!(text.contains(failed), "{text}");
        assert!(text.contains("### Ordinary VPNs"));
        assert!(text.contains("the generator, not the tunnel, set the limit"));
    }
}
