//! The agent's side: receives jobs, sends answers.

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::net::{TcpListener, TcpStream};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;

use super::answerer::Answerer;
use super::protocol::{Exchange, Hello, Job, PROTOCOL, Side, Target};
use super::scope::{Answers, Scope};
use super::{probe, tcp, udp};
use crate::error::{Doing as _, LabError, Result};

/// Size limit of a job in bytes, which bounds an agent's memory: a job has about 150.
pub(super) const LONGEST_CONVERSATION: u64 = 16 * 1024 * 1024;
/// A caller takes two; with more callers at once, each would measure the others.
const MOST_CONNECTIONS: usize = 8;
/// Sequence numbers are remembered as one bit each: 1 GiB at most.
const MOST_PACKETS: u64 = 1 << 33;
/// Connections of one job that stay open.
const MOST_HELD: u32 = 16_384;

/// Turns this process into the agent of the process that started it by
/// [`Agent::spawn`](super::Agent::spawn): runs the jobs from the standard input, one at a time, until it
/// is closed.
pub fn serve_child() -> Result<()> {
    // Otherwise an agent that is sending would not notice that its controller is gone.
    set_pdeathsig(Signal::SIGKILL).doing("tie this process to the controller")?;
    // Each connection takes one.
    let descriptors = Resource::RLIMIT_NOFILE;
    let raised = getrlimit(descriptors).and_then(|(_, most)| setrlimit(descriptors, most, most));
    raised.doing("raise the limit of descriptors")?;
    serve(stdin().lock(), &mut stdout(), Scope::NAMESPACE)
}

/// Serves each caller of `listener` with an agent that sends traffic only to that caller.
pub fn serve_connections(listener: &TcpListener) -> Result<()> {
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

fn serve_connection(mut stream: &TcpStream) -> Result<()> {
    let doing = "serve a caller";
    stream.set_nodelay(true).doing(doing)?;
    let scope = Scope {
        bind: stream.local_addr().doing(doing)?.ip().to_canonical(),
        peer: Some(stream.peer_addr().doing(doing)?.ip().to_canonical()),
    };
    serve(BufReader::new(stream), &mut stream, scope)
}

/// Answers a failed job with the reason, and continues with the next one.
fn serve(input: impl BufRead, output: &mut (dyn Write + Send), scope: Scope) -> Result<()> {
    let mut answers = Answers(output);
    answers.send(&Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })?;
    let mut lasting = Lasting::default();
    for line in input.take(LONGEST_CONVERSATION).lines() {
        let line = line.doing("read a job")?;
        let job = serde_json::from_str(&line).doing("read a job")?;
        // On a thread of its own, because the job may raise its thread's priority.
        let done = thread::scope(|threads| {
            let job = || perform(&job, scope, &mut lasting, &mut answers);
            threads.spawn(job).join()
        });
        if let Err(error) = done.unwrap_or_else(|panic| resume_unwind(panic)) {
            answers.line(&Err::<(), _>(error.to_string()))?;
        }
    }
    Ok(())
}

/// Processes that outlast the job that has started them.
#[derive(Debug, Default)]
struct Lasting {
    answerers: [Option<Answerer>; 2],
    held: Vec<TcpStream>,
}

fn perform(
    job: &Job,
    scope: Scope,
    lasting: &mut Lasting,
    answers: &mut Answers<'_>,
) -> Result<()> {
    check(job, scope)?;
    match job {
        Job::Tcp {
            side,
            load,
            congestion_control,
        } => tcp::run(*side, load, congestion_control.as_deref(), scope, answers),
        Job::Udp { side, load, run } => udp::run(*side, load, *run, scope, answers),
        Job::Ping { to, duration } => answers.send(&probe::ping(*to, *duration)?),
        Job::RoundTrips {
            to,
            exchange,
            duration,
        } => answers.send(&probe::round_trips(*to, *exchange, *duration, scope)?),
        Job::Answer { first, port } => {
            let (answerer, port) = Answerer::start(scope, *first, *port)?;
            lasting.answerers[usize::from(*first)] = Some(answerer);
            answers.send(&port)
        }
        Job::Hold { to, flows } => {
            lasting.held.clear();
            lasting.held = probe::hold(*to, *flows, scope);
            answers.send(&lasting.held.len())
        }
    }
}

fn check(job: &Job, scope: Scope) -> Result<()> {
    let near = |to| Side::Near(Target { to, proxy: None });
    let (side, duration, is_modest) = match job {
        Job::Answer { port, .. } => (Side::Far { port: *port }, Duration::ZERO, true),
        Job::Tcp { side, load, .. } => {
            let duration = load.warmup.saturating_add(load.window);
            (*side, duration, (1..=64).contains(&load.streams))
        }
        Job::Udp { side, load, .. } => {
            let is_modest = (udp::HEADER..=65_507).contains(&load.payload)
                && (f64::MIN_POSITIVE..=20e6).contains(&load.rate_pps)
                && load.packets() <= MOST_PACKETS;
            (*side, load.duration, is_modest)
        }
        Job::Ping { to, duration } => (near(*to), *duration, true),
        Job::Hold { to, flows } => {
            // A host at which another one measures keeps no connections for it.
            let is_modest = *flows <= MOST_HELD && scope.is_of_namespace();
            (near(*to), Duration::ZERO, is_modest)
        }
        // Each round trip is stored: 60 seconds are about ten million.
        Job::RoundTrips {
            to,
            exchange,
            duration,
        } => {
            let is_modest = match exchange {
                Exchange::TcpConnect { at_once } => (1..=64).contains(at_once),
                Exchange::Tcp | Exchange::Udp => true,
            };
            let is_short = *duration <= Duration::from_secs(60);
            (Side::Near(*to), *duration, is_modest && is_short)
        }
    };
    let refused = |reason: &str| Err(LabError::Traffic(format!("job refused: {reason}")));
    let is_admitted = match side {
        Side::Near(Target { to, proxy }) => {
            scope.admits(to) && proxy.is_none_or(|proxy| scope.admits(proxy))
        }
        Side::Far { port } => port == 0 || scope.is_of_namespace(),
    };
    if !is_admitted {
        return refused("traffic goes only to the host that asks for it, and to any free port");
    }
    if !is_modest || duration > Duration::from_secs(3_600) {
        return refused(
            "at most an hour (round trips: a minute), 1 to 64 TCP streams, 16,384 open connections, UDP \
             payload of 16 to 65,507 bytes, 20 million packets a second",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::traffic::UdpLoad;

    fn is_accepted(job: &Job) -> bool {
        let scope = Scope {
            bind: [192, 0, 2, 1].into(),
            peer: Some([192, 0, 2, 2].into()),
        };
        check(job, scope).is_ok()
    }

    #[test]
    fn a_caller_cannot_direct_traffic_at_a_third_host() {
        let ping = |to: &str| Job::Ping {
            to: to.parse().unwrap(),
            duration: Duration::ZERO,
        };
        assert!(is_accepted(&ping("192.0.2.2:7")));
        assert!(is_accepted(&ping("[::ffff:192.0.2.2]:7")));
        assert!(!is_accepted(&ping("192.0.2.3:7")));
        let through = |proxy: &str| Job::RoundTrips {
            to: Target {
                to: "192.0.2.2:7".parse().unwrap(),
                proxy: Some(proxy.parse().unwrap()),
            },
            exchange: Exchange::Tcp,
            duration: Duration::ZERO,
        };
        assert!(is_accepted(&through("192.0.2.2:1080")));
        assert!(!is_accepted(&through("192.0.2.3:1080")));
    }

    #[test]
    fn a_caller_cannot_choose_a_port_here() {
        for (port, is_free) in [(0, true), (80, false)] {
            let first = false;
            assert_eq!(is_accepted(&Job::Answer { first, port }), is_free);
        }
    }

    #[test]
    fn absurd_jobs_are_refused() {
        let udp = |payload, rate_pps, seconds| Job::Udp {
            side: Side::Far { port: 0 },
            load: UdpLoad {
                payload,
                rate_pps,
                duration: Duration::from_secs(seconds),
            },
            run: 1,
        };
        assert!(is_accepted(&udp(64, 1e3, 1)));
        let absurd = [(8, 1e3, 1), (64, f64::NAN, 1), (64, 0.0, 1), (64, 2e7, 999)];
        for (payload, rate_pps, seconds) in absurd {
            assert!(!is_accepted(&udp(payload, rate_pps, seconds)));
        }
    }

    #[test]
    fn a_failed_job_is_reported_and_the_next_one_served() {
        let duration = Duration::MAX;
        let to = SocketAddr::from(([127, 0, 0, 1], 7));
        let answer = Job::Answer {
            first: false,
            port: 0,
        };
        let jobs = [Job::Ping { to, duration }, answer];
        let jobs = jobs.map(|job| serde_json::to_string(&job).unwrap());
        let mut output = Vec::new();
        serve(jobs.join("\n").as_bytes(), &mut output, Scope::NAMESPACE).unwrap();
        let lines = String::from_utf8(output).unwrap();
        let answers: Vec<_> = lines.lines().map(|l| &l[..l.len().min(6)]).collect();
        assert_eq!(answers, [r#"{"Ok":"#, r#"{"Err""#, r#"{"Ok":"#]);
    }
}
