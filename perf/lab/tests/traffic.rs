//! The generators over loopback: every flow in both directions, as between two hosts.

use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::thread;
use std::time::Duration;

use convoy_lab::traffic::{
    Agent, End, Event, Exchange, Flow, PingJob, Request, RoundTripJob, TcpJob, TrafficError,
    UdpJob, serve_connections,
};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn tcp_is_counted_by_the_receiver_in_both_directions() {
    for (far, near) in [(Flow::Receive, Flow::Send), (Flow::Send, Flow::Receive)] {
        let mut ends = Ends::start();
        let job = |end, flow| {
            Request::Tcp(TcpJob {
                end,
                flow,
                streams: 2,
                warmup_s: 0.1,
                window_s: 0.5,
                congestion_control: Some("reno".to_owned()),
            })
        };
        ends.far.ask(&job(End::Listen, far)).unwrap();
        let port = ends.far.ready(PATIENCE).unwrap();
        ends.near
            .ask(&job(End::Connect(ends.at(port)), near))
            .unwrap();
        let (sender, receiver) = ends.by_flow(near);
        assert!(matches!(receiver.event(PATIENCE), Ok(Event::Started)));
        let Event::TcpReceived(received) = receiver.event(PATIENCE).unwrap() else {
            panic!("the receiver reports what it received");
        };
        let Event::TcpSent(sent) = sender.event(PATIENCE).unwrap() else {
            panic!("the sender reports what it sent");
        };
        assert!(received.bytes > 1_000_000, "{received:?}");
        assert!(sent.bytes >= received.bytes);
        assert_eq!(sent.congestion_control.as_deref(), Some("reno"));
        assert!((0.5..0.8).contains(&received.seconds), "{received:?}");
    }
}

#[test]
fn a_udp_flow_arrives_whole_in_both_directions() {
    for (far, near) in [(Flow::Receive, Flow::Send), (Flow::Send, Flow::Receive)] {
        let mut ends = Ends::start();
        let job = |end, flow| {
            Request::Udp(UdpJob {
                end,
                flow,
                payload: 200,
                rate_pps: 2_000.0,
                seconds: 0.5,
                run: 77,
            })
        };
        ends.far.ask(&job(End::Listen, far)).unwrap();
        let port = ends.far.ready(PATIENCE).unwrap();
        ends.near
            .ask(&job(End::Connect(ends.at(port)), near))
            .unwrap();
        let (sender, receiver) = ends.by_flow(near);
        assert!(matches!(sender.event(PATIENCE), Ok(Event::Started)));
        let Event::UdpSent(sent) = sender.event(PATIENCE).unwrap() else {
            panic!("the sender reports what it sent");
        };
        let Event::UdpReceived(received) = receiver.event(PATIENCE).unwrap() else {
            panic!("the receiver reports what it received");
        };
        assert_eq!(sent.packets, 1_000);
        assert!(sent.held_rate);
        assert_eq!(received.packets, 1_000);
        assert_eq!((received.duplicates, received.socket_drops), (0, 0));
    }
}

#[test]
fn probes_come_back_from_an_echo() {
    let mut ends = Ends::start();
    ends.far.ask(&Request::Echo).unwrap();
    let port = ends.far.ready(PATIENCE).unwrap();
    let ping = PingJob {
        to: ends.at(port),
        interval_ms: 5,
        seconds: 0.2,
    };
    ends.near.ask(&Request::Ping(ping)).unwrap();
    let Event::Latency(latency) = ends.near.event(PATIENCE).unwrap() else {
        panic!("the prober reports the latency");
    };
    assert_eq!((latency.sent, latency.received), (40, 40));
    assert!(latency.median_ms.unwrap() < 50.0);
}

#[test]
fn requests_are_answered_over_tcp_over_udp_and_over_a_connection_each() {
    let mut ends = Ends::start();
    ends.far.ask(&Request::Answer).unwrap();
    let port = ends.far.ready(PATIENCE).unwrap();
    for exchange in [Exchange::Tcp, Exchange::Udp, Exchange::TcpConnect] {
        let job = RoundTripJob {
            to: ends.at(port),
            exchange,
            seconds: 0.2,
        };
        ends.near.ask(&Request::RoundTrips(job)).unwrap();
        let Event::RoundTrips(report) = ends.near.event(PATIENCE).unwrap() else {
            panic!("the asking end reports the round trips");
        };
        assert!(report.answered > 10, "{exchange:?}: {report:?}");
        assert_eq!(report.lost, 0, "{exchange:?}");
        assert!(report.seconds >= 0.2);
        assert!(report.p50_us.unwrap() <= report.p99_us.unwrap());
        assert!(report.p99_us.unwrap() <= report.p999_us.unwrap());
    }
}

#[test]
fn short_connections_leave_no_port_behind() {
    let mut ends = Ends::start();
    ends.far.ask(&Request::Answer).unwrap();
    let port = ends.far.ready(PATIENCE).unwrap();
    let job = RoundTripJob {
        to: ends.at(port),
        exchange: Exchange::TcpConnect,
        seconds: 0.3,
    };
    ends.near.ask(&Request::RoundTrips(job)).unwrap();
    ends.near.event(PATIENCE).unwrap();
    // Documentation/networking/proc_net_tcp.rst: the remote address, then the state; 06 is TIME_WAIT.
    let waiting = format!(":{port:04X} 06");
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
    assert_eq!(table.matches(&waiting).count(), 0, "{table}");
}

#[test]
fn udp_requests_that_nobody_answers_are_lost() {
    let mut ends = Ends::start();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let job = RoundTripJob {
        to: silent.local_addr().unwrap(),
        exchange: Exchange::Udp,
        seconds: 0.1,
    };
    ends.near.ask(&Request::RoundTrips(job)).unwrap();
    let Event::RoundTrips(report) = ends.near.event(PATIENCE).unwrap() else {
        panic!("the asking end reports the round trips");
    };
    assert_eq!((report.answered, report.lost), (0, 1));
    assert_eq!(report.p50_us, None);
}

#[test]
fn a_job_whose_other_end_never_comes_fails_with_the_reason() {
    let mut ends = Ends::start();
    let job = UdpJob {
        end: End::Listen,
        flow: Flow::Send,
        payload: 64,
        rate_pps: 10.0,
        seconds: 0.1,
        run: 1,
    };
    ends.far.ask(&Request::Udp(job)).unwrap();
    ends.far.ready(PATIENCE).unwrap();
    let error = ends.far.event(PATIENCE).unwrap_err();
    assert!(matches!(&error, TrafficError::Agent(reason) if reason.contains("UDP receiver")));
}

#[test]
fn a_silent_agent_is_not_waited_for_longer_than_asked() {
    let mut ends = Ends::start();
    let error = ends.far.event(Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, TrafficError::Timeout(_)));
}

struct Ends {
    near: Agent,
    far: Agent,
}

impl Ends {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        thread::spawn(move || serve_connections(&listener));
        Self {
            near: Agent::connect(address).expect("it listens"),
            far: Agent::connect(address).expect("it listens"),
        }
    }

    fn at(&self, port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn by_flow(&mut self, near: Flow) -> (&mut Agent, &mut Agent) {
        match near {
            Flow::Send => (&mut self.near, &mut self.far),
            Flow::Receive => (&mut self.far, &mut self.near),
        }
    }
}
