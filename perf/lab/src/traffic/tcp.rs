//! Bulk TCP: one blocking thread a stream, counted where it arrives.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, setsockopt, sockopt::TcpCongestion};

use super::agent::Events;
use super::error::Doing as _;
use super::{End, Event, Flow, Scope, TcpJob, TcpReport, TrafficError};

const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// How often a stalled stream looks at the clock.
const STALL_CHECK: Duration = Duration::from_millis(100);
/// How much longer than its schedule a sender waits for the receiver to hang up.
const SENDER_GRACE: Duration = Duration::from_secs(2);
/// One write; a super-packet holds 64 KiB, so that the kernel cuts several from each.
const WRITE_BYTES: usize = 256 * 1024;
const READ_BYTES: usize = 256 * 1024;

/// Opens the streams and sends, or receives and counts, for the length of the job.
pub(super) fn run<W: Write>(
    job: &TcpJob,
    scope: &Scope,
    events: &mut Events<W>,
) -> Result<(), TrafficError> {
    let streams = match job.end {
        End::Listen => accept(job.streams, scope, events)?,
        End::Connect(to) => (0..job.streams)
            .map(|_| TcpStream::connect_timeout(&to, CONNECT_PATIENCE))
            .collect::<Result<_, _>>()
            .doing("connect over TCP")?,
    };
    for stream in &streams {
        stream
            .set_read_timeout(Some(STALL_CHECK))
            .and_then(|()| stream.set_write_timeout(Some(STALL_CHECK)))
            .doing("set a socket timeout")?;
    }
    match job.flow {
        Flow::Send => send(job, &streams, events),
        Flow::Receive => receive(job, &streams, events),
    }
}

fn accept<W: Write>(
    count: u32,
    scope: &Scope,
    events: &mut Events<W>,
) -> Result<Vec<TcpStream>, TrafficError> {
    let listener = TcpListener::bind(scope.bind()).doing("listen on TCP")?;
    listener.set_nonblocking(true).doing("listen on TCP")?;
    let port = listener.local_addr().doing("listen on TCP")?.port();
    events.send(&Event::Ready { port })?;

    let deadline = Instant::now() + CONNECT_PATIENCE;
    let mut streams = Vec::new();
    while streams.len() < count as usize {
        match listener.accept() {
            Ok((stream, from)) if scope.admits(from) => {
                stream.set_nonblocking(false).doing("accept over TCP")?;
                streams.push(stream);
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if Instant::now() > deadline {
                    return Err(TrafficError::Timeout("waiting for TCP connections"));
                }
                thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(error).doing("accept over TCP"),
        }
    }
    Ok(streams)
}

fn send<W: Write>(
    job: &TcpJob,
    streams: &[TcpStream],
    events: &mut Events<W>,
) -> Result<(), TrafficError> {
    if let Some(name) = &job.congestion_control {
        for stream in streams {
            // A refusal shows in the report, which names the congestion control that was used.
            let _ = setsockopt(stream, TcpCongestion, &OsString::from(name));
        }
    }
    let begin = Instant::now();
    let deadline = begin + Duration::from_secs_f64(job.warmup_s + job.window_s) + SENDER_GRACE;
    let sent = AtomicU64::new(0);
    thread::scope(|scope| {
        streams.iter().try_for_each(|stream| {
            let body = || send_until(stream, deadline, &sent);
            let thread = thread::Builder::new().spawn_scoped(scope, body);
            thread.map(drop).doing("start a sending thread")
        })
    })?;
    events.send(&Event::TcpSent(TcpReport {
        bytes: sent.into_inner(),
        seconds: begin.elapsed().as_secs_f64(),
        congestion_control: streams.first().and_then(congestion_control),
    }))
}

/// The name as the kernel gives it, without the zeros that pad it.
fn congestion_control(stream: &TcpStream) -> Option<String> {
    let name = getsockopt(stream, TcpCongestion).ok()?;
    Some(name.to_string_lossy().trim_end_matches('\0').to_owned())
}

/// Sends until the receiver hangs up.
fn send_until(mut stream: &TcpStream, deadline: Instant, sent: &AtomicU64) {
    let block = vec![0x5A; WRITE_BYTES];
    while Instant::now() < deadline {
        match stream.write(&block) {
            Ok(written) => {
                sent.fetch_add(written as u64, Ordering::Relaxed);
            }
            Err(error) if is_stall(&error) => {}
            Err(_) => return,
        }
    }
}

fn receive<W: Write>(
    job: &TcpJob,
    streams: &[TcpStream],
    events: &mut Events<W>,
) -> Result<(), TrafficError> {
    let received = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        let started = streams.iter().try_for_each(|stream| {
            let body = || receive_until(stream, &done, &received);
            let thread = thread::Builder::new().spawn_scoped(scope, body);
            thread.map(drop).doing("start a receiving thread")
        });
        let report = started.and_then(|()| count_window(job, &received, events));
        done.store(true, Ordering::Relaxed);
        for stream in streams {
            // The sender learns from it that the window is over; it may have hung up already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        report
    })?;
    events.send(&Event::TcpReceived(report))
}

fn count_window<W: Write>(
    job: &TcpJob,
    received: &AtomicU64,
    events: &mut Events<W>,
) -> Result<TcpReport, TrafficError> {
    thread::sleep(Duration::from_secs_f64(job.warmup_s));
    events.send(&Event::Started)?;
    let begin = Instant::now();
    let before = received.load(Ordering::Relaxed);
    thread::sleep(Duration::from_secs_f64(job.window_s));
    Ok(TcpReport {
        bytes: received.load(Ordering::Relaxed) - before,
        seconds: begin.elapsed().as_secs_f64(),
        congestion_control: None,
    })
}

fn receive_until(mut stream: &TcpStream, done: &AtomicBool, received: &AtomicU64) {
    let mut buffer = vec![0; READ_BYTES];
    while !done.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => {
                received.fetch_add(read as u64, Ordering::Relaxed);
            }
            Err(error) if is_stall(&error) => {}
            Err(_) => return,
        }
    }
}

fn is_stall(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
