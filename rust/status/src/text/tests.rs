use std::collections::BTreeMap;

use convoy_report::{Counters, Peer, Traffic};

use super::*;

const NOW: i64 = 1_800_000_000;
const KEY: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";

#[test]
fn a_tunnel_is_shown_as_wg_shows_it_and_more() {
    let status = Status {
        warnings: vec!["IPv6 is off".to_owned()],
        peers: vec![office(), phone()],
        stats: Some(counters()),
        rate: Some(Rate {
            seconds: 7.2,
            rx: 1_258_291,
            tx: 319_488,
        }),
        ..wg0()
    };
    let expected = "\
interface: wg0
  state: up for 1 hour, 2 minutes
  configuration: /etc/wireguard/wg0.conf
  public key: BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=
  listening port: 51820
  fwmark: 0xca6c
  MTU: 1420
  name servers: 10.0.0.1
  kill switch: on
  processes: supervisor 10, tunnel 11
  traffic: 1.50 GiB received, 2.00 KiB sent
  rate: 1.20 MiB/s received, 312.00 KiB/s sent (over 7 s)
  offload: GSO on, GRO on, TUN TCP on, TUN UDP off
  AEAD: avx512
  batches:                     count   mean  50 %  99 %  1–64
    packets per TUN read         100    2.3     1    44  █     ▁
    segments per send          1,234   44.0    44    44        █
  drops: 1 inbound_replay, 12,345 outbound_no_route
  warning: IPv6 is off

peer: BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc= (office)
  state: connected for 3 minutes, 4 seconds
  preshared key: (hidden)
  endpoint: 192.0.2.1:51820
  allowed ips: 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 198.51.100.0/24,
    2001:db8:1::/48, ::/0
  latest handshake: 1 minute, 4 seconds ago
  handshake round trip: 12.3 ms
  transfer: 2.00 KiB received, 100 B sent
  rate: 1.00 KiB/s received, 0 B/s sent (over 1 s)
  persistent keepalive: every 25 seconds

peer: key
  state: not connected: no answer
  problem: 192.0.2.1:51820 was called twice and has not answered: check its
    address and port, its public key, and that it knows ours
  endpoint: 192.0.2.1:51820
  allowed ips: (none)
  latest handshake: never
";
    let text = shown(status);
    assert_eq!(text, expected);
    assert!(text.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn a_tunnel_without_root_shows_its_listeners() {
    let status = Status {
        name: "wg0".to_owned(),
        engine: Some("namespace".to_owned()),
        commands: Some(2),
        forwards: vec![
            ForwardStatus {
                listen: vec!["127.0.0.1:8080".to_owned(), "[::1]:8080".to_owned()],
                target: "web.example:80".to_owned(),
                carried: CarriedStatus {
                    opened: 12,
                    open: 3,
                    bytes_out: 2_048,
                    refused: BTreeMap::from([("timed_out".to_owned(), 1)]),
                    ..CarriedStatus::default()
                },
                ..ForwardStatus::default()
            },
            ForwardStatus {
                listen: vec!["10.0.0.2:22".to_owned()],
                is_inside: true,
                target: "127.0.0.1:22".to_owned(),
                carried: CarriedStatus {
                    dropped_datagrams: 4,
                    ..CarriedStatus::default()
                },
            },
        ],
        nat: Some(NatStatus {
            tcp: CarriedStatus {
                opened: 7,
                ..CarriedStatus::default()
            },
            dropped_packets: BTreeMap::from([("unknown_protocol".to_owned(), 2)]),
            ..NatStatus::default()
        }),
        ..Status::default()
    };
    let expected = "\
interface: wg0
  state: up
  engine: namespace
  commands inside: 2
  forward: 127.0.0.1:8080 [::1]:8080 → web.example:80
    3 open, 12 so far, 2.00 KiB out, 0 B in; refused: timed out 1
  forward: 10.0.0.2:22 (inside) → 127.0.0.1:22
    0 open, 0 so far, 0 B out, 0 B in; datagrams dropped: 4
  nat: peers' traffic to other addresses is forwarded
    TCP: 0 open, 7 so far, 0 B out, 0 B in
    packets dropped: unknown protocol 2
";
    assert_eq!(shown(status), expected);
}

#[test]
fn a_port_mapping_or_its_lack_is_shown() {
    let shown = |mapping| {
        let text = shown(Status {
            port_mapping: Some(mapping),
            ..Status::default()
        });
        let line = text.lines().find(|line| line.contains("port mapping"));
        line.map(str::to_owned).unwrap_or(text)
    };
    let mapped = PortMappingStatus {
        external: Some("198.51.100.7:51820".to_owned()),
        protocol: Some("PCP".to_owned()),
        problem: None,
    };
    assert_eq!(shown(mapped), "  port mapping: 198.51.100.7:51820 by PCP");
    let failed = PortMappingStatus {
        problem: Some("no gateway".to_owned()),
        ..PortMappingStatus::default()
    };
    assert_eq!(shown(failed), "  port mapping: none: no gateway");
    let asking = PortMappingStatus::default();
    let expected = "  port mapping: none yet: the router is being asked";
    assert_eq!(shown(asking), expected);
}

#[test]
fn a_providers_port_or_its_lack_is_shown() {
    let shown = |forward| {
        let text = shown(Status {
            port_forward: Some(forward),
            ..Status::default()
        });
        let line = text.lines().find(|line| line.contains("forwarded port"));
        line.map(str::to_owned).unwrap_or(text)
    };
    let asking = PortForwardStatus {
        gateway: "10.2.0.1".to_owned(),
        ..PortForwardStatus::default()
    };
    let expected = "  forwarded port: none yet: 10.2.0.1 is being asked";
    assert_eq!(shown(asking.clone()), expected);
    let failed = PortForwardStatus {
        problem: Some("silence".to_owned()),
        ..asking.clone()
    };
    assert_eq!(shown(failed), "  forwarded port: none: silence");
    let forwarded = PortForwardStatus {
        port: Some(4000),
        ..asking
    };
    assert_eq!(shown(forwarded.clone()), "  forwarded port: 4000");
    let with_address = PortForwardStatus {
        address: Some("198.51.100.7".to_owned()),
        ..forwarded
    };
    let expected = "  forwarded port: 4000, at 198.51.100.7";
    assert_eq!(shown(with_address), expected);
}

#[test]
fn a_pause_and_a_missing_supervisor_are_said_first() {
    let paused = Status {
        state: Condition::Paused,
        paused_until: Some((NOW + 90).unsigned_abs()),
        kill_switch: Some("on".to_owned()),
        ..Status::default()
    };
    let text = shown(paused);
    assert!(
        text.contains("state: paused for another 1 minute, 30 seconds;"),
        "{text}"
    );
    assert!(
        text.contains("kill switch: on, open for the pause"),
        "{text}"
    );
    let of = |state| {
        shown(Status {
            state,
            ..Status::default()
        })
    };
    assert!(of(Condition::WithoutSupervisor).contains("state: up without a supervisor\n"));
    assert!(of(Condition::Daemon).contains("state: up as a daemon"));
}

#[test]
fn an_idle_peer_is_no_problem() {
    let of = |latest_handshake| {
        let peer = Peer {
            latest_handshake,
            ..Peer::default()
        };
        let status = PeerStatus {
            peer,
            ..PeerStatus::default()
        };
        contact(&status, now())
    };
    assert_eq!(of(None), "not used yet: the first packet connects");
    assert_eq!(of(Some(before(900))), "idle: the next packet connects");
}

#[test]
fn a_state_that_is_a_problem_says_so() {
    for (state, expected) in [
        (PeerState::Connecting, "connecting"),
        (PeerState::NoRoute, "not connected: no route"),
        (PeerState::NameNotFound, "not connected: name not found"),
        (PeerState::NoEndpoint, "not connected: no endpoint"),
        (
            PeerState::NotAuthentic,
            "not connected: its answers are not authentic",
        ),
    ] {
        let status = PeerStatus {
            state,
            ..PeerStatus::default()
        };
        assert_eq!(contact(&status, now()), expected);
    }
}

#[test]
fn the_outer_tunnel_has_its_own_traffic_and_drops() {
    let mut status = wg0();
    let mut stats = convoy_report::OuterCounters::default();
    stats.inbound.bytes = 5 << 20;
    stats.drops = [("inbound_via_foreign", 12), ("inbound_replay", 0)]
        .map(|(reason, count)| (reason.to_owned(), count))
        .into();
    status.via = Some(ViaStatus {
        name: "hop".to_owned(),
        peers: vec![phone()],
        stats: Some(stats),
        ..ViaStatus::default()
    });
    let text = shown(status);
    let (inner, outer) = text.split_once("\nthrough: hop\n").expect("a section");
    assert!(!inner.contains("inbound_via_foreign"), "{text}");
    let expected =
        "  traffic: 5.00 MiB received, 0 B sent\n  drops: 12 inbound_via_foreign\n\npeer: ";
    assert!(outer.starts_with(expected), "{text}");
}

fn shown(status: Status) -> String {
    let interfaces = vec![status];
    render(&Statuses { interfaces }, now())
}

fn wg0() -> Status {
    Status {
        name: "wg0".to_owned(),
        config: Some("/etc/wireguard/wg0.conf".into()),
        since: Some(before(3723)),
        supervisor_pid: Some(10),
        tunnel_pid: Some(11),
        public_key: Some(KEY.to_owned()),
        mtu: Some(1420),
        listen_port: 51820,
        fwmark: 0xca6c,
        kill_switch: Some("on".to_owned()),
        dns: vec!["10.0.0.1".to_owned()],
        ..Status::default()
    }
}

fn office() -> PeerStatus {
    let networks = "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 198.51.100.0/24 2001:db8:1::/48 ::/0";
    PeerStatus {
        name: Some("office".to_owned()),
        state: PeerState::Connected,
        rate: Some(Rate {
            seconds: 1.0,
            rx: 1_024,
            tx: 0,
        }),
        peer: Peer {
            public_key: KEY.to_owned(),
            has_preshared_key: true,
            connected_since: Some(before(184)),
            latest_handshake: Some(before(64)),
            handshake_round_trip_us: Some(12_345),
            rx_bytes: 2048,
            tx_bytes: 100,
            allowed_ips: networks.split(' ').map(str::to_owned).collect(),
            persistent_keepalive: 25,
            ..phone().peer
        },
        ..PeerStatus::default()
    }
}

fn phone() -> PeerStatus {
    let problem = "192.0.2.1:51820 was called twice and has not answered: check its address and port, its \
                   public key, and that it knows ours";
    PeerStatus {
        state: PeerState::NoAnswer,
        problem: Some(problem.to_owned()),
        peer: Peer {
            public_key: "key".to_owned(),
            endpoint: Some("192.0.2.1:51820".to_owned()),
            ..Peer::default()
        },
        ..PeerStatus::default()
    }
}

fn counters() -> Counters {
    let histogram = |values: &[(usize, u64)]| {
        let mut counts = vec![0; 65];
        values
            .iter()
            .for_each(|(value, count)| counts[*value] = *count);
        counts
    };
    let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let state = [
        ("aead", "avx512"),
        ("gso", "on"),
        ("udp_gro", "on"),
        ("tun_offload_tcp", "on"),
        ("tun_offload_udp", "off"),
        ("link", "up"),
    ];
    let traffic = |bytes| Traffic { packets: 1, bytes };
    Counters {
        inbound: traffic(3 << 29),
        outbound: traffic(2_048),
        histograms: BTreeMap::from([
            (
                "packets_per_read".to_owned(),
                histogram(&[(0, 7), (1, 97), (44, 3)]),
            ),
            ("segments_per_send".to_owned(), histogram(&[(44, 1_234)])),
            ("packets_per_write".to_owned(), histogram(&[])),
        ]),
        drops: BTreeMap::from([
            ("inbound_bad_tag".to_owned(), 0),
            ("inbound_replay".to_owned(), 1),
            ("outbound_no_route".to_owned(), 12_345),
        ]),
        state: state.map(text).into(),
        ..Counters::default()
    }
}

fn before(seconds: u64) -> u64 {
    NOW.unsigned_abs() - seconds
}

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}
