use super::*;

/// A series of every axis.
const EXAMPLE: &str = include_str!("example.json");

fn example() -> Record {
    serde_json::from_str(EXAMPLE).unwrap()
}

fn round(kpps: &str, cpu: f64, limited: bool) -> Speedtest {
    let json = format!(
        r#"{{"version": "0.1.0", "host": {{"kernel": "6", "cpu": null, "cpus": 2, "memory_mib": null,
            "root": true}}, "runs": [{{"name": "udp-512", "gbps": 1.0, "kpps": {kpps},
            "cpu_s_per_gb": {cpu}, "generator_limited": {limited}}}],
            "peak_memory_bytes": 10485760}}"#
    );
    serde_json::from_str(&json).unwrap()
}

#[test]
fn a_series_keeps_the_values_of_all_rounds() {
    let rounds = [
        round("200.0", 4.0, false),
        round("null", 5.0, false),
        round("300.0", 4.5, true),
    ];
    let series = Series::of(USUAL, "udp-512", &rounds).unwrap();
    assert_eq!(series.kpps.as_ref().unwrap().values, [200.0, 300.0]);
    assert_eq!(series.cpu_s_per_gb.as_ref().unwrap().median, 4.5);
    assert_eq!(series.generator_limited, 1);
    assert_eq!(series.peak_memory_mib().unwrap().median, 10.0);
    assert!(Series::of(USUAL, "udp-64", &rounds).is_err());
}

#[test]
fn a_packet_costs_what_its_bytes_do() {
    let rounds = [round("200.0", 4.0, false)];
    let series = Series::of(USUAL, "udp-512", &rounds).unwrap();
    assert_eq!(series.cpu_ns_per_packet().unwrap().median, 2_048.0);
}

#[test]
fn a_series_is_on_the_axes_that_it_belongs_to_in_their_order() {
    let record = example();
    let places = |axis| -> Vec<_> {
        let along = record.along(axis).into_iter();
        along.map(|(place, _)| place).collect()
    };
    assert_eq!(places(Axis::PacketSize), [64, 1_392, 8_192]);
    assert_eq!(places(Axis::Flows), [1, 64]);
    assert_eq!(places(Axis::Peers), [1, 10_000]);
    assert_eq!(places(Axis::Mtu), [1_280, 1_420, 8_920]);
}

#[test]
fn what_is_written_can_be_read() {
    let written = serde_json::to_string(&example()).unwrap();
    let read: Record = serde_json::from_str(&written).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), written);
}

#[test]
fn a_table_tells_spreads_missing_rounds_generators_and_other_mtus() {
    let table = example().table(Axis::PacketSize);
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 5);
    let cells = |line: &str| -> Vec<_> { line.split('|').map(|c| c.trim().to_owned()).collect() };
    assert_eq!(cells(lines[2])[1..3], ["64*", "250.0 (225.0–300.0)"]);
    assert_eq!(cells(lines[2])[5], "160 (144–192)");
    assert_eq!(cells(lines[3])[2], "237.5 (225.0–250.0; 2 of 3)");
    assert_eq!(cells(lines[4])[1], "8192 (MTU 8920)");
    let peers = example().table(Axis::Peers);
    assert!(peers.contains("140.0 (126.0–168.0)"), "{peers}");
}
