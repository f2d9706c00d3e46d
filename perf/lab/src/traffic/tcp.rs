//! Bulk TCP: one blocking thread per stream; bytes are counted on arrival.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, setsockopt, sockopt::TcpCongestion};

use super::protocol::Side;
use super::scope::{Answers, Scope};
use super::{Direction, TcpLoad, TcpReport, socks};
use crate::error::{Doing as _, Result};

const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which a stalled stream checks the clock.
const STALL_CHECK: Duration = Duration::from_millis(100);
/// Time past its schedule for which a sender waits for the receiver to close.
const GRACE: Duration = Duration::from_secs(2);
/// Size of one read or write: larger than a super-packet (64 KiB), so that the kernel cuts several from it.
const BLOCK: usize = 256 * 1024;

/// Opens the streams and sends, or receives and counts, for the length of the job.
pub(super) fn run(
    side: Side,
    load: &TcpLoad,
    congestion_control: Option<&str>,
    scope: Scope,
    answers: &mut Answers<'_>,
) -> Result<()> {
    let count = load.streams as usize;
    let (streams, sending) = match side {
        Side::Near(target) => {
            let connect = |_| socks::connect(target, CONNECT_PATIENCE);
            let streams: io::Result<_> = (0..count).map(connect).collect();
            (streams.doing("connect over TCP")?, Direction::Up)
        }
        Side::Far { port } => (accept(count, port, scope, answers)?, Direction::Down),
    };
    let sends = load.direction == sending;
    for stream in &streams {
        stream
            .set_read_timeout(Some(STALL_CHECK))
            .and_then(|()| stream.set_write_timeout(Some(STALL_CHECK)))
            .doing("set a socket timeout")?;
        if let (true, Some(name)) = (sends, congestion_control) {
            // A refusal shows in the report, which names the congestion control in use.
            let _ = setsockopt(stream, TcpCongestion, &OsString::from(name));
        }
    }
    let begin = Instant::now();
    let deadline = begin + load.warmup + load.window + GRACE;
    let moved = AtomicU64::new(0);
    let counted = thread::scope(|scope| {
        for mut stream in &streams {
            let mut block = vec![0x5A; BLOCK];
            let moved = &moved;
            scope.spawn(move || match sends {
                true => pump(deadline, moved, || stream.write(&block)),
                false => pump(deadline, moved, || stream.read(&mut block)),
            });
        }
        if sends {
            return Ok(None);
        }
        let counted = count_window(load, &moved, answers);
        for stream in &streams {
            // Tells the sender that the window is over; it may have closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        counted.map(Some)
    })?;
    let sent = || TcpReport {
        bytes: moved.into_inner(),
        seconds: begin.elapsed().as_secs_f64(),
        congestion_control: streams.first().and_then(congestion_control_of),
    };
    answers.send(&counted.unwrap_or_else(sent))
}

fn accept(
    count: usize,
    port: u16,
    scope: Scope,
    answers: &mut Answers<'_>,
) -> Result<Vec<TcpStream>> {
    let (listener, port) = scope.listen(port, CONNECT_PATIENCE)?;
    answers.send(&port)?;
    let deadline = Instant::now() + CONNECT_PATIENCE;
    let mut streams = Vec::new();
    while streams.len() < count {
        match listener.accept() {
            Ok((stream, from)) if scope.admits(from) => streams.push(stream),
            Err(error) if !is_stall(&error) => return Err(error).doing("accept over TCP"),
            _ if Instant::now() < deadline => {}
            _ => return Err(ErrorKind::TimedOut).doing("wait for TCP connections"),
        }
    }
    Ok(streams)
}

/// The name as the kernel returns it, without padding zeros.
fn congestion_control_of(stream: &TcpStream) -> Option<String> {
    let name = getsockopt(stream, TcpCongestion).ok()?;
    Some(name.to_string_lossy().trim_end_matches('\0').to_owned())
}

/// Transfers blocks until the other end closes; counts the bytes.
fn pump(deadline: Instant, moved: &AtomicU64, mut step: impl FnMut() -> io::Result<usize>) {
    while Instant::now() < deadline {
        match step() {
            Err(error) if is_stall(&error) => {}
            Ok(0) | Err(_) => return,
            Ok(bytes) => {
                moved.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        }
    }
}

fn count_window(load: &TcpLoad, moved: &AtomicU64, answers: &mut Answers<'_>) -> Result<TcpReport> {
    thread::sleep(load.warmup);
    answers.send(&())?;
    let begin = Instant::now();
    let before = moved.load(Ordering::Relaxed);
    thread::sleep(load.window);
    Ok(TcpReport {
        bytes: moved.load(Ordering::Relaxed) - before,
        seconds: begin.elapsed().as_secs_f64(),
        congestion_control: None,
    })
}

fn is_stall(error: &io::Error) -> bool {
    use ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
