//! The two ends of a path, and the traffic between them.
//!
//! The near end connects and the far end listens, whichever way the data goes: between two hosts
//! the near one's firewall then lets everything in.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::traffic::{
    Agent, End, Event, Exchange, Flow, LatencyReport, PingJob, Request, RoundTripJob,
    RoundTripReport, TcpJob, TcpReport, TrafficError, UdpJob, UdpReceived, UdpSent,
};

/// How much longer than its schedule a job may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(15);
const PING_INTERVAL_MS: u64 = 10;

/// Which way the data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the near end to the far one.
    Up,
    /// From the far end to the near one.
    Down,
}

/// TCP for a while.
#[derive(Debug, Clone, Copy)]
pub struct TcpLoad {
    /// Which way the data goes.
    pub direction: Direction,
    /// Parallel connections, 1 to 64.
    pub streams: u32,
    /// Time that is not counted first.
    pub warmup: Duration,
    /// Time that is counted.
    pub window: Duration,
}

/// UDP packets from the near end to the far one, at a constant rate.
#[derive(Debug, Clone, Copy)]
pub struct UdpLoad {
    /// Bytes of UDP payload.
    pub payload: usize,
    /// Packets a second.
    pub rate_pps: f64,
    /// Length of the schedule.
    pub duration: Duration,
}

/// Agents at both ends of a path: one a side for the load, and one more for the latency.
///
/// All calls fail when an agent does, or when it does not answer in time.
#[derive(Debug)]
pub struct Ends {
    near: Agent,
    prober: Agent,
    far: Agent,
    echo_port: u16,
    /// None until requests are to be answered.
    answer_port: Option<u16>,
    runs: u64,
}

impl Ends {
    /// Agents at the near end, for the load and for the latency, and one at the far end.
    ///
    /// # Errors
    /// See [`Ends`].
    pub fn new(near: Agent, prober: Agent, mut far: Agent) -> Result<Self, TrafficError> {
        far.ask(&Request::Echo)?;
        let echo_port = far.ready(PATIENCE)?;
        // Marks differ between callers of one server as well as between runs.
        let runs = u64::from(std::process::id()) << 32;
        Ok(Self {
            near,
            prober,
            far,
            echo_port,
            answer_port: None,
            runs,
        })
    }

    /// Round-trip time to the far end's address `via`, without load of ours.
    ///
    /// # Errors
    /// See [`Ends`].
    pub fn ping(&mut self, via: IpAddr, duration: Duration) -> Result<LatencyReport, TrafficError> {
        self.begin_ping(via, duration)?;
        self.finish_ping(duration)
    }

    /// Starts to probe beside a load.
    ///
    /// # Errors
    /// See [`Ends`].
    pub fn begin_ping(&mut self, via: IpAddr, duration: Duration) -> Result<(), TrafficError> {
        self.prober.ask(&Request::Ping(PingJob {
            to: SocketAddr::new(via, self.echo_port),
            interval_ms: PING_INTERVAL_MS,
            seconds: duration.as_secs_f64(),
        }))?;
        Ok(())
    }

    /// Waits for the probes that [`Self::begin_ping`] started.
    ///
    /// # Errors
    /// See [`Ends`].
    pub fn finish_ping(&mut self, duration: Duration) -> Result<LatencyReport, TrafficError> {
        match self.prober.event(duration + PATIENCE)? {
            Event::Latency(latency) => Ok(latency),
            other => Err(unexpected("latency probe", &other)),
        }
    }

    /// Requests and answers with the far end's address `via`, one in flight; also beside a load.
    ///
    /// # Errors
    /// See [`Ends`].
    pub fn round_trips(
        &mut self,
        via: IpAddr,
        exchange: Exchange,
        duration: Duration,
    ) -> Result<RoundTripReport, TrafficError> {
        let port = self.answer_port.ok_or(TrafficError::Refused(
            "round trips before `answer_round_trips`",
        ))?;
        self.prober.ask(&Request::RoundTrips(RoundTripJob {
            to: SocketAddr::new(via, port),
            exchange,
            seconds: duration.as_secs_f64(),
        }))?;
        match self.prober.event(duration + PATIENCE)? {
            Event::RoundTrips(report) => Ok(report),
            other => Err(unexpected("asking agent", &other)),
        }
    }

    /// Lets the far end answer [`Self::round_trips`] from now on; not while it has a load.
    ///
    /// # Errors
    /// See [`Ends`].
    pub fn answer_round_trips(&mut self) -> Result<(), TrafficError> {
        if self.answer_port.is_none() {
            self.far.ask(&Request::Answer)?;
            self.answer_port = Some(self.far.ready(PATIENCE)?);
        }
        Ok(())
    }

    /// Starts TCP to the far end's address `via`; returns when the counted window begins.
    ///
    /// # Errors
    /// See [`Ends`].
    pub fn begin_tcp(&mut self, via: IpAddr, load: TcpLoad) -> Result<(), TrafficError> {
        self.begin_tcp_under(via, load, None)
    }

    /// As [`Self::begin_tcp`], under a congestion control of this name. Where the kernel does not allow it the
    /// default is used: [`TcpReport::congestion_control`] tells.
    ///
    /// # Errors
    /// See [`Ends`].
    pub fn begin_tcp_under(
        &mut self,
        via: IpAddr,
        load: TcpLoad,
        congestion_control: Option<&str>,
    ) -> Result<(), TrafficError> {
        let job = |end, flow| {
            Request::Tcp(TcpJob {
                end,
                flow,
                streams: load.streams,
                warmup_s: load.warmup.as_secs_f64(),
                window_s: load.window.as_secs_f64(),
                congestion_control: congestion_control.map(str::to_owned),
            })
        };
        let (near, far) = flows(load.direction);
        self.far.ask(&job(End::Listen, far))?;
        let to = SocketAddr::new(via, self.far.ready(PATIENCE)?);
        self.near.ask(&job(End::Connect(to), near))?;
        let patience = load.warmup + PATIENCE;
        match self.receiver(load.direction).event(patience) {
            Ok(Event::Started) => Ok(()),
            Ok(other) => Err(unexpected("TCP receiver", &other)),
            Err(error) => Err(self.other_reason(load.direction, error)),
        }
    }

    /// Waits for the end of the load that [`Self::begin_tcp`] started.
    ///
    /// # Errors
    /// See [`Ends`].
    pub fn finish_tcp(&mut self, load: TcpLoad) -> Result<TcpReport, TrafficError> {
        let patience = load.window + PATIENCE;
        let received = match self.receiver(load.direction).event(patience)? {
            Event::TcpReceived(report) => report,
            other => return Err(unexpected("TCP receiver", &other)),
        };
        match self.sender(load.direction).event(PATIENCE)? {
            Event::TcpSent(sent) => Ok(TcpReport {
                congestion_control: sent.congestion_control,
                ..received
            }),
            other => Err(unexpected("TCP sender", &other)),
        }
    }

    /// Starts UDP to the far end's address `via`; returns when the first packet is sent.
    ///
    /// # Errors
    /// See [`Ends`].
    pub fn begin_udp(&mut self, via: IpAddr, load: UdpLoad) -> Result<(), TrafficError> {
        self.runs += 1;
        let run = self.runs;
        let job = |end, flow| {
            Request::Udp(UdpJob {
                end,
                flow,
                payload: load.payload,
                rate_pps: load.rate_pps,
                seconds: load.duration.as_secs_f64(),
                run,
            })
        };
        self.far.ask(&job(End::Listen, Flow::Receive))?;
        let to = SocketAddr::new(via, self.far.ready(PATIENCE)?);
        self.near.ask(&job(End::Connect(to), Flow::Send))?;
        match self.near.event(PATIENCE)? {
            Event::Started => Ok(()),
            other => Err(unexpected("UDP sender", &other)),
        }
    }

    /// Waits until the packets of [`Self::begin_udp`] are sent.
    ///
    /// # Errors
    /// See [`Ends`].
    pub fn finish_sending_udp(&mut self, load: UdpLoad) -> Result<UdpSent, TrafficError> {
        match self.near.event(load.duration + PATIENCE)? {
            Event::UdpSent(sent) => Ok(sent),
            other => Err(unexpected("UDP sender", &other)),
        }
    }

    /// Waits until all packets have arrived or are lost.
    ///
    /// # Errors
    /// See [`Ends`].
    pub fn finish_receiving_udp(&mut self) -> Result<UdpReceived, TrafficError> {
        match self.far.event(PATIENCE)? {
            Event::UdpReceived(received) => Ok(received),
            other => Err(unexpected("UDP receiver", &other)),
        }
    }

    fn receiver(&mut self, direction: Direction) -> &mut Agent {
        match direction {
            Direction::Up => &mut self.far,
            Direction::Down => &mut self.near,
        }
    }

    fn sender(&mut self, direction: Direction) -> &mut Agent {
        match direction {
            Direction::Up => &mut self.near,
            Direction::Down => &mut self.far,
        }
    }

    /// A receiver that waited in vain knows less than the sender that could not connect.
    fn other_reason(&mut self, direction: Direction, error: TrafficError) -> TrafficError {
        match self.sender(direction).event(Duration::ZERO) {
            Err(reason @ TrafficError::Agent(_)) => reason,
            Ok(_) | Err(_) => error,
        }
    }
}

fn unexpected(who: &str, event: &Event) -> TrafficError {
    TrafficError::Protocol(format!("the {who} answered {event:?}"))
}

/// The roles of the near and the far end.
fn flows(direction: Direction) -> (Flow, Flow) {
    match direction {
        Direction::Up => (Flow::Send, Flow::Receive),
        Direction::Down => (Flow::Receive, Flow::Send),
    }
}
