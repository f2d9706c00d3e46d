use super::*;

fn report(runs: Vec<Run>) -> Report {
    Report {
        version: "0.1.0",
        host: Host::of_this_machine(),
        settings: Settings {
            secs: 5,
            daemon: vec!["--gso".to_owned(), "off".to_owned()],
            mtu: Some(8_920),
            peers: Some(100),
            veth_gso: Some(false),
            loss_percent: 0.0,
            to: None,
        },
        ceiling: Ceiling {
            gbps: Some(19.0),
            gbps_same_loss: Some(1.5),
        },
        runs,
        peak_memory_bytes: None,
    }
}

#[test]
fn a_table_shows_figures_with_their_units_and_dashes_for_none() {
    let text = text(&report(vec![Run {
        gbps: Some(4.754),
        cpu_s_per_gb: Some(2.5),
        ..Run::named("tcp-up")
    }]));
    let line = text.lines().find(|line| line.contains("tcp-up")).unwrap();
    let cells: Vec<_> = line.split_whitespace().collect();
    assert_eq!(cells[..6], ["tcp-up", "4.75", "–", "–", "2.50", "–"]);
    assert!(text.contains("bare veth              19.00\n"), "{text}");
    assert!(text.contains("bare veth, same loss    1.50\n"), "{text}");
    let told = "MTU 8920 · 100 peers · no GSO on the veth · --gso off";
    assert!(text.contains(told), "{text}");
}

#[test]
fn a_rate_that_the_generator_limits_is_marked() {
    let text = text(&report(vec![Run {
        kpps: Some(231.0),
        gbps: Some(2.2),
        loss: Some(0.004),
        confirmed: Some(true),
        generator_limited: Some(true),
        ..Run::named("udp-1200")
    }]));
    let line = text.lines().find(|line| line.contains("231.0")).unwrap();
    assert!(line.contains("2.20  231.0    0.40"), "{line}");
    assert!(
        text.contains("udp-1200: limited by the generator"),
        "{text}"
    );
}

#[test]
fn a_link_that_always_loses_has_no_rate() {
    let text = text(&report(vec![Run {
        confirmed: Some(false),
        ..Run::named("udp-64")
    }]));
    assert!(text.contains("more than 1 % loss at any rate"), "{text}");
}

#[test]
fn columns_line_up_also_with_wide_characters() {
    let rows = [
        vec!["a".to_owned(), "–".to_owned()],
        vec!["b".to_owned(), "100".to_owned()],
    ];
    assert_eq!(aligned(&rows), "  a    –\n  b  100\n");
}
