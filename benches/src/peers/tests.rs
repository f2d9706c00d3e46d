//! Rows as the suite writes them.

use super::*;

#[test]
fn a_narrow_row_has_its_figures_the_ratio_and_the_verdict() {
    let json = r#"{"row": "tcp-up", "title": "TCP up, Gbit/s", "bare_veth": 20.1,
        "cells": [{"median": 5.2, "generator_limited": false, "values": [5.2]},
            {"median": null, "generator_limited": true, "values": [null]}],
        "convoy_to_best": {"best_peer": "tailscale",
            "ratio": {"median": 1.404, "interval": {"low": 1.3, "high": 1.5}, "values": [1.4]},
            "must": "≥ 1.25 ×", "verdict": "holds"}}"#;
    let rows = [serde_json::from_str(json).unwrap()];
    let table = narrow(["convoy", "gotatun"], &rows);
    assert_eq!(table[0][2..5], ["convoy", "gotatun", "best peer"]);
    let expected = [
        "TCP up, Gbit/s",
        "20.10",
        "5.20",
        "– \\*",
        "tailscale",
        "1.40",
        "1.30–1.50",
        "≥ 1.25 ×",
        "yes",
    ];
    assert_eq!(table[1], expected);
    let in_brief = brief(&["convoy", "tailscale"], &rows);
    assert_eq!(in_brief[1][..3], ["TCP up, Gbit/s", "5.20", "tailscale: –"]);
    assert_eq!(in_brief[1][3..], table[1][5..]);
    assert_eq!(in_brief[0].len(), in_brief[1].len());
    assert_eq!(limited(&rows[0].cells), LIMITED);
    assert_eq!(limited(&rows[0].cells[..1]), "");
}

#[test]
fn of_idle_cpu_there_is_no_ratio() {
    let json = r#"{"row": "cpu-idle", "title": "", "bare_veth": null, "cells": [],
        "convoy_to_best": {"best_peer": "tailscale",
            "ratio": {"median": 0.5, "interval": {"low": 0.0, "high": 9.0}, "values": []},
            "must": "≤ 1", "verdict": "holds"}}"#;
    let rows = [serde_json::from_str(json).unwrap()];
    assert_eq!(
        narrow([], &rows)[1][2..],
        ["tailscale", "–", "–", "≤ 1", "yes"]
    );
}

#[test]
fn a_wide_row_has_its_figures_and_the_spread_of_the_ratio() {
    let json = r#"{"title": "Ordinary VPNs", "contestants": ["convoy", "openvpn"],
        "rows": [{"row": "tcp-up-gbps", "title": "TCP up, Gbit/s", "decimals": 2, "bare_veth": 20.1,
            "cells": [{"median": 5.2, "generator_limited": false, "values": [5.2]},
                {"median": null, "generator_limited": true, "values": [null]}],
            "best_other": "openvpn",
            "ratio": {"median": 8.0, "min": 7.5, "max": 9.25, "values": [8.0, 7.5, 9.25]}}]}"#;
    let rows = wide(&serde_json::from_str(json).unwrap());
    let expected = [
        "TCP up, Gbit/s",
        "20.10",
        "5.20",
        "– \\*",
        "openvpn",
        "8.00",
        "7.50–9.25",
    ];
    assert_eq!(rows[1], expected);
    assert_eq!(rows[0].len(), rows[1].len());
    assert_eq!(rows[0][2..4], ["convoy", "openvpn"]);
}
