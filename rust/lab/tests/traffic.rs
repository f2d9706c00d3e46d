//! The generators over loopback: every flow in both directions, as between two hosts.

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use convoy_lab::traffic::{
    Agent, End, Event, Flow, PingJob, Request, TcpJob, TrafficError, UdpJob, serve_connections,
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
