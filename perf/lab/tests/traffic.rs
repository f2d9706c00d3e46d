//! The generators over loopback, as between two hosts. A separate program, because other tests beside it
//! would disturb a paced flow.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

use convoy_lab::measure::{Direction, Ends, TcpLoad, UdpLoad};
use convoy_lab::traffic::{Agent, Exchange, serve_connections};
use procfs::net::TcpState;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[test]
fn tcp_is_counted_by_the_receiver_in_both_directions() {
    let mut ends = ends();
    for direction in [Direction::Up, Direction::Down] {
        let load = TcpLoad {
            direction,
            streams: 2,
            warmup: Duration::from_millis(100),
            window: Duration::from_millis(500),
        };
        ends.begin_tcp(HERE, load, Some("reno")).unwrap();
        let received = ends.finish_tcp(load).unwrap();
        assert!(received.bytes > 1_000_000, "{received:?}");
        assert!((0.5..0.8).contains(&received.seconds), "{received:?}");
        assert_eq!(received.congestion_control.as_deref(), Some("reno"));
    }
}

#[test]
fn a_udp_flow_arrives_whole() {
    let load = UdpLoad {
        payload: 200,
        rate_pps: 2_000.0,
        duration: Duration::from_millis(500),
    };
    let mut ends = ends();
    ends.begin_udp(HERE, load).unwrap();
    let sent = ends.finish_sending_udp(load).unwrap();
    let received = ends.finish_receiving_udp().unwrap();
    // On a busy machine the sender misses its rate, and says so.
    assert!((1..=1_000).contains(&sent.packets), "{sent:?}");
    assert_eq!(sent.held_rate, sent.packets >= 990, "{sent:?}");
    assert_eq!(received.packets, sent.packets);
    assert_eq!((received.reordered, received.socket_drops), (0, 0));
}

#[test]
fn probes_come_back() {
    let latency = ends().ping(HERE, Duration::from_millis(200)).unwrap();
    assert_eq!((latency.sent, latency.received), (20, 20));
    assert!(latency.median_ms.unwrap() < 50.0);
}

#[test]
fn requests_are_answered_over_tcp_over_udp_and_over_a_connection_each() {
    let mut ends = ends();
    let port = ends.answer_round_trips().unwrap();
    for exchange in [
        Exchange::Tcp,
        Exchange::Udp,
        Exchange::TcpConnect { at_once: 1 },
        Exchange::TcpConnect { at_once: 8 },
    ] {
        let report = ends.round_trips(HERE, exchange, Duration::from_millis(200));
        let report = report.unwrap();
        assert!(report.answered > 10, "{exchange:?}: {report:?}");
        assert_eq!(report.lost, 0, "{exchange:?}");
        assert!(report.seconds >= 0.2);
        assert!(report.p50_us.unwrap() <= report.p99_us.unwrap());
        assert!(report.p99_us.unwrap() <= report.p999_us.unwrap());
    }
    let mut sockets = procfs::net::tcp().unwrap().into_iter();
    let left =
        sockets.find(|it| it.state == TcpState::TimeWait && it.remote_address.port() == port);
    assert!(
        left.is_none(),
        "short connections leave no port behind: {left:?}"
    );
}

#[test]
fn a_load_whose_ends_do_not_meet_fails_with_the_reason_of_the_sender() {
    let load = TcpLoad {
        direction: Direction::Up,
        streams: 1,
        warmup: Duration::ZERO,
        window: Duration::from_millis(100),
    };
    let third_host = IpAddr::from([127, 0, 0, 2]);
    let error = ends().begin_tcp(third_host, load, None).unwrap_err();
    let refusal = "job refused: traffic goes only to";
    assert!(error.to_string().starts_with(refusal), "{error}");
}

/// Both ends on loopback, served over connections.
fn ends() -> Ends {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let server = listener.local_addr().unwrap();
    thread::spawn(move || serve_connections(&listener));
    let connect = || Agent::connect(server).unwrap();
    Ends::new(connect(), connect(), connect()).unwrap()
}
