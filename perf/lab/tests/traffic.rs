//! The generators over loopback: every flow in both directions, as between two hosts. A program of its
//! own, since a paced flow suffers from other tests that run beside it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::thread;
use std::time::Duration;

use convoy_lab::traffic::{
    Agent, End, Event, Exchange, Flow, PingJob, Request, RoundTripJob, RoundTripReport, TcpJob,
    TrafficError, UdpJob, serve_connections,
};

const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn tcp_is_counted_by_the_receiver_in_both_directions() {
    in_both_directions(|ends, near, far| {
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
        let (sender, receiver) = ends.begin(near, far, job);
        assert!(matches!(receiver.event(DEADLINE), Ok(Event::Started)));
        let Ok(Event::TcpReceived(received)) = receiver.event(DEADLINE) else {
            panic!("the receiver reports what it received");
        };
        let Ok(Event::TcpSent(sent)) = sender.event(DEADLINE) else {
            panic!("the sender reports what it sent");
        };
        assert!(received.bytes > 1_000_000, "{received:?}");
        assert!(sent.bytes >= received.bytes);
        assert_eq!(sent.congestion_control.as_deref(), Some("reno"));
        assert!((0.5..0.8).contains(&received.seconds), "{received:?}");
    });
}

#[test]
fn a_udp_flow_arrives_whole_in_both_directions() {
    in_both_directions(|ends, near, far| {
        let (sender, receiver) = ends.begin(near, far, udp);
        assert!(matches!(sender.event(DEADLINE), Ok(Event::Started)));
        let Ok(Event::UdpSent(sent)) = sender.event(DEADLINE) else {
            panic!("the sender reports what it sent");
        };
        let Ok(Event::UdpReceived(received)) = receiver.event(DEADLINE) else {
            panic!("the receiver reports what it received");
        };
        assert_eq!(sent.packets, 1_000);
        assert!(sent.held_rate);
        assert_eq!(received.packets, 1_000);
        assert_eq!((received.duplicates, received.socket_drops), (0, 0));
    });
}

#[test]
fn probes_come_back_from_an_echo() {
    let mut ends = Ends::start();
    let ping = PingJob {
        to: ends.listen(&Request::Echo),
        interval_ms: 5,
        seconds: 0.2,
    };
    ends.near.ask(&Request::Ping(ping)).unwrap();
    let Ok(Event::Latency(latency)) = ends.near.event(DEADLINE) else {
        panic!("the prober reports the latency");
    };
    assert_eq!((latency.sent, latency.received), (40, 40));
    assert!(latency.median_ms.unwrap() < 50.0);
}

#[test]
fn requests_are_answered_over_tcp_over_udp_and_over_a_connection_each() {
    let mut ends = Ends::start();
    let to = ends.listen(&Request::Answer);
    for exchange in [Exchange::Tcp, Exchange::Udp, Exchange::TcpConnect] {
        let report = ends.round_trips(to, exchange, 0.2);
        assert!(report.answered > 10, "{exchange:?}: {report:?}");
        assert_eq!(report.lost, 0, "{exchange:?}");
        assert!(report.seconds >= 0.2);
        assert!(report.p50_us.unwrap() <= report.p99_us.unwrap());
        assert!(report.p99_us.unwrap() <= report.p999_us.unwrap());
    }
    // Documentation/networking/proc_net_tcp.rst: the remote address, then the state; 06 is TIME_WAIT.
    let waiting = format!(":{:04X} 06", to.port());
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
    let left = table.matches(&waiting).count();
    assert_eq!(left, 0, "short connections leave no port behind: {table}");
}

#[test]
fn udp_requests_that_nobody_answers_are_lost() {
    let mut ends = Ends::start();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let report = ends.round_trips(silent.local_addr().unwrap(), Exchange::Udp, 0.1);
    assert_eq!((report.answered, report.lost), (0, 1));
    assert_eq!(report.p50_us, None);
}

#[test]
fn a_job_whose_other_end_never_comes_fails_with_the_reason() {
    let mut ends = Ends::start();
    ends.listen(&udp(End::Listen, Flow::Send));
    let error = ends.far.event(DEADLINE).unwrap_err();
    assert!(matches!(&error, TrafficError::Agent(reason) if reason.contains("UDP receiver")));
}

#[test]
fn a_silent_agent_is_not_waited_for_longer_than_asked() {
    let mut ends = Ends::start();
    let error = ends.far.event(Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, TrafficError::Timeout(_)));
}

fn udp(end: End, flow: Flow) -> Request {
    Request::Udp(UdpJob {
        end,
        flow,
        payload: 200,
        rate_pps: 2_000.0,
        seconds: 0.5,
        run: 77,
    })
}

fn in_both_directions(check: impl Fn(&mut Ends, Flow, Flow)) {
    check(&mut Ends::start(), Flow::Send, Flow::Receive);
    check(&mut Ends::start(), Flow::Receive, Flow::Send);
}

struct Ends {
    near: Agent,
    far: Agent,
}

impl Ends {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || serve_connections(&listener));
        let connect = || Agent::connect(address).unwrap();
        Self {
            near: connect(),
            far: connect(),
        }
    }

    /// Gives the far end a job, and returns where it listens.
    fn listen(&mut self, request: &Request) -> SocketAddr {
        self.far.ask(request).unwrap();
        ([127, 0, 0, 1], self.far.ready(DEADLINE).unwrap()).into()
    }

    /// Gives both ends their half of a job; the sender comes first.
    fn begin(
        &mut self,
        near: Flow,
        far: Flow,
        job: impl Fn(End, Flow) -> Request,
    ) -> (&mut Agent, &mut Agent) {
        let to = self.listen(&job(End::Listen, far));
        self.near.ask(&job(End::Connect(to), near)).unwrap();
        match near {
            Flow::Send => (&mut self.near, &mut self.far),
            Flow::Receive => (&mut self.far, &mut self.near),
        }
    }

    fn round_trips(&mut self, to: SocketAddr, exchange: Exchange, seconds: f64) -> RoundTripReport {
        let job = RoundTripJob {
            to,
            exchange,
            seconds,
        };
        self.near.ask(&Request::RoundTrips(job)).unwrap();
        match self.near.event(DEADLINE) {
            Ok(Event::RoundTrips(report)) => report,
            other => panic!("the asking end reports the round trips: {other:?}"),
        }
    }
}
