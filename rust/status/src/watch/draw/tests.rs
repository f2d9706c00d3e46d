use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use convoy_report::{Counters, DataPath, DirectPeer, Peer, Traffic};
use ratatui::{Terminal, backend::TestBackend};

use super::*;
use convoy_report::{PeerState, PeerStatus};

const NOW: i64 = 1_800_000_000;

/// The whole screen.
const SMALL: &str = "\
\x20wg0 up for 1 hour, 2 minutes                                     tunnel 1 of 2
 MTU 1420, kill switch on, AEAD avx512, offload on
 IPv6 is off
 Rate, last minute ─────────────────────────────────────────────────────────────
 received         ███
 1.00 MiB/s       ███
 sent
 0 B/s
 Peers: 1 connected of 2 ───────────────────────────────────────────────────────
 peer       state          endpoint                 seen  received/s      sent/s
 Office     connected      203.0.113.255:51820        1m    1.00 MiB         0 B
 peer 1 o…  no answer      203.0.113.255:51820     never         0 B         0 B




 Batches, last minute ────────────────────────────  Drops, last minute ─────────
                         mean 50 %  99 %  1–64           3 inbound_replay
 packets per TUN read       –
 packets per batch          –
 segments per send       39.7   44    44  ▁     █
 segments per receive       –
 packets per TUN write      –
 q quit   ←→ tunnels   ↑↓ peers
";

#[test]
fn everything_has_its_place_on_a_small_terminal() {
    let mut screen = Screen::default();
    let begin = Instant::now();
    for second in 0..4 {
        let tunnels = vec![status(second), Status::default()];
        screen.look((tunnels, Vec::new()), begin + Duration::from_secs(second));
    }
    assert_eq!(shown(&mut screen, 80, 24), SMALL);
}

#[test]
fn words_of_others_do_not_turn_the_text_around() {
    let mut screen = Screen::default();
    let mut status = status(0);
    status.peers[0].name = Some("Of\u{202e}fice".to_owned());
    status.peers[1].peer.endpoint = Some("\u{2066}elsewhere".to_owned());
    status.warnings = vec!["\u{202e}8vPI is off".to_owned()];
    screen.look((vec![status], Vec::new()), Instant::now());
    let shown = shown(&mut screen, 80, 24);
    for words in [" Of?fice ", " ?elsewhere ", " ?8vPI is off"] {
        assert!(shown.contains(words), "{shown}");
    }
}

#[test]
fn without_a_tunnel_it_says_so_or_why() {
    let mut screen = Screen::default();
    assert!(shown(&mut screen, 80, 24).starts_with(" No tunnel is up."));
    let error = anyhow::anyhow!("no answer").context("wg0");
    screen.look((Vec::new(), vec![error]), Instant::now());
    assert!(shown(&mut screen, 80, 24).starts_with(" wg0: no answer"));
}

#[test]
fn the_list_of_peers_ends_with_the_last_one() {
    let mut screen = Screen::default();
    let tunnel = Status {
        peers: (0..30).map(|number| peer(number, 0)).collect(),
        ..status(0)
    };
    screen.look((vec![tunnel], Vec::new()), Instant::now());
    screen.scroll(isize::MAX);
    let text = shown(&mut screen, 80, 24);
    assert!(text.contains(" 25–30\n"), "{text}");
    assert!(text.contains("\n peer 29 "), "{text}");
    assert_eq!(screen.top, 24);
}

#[test]
fn peers_behind_a_hub_stand_below_it_with_path_and_round_trip() {
    let direct = |address: &str, path, remote: Option<&str>| DirectPeer {
        address: address.to_owned(),
        path,
        remote: remote.map(str::to_owned),
        round_trip_us: remote.map(|_| 12_345),
        why: Some("no_answer".to_owned()),
        hub_round_trip_us: Some(148_000),
        handshake_age: remote.map(|_| 64),
        ..DirectPeer::default()
    };
    let mut tunnel = status(0);
    tunnel.peers[0].peer.direct = vec![
        direct("10.8.0.3", DataPath::Direct, Some("192.0.2.7:51820")),
        direct("10.8.0.4", DataPath::Relay, Some("192.0.2.8:3478")),
        direct("10.8.0.5", DataPath::Hub, None),
    ];
    let mut screen = Screen::default();
    screen.look((vec![tunnel], Vec::new()), Instant::now());
    let text = shown(&mut screen, 80, 24);
    let expected = "\
\x20Office     connected      203.0.113.255:51820        1m         0 B         0 B
  10.8.0.3  direct 12.3 ms 192.0.2.7:51820            1m
  10.8.0.4  relay 12.3 ms  192.0.2.8:3478             1m
  10.8.0.5  hub 148.0 ms   it does not answer: it  never
 peer 1 o…";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains(" Peers: 1 connected of 2 "), "{text}");
}

#[test]
fn peers_and_drops_of_the_outer_tunnel_stand_below_its_name() {
    let at = |seconds| {
        let outer = convoy_report::OuterCounters {
            drops: BTreeMap::from([("inbound_bad_tag".to_owned(), 9 * seconds)]),
            ..Default::default()
        };
        let mut hop = peer(0, seconds << 20);
        hop.problem = Some("it is slow".to_owned());
        Status {
            via: Some(convoy_report::ViaStatus {
                name: "hop".to_owned(),
                peers: vec![hop],
                stats: Some(outer),
                ..Default::default()
            }),
            ..status(seconds)
        }
    };
    let mut screen = Screen::default();
    let begin = Instant::now();
    for second in 0..2 {
        let at_second = begin + Duration::from_secs(second);
        screen.look((vec![at(second)], Vec::new()), at_second);
    }
    let text = shown(&mut screen, 80, 24);
    let expected = "
 peer 1 o…  no answer      203.0.113.255:51820     never         0 B         0 B
 through    hop
 Office     connected      203.0.113.255:51820        1m    1.00 MiB         0 B
";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains(" Peers: 1 connected of 2 "), "{text}");
    assert!(text.contains("9 hop: inbound_bad_tag"), "{text}");
    assert!(text.contains("1 inbound_replay\n"), "{text}");
    assert!(text.contains("IPv6 is off; it is slow"), "{text}");
}

#[test]
fn an_offload_that_is_off_is_named() {
    let mut tunnel = status(0);
    let state = &mut tunnel.stats.as_mut().unwrap().state;
    state.insert("gso".to_owned(), "off".to_owned());
    let mut screen = Screen::default();
    screen.look((vec![tunnel], Vec::new()), Instant::now());
    let text = shown(&mut screen, 80, 24);
    assert!(text.contains("AEAD avx512, GSO off, GRO on\n"), "{text}");
}

#[test]
fn a_terminal_of_any_size_will_do() {
    let mut screen = Screen::default();
    screen.look((vec![status(0)], Vec::new()), Instant::now());
    for (width, height) in [(1, 1), (20, 5), (79, 10), (300, 100)] {
        shown(&mut screen, width, height);
    }
}

fn shown(screen: &mut Screen, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let now = Timestamp::from_second(NOW).unwrap();
    terminal.draw(|frame| draw(frame, screen, now)).unwrap();
    let cells = terminal.backend().buffer().content();
    let lines = cells.chunks(usize::from(width)).map(|line| {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

/// A tunnel that has moved a megabyte each second.
fn status(seconds: u64) -> Status {
    let moved = seconds << 20;
    let mut sizes = vec![0; 65];
    (sizes[1], sizes[44]) = (seconds, seconds * 9);
    let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    Status {
        name: "wg0".to_owned(),
        since: Some(NOW.unsigned_abs() - 3_725),
        mtu: Some(1420),
        kill_switch: Some("on".to_owned()),
        warnings: vec!["IPv6 is off".to_owned()],
        peers: vec![peer(0, moved), peer(1, 0)],
        stats: Some(Counters {
            inbound: Traffic {
                packets: 1,
                bytes: moved,
            },
            histograms: BTreeMap::from([("segments_per_send".to_owned(), sizes)]),
            drops: BTreeMap::from([
                ("inbound_replay".to_owned(), seconds),
                ("outbound_no_route".to_owned(), 7),
            ]),
            state: [("aead", "avx512"), ("gso", "on"), ("udp_gro", "on")]
                .map(text)
                .into(),
            ..Counters::default()
        }),
        ..Status::default()
    }
}

fn peer(number: u64, moved: u64) -> PeerStatus {
    let is_connected = number == 0;
    PeerStatus {
        name: is_connected.then(|| "Office".to_owned()),
        state: match is_connected {
            true => PeerState::Connected,
            false => PeerState::NoAnswer,
        },
        peer: Peer {
            public_key: format!("peer {number} of many"),
            endpoint: Some("203.0.113.255:51820".to_owned()),
            latest_handshake: is_connected.then_some(NOW.unsigned_abs() - 64),
            rx_bytes: moved,
            ..Peer::default()
        },
        ..PeerStatus::default()
    }
}
