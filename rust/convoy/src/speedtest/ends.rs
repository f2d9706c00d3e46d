//! The two ends of a path and what is sent between them.
//!
//! The near end connects and the far end listens, whichever way the data goes: between two hosts
//! the near one's firewall then lets everything in.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use convoy_lab::traffic::{
    Agent, End, Event, Flow, LatencyReport, PingJob, Request, TcpJob, TcpReport, TrafficError,
    UdpJob, UdpReceived, UdpSent,
};

/// How much longer than its schedule a job may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(15);
const PING_INTERVAL_MS: u64 = 10;

/// Which way the data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the near end to the far one.
    Up,
    /// From the far end to the near one.
    Down,
}

/// TCP for a while.
#[derive(Debug, Clone, Copy)]
pub(super) struct TcpLoad {
    pub(super) direction: Direction,
    pub(super) streams: u32,
    pub(super) warmup: Duration,
    pub(super) window: Duration,
}

/// UDP packets from the near end to the far one, at a constant rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct UdpLoad {
    /// Bytes of UDP payload.
    pub(super) payload: usize,
    pub(super) rate_pps: f64,
    pub(super) duration: Duration,
}

/// Agents at both ends of a path: one a side for the load, and one more for the latency.
#[derive(Debug)]
pub(super) struct Ends {
    near: Agent,
    prober: Agent,
    far: Agent,
    echo_port: u16,
    runs: u64,
}

impl Ends {
    pub(super) fn new(near: Agent, prober: Agent, mut far: Agent) -> anyhow::Result<Self> {
        far.ask(&Request::Echo)?;
        let echo_port = far.ready(PATIENCE).context("start the echo")?;
        // Marks differ between callers of one server as well as between runs.
        let runs = u64::from(std::process::id()) << 32;
        Ok(Self {
            near,
            prober,
            far,
            echo_port,
            runs,
        })
    }

    /// Round-trip time to the far end's address `via`, without load of ours.
    pub(super) fn ping(
        &mut self,
        via: IpAddr,
        duration: Duration,
    ) -> anyhow::Result<LatencyReport> {
        self.begin_ping(via, duration)?;
        self.finish_ping(duration)
    }

    /// Starts to probe beside a load.
    pub(super) fn begin_ping(&mut self, via: IpAddr, duration: Duration) -> anyhow::Result<()> {
        self.prober.ask(&Request::Ping(PingJob {
            to: SocketAddr::new(via, self.echo_port),
            interval_ms: PING_INTERVAL_MS,
            seconds: duration.as_secs_f64(),
        }))?;
        Ok(())
    }

    pub(super) fn finish_ping(&mut self, duration: Duration) -> anyhow::Result<LatencyReport> {
        match self.prober.event(duration + PATIENCE)? {
            Event::Latency(latency) => Ok(latency),
            other => bail!("the latency probe answered {other:?}"),
        }
    }

    /// Starts TCP to the far end's address `via`; returns when the counted window begins.
    pub(super) fn begin_tcp(&mut self, via: IpAddr, load: TcpLoad) -> anyhow::Result<()> {
        let job = |end, flow| {
            Request::Tcp(TcpJob {
                end,
                flow,
                streams: load.streams,
                warmup_s: load.warmup.as_secs_f64(),
                window_s: load.window.as_secs_f64(),
            })
        };
        let (near, far) = flows(load.direction);
        self.far.ask(&job(End::Listen, far))?;
        let to = SocketAddr::new(via, self.far.ready(PATIENCE)?);
        self.near.ask(&job(End::Connect(to), near))?;
        let patience = load.warmup + PATIENCE;
        match self.receiver(load.direction).event(patience) {
            Ok(Event::Started) => Ok(()),
            Ok(other) => bail!("the TCP receiver answered {other:?}"),
            Err(error) => Err(self.other_reason(load.direction, error)),
        }
    }

    /// Waits for the end of what [`Self::begin_tcp`] started.
    pub(super) fn finish_tcp(&mut self, load: TcpLoad) -> anyhow::Result<TcpReport> {
        let patience = load.window + PATIENCE;
        let received = match self.receiver(load.direction).event(patience)? {
            Event::TcpReceived(report) => report,
            other => bail!("the TCP receiver answered {other:?}"),
        };
        match self.sender(load.direction).event(PATIENCE)? {
            Event::TcpSent(_) => Ok(received),
            other => bail!("the TCP sender answered {other:?}"),
        }
    }

    /// Starts UDP to the far end's address `via`; returns when the first packet is sent.
    pub(super) fn begin_udp(&mut self, via: IpAddr, load: UdpLoad) -> anyhow::Result<()> {
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
            other => bail!("the UDP sender answered {other:?}"),
        }
    }

    /// Waits until what [`Self::begin_udp`] started is sent.
    pub(super) fn finish_sending_udp(&mut self, load: UdpLoad) -> anyhow::Result<UdpSent> {
        match self.near.event(load.duration + PATIENCE)? {
            Event::UdpSent(sent) => Ok(sent),
            other => bail!("the UDP sender answered {other:?}"),
        }
    }

    /// Waits until what was sent has arrived or is lost.
    pub(super) fn finish_receiving_udp(&mut self) -> anyhow::Result<UdpReceived> {
        match self.far.event(PATIENCE)? {
            Event::UdpReceived(received) => Ok(received),
            other => bail!("the UDP receiver answered {other:?}"),
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
    fn other_reason(&mut self, direction: Direction, error: TrafficError) -> anyhow::Error {
        match self.sender(direction).event(Duration::ZERO) {
            Err(reason @ TrafficError::Agent(_)) => reason.into(),
            Ok(_) | Err(_) => error.into(),
        }
    }
}

/// What the near and the far end do.
fn flows(direction: Direction) -> (Flow, Flow) {
    match direction {
        Direction::Up => (Flow::Send, Flow::Receive),
        Direction::Down => (Flow::Receive, Flow::Send),
    }
}
