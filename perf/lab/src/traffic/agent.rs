//! The working side: jobs in, answers out.

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use serde::Serialize;

use super::answerer::Answerer;
use super::protocol::{Hello, Job, PROTOCOL};
use super::{probe, tcp, udp};
use crate::error::{Doing as _, LabError};

/// Bounds the memory that a caller can make an agent use, in bytes: a job is about 150.
pub(super) const LONGEST_CONVERSATION: u64 = 16 * 1024 * 1024;
/// A caller takes two; more callers at once would measure each other.
const MOST_CONNECTIONS: usize = 8;
/// Sequence numbers are remembered in one bit each: 1 GiB of them at most.
const MOST_PACKETS: u64 = 1 << 33;

/// Makes this process the agent of the one that started it by [`Agent::spawn`](super::Agent::spawn):
/// does the jobs that arrive on the standard input, one at a time, until it ends.
pub fn serve_child() -> Result<(), LabError> {
    // An agent that is sending would not notice otherwise that nobody waits for it.
    set_pdeathsig(Signal::SIGKILL).doing("tie this process to the controller")?;
    serve(stdin().lock(), &mut stdout(), Scope::NAMESPACE)
}

/// Serves each caller of `listener` by an agent of its own that sends traffic only to that caller.
pub fn serve_connections(listener: &TcpListener) -> Result<(), LabError> {
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

fn serve_connection(mut stream: &TcpStream) -> Result<(), LabError> {
    let doing = "serve a caller";
    stream.set_nodelay(true).doing(doing)?;
    let scope = Scope {
        bind: stream.local_addr().doing(doing)?.ip().to_canonical(),
        peer: Some(stream.peer_addr().doing(doing)?.ip().to_canonical()),
    };
    serve(BufReader::new(stream), &mut stream, scope)
}

/// A job that fails is answered by the reason, and the next one is served.
fn serve(
    input: impl BufRead,
    output: &mut (dyn Write + Send),
    scope: Scope,
) -> Result<(), LabError> {
    let mut answers = Answers(output);
    answers.send(&Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })?;
    let mut answerers = [None, None];
    for line in input.take(LONGEST_CONVERSATION).lines() {
        let line = line.doing("read a job")?;
        let job = serde_json::from_str(&line).doing("read a job")?;
        // On a thread of its own, which keeps its priority to itself.
        let done = thread::scope(|threads| {
            let job = || perform(&job, scope, &mut answerers, &mut answers);
            threads.spawn(job).join()
        });
        if let Err(error) = done.unwrap_or_else(|panic| resume_unwind(panic)) {
            answers.line(&Err::<(), _>(error.to_string()))?;
        }
    }
    Ok(())
}

fn perform(
    job: &Job,
    scope: Scope,
    answerers: &mut [Option<Answerer>; 2],
    answers: &mut Answers<'_>,
) -> Result<(), LabError> {
    check(job, scope)?;
    match job {
        Job::Tcp(job) => tcp::run(job, scope, answers),
        Job::Udp(job) => udp::run(job, scope, answers),
        Job::Ping(job) => answers.send(&probe::ping(job)?),
        Job::RoundTrips(job) => answers.send(&probe::round_trips(job, scope)?),
        Job::Answer { first } => {
            let (answerer, port) = Answerer::start(scope, *first)?;
            answerers[usize::from(*first)] = Some(answerer);
            answers.send(&port)
        }
    }
}

fn check(job: &Job, scope: Scope) -> Result<(), LabError> {
    let (lengths, longest, to, is_modest) = match job {
        Job::Answer { .. } => return Ok(()),
        Job::Tcp(job) => {
            let is_modest = (1..=64).contains(&job.streams);
            ([job.warmup_s, job.window_s], 3_600.0, job.to, is_modest)
        }
        Job::Udp(job) => {
            let is_modest = (udp::HEADER..=65_507).contains(&job.payload)
                && (f64::MIN_POSITIVE..=20e6).contains(&job.rate_pps)
                && job.packets() <= MOST_PACKETS;
            ([job.seconds; 2], 3_600.0, job.to, is_modest)
        }
        Job::Ping(job) => ([job.seconds; 2], 3_600.0, Some(job.to), true),
        // Each round trip is remembered: 60 seconds are some ten million.
        Job::RoundTrips(job) => ([job.seconds; 2], 60.0, Some(job.to), true),
    };
    let refused = |reason: &str| Err(LabError::Traffic(format!("job refused: {reason}")));
    if to.is_some_and(|to| !scope.admits(to)) {
        return refused("traffic goes only to the host that asks for it");
    }
    if !is_modest || !lengths.iter().all(|s| (0.0..=longest).contains(s)) {
        return refused(
            "at most an hour (round trips: a minute), 1 to 64 TCP streams, UDP payload of 16 to \
             65,507 bytes, 20 million packets a second",
        );
    }
    Ok(())
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

    pub(super) fn admits(self, address: SocketAddr) -> bool {
        self.peer
            .is_none_or(|peer| peer == address.ip().to_canonical())
    }

    /// Listens on any free port; `accept` gives up after `patience`.
    pub(super) fn listen(self, patience: Duration) -> Result<(TcpListener, u16), LabError> {
        let doing = "listen on TCP";
        let listener = TcpListener::bind((self.bind, 0)).doing(doing)?;
        // Linux: accept(2) keeps to the receive timeout too (socket(7)).
        let patience = TimeVal::milliseconds(patience.as_millis() as i64);
        setsockopt(&listener, sockopt::ReceiveTimeout, &patience).doing(doing)?;
        let port = listener.local_addr().doing(doing)?.port();
        Ok((listener, port))
    }

    /// A UDP socket on `port` (0: any).
    pub(super) fn bind_udp(self, port: u16) -> Result<UdpSocket, LabError> {
        UdpSocket::bind((self.bind, port)).doing("bind a UDP socket")
    }

    /// Lets the calling thread go before all ordinary ones for the rest of its life, as root.
    ///
    /// On a machine that the daemons share with the generator, the load is then as asked, as if it
    /// came from another machine. For a caller on another host nothing changes: it must not take this
    /// one's CPUs from their owner.
    pub(super) fn take_precedence(self) {
        if self.peer.is_some() {
            return;
        }
        // The kernel's `struct sched_param` is the priority alone.
        let priority: libc::c_int = 1;
        // The system call, since musl's sched_setscheduler does nothing. Without root it is refused.
        // SAFETY: process 0 is the calling thread, and `priority` outlives the call.
        unsafe {
            let (call, policy) = (libc::SYS_sched_setscheduler, libc::SCHED_RR);
            libc::syscall(call, 0, policy, &raw const priority)
        };
    }
}

pub(super) fn connected_udp(to: SocketAddr) -> Result<UdpSocket, LabError> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).doing("bind a UDP socket")?;
    socket.connect(to).doing("connect a UDP socket")?;
    Ok(socket)
}

/// The answers of one agent: each a line with a `Result`, whose error is a reason in words.
pub(super) struct Answers<'a>(&'a mut (dyn Write + Send));

impl Answers<'_> {
    pub(super) fn send(&mut self, answer: &impl Serialize) -> Result<(), LabError> {
        self.line(&Ok::<_, String>(answer))
    }

    fn line(&mut self, answer: &impl Serialize) -> Result<(), LabError> {
        let mut line = serde_json::to_vec(answer).doing("encode an answer")?;
        line.push(b'\n');
        self.0.write_all(&line).doing("answer")?;
        self.0.flush().doing("answer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::UdpJob;

    #[test]
    fn a_caller_cannot_direct_traffic_at_a_third_host() {
        let scope = Scope {
            bind: [192, 0, 2, 1].into(),
            peer: Some([192, 0, 2, 2].into()),
        };
        let is_accepted = |to| {
            let ping = format!(r#"{{"ping":{{"to":"{to}","interval_ms":10,"seconds":1}}}}"#);
            check(&serde_json::from_str(&ping).unwrap(), scope).is_ok()
        };
        assert!(is_accepted("192.0.2.2:7"));
        assert!(is_accepted("[::ffff:192.0.2.2]:7"));
        assert!(!is_accepted("192.0.2.3:7"));
    }

    #[test]
    fn absurd_jobs_are_refused() {
        let is_accepted = |payload, rate_pps, seconds| {
            let job = UdpJob {
                to: None,
                payload,
                rate_pps,
                seconds,
                run: 1,
            };
            check(&Job::Udp(job), Scope::NAMESPACE).is_ok()
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
        let failing = r#"{"ping":{"to":"127.0.0.1:7","interval_ms":10,"seconds":-1}}"#;
        let jobs = format!("{failing}\n{{\"answer\":{{\"first\":false}}}}\n");
        let mut output = Vec::new();
        serve(jobs.as_bytes(), &mut output, Scope::NAMESPACE).unwrap();
        let lines = String::from_utf8(output).unwrap();
        let answers: Vec<_> = lines.lines().map(|l| &l[..l.len().min(6)]).collect();
        assert_eq!(answers, [r#"{"Ok":"#, r#"{"Err""#, r#"{"Ok":"#]);
    }
}
