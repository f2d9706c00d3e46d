//! `convoy capture`: records the packets inside a tunnel, both ways, as pcapng for Wireshark and tshark.
//!
//! ```text
//!  kernel ──TUN── tunnel          the tunnel itself does nothing for it
//!            └── packet socket ─▶ pcapng
//! ```
//! Where the TUN has segmentation offload, the packets are super-packets, as in a capture by tcpdump.

mod args;
mod file;
mod output;
mod socket;

use std::{
    io,
    os::fd::AsFd as _,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};

use convoy_process::logging::say;

use crate::places;
pub use args::CaptureArgs;
use file::Capture;
use output::Output;
use socket::PacketSocket;

/// Interval in milliseconds for checking whether an interface that is down still exists.
const LOOK_AGAIN: u8 = 200;

/// Captures until it is interrupted, has enough packets, its output is closed, or the interface is gone.
pub fn run(args: &CaptureArgs) -> anyhow::Result<()> {
    let name = places::name_of(&args.name)?;
    let socket = PacketSocket::open(name.as_str())?;
    let path = args.write.display();
    let cannot_write = || format!("cannot write {path}");
    let file = output::open(&args.write).with_context(cannot_write)?;
    // Before it reports that it captures, so that an interrupt never loses captured packets; but not while a pipe
    // waits for its reader.
    let interrupts = Arc::new(interrupts()?);
    let output = Output::new(file, &interrupts).with_context(cannot_write)?;
    let capture = Capture::begin(Box::new(output), name.as_str());
    let mut capture = capture.with_context(cannot_write)?;
    say(&format!("convoy: capturing on {name}"));

    let ended = follow(&socket, &interrupts, &mut capture, args.count);
    let dropped = socket.dropped();
    let ended = ended.and_then(|end| capture.end(dropped).map(|()| end));
    let end = match ended {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => End::Wanted,
        ended => ended.with_context(cannot_write)?,
    };
    say(&format!(
        "convoy: {} packets captured, {dropped} lost because the capture was too slow",
        capture.packets()
    ));
    match end {
        End::Wanted => Ok(()),
        End::Gone => bail!("{name} is gone"),
    }
}

/// Reason why a capture ends.
enum End {
    /// It was interrupted, has enough packets, or its output is closed.
    Wanted,
    /// The interface was deleted.
    Gone,
}

/// The signals that end a capture.
fn interrupts() -> anyhow::Result<SignalFd> {
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .collect();
    signals.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC;
    SignalFd::with_flags(&signals, flags).context("cannot wait for signals")
}

/// Writes packets until the capture ends. Fails if its file does.
fn follow(
    socket: &PacketSocket,
    interrupts: &SignalFd,
    capture: &mut Capture,
    count: Option<u64>,
) -> io::Result<End> {
    let mut buffer = socket::buffer();
    let mut patience = PollTimeout::NONE;
    // Packets that passed before belong to the capture.
    let mut end = None;
    loop {
        match socket.receive(&mut buffer) {
            Ok(Some(captured)) if end.is_some_and(|end| captured.time > end) => {
                return Ok(End::Wanted);
            }
            Ok(Some(captured)) => {
                capture.write(&captured)?;
                patience = PollTimeout::NONE;
            }
            Ok(None) if end.is_some() => return Ok(End::Wanted),
            Ok(None) => {
                // A reader of the file sees packets as they pass.
                capture.flush()?;
                wait(socket, interrupts, patience)?;
            }
            // It was set down: the kernel reports nothing more, not even its deletion.
            Err(Errno::ENETDOWN) => patience = LOOK_AGAIN.into(),
            Err(errno) => return Err(errno.into()),
        }
        if patience.is_some() && !socket.is_there() {
            return Ok(End::Gone);
        }
        if count.is_some_and(|count| capture.packets() >= count) {
            return Ok(End::Wanted);
        }
        if end.is_none() && is_interrupted(interrupts)? {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            end = Some(now.unwrap_or_default());
        }
    }
}

/// Waits for a packet or a signal.
fn wait(socket: &PacketSocket, interrupts: &SignalFd, patience: PollTimeout) -> io::Result<()> {
    let mut sources = [
        PollFd::new(socket.as_fd(), PollFlags::POLLIN),
        PollFd::new(interrupts.as_fd(), PollFlags::POLLIN),
    ];
    poll(&mut sources, patience)?;
    Ok(())
}

fn is_interrupted(interrupts: &SignalFd) -> io::Result<bool> {
    let mut source = [PollFd::new(interrupts.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut source, PollTimeout::ZERO)? > 0)
}
