//! The side that does the work: one request in, events out.

use std::io::{BufRead, Write, stdin, stdout};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use super::answerer::Answerer;
use super::error::Doing as _;
use super::latency::{self, Echo};
use super::{End, Event, PROTOCOL, Request, TcpJob, TrafficError, UdpJob, round_trip, tcp, udp};

/// Bounds what a caller can make an agent read, in bytes: a request is about 150.
const LONGEST_CONVERSATION: u64 = 16 * 1024 * 1024;
/// Longest job that an agent accepts, in seconds.
const LONGEST: f64 = 3_600.0;
/// Each round trip is remembered: 60 seconds are some ten million.
const LONGEST_OF_ROUND_TRIPS: f64 = 60.0;
const MOST_STREAMS: u32 = 64;
const MOST_PACKETS_PER_SECOND: f64 = 20_000_000.0;
/// Sequence numbers are remembered in one bit each: 1 GiB of them at most.
const MOST_PACKETS: f64 = 8_589_934_592.0;

/// Does the jobs that arrive on `input`, one at a time, until it ends.
///
/// A job that fails is answered by [`Event::Failed`] and the next one is served.
///
/// # Errors
/// When `input` or `output` fails or carries something that is not a [`Request`].
pub fn serve(input: impl BufRead, output: impl Write, scope: &Scope) -> Result<(), TrafficError> {
    let mut events = Events { output };
    events.send(&Event::Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })?;
    let mut services = Services::default();
    for line in input.take(LONGEST_CONVERSATION).lines() {
        let line = line.doing("read a request")?;
        let request = serde_json::from_str(&line).map_err(|_| TrafficError::Protocol(line))?;
        if let Err(error) = perform(&request, scope, &mut services, &mut events) {
            events.send(&Event::Failed {
                reason: error.to_string(),
            })?;
        }
    }
    Ok(())
}

/// Makes this process the agent of the one that started it by [`Agent::spawn`](super::Agent::spawn):
/// as [`serve`], on the standard input and output.
///
/// # Errors
/// As [`serve`].
pub fn serve_child() -> Result<(), TrafficError> {
    // An agent that is sending would not notice otherwise that nobody waits for it.
    set_pdeathsig(Signal::SIGKILL).doing("hang on the controller")?;
    serve(stdin().lock(), stdout().lock(), &Scope::namespace())
}

/// Where an agent may listen and whom it may talk to.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    bind: IpAddr,
    peer: Option<IpAddr>,
}

impl Scope {
    /// Anything that the agent's namespace reaches: for agents that a controller on the same host
    /// started.
    #[must_use]
    pub fn namespace() -> Self {
        Self {
            bind: Ipv4Addr::UNSPECIFIED.into(),
            peer: None,
        }
    }

    /// Only the two ends of a control connection: a caller cannot make this host send elsewhere.
    #[must_use]
    pub fn between(local: IpAddr, peer: IpAddr) -> Self {
        Self {
            bind: local.to_canonical(),
            peer: Some(peer.to_canonical()),
        }
    }

    /// Where a listening end binds: any free port.
    pub(super) fn bind(&self) -> SocketAddr {
        SocketAddr::new(self.bind, 0)
    }

    /// Whether the controller is on the same host.
    pub(super) fn is_namespace(&self) -> bool {
        self.peer.is_none()
    }

    pub(super) fn admits(&self, address: SocketAddr) -> bool {
        self.peer
            .is_none_or(|peer| peer == address.ip().to_canonical())
    }
}

/// What answers beside the jobs.
#[derive(Default)]
struct Services {
    echo: Option<Echo>,
    answerer: Option<Answerer>,
}

/// The events of one agent.
pub(super) struct Events<W> {
    output: W,
}

impl<W: Write> Events<W> {
    pub(super) fn send(&mut self, event: &Event) -> Result<(), TrafficError> {
        let mut line = serde_json::to_vec(event).doing("encode an event")?;
        line.push(b'\n');
        self.output.write_all(&line).doing("report an event")?;
        self.output.flush().doing("report an event")
    }
}

fn perform<W: Write>(
    request: &Request,
    scope: &Scope,
    services: &mut Services,
    events: &mut Events<W>,
) -> Result<(), TrafficError> {
    check(request, scope)?;
    match request {
        Request::Tcp(job) => tcp::run(job, scope, events),
        Request::Udp(job) => udp::run(job, scope, events),
        Request::Echo => {
            services.echo = Some(Echo::start(scope, events)?);
            Ok(())
        }
        Request::Ping(job) => latency::ping(job, events),
        Request::Answer => {
            services.answerer = Some(Answerer::start(scope, events)?);
            Ok(())
        }
        Request::RoundTrips(job) => round_trip::run(job, scope, events),
    }
}

fn check(request: &Request, scope: &Scope) -> Result<(), TrafficError> {
    match request {
        Request::Tcp(job) => check_tcp(job, scope),
        Request::Udp(job) => check_udp(job, scope),
        Request::Echo | Request::Answer => Ok(()),
        Request::Ping(job) => {
            check_length(job.seconds)?;
            check_end(End::Connect(job.to), scope)
        }
        Request::RoundTrips(job) => {
            if !(0.0..=LONGEST_OF_ROUND_TRIPS).contains(&job.seconds) {
                return Err(TrafficError::Refused("round trips for at most a minute"));
            }
            check_end(End::Connect(job.to), scope)
        }
    }
}

fn check_tcp(job: &TcpJob, scope: &Scope) -> Result<(), TrafficError> {
    check_length(job.warmup_s)?;
    check_length(job.window_s)?;
    if job.streams == 0 || job.streams > MOST_STREAMS {
        return Err(TrafficError::Refused("1 to 64 TCP streams"));
    }
    check_end(job.end, scope)
}

fn check_udp(job: &UdpJob, scope: &Scope) -> Result<(), TrafficError> {
    check_length(job.seconds)?;
    if !(udp::HEADER..=65_507).contains(&job.payload) {
        return Err(TrafficError::Refused("UDP payload of 16 to 65,507 bytes"));
    }
    let rate_fits = job.rate_pps > 0.0 && job.rate_pps <= MOST_PACKETS_PER_SECOND;
    if !rate_fits || job.rate_pps * job.seconds > MOST_PACKETS {
        return Err(TrafficError::Refused("at most 20 million packets a second"));
    }
    check_end(job.end, scope)
}

fn check_length(seconds: f64) -> Result<(), TrafficError> {
    if (0.0..=LONGEST).contains(&seconds) {
        Ok(())
    } else {
        Err(TrafficError::Refused("jobs of at most an hour"))
    }
}

fn check_end(end: End, scope: &Scope) -> Result<(), TrafficError> {
    match end {
        End::Connect(to) if !scope.admits(to) => Err(TrafficError::Refused(
            "traffic goes only to the host that asks for it",
        )),
        End::Connect(_) | End::Listen => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Flow, PingJob};

    #[test]
    fn a_caller_cannot_direct_traffic_at_a_third_host() {
        let scope = Scope::between([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let ping = |to: &str| {
            Request::Ping(PingJob {
                to: to.parse().unwrap(),
                interval_ms: 10,
                seconds: 1.0,
            })
        };
        assert!(check(&ping("192.0.2.2:7"), &scope).is_ok());
        assert!(check(&ping("[::ffff:192.0.2.2]:7"), &scope).is_ok());
        assert!(check(&ping("192.0.2.3:7"), &scope).is_err());
    }

    #[test]
    fn absurd_jobs_are_refused() {
        let job = |payload, rate_pps, seconds| {
            Request::Udp(UdpJob {
                end: End::Listen,
                flow: Flow::Receive,
                payload,
                rate_pps,
                seconds,
                run: 1,
            })
        };
        let scope = Scope::namespace();
        assert!(check(&job(64, 1e3, 1.0), &scope).is_ok());
        assert!(check(&job(8, 1e3, 1.0), &scope).is_err());
        assert!(check(&job(64, f64::NAN, 1.0), &scope).is_err());
        assert!(check(&job(64, 0.0, 1.0), &scope).is_err());
        assert!(check(&job(64, 1e3, -1.0), &scope).is_err());
        assert!(check(&job(64, 2e7, 3_600.0), &scope).is_err());
    }

    #[test]
    fn a_failed_job_is_reported_and_the_next_one_served() {
        let requests = concat!(
            r#"{"do":"tcp","end":"listen","flow":"receive","streams":0,"warmup_s":0,"window_s":1}"#,
            "\n",
            r#"{"do":"echo"}"#,
            "\n"
        );
        let mut output = Vec::new();
        serve(requests.as_bytes(), &mut output, &Scope::namespace()).unwrap();
        let events: Vec<Event> = output
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert!(
            matches!(
                events[..],
                [
                    Event::Hello { .. },
                    Event::Failed { .. },
                    Event::Ready { .. }
                ]
            ),
            "{events:?}"
        );
    }
}
