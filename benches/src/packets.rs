//! `make packet-rate`: measures how many datagrams per second one machine can send.
//!
//! ```text
//!   loopback                          veth
//!   ┌── left ─────┐                   ┌── left ──┐          ┌── right ──┐
//!   │ sender      │                   │ sender ──┼─ veth0 ──┼─ sink     │
//!   │   └─ lo ─ sink                  └──────────┘          └───────────┘
//!   └─────────────┘
//! ```
//!
//! One thread sends as fast as it can, in each of three ways.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use convoy_lab::{Lab, Namespace};
use convoy_rows::plot::{Plot, Scale::Logarithmic};
use convoy_rows::row::{Row, Run};
use convoy_rows::section::Section;
use convoy_rows::table::Table;
use itertools::iproduct;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrIn, sendmmsg, sendmsg, sendto, setsockopt,
    sockopt,
};

use crate::agent::connect;
use crate::programs::ensure_root;

/// Sends datagrams as fast as this machine can, and writes rates, bandwidths and plots (root)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Four sizes, 100 ms each: only checks that everything works
    #[arg(long)]
    quick: bool,
    /// Directory for the result file and the plots [default: benches/results; none with --quick]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const SIZES: [usize; 14] = [
    2, 16, 64, 128, 256, 512, 1024, 1472, 2048, 4096, 9000, 16_384, 32_768, 65_507,
];
/// Sizes that only the plots show.
const ONLY_PLOTTED: [f64; 5] = [16.0, 128.0, 512.0, 2048.0, 32_768.0];
pub(crate) const SECTION: Section = Section {
    title: "Packet rates of this kernel",
    command: "packet-rate",
    file: "packet_rate.jsonl",
    tables: &[Table {
        heading: "",
        shows: |row| {
            let is_sent = row.unit == "kpps" && row.figure == "sent";
            is_sent && row.scene == CLOSED_LOOPBACK && !ONLY_PLOTTED.contains(&row.place())
        },
        corner: "bytes",
        line: |row| row.place().to_string(),
        column: |row| format!("{}, kpps", row.contender),
        has_spread: false,
    }],
    plots: &PLOTS,
    legend: "One thread on loopback to a closed port; all other sizes and places are in the plots.",
};

const LOOPBACK: &str = "loopback, counting sink";
pub(crate) const CLOSED_LOOPBACK: &str = "loopback, closed port";
const VETH: &str = "veth, counting sink";
const CLOSED_VETH: &str = "veth, closed port";
/// Scenes: whether the sockets are at the ends of a veth or both on loopback, and whether a thread receives and counts or
/// a closed port discards datagrams.
const SCENES: [(&str, bool, bool); 4] = [
    (LOOPBACK, false, true),
    (CLOSED_LOOPBACK, false, false),
    (VETH, true, true),
    (CLOSED_VETH, true, false),
];
/// Contenders: one datagram per call, [`BATCH`] per call, or one buffer that the kernel cuts.
const METHODS: [&str; 3] = [SEND_TO, "sendmmsg", GSO];
pub(crate) const SEND_TO: &str = "send_to";
const GSO: &str = "GSO";

#[rustfmt::skip]
const PLOTS: [Plot; 2] = [
    Plot::new("packet_rate_by_size.svg", "UDP from one thread: kpps by size", ("bytes of payload", Logarithmic), &[
        (LOOPBACK, "kpps", Logarithmic),
        (CLOSED_LOOPBACK, "kpps", Logarithmic),
        (VETH, "kpps", Logarithmic),
        (CLOSED_VETH, "kpps", Logarithmic),
    ]),
    Plot::new("bandwidth_by_size.svg", "UDP from one thread: Gbit/s by size", ("bytes of payload", Logarithmic), &[
        (LOOPBACK, "Gbit/s", Logarithmic),
        (CLOSED_LOOPBACK, "Gbit/s", Logarithmic),
        (VETH, "Gbit/s", Logarithmic),
        (CLOSED_VETH, "Gbit/s", Logarithmic),
    ]),
];

/// Datagrams per `sendmmsg`; every kernel also takes this many segments in one send.
const BATCH: usize = 64;
/// Largest UDP payload of an IPv4 datagram (RFC 768, 791), and of one packet on the veth.
const MAX_PAYLOAD: usize = 65_507;
const VETH_PAYLOAD: usize = 1472;

/// Silence after which no further datagrams are expected.
const SILENCE: Duration = Duration::from_millis(100);
const SINK_BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// Calls between two readings of the clock.
const CALLS: usize = 16;
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 5182;

/// One combination of all parameters.
#[derive(Debug)]
struct Point {
    is_veth: bool,
    is_counted: bool,
    method: &'static str,
    /// Bytes of UDP payload.
    size: usize,
    /// Datagrams per call.
    batch: usize,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (step, rounds, window_ms) = if args.quick { (4, 1, 100) } else { (1, 3, 180) };
    ensure_root()?;
    let mut run = Run::new(Vec::new());
    let lab = Lab::new()?;
    let ends = [lab.namespace("left")?, lab.namespace("right")?];
    connect(&lab, (&ends[0], "veth0", LEFT), (&ends[1], "veth0", RIGHT))?;
    for round in 0..rounds {
        let sizes = SIZES.into_iter().step_by(step);
        for ((scene, is_veth, is_counted), method, size) in iproduct!(SCENES, METHODS, sizes) {
            let batch = match method {
                SEND_TO => 1,
                // The kernel refuses segments that do not fit one packet.
                GSO if is_veth && size > VETH_PAYLOAD => continue,
                GSO if MAX_PAYLOAD / size < 2 => continue,
                GSO => (MAX_PAYLOAD / size).min(BATCH),
                _ => BATCH,
            };
            let point = Point {
                is_veth,
                is_counted,
                method,
                size,
                batch,
            };
            match measure(&point, &ends, Duration::from_millis(window_ms)) {
                Ok((sent, received)) => {
                    for (figure, value) in [
                        (("sent", "kpps"), sent),
                        (("arrived", "kpps arrived"), received.unwrap_or(f64::NAN)),
                        (("sent", "Gbit/s"), sent * size as f64 * 8.0 / 1e6),
                    ] {
                        let row = Row::new(scene, method, figure, round, value);
                        run.push(row.at(size as f64));
                    }
                }
                Err(error) => eprintln!("{point:?}: {error:#}"),
            }
        }
        eprintln!("round {} of {rounds}", round + 1);
    }
    let named = args.out.as_ref().map(|out| out.join(SECTION.file));
    SECTION.keep(&run, named.as_deref(), !args.quick)
}

/// Sends for `window`. Returns how many thousand datagrams per second the kernel accepted, and how many arrived if
/// the sink counts them.
fn measure(point: &Point, ends: &[Namespace; 2], window: Duration) -> Result<(f64, Option<f64>)> {
    let [left, right] = ends;
    let (from, to, far) = match point.is_veth {
        false => (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, left),
        true => (LEFT, RIGHT, right),
    };
    let sender = left.run(|| UdpSocket::bind((from, 0)))?.context("bind")?;
    let mut sink = None;
    if point.is_counted {
        let socket = far.run(|| UdpSocket::bind((to, PORT)))?.context("bind")?;
        socket.set_read_timeout(Some(SILENCE))?;
        setsockopt(&socket, sockopt::RcvBufForce, &SINK_BUFFER_BYTES)?;
        sink = Some(socket);
    }
    thread::scope(|scope| {
        let counting = sink.map(|sink| scope.spawn(move || count(&sink)));
        let began = Instant::now();
        let sent = send(&sender, SocketAddrV4::new(to, PORT).into(), point, window);
        let seconds = began.elapsed().as_secs_f64();
        let counted = counting.map(|thread| thread.join()).transpose();
        let counted = counted.map_err(|_| anyhow!("the sink panicked"))?;
        let received = counted.transpose().context("receive")?;
        let kpps = |datagrams: usize| datagrams as f64 / seconds / 1e3;
        // All counted datagrams arrived while the sender ran, or shortly after.
        Ok((kpps(sent.context("send")?), received.map(kpps)))
    })
}

/// Returns how many datagrams the kernel accepted within `window`.
fn send(socket: &UdpSocket, to: SockaddrIn, point: &Point, window: Duration) -> nix::Result<usize> {
    let bytes = vec![7; point.size * point.batch];
    let (fd, flags) = (socket.as_raw_fd(), MsgFlags::empty());
    match point.method {
        SEND_TO => repeat(window, || sendto(fd, &bytes, &to, flags).map(|_| 1)),
        GSO => {
            let segment = point.size as u16;
            let control = [ControlMessage::UdpGsoSegments(&segment)];
            let slices = [IoSlice::new(&bytes)];
            repeat(window, || {
                let sent = sendmsg(fd, &slices, &control, flags, Some(&to))?;
                Ok(sent / point.size)
            })
        }
        _ => {
            let mut headers = MultiHeaders::preallocate(BATCH, None);
            let slices = bytes.chunks(point.size).map(|one| [IoSlice::new(one)]);
            let slices: Vec<_> = slices.collect();
            repeat(window, || {
                let sent = sendmmsg(fd, &mut headers, &slices, [Some(to); BATCH], [], flags)?;
                Ok(sent.count())
            })
        }
    }
}

/// Repeats `call`, which returns how many datagrams the kernel accepted, and adds them up.
fn repeat(window: Duration, mut call: impl FnMut() -> nix::Result<usize>) -> nix::Result<usize> {
    let began = Instant::now();
    let mut datagrams = 0;
    while began.elapsed() < window {
        for _ in 0..CALLS {
            match call() {
                Ok(taken) => datagrams += taken,
                // The kernel had no room: nothing was sent.
                Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(datagrams)
}

/// Counts datagrams until no more arrive; copies only their first byte.
fn count(socket: &UdpSocket) -> io::Result<usize> {
    let mut datagrams = 0;
    loop {
        match socket.recv(&mut [0]) {
            Ok(_) => datagrams += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(datagrams),
            Err(error) => return Err(error),
        }
    }
}
