use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

use convoy_report::{Peer, Traffic};

use super::{peers::MAX_PEERS, *};

const NOW: i64 = 1_800_000_000;

#[test]
fn every_line_is_a_comment_or_a_series_of_a_described_family() {
    let text = text_of(observation());
    let mut families = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        if line.starts_with("# ") {
            if words.nth(1) == Some("TYPE") {
                let (name, kind) = (words.next().unwrap(), words.next().unwrap());
                assert!(families.insert(name, kind).is_none(), "{name} twice");
            }
            continue;
        }
        let series = line.split(['{', ' ']).next().unwrap();
        let suffixes = ["", "_total", "_info", "_bucket", "_count", "_sum"];
        let kinds = suffixes.iter().filter_map(|suffix| {
            let family = series.strip_suffix(suffix)?;
            Some((*suffix, *families.get(family)?))
        });
        let fits = |(suffix, kind): (&str, &str)| match kind {
            "gauge" => suffix.is_empty(),
            "counter" => suffix == "_total",
            "info" => suffix == "_info",
            "histogram" => matches!(suffix, "_bucket" | "_count" | "_sum"),
            _ => false,
        };
        assert!(kinds.into_iter().any(fits), "{line}");
        assert!(line.contains("interface=\"wg0\""), "{line}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn figures_have_their_units_and_labels() {
    let text = text_of(observation());
    for line in [
        "convoy_tunnel_responding{interface=\"wg0\"} 1",
        "convoy_build_info{interface=\"wg0\",version=\"0.1.0\"} 1",
        "convoy_packets_total{interface=\"wg0\",direction=\"outbound\"} 7",
        "convoy_packet_bytes_total{interface=\"wg0\",direction=\"inbound\"} 1400",
        "convoy_drops_total{interface=\"wg0\",reason=\"inbound_replay\"} 3",
        "convoy_system_calls_total{interface=\"wg0\",call=\"udp_send\"} 4",
        "convoy_events_total{interface=\"wg0\",event=\"udp_kernel_drops\"} 5",
        "convoy_link_up{interface=\"wg0\"} 1",
        "convoy_feature_enabled{interface=\"wg0\",feature=\"gso\"} 1",
        "convoy_mtu_bytes{interface=\"wg0\"} 1420",
        "convoy_udp_buffer_bytes{interface=\"wg0\",direction=\"inbound\"} 425984",
        "convoy_send_segments_bucket{interface=\"wg0\",le=\"2.0\"} 9",
        "convoy_send_segments_bucket{interface=\"wg0\",le=\"+Inf\"} 9",
        "convoy_send_segments_count{interface=\"wg0\"} 9",
        "convoy_paused{interface=\"wg0\"} 0",
        "convoy_tunnel_deaths_total{interface=\"wg0\"} 2",
        "convoy_forwarded_port{interface=\"wg0\"} 4000",
        "convoy_peer_sent_bytes_total{interface=\"wg0\",public_key=\"AAAA=\",name=\"Office\"} 148",
        "convoy_peer_session{interface=\"wg0\",public_key=\"AAAA=\",name=\"Office\"} 1",
        "convoy_peer_latest_handshake_timestamp_seconds{interface=\"wg0\",public_key=\"AAAA=\",name=\"Office\"} \
         1799999999",
        "# UNIT convoy_packet_bytes bytes",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "no {line} in:\n{text}"
        );
    }
    assert!(
        !text.contains("feature=\"aead\""),
        "neither on nor off:\n{text}"
    );
}

#[test]
fn names_are_escaped() {
    let mut observation = observation();
    let odd = "the \"new\"\n\\office";
    if let Some(client) = &mut observation.client {
        client.names.insert("AAAA=".to_owned(), odd.to_owned());
    }
    observation.interface = "wg\"0".to_owned();
    let text = text_of(observation);
    assert!(text.contains(r#"name="the \"new\"\n\\office""#), "{text}");
    assert!(text.contains(r#"{interface="wg\"0"}"#), "{text}");
}

#[test]
fn a_tunnel_that_is_silent_leaves_what_the_supervisor_knows() {
    let mut observation = observation();
    observation.report = Err("it has died".to_owned());
    let text = text_of(observation);
    assert!(
        text.contains("convoy_tunnel_responding{interface=\"wg0\"} 0\n"),
        "{text}"
    );
    assert!(text.contains("convoy_tunnel_deaths_total"), "{text}");
    assert!(!text.contains("convoy_packets"), "{text}");
}

#[test]
fn direct_peers_have_series_and_without_one_there_are_none() {
    assert!(!text_of(observation()).contains("convoy_direct"));
    let mut with_direct = observation();
    let report = with_direct.report.as_mut().unwrap();
    report.peers[0].direct = vec![convoy_report::DirectPeer {
        public_key: "friend".to_owned(),
        path: convoy_report::DataPath::Direct,
        round_trip_us: Some(12_500),
        tx_bytes: 7,
        packets_by_hub: 3,
        ..Default::default()
    }];
    let text = text_of(with_direct);
    let labels = r#"{interface="wg0",public_key="friend"}"#;
    for (series, value) in [
        ("direct_path", "1"),
        ("direct_relayed", "0"),
        ("direct_round_trip_seconds", "0.0125"),
        ("direct_sent_bytes_total", "7"),
        ("direct_packets_by_hub_total", "3"),
    ] {
        let line = format!("convoy_{series}{labels} {value}\n");
        assert!(text.contains(&line), "no {line} in {text}");
    }
}

#[test]
fn turn_servers_have_series_and_without_one_there_are_none() {
    assert!(!text_of(observation()).contains("convoy_relay"));
    let mut with_relay = observation();
    let report = with_relay.report.as_mut().unwrap();
    report.relays = vec![convoy_report::RelayServer {
        server: "192.0.2.9:3478".to_owned(),
        transport: "udp".to_owned(),
        state: "ready".to_owned(),
        peers: 2,
        ..Default::default()
    }];
    let text = text_of(with_relay);
    let labels = r#"{interface="wg0",server="192.0.2.9:3478",transport="udp"}"#;
    for (series, value) in [("relay_ready", 1), ("relay_peers", 2)] {
        let line = format!("convoy_{series}{labels} {value}\n");
        assert!(text.contains(&line), "no {line} in {text}");
    }
}

#[test]
fn an_outer_tunnel_has_families_of_its_own_and_without_one_there_are_none() {
    assert!(!text_of(observation()).contains("convoy_outer"));
    let mut through = observation();
    let drops = |count| [("inbound_replay".to_owned(), count)].into();
    through.report.as_mut().unwrap().outer = Some(convoy_report::OuterReport {
        public_key: Some("CCCC=".to_owned()),
        counters: Some(convoy_report::OuterCounters {
            outbound: Traffic {
                packets: 8,
                bytes: 800,
            },
            drops: drops(9),
            handshakes: 6,
            ..Default::default()
        }),
        peers: vec![Peer {
            public_key: "DDDD=".to_owned(),
            tx_bytes: 840,
            ..Peer::default()
        }],
    });
    if let Some(client) = &mut through.client {
        client.names.insert("DDDD=".to_owned(), "Hop".to_owned());
    }
    let text = text_of(through);
    for line in [
        r#"convoy_outer_peers{interface="wg0"} 1"#,
        r#"convoy_outer_packets_total{interface="wg0",direction="outbound"} 8"#,
        r#"convoy_outer_packet_bytes_total{interface="wg0",direction="outbound"} 800"#,
        r#"convoy_outer_drops_total{interface="wg0",reason="inbound_replay"} 9"#,
        r#"convoy_outer_handshakes_total{interface="wg0"} 6"#,
        r#"convoy_outer_peer_sent_bytes_total{interface="wg0",public_key="DDDD=",name="Hop"} 840"#,
        r#"convoy_outer_peer_session{interface="wg0",public_key="DDDD=",name="Hop"} 0"#,
        // Those of the tunnel inside stay what they are.
        r#"convoy_drops_total{interface="wg0",reason="inbound_replay"} 3"#,
        r#"convoy_peers{interface="wg0"} 2"#,
    ] {
        assert!(text.lines().any(|it| it == line), "no {line} in:\n{text}");
    }
    assert!(!text.contains(r#"convoy_peer_session{interface="wg0",public_key="DDDD=""#));
}

#[test]
fn further_peers_have_no_series() {
    let mut observation = observation();
    if let Ok(report) = &mut observation.report {
        let peer = |number: usize| Peer {
            public_key: format!("{number}="),
            ..Peer::default()
        };
        report.peers = (0..MAX_PEERS + 3).map(peer).collect();
        report.outer = Some(convoy_report::OuterReport {
            peers: report.peers.clone(),
            ..Default::default()
        });
    }
    let text = text_of(observation);
    let of_outer = text.matches("convoy_outer_peer_session{").count();
    assert_eq!(of_outer, MAX_PEERS);
    assert!(text.contains("convoy_outer_peers{interface=\"wg0\"} 2003\n"));
    assert_eq!(text.matches("convoy_peer_session{").count(), MAX_PEERS);
    assert!(
        text.contains("convoy_peers{interface=\"wg0\"} 2003\n"),
        "{text}"
    );
    assert!(
        text.contains("convoy_peers_omitted{interface=\"wg0\"} 3\n"),
        "{text}"
    );
}

#[test]
fn names_and_labels_are_as_committed() {
    let mut observation = observation();
    let report = observation.report.as_mut().unwrap();
    report.peers[0].direct = vec![Default::default()];
    report.relays = vec![Default::default()];
    report.peers.resize(MAX_PEERS + 1, Peer::default());
    let text = text_of(observation);
    let mut names = BTreeSet::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        names.insert(match line.strip_prefix("# ") {
            Some(about) => about.to_owned(),
            None => series(line),
        });
    }
    let names: String = names.iter().map(|name| format!("{name}\n")).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/metrics.txt");
    convoy_report::golden::compare(&path, &names, "CONVOY_UPDATE_GOLDENS");
}

/// Returns the name of a line's series and the names of its labels.
fn series(line: &str) -> String {
    let (name, labels) = line.split_once('{').unwrap();
    let labels = labels.split_once('}').unwrap().0.split("\",");
    let labels = labels.map(|label| label.split_once('=').unwrap().0);
    format!("SERIES {name} {}", labels.collect::<Vec<_>>().join(" "))
}

fn text_of(observation: Observation) -> String {
    text(observation, Timestamp::from_second(NOW).unwrap()).unwrap()
}

fn observation() -> Observation {
    let named = |entries: &[(&str, &str)]| {
        let entries = entries.iter();
        entries
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };
    let counters = Counters {
        outbound: Traffic {
            packets: 7,
            bytes: 700,
        },
        inbound: Traffic {
            packets: 14,
            bytes: 1_400,
        },
        histograms: HISTOGRAMS
            .map(|it| (it.name.to_owned(), vec![0, 4, 5, 0]))
            .into_iter()
            .chain([("cpu_time_per_tick".to_owned(), vec![9; 65])])
            .collect(),
        drops: [("inbound_replay".to_owned(), 3)].into(),
        syscalls: [("udp_send".to_owned(), 4)].into(),
        events: [("udp_kernel_drops".to_owned(), 5)].into(),
        state: named(&[
            ("link", "up"),
            ("mtu", "1420"),
            ("gso", "on"),
            ("udp_gro", "off"),
            ("aead", "ring"),
            ("udp_send_buffer", "212992"),
            ("udp_receive_buffer", "425984"),
            ("gso_suspended_destinations", "0"),
        ]),
        ..Counters::default()
    };
    let peer = Peer {
        public_key: "AAAA=".to_owned(),
        latest_handshake: Some(NOW.unsigned_abs() - 1),
        tx_bytes: 148,
        ..Peer::default()
    };
    let silent = Peer {
        public_key: "BBBB=".to_owned(),
        ..Peer::default()
    };
    Observation {
        interface: "wg0".to_owned(),
        report: Ok(Report {
            version: "0.1.0".to_owned(),
            interface: "wg0".to_owned(),
            counters,
            peers: vec![peer, silent],
            ..Report::default()
        }),
        client: Some(Client {
            names: HashMap::from([("AAAA=".to_owned(), "Office".to_owned())]),
            tunnel_deaths: 2,
            port_forwarded: Some(4000),
            ..Client::default()
        }),
    }
}
