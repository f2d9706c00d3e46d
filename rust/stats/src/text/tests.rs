use super::*;
use crate::report as report_of;
use convoy_proto::{
    config::{PeerSnapshot, PublicKey, Snapshot},
    counters::DropReason,
};

#[test]
fn the_json_has_every_histogram_and_every_reason() {
    let json = serde_json::to_value(report()).unwrap();
    let histograms = json["counters"]["histograms"].as_object().unwrap();
    assert_eq!(histograms.len(), 6);
    assert!(
        histograms
            .values()
            .all(|h| h.as_array().unwrap().len() == 65)
    );
    let drops = json["counters"]["drops"].as_object().unwrap();
    assert_eq!(drops.len(), DropReason::ALL.len());
    assert_eq!(json["counters"]["drops"]["inbound_replay"], 3);
    assert_eq!(json["counters"]["outbound"]["packets"], 1_234_567);
    assert_eq!(json["peers"][0]["latest_handshake"], 1000);
}

#[test]
fn only_reasons_that_occurred_are_shown() {
    let text = shown();
    assert!(text.contains("inbound_replay"), "{text}");
    assert!(!text.contains("inbound_bad_tag"), "{text}");
}

#[test]
fn numbers_are_grouped_and_bytes_have_units() {
    let text = shown();
    assert!(text.contains("1,234,567"), "{text}");
    assert!(text.contains("1.50 GiB"), "{text}");
    assert!(text.contains("udp_send_blocked           7,654"), "{text}");
    assert_eq!(grouped(0), "0");
    assert_eq!(grouped(999), "999");
    assert_eq!(grouped(1000), "1,000");
    assert_eq!(binary(1023), "1023 B");
    assert_eq!(binary(1024), "1.00 KiB");
    assert_eq!(binary(u64::MAX), "16.00 EiB");
}

#[test]
fn a_histogram_shows_its_middle_and_its_tail() {
    let text = shown();
    let line = text
        .lines()
        .find(|l| l.starts_with("segments per UDP send"));
    // 97 × 1 and 3 × 44: the mean is 2.29.
    let expected = "segments per UDP send: 100 samples, mean 2.3, p50 1, p99 44";
    assert_eq!(line.unwrap(), expected);
    assert!(text.contains("      1  97.0 %"), "{text}");
    assert!(text.contains("  33-49   3.0 %"), "{text}");
}

#[test]
fn a_handshake_has_an_age() {
    assert!(shown().contains("latest handshake 77 s ago"));
}

#[test]
fn an_idle_daemon_has_a_report_too() {
    let report = report_of("wg0", &Snapshot::default());
    let text = render(&report, Timestamp::UNIX_EPOCH);
    assert!(text.contains("drops: none"), "{text}");
    assert!(text.contains("packets per TUN write: none"), "{text}");
}

#[test]
fn the_outer_tunnel_has_sections_of_its_own() {
    let mut snapshot = Snapshot::default();
    snapshot.counters.drops.add(DropReason::InboundReplay, 3);
    let inner = PublicKey([1; 32]);
    snapshot.peers.push(PeerSnapshot::new(inner));
    let mut outer = Snapshot {
        public_key: Some(PublicKey([2; 32])),
        ..Snapshot::default()
    };
    let drops = &mut outer.counters.drops;
    drops.add(DropReason::InboundBadTag, 4_321);
    outer.counters.outbound_packets = 7;
    outer.counters.outbound_bytes = 2 << 10;
    outer.counters.handshakes = 5;
    outer.peers.push(PeerSnapshot::new(PublicKey([3; 32])));
    snapshot.outer = Some(Box::new(outer));
    let report = report_of("wg0", &snapshot);
    assert_eq!(report.counters.drops["inbound_bad_tag"], 0);
    let json = serde_json::to_value(&report).unwrap();
    let counters = &json["outer"]["counters"];
    assert_eq!(counters["drops"]["inbound_bad_tag"], 4_321);
    let text = render(&report, Timestamp::UNIX_EPOCH);
    let (of_inner, of_outer) = text.split_once("\nouter tunnel AgIC").expect("a section");
    assert!(of_inner.contains("\ndrops:\n  inbound_replay"), "{text}");
    assert!(!of_inner.contains("bad_tag"), "{text}");
    assert!(of_inner.contains("\npeer AQEB"), "{text}");
    assert!(of_outer.contains("7      2.00 KiB"), "{text}");
    assert!(of_outer.contains("\n  5 handshakes, 0 cookie"), "{text}");
    let drops = "\ndrops of the outer tunnel:\n  inbound_bad_tag           4,321\n";
    assert!(of_outer.contains(drops), "{text}");
    assert!(of_outer.contains("\nouter peer AwMD"), "{text}");
    assert!(!shown().contains("outer"));
}

#[test]
fn every_value_is_in_exactly_one_bucket() {
    for value in 0..=64 {
        let within = BUCKETS
            .iter()
            .filter(|(low, high)| (*low..=*high).contains(&value));
        assert_eq!(within.count(), 1, "{value}");
    }
}

fn shown() -> String {
    render(&report(), Timestamp::from_second(1077).unwrap())
}

fn report() -> Report {
    let mut snapshot = Snapshot::default();
    let counters = &mut snapshot.counters;
    counters.drops.add(DropReason::InboundReplay, 3);
    counters.segments_per_send.counts[1] = 97;
    counters.segments_per_send.counts[44] = 3;
    counters.outbound_packets = 1_234_567;
    counters.outbound_bytes = 3 << 29;
    counters.syscalls.push(("udp_send", 12));
    counters.events.push(("udp_send_blocked", 7_654));
    counters.state.push(("gso", "on".to_owned()));
    snapshot.peers.push(PeerSnapshot {
        endpoint: Some("192.0.2.1:51820".parse().unwrap()),
        last_handshake: Some(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000)),
        ..PeerSnapshot::new(PublicKey([1; 32]))
    });
    report_of("wg0", &snapshot)
}
