//! Targets as data: what a contender must reach beside others, in a scene.

use crate::ratio;
use crate::row::{Run, properties};
use crate::table;

/// Limit for a figure: where more of its unit is better, the least, otherwise the most.
#[derive(Clone, Copy)]
enum Aim {
    /// For the ratio to the best of the others.
    Ratio(f64),
    /// For the figure itself.
    Itself(f64),
}

/// Scene, contender, the others, and the contender's aim beside them.
type Claim = (&'static str, &'static str, &'static [&'static str], Aim);

const WIREGUARDS: &[&str] = &[
    "wireguard-go",
    "wireguard-go+q",
    "tailscale",
    "tailscale+q",
    "gotatun",
    "gotatun+q",
    "boringtun",
    "boringtun+q",
];
const ROOTLESS: &[&str] = &["wireproxy", "onetun"];
const FORWARDERS: &[&str] = &["rinetd", "socat", "haproxy"];
const TOKIO: &[&str] = &["tokio's copy, 8 KiB"];
const SPLICE: &str = "splice, 64 KiB";
const COPY: &str = "copy, 64 KiB";

use Aim::{Itself, Ratio};

/// All targets. One shows where its contenders were measured.
const CLAIMS: [Claim; 25] = [
    ("tcp-up", "convoy", WIREGUARDS, Ratio(1.25)),
    ("tcp-down", "convoy", WIREGUARDS, Ratio(1.25)),
    ("tcp-4", "convoy", WIREGUARDS, Ratio(1.25)),
    ("tcp-both", "convoy", WIREGUARDS, Ratio(1.25)),
    ("tcp-up-cpu", "convoy", WIREGUARDS, Ratio(0.8)),
    ("ping-tcp", "convoy", WIREGUARDS, Ratio(1.2)),
    ("tcp-cut", "convoy", WIREGUARDS, Ratio(1.8)),
    ("udp-1200", "convoy", WIREGUARDS, Ratio(2.0)),
    ("udp-64", "convoy", WIREGUARDS, Ratio(1.1)),
    ("udp-200k", "convoy", WIREGUARDS, Ratio(2.0)),
    ("ping-idle", "convoy", WIREGUARDS, Ratio(1.2)),
    ("cpu-idle", "convoy", WIREGUARDS, Itself(1.0)),
    ("memory", "convoy", WIREGUARDS, Itself(24.0)),
    ("tcp-up", "exec", &["convoy"], Ratio(0.97)),
    ("tcp-up", "ports", &["convoy"], Ratio(0.85)),
    ("tcp-up", "ports", ROOTLESS, Ratio(3.0)),
    ("tcp-up", "ports-smoltcp", ROOTLESS, Ratio(1.5)),
    ("tcp-far-1", "ports-smoltcp", &["convoy"], Ratio(0.7)),
    ("tcp-up", "nat", &["masquerade"], Ratio(0.8)),
    ("tcp-down", "nat", &["masquerade"], Ratio(0.8)),
    ("tcp-8-up", "nat", &["masquerade"], Ratio(0.95)),
    // Splicing must be at least as fast as the best other forwarder. Copying by 64 KiB is compared with tokio's own
    // copy where the processor is the limit, which the figure per CPU second shows.
    ("relayed", SPLICE, FORWARDERS, Ratio(1.0)),
    ("relayed-cpu", SPLICE, FORWARDERS, Ratio(1.0)),
    ("relayed", COPY, TOKIO, Ratio(1.5)),
    ("relayed-cpu", COPY, TOKIO, Ratio(1.5)),
];

/// Title of a column that every table of targets has.
pub(crate) const HEAD: &str = "ratio (95 %)";

/// The table of all targets whose contenders were measured; empty if there are none.
pub(crate) fn table(run: &Run) -> String {
    let rows = CLAIMS.iter().filter_map(|claim| cells(claim, run));
    let rows: Vec<_> = rows.collect();
    match rows.is_empty() {
        true => String::new(),
        false => table::markdown("target | figures | ratio (95 %) | bound | met", rows),
    }
}

fn cells((scene, one, others, aim): &Claim, run: &Run) -> Option<Vec<String>> {
    let row = run.rows.iter().find(|row| row.scene == *scene)?;
    let (decimals, is_more_better) = properties(&row.unit);
    let (sign, symbol) = match is_more_better {
        true => (1.0, '≥'),
        false => (-1.0, '≤'),
    };
    let own = run.sample(scene, one, row.of())?;
    let medians = others.iter();
    let medians = medians.filter_map(|it| Some((run.sample(scene, it, row.of())?.median, *it)));
    let (other, best) = medians.max_by(|(a, _), (b, _)| (a * sign).total_cmp(&(b * sign)))?;
    let figures = [own.median, other].map(|it| table::number(Some(it), decimals));
    let ratio = run.ratio(scene, [one, best], row.of());
    let (limit, times, ratio, judged) = match *aim {
        Ratio(limit) => (limit, " ×", Some(ratio::text(ratio.as_ref()?)), ratio?),
        Itself(limit) => (limit, "", None, own),
    };
    Some(vec![
        format!("{}: {one} : {best}", row.label()),
        figures.join(" : "),
        table::cell(ratio),
        format!("{symbol} {limit}{times}"),
        ratio::judge(&judged, |it| it * sign >= limit * sign).to_owned(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::run;

    /// The cells of each target, from its contenders on.
    fn cells(run: &Run) -> Vec<String> {
        let table = table(run);
        let lines = table.lines().skip(2);
        let trimmed = |line: &str| line.split('|').map(str::trim).collect::<Vec<_>>().join("|");
        lines.map(trimmed).collect()
    }

    #[test]
    fn the_best_other_has_the_best_median_and_absent_contenders_are_left_out() {
        let values: [(&str, &[f64]); 3] = [
            ("gotatun", &[1.0, 2.0, 9.0]),
            ("boringtun", &[3.0; 3]),
            ("convoy", &[6.0; 3]),
        ];
        let table = cells(&run("tcp-up", "Gbit/s", &values));
        let expected =
            "|figure, Gbit/s: convoy : boringtun|6.00 : 3.00|2.00 (2.00–2.00)|≥ 1.25 ×|median|";
        assert_eq!(table, [expected]);
        let best = &cells(&run("ping-tcp", "ms", &values))[0];
        assert!(best.contains("convoy : gotatun"), "{best}");
    }

    #[test]
    fn a_target_is_met_surely_only_in_the_whole_interval() {
        let mut values = [1.5; 9];
        values[..2].fill(1.2);
        let cases: [(&str, &str, &[f64], &str); 6] = [
            ("tcp-up", "Gbit/s", &[1.5; 9], "yes"),
            ("tcp-up", "Gbit/s", &values, "median"),
            ("tcp-up", "Gbit/s", &[1.2; 9], "**no**"),
            ("tcp-up-cpu", "CPU s/GB", &[0.7; 9], "yes"),
            // Few rounds never make an absolute target certain.
            ("memory", "MB", &[23.0], "median"),
            ("memory", "MB", &[25.0], "**no**"),
        ];
        for (scene, unit, convoy, expected) in cases {
            let peer = vec![1.0; convoy.len()];
            let table = cells(&run(scene, unit, &[("convoy", convoy), ("gotatun", &peer)]));
            assert!(table[0].ends_with(&format!("|{expected}|")), "{table:?}");
        }
    }
}
