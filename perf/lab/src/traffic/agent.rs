//! The working side: one request in, events out.

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use super::answerer::Answerer;
use super::error::Doing as _;
use super::priority::Precedence;
use super::{End, Event, PROTOCOL, Request, TrafficError, UdpJob, probe, tcp, udp};

/// Bounds the memory that a caller can make an agent use, in bytes: a request is about 150.
pub(super) const LONGEST_CONVERSATION: u64 = 16 * 1024 * 1024;
/// A caller takes two; more callers at once would measure each other.
const MOST_CONNECTIONS: usize = 8;
/// Longest job that an agent accepts, in seconds.
const LONGEST: f64 = 3_600.0;
/// Each round trip is remembered: 60 seconds are some ten million.
const LONGEST_OF_ROUND_TRIPS: f64 = 60.0;
const MOST_STREAMS: u32 = 64;
const MOST_PACKETS_PER_SECOND: f64 = 20_000_000.0;
/// Sequence numbers are remembered in one bit each: 1 GiB of them at most.
const MOST_PACKETS: f64 = 8_589_934_592.0;

/// Makes this process the agent of the one that started it by [`Agent::spawn`](super::Agent::spawn):
/// does the jobs that arrive on the standard input, one at a time, until it ends.
pub fn serve_child() -> Result<(), TrafficError> {
    // An agent that is sending would not notice otherwise that nobody waits for it.
    set_pdeathsig(Signal::SIGKILL).doing("hang on the controller")?;
    serve(stdin().lock(), &mut stdout().lock(), &Scope::NAMESPACE)
}

/// Serves each caller of `listener` by an agent of its own that sends traffic only to that caller.
pub fn serve_connections(listener: &TcpListener) -> Result<(), TrafficError> {
    let slots = Arc::new(());
    loop {
        let (stream, from) = listener.accept().doing("accept a caller")?;
        if Arc::strong_count(&slots) > MOST_CONNECTIONS {
            tracing::warn!(%from, "refused: {MOST_CONNECTIONS} connections are being served");
            continue;
        }
        let slot = Arc::clone(&slots);
        let agent = move || {
            tracing::info!(%from, "connected");
            match serve_connection(&stream) {
                Ok(()) => tracing::info!(%from, "done"),
                Err(error) => tracing::warn!(%from, "{error}"),
            }
            drop(slot);
        };
        let thread = thread::Builder::new().name("agent".to_owned());
        thread.spawn(agent).doing("start an agent's thread")?;
    }
}

fn serve_connection(mut stream: &TcpStream) -> Result<(), TrafficError> {
    let doing = "serve a caller";
    stream.set_nodelay(true).doing(doing)?;
    let scope = Scope {
        bind: stream.local_addr().doing(doing)?.ip().to_canonical(),
        peer: Some(stream.peer_addr().doing(doing)?.ip().to_canonical()),
    };
    serve(BufReader::new(stream), &mut stream, &scope)
}

/// A job that fails is answered by [`Event::Failed`] and the next one is served.
fn serve(input: impl BufRead, output: &mut dyn Write, scope: &Scope) -> Result<(), TrafficError> {
    let mut events = Events(output);
    events.send(&Event::Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })?;
    let mut answerers = [None, None];
    for line in input.take(LONGEST_CONVERSATION).lines() {
        let line = line.doing("read a request")?;
        let request = serde_json::from_str(&line).map_err(|_| TrafficError::Protocol(line))?;
        if let Err(error) = perform(&request, scope, &mut answerers, &mut events) {
            let reason = error.to_string();
            events.send(&Event::Failed { reason })?;
        }
    }
    Ok(())
}

fn perform(
    request: &Request,
    scope: &Scope,
    answerers: &mut [Option<Answerer>; 2],
    events: &mut Events<'_>,
) -> Result<(), TrafficError> {
    check(request, scope)?;
    match request {
        Request::Tcp(job) => tcp::run(job, scope, events)?,
        Request::Udp(job) => udp::run(job, scope, events)?,
        Request::Echo => answerers[0] = Some(Answerer::start(scope, false, events)?),
        Request::Answer => answerers[1] = Some(Answerer::start(scope, true, events)?),
        Request::Ping(job) => probe::ping(job, events)?,
        Request::RoundTrips(job) => probe::round_trips(job, scope, events)?,
    }
    Ok(())
}

fn check(request: &Request, scope: &Scope) -> Result<(), TrafficError> {
    let (lengths, longest, end) = match request {
        Request::Echo | Request::Answer => return Ok(()),
        Request::Tcp(job) => ([job.warmup_s, job.window_s], LONGEST, job.end),
        Request::Udp(job) => ([job.seconds; 2], LONGEST, job.end),
        Request::Ping(job) => ([job.seconds; 2], LONGEST, End::Connect(job.to)),
        Request::RoundTrips(job) => {
            let longest = LONGEST_OF_ROUND_TRIPS;
            ([job.seconds; 2], longest, End::Connect(job.to))
        }
    };
    let refused = |reason| Err(TrafficError::Refused(reason));
    if !lengths.iter().all(|s| (0.0..=longest).contains(s)) {
        return refused("jobs of at most an hour, round trips of at most a minute");
    }
    if matches!(end, End::Connect(to) if !scope.admits(to)) {
        return refused("traffic goes only to the host that asks for it");
    }
    match request {
        Request::Tcp(job) if !(1..=MOST_STREAMS).contains(&job.streams) => {
            refused("1 to 64 TCP streams")
        }
        Request::Udp(job) if !(udp::HEADER..=65_507).contains(&job.payload) => {
            refused("UDP payload of 16 to 65,507 bytes")
        }
        Request::Udp(job) if !is_sendable(job) => refused("at most 20 million packets a second"),
        _ => Ok(()),
    }
}

fn is_sendable(job: &UdpJob) -> bool {
    let is_rate = job.rate_pps > 0.0 && job.rate_pps <= MOST_PACKETS_PER_SECOND;
    is_rate && job.rate_pps * job.seconds <= MOST_PACKETS
}

/// Where an agent may listen, and the only host that it may talk to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope {
    bind: IpAddr,
    peer: Option<IpAddr>,
}

impl Scope {
    /// Anything that the agent's namespace reaches: the controller is on the same host.
    const NAMESPACE: Self = Self {
        bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        peer: None,
    };

    pub(super) fn admits(&self, address: SocketAddr) -> bool {
        self.peer
            .is_none_or(|peer| peer == address.ip().to_canonical())
    }

    /// Listens on any free port; `accept` gives up after `patience`.
    pub(super) fn listen(&self, patience: Duration) -> Result<TcpListener, TrafficError> {
        let doing = "listen on TCP";
        let listener = TcpListener::bind((self.bind, 0)).doing(doing)?;
        // Linux: accept(2) keeps to the receive timeout too (socket(7)).
        let patience = TimeVal::milliseconds(patience.as_millis() as i64);
        setsockopt(&listener, sockopt::ReceiveTimeout, &patience).doing(doing)?;
        Ok(listener)
    }

    /// A UDP socket for one end of a flow: on `port` (0: any), or connected to the other end.
    pub(super) fn open_udp(&self, end: End, port: u16) -> Result<UdpSocket, TrafficError> {
        match end {
            End::Listen => UdpSocket::bind((self.bind, port)).doing("bind a UDP socket"),
            End::Connect(to) => connected_udp(to),
        }
    }

    /// Lets the calling thread go before ordinary ones, if the controller is on the same host: a
    /// caller on another host must not take this one's CPUs from their owner.
    pub(super) fn precedence(&self) -> Option<Precedence> {
        self.peer.is_none().then(Precedence::take).flatten()
    }
}

pub(super) fn connected_udp(to: SocketAddr) -> Result<UdpSocket, TrafficError> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).doing("bind a UDP socket")?;
    socket.connect(to).doing("connect a UDP socket")?;
    Ok(socket)
}

/// The events of one agent.
pub(super) struct Events<'a>(&'a mut dyn Write);

impl Events<'_> {
    pub(super) fn send(&mut self, event: &Event) -> Result<(), TrafficError> {
        let mut line = serde_json::to_vec(event).doing("encode an event")?;
        line.push(b'\n');
        self.0.write_all(&line).doing("report an event")?;
        self.0.flush().doing("report an event")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Flow;

    #[test]
    fn a_caller_cannot_direct_traffic_at_a_third_host() {
        let scope = Scope {
            bind: [192, 0, 2, 1].into(),
            peer: Some([192, 0, 2, 2].into()),
        };
        let is_accepted = |to| {
            let ping = format!(r#"{{"do":"ping","to":"{to}","interval_ms":10,"seconds":1}}"#);
            check(&serde_json::from_str(&ping).unwrap(), &scope).is_ok()
        };
        assert!(is_accepted("192.0.2.2:7"));
        assert!(is_accepted("[::ffff:192.0.2.2]:7"));
        assert!(!is_accepted("192.0.2.3:7"));
    }

    #[test]
    fn absurd_jobs_are_refused() {
        let is_accepted = |payload, rate_pps, seconds| {
            let job = UdpJob {
                end: End::Listen,
                flow: Flow::Receive,
                payload,
                rate_pps,
                seconds,
                run: 1,
            };
            check(&Request::Udp(job), &Scope::NAMESPACE).is_ok()
        };
        assert!(is_accepted(64, 1e3, 1.0));
        for (payload, rate_pps, seconds) in [
            (8, 1e3, 1.0),
            (64, f64::NAN, 1.0),
            (64, 0.0, 1.0),
            (64, 1e3, -1.0),
            (64, 2e7, 3_600.0),
        ] {
            assert!(!is_accepted(payload, rate_pps, seconds), "{rate_pps}");
        }
    }

    #[test]
    fn a_failed_job_is_reported_and_the_next_one_served() {
        let failing = r#"{"do":"ping","to":"127.0.0.1:7","interval_ms":10,"seconds":-1}"#;
        let requests = format!("{failing}\n{{\"do\":\"echo\"}}\n");
        let mut output = Vec::new();
        serve(requests.as_bytes(), &mut output, &Scope::NAMESPACE).unwrap();
        let lines = String::from_utf8(output).unwrap();
        let events: Vec<_> = lines.lines().map(|l| &l[..l.len().min(17)]).collect();
        assert_eq!(
            events,
            [
                r#"{"event":"hello","#,
                r#"{"event":"failed""#,
                r#"{"event":"ready","#
            ]
        );
    }
}
