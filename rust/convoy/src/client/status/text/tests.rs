use super::*;

const NOW: i64 = 1_800_000_000;

#[test]
fn a_tunnel_is_shown_as_wg_shows_it() {
    let status = Status {
        name: "wg0".to_owned(),
        config: Some("/etc/wireguard/wg0.conf".into()),
        since: Some(before(3723)),
        supervisor_pid: Some(10),
        tunnel_pid: Some(11),
        mtu: Some(1420),
        listen_port: 51820,
        fwmark: 0xca6c,
        kill_switch: Some("on".to_owned()),
        dns: vec!["10.0.0.1".to_owned()],
        warnings: vec!["IPv6 is off".to_owned()],
        peers: vec![PeerStatus {
            name: Some("office".to_owned()),
            latest_handshake: Some(before(64)),
            rx_bytes: 2048,
            tx_bytes: 100,
            allowed_ips: vec!["10.0.0.0/8".to_owned(), "::/0".to_owned()],
            persistent_keepalive: 25,
            ..peer()
        }],
        ..Status::default()
    };
    let expected = "\
interface: wg0
  state: up for 1 hour, 2 minutes, 3 seconds
  configuration: /etc/wireguard/wg0.conf
  listening port: 51820
  fwmark: 0xca6c
  MTU: 1420
  name servers: 10.0.0.1
  kill switch: on
  processes: supervisor 10, tunnel 11
  warning: IPv6 is off

peer: key (office)
  endpoint: 192.0.2.1:51820
  allowed ips: 10.0.0.0/8, ::/0
  latest handshake: 1 minute, 4 seconds ago
  transfer: 2.00 KiB received, 100 B sent
  persistent keepalive: every 25 seconds
";
    assert_eq!(shown(status), expected);
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
    let alone = Status {
        state: Condition::WithoutSupervisor,
        ..Status::default()
    };
    assert!(shown(alone).contains("state: up without a supervisor\n"));
}

#[test]
fn what_is_wrong_with_a_peer_is_said_in_words() {
    let of = |peer: PeerStatus| problems(&peer, now()).join("; ");
    assert_eq!(
        of(peer()),
        "",
        "a tunnel that was not used yet has no problem"
    );
    let unknown = PeerStatus {
        endpoint: None,
        problem: Some("name not found: vpn.example.org".to_owned()),
        ..peer()
    };
    assert_eq!(of(unknown), "name not found: vpn.example.org");
    let silent = PeerStatus {
        tx_bytes: 148,
        ..peer()
    };
    assert!(of(silent).starts_with("it does not answer"));
    let caller = PeerStatus {
        endpoint: None,
        ..peer()
    };
    assert!(of(caller).starts_with("it has no endpoint"));
    let lost = PeerStatus {
        latest_handshake: Some(before(181)),
        persistent_keepalive: 25,
        ..peer()
    };
    assert_eq!(of(lost), "it no longer answers");
    let unused = PeerStatus {
        latest_handshake: Some(before(100_000)),
        ..peer()
    };
    assert_eq!(of(unused), "");
}

#[test]
fn times_of_a_clock_that_was_set_back_are_now() {
    assert_eq!(ago((NOW + 5).unsigned_abs(), now()), "now");
    assert!(!span(u64::MAX).is_empty());
}

fn shown(status: Status) -> String {
    let interfaces = vec![status];
    render(&Statuses { interfaces }, now())
}

fn peer() -> PeerStatus {
    PeerStatus {
        public_key: "key".to_owned(),
        endpoint: Some("192.0.2.1:51820".to_owned()),
        ..PeerStatus::default()
    }
}

fn before(seconds: u64) -> u64 {
    NOW.unsigned_abs() - seconds
}

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}
