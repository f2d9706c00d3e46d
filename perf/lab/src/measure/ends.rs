//! The two ends of a path, and the traffic between them.
//!
//! The near end always connects and the far end always listens, whatever the direction of the data.
//! Between two hosts, only the far one's firewall has to accept connections.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::error::{LabError, Result};
use crate::traffic::{
    Agent, Direction, Exchange, Job, LatencyReport, PATIENCE, RoundTripReport, Side, Target,
    TcpLoad, TcpReport, UdpLoad, UdpReceived, UdpSent,
};

/// Agents at both ends of a path: at each end one for the load and one for latency.
///
/// All calls fail if an agent fails or does not answer in time.
#[derive(Debug)]
pub struct Ends {
    near: Agent,
    prober: Agent,
    far: Agent,
    echo_port: u16,
    /// `None` until the first request.
    answer_port: Option<u16>,
    between: Between,
    runs: u64,
}

/// Whatever is between the two ends besides a network. The default is nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Between {
    /// The ports to which the far end is bound, for a load, probes and requests, so that a forwarder can know them;
    /// 0 is any.
    pub ports: [u16; 3],
    /// A SOCKS5 proxy that the near end's TCP goes through.
    pub proxy: Option<SocketAddr>,
}

impl Ends {
    /// Agents at the near end for load and latency, and one at the far end.
    pub fn new(near: Agent, prober: Agent, far: Agent) -> Result<Self> {
        Self::with(near, prober, far, Between::default())
    }

    /// The same with something between the ends.
    pub fn with(near: Agent, prober: Agent, mut far: Agent, between: Between) -> Result<Self> {
        let echo_port = far.answer_probes(false, between.ports[1])?;
        // Marks differ between callers of one server, and between runs.
        let runs = u64::from(std::process::id()) << 32;
        Ok(Self {
            near,
            prober,
            far,
            echo_port,
            answer_port: None,
            between,
            runs,
        })
    }

    /// Round-trip time to the far end's address `via`, also beside a load.
    pub fn ping(&mut self, via: IpAddr, duration: Duration) -> Result<LatencyReport> {
        self.begin_ping(via, duration)?;
        self.finish_ping(duration)
    }

    /// Starts probes; [`Self::finish_ping`] waits for them.
    pub fn begin_ping(&mut self, via: IpAddr, duration: Duration) -> Result<()> {
        let to = SocketAddr::new(via, self.echo_port);
        self.prober.ask(&Job::Ping { to, duration })
    }

    /// Waits for the probes that [`Self::begin_ping`] started.
    pub fn finish_ping(&mut self, duration: Duration) -> Result<LatencyReport> {
        self.prober.answer(duration + PATIENCE)
    }

    /// Exchanges requests and answers with the far end's address `via`, one in flight. This also works beside a
    /// load, except for the first call, which makes the far end ready to answer.
    pub fn round_trips(
        &mut self,
        via: IpAddr,
        exchange: Exchange,
        duration: Duration,
    ) -> Result<RoundTripReport> {
        let port = self.answer_round_trips()?;
        self.prober.ask(&Job::RoundTrips {
            to: self.target(via, port),
            exchange,
            duration,
        })?;
        self.prober.answer(duration + PATIENCE)
    }

    /// From now on the far end answers [`Self::round_trips`] at the returned port. The first call must come
    /// before a load.
    pub fn answer_round_trips(&mut self) -> Result<u16> {
        if let Some(port) = self.answer_port {
            return Ok(port);
        }
        let port = self.far.answer_probes(true, self.between.ports[2])?;
        self.answer_port = Some(port);
        Ok(port)
    }

    /// Opens up to this many connections to the far end's address `via`, and closes those of an earlier call; returns how
    /// many came up. The first call must come before a load.
    pub fn hold(&mut self, via: IpAddr, flows: u32) -> Result<u32> {
        let to = SocketAddr::new(via, self.answer_round_trips()?);
        self.prober.ask(&Job::Hold { to, flows })?;
        self.prober.answer(PATIENCE)
    }

    /// Starts TCP to the far end's address `via`; returns when the counted window begins. If the kernel
    /// does not allow `congestion_control` (for example `bbr`), or if it is `None`, the kernel chooses;
    /// [`TcpReport::congestion_control`] names the choice.
    pub fn begin_tcp(
        &mut self,
        via: IpAddr,
        load: TcpLoad,
        congestion_control: Option<&str>,
    ) -> Result<()> {
        let job = |side| Job::Tcp {
            side,
            load,
            congestion_control: congestion_control.map(str::to_owned),
        };
        let [far_port, ..] = self.between.ports;
        self.far.ask(&job(Side::Far { port: far_port }))?;
        let port = self.far.answer(PATIENCE)?;
        self.near.ask(&job(Side::Near(self.target(via, port))))?;
        let (sender, receiver) = self.roles(load.direction);
        let began = receiver.answer(load.warmup + PATIENCE);
        // A sender that could not connect knows more than a receiver that waited in vain.
        began.map_err(|error| match sender.answer::<TcpReport>(Duration::ZERO) {
            Err(reason @ LabError::Job(_)) => reason,
            Ok(_) | Err(_) => error,
        })
    }

    /// Waits for the end of the load that [`Self::begin_tcp`] started.
    pub fn finish_tcp(&mut self, load: TcpLoad) -> Result<TcpReport> {
        let (sender, receiver) = self.roles(load.direction);
        let received: TcpReport = receiver.answer(load.window + PATIENCE)?;
        let sent: TcpReport = sender.answer(PATIENCE)?;
        Ok(TcpReport {
            congestion_control: sent.congestion_control,
            ..received
        })
    }

    fn target(&self, via: IpAddr, port: u16) -> Target {
        Target {
            to: SocketAddr::new(via, port),
            proxy: self.between.proxy,
        }
    }

    /// The sender, then the receiver.
    fn roles(&mut self, direction: Direction) -> (&mut Agent, &mut Agent) {
        match direction {
            Direction::Up => (&mut self.near, &mut self.far),
            Direction::Down => (&mut self.far, &mut self.near),
        }
    }

    /// Starts UDP to the far end's address `via`; returns when the first packet has been sent.
    pub fn begin_udp(&mut self, via: IpAddr, load: UdpLoad) -> Result<()> {
        self.runs += 1;
        let run = self.runs;
        let job = |side| Job::Udp { side, load, run };
        let [far_port, ..] = self.between.ports;
        self.far.ask(&job(Side::Far { port: far_port }))?;
        let port = self.far.answer(PATIENCE)?;
        self.near.ask(&job(Side::Near(self.target(via, port))))?;
        self.near.answer(PATIENCE)
    }

    /// Waits until the packets of [`Self::begin_udp`] are sent.
    pub fn finish_sending_udp(&mut self, load: UdpLoad) -> Result<UdpSent> {
        self.near.answer(load.duration + PATIENCE)
    }

    /// Waits until all packets have arrived or count as lost.
    pub fn finish_receiving_udp(&mut self) -> Result<UdpReceived> {
        self.far.answer(PATIENCE)
    }
}
