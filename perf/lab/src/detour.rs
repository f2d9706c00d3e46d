//! A detour of the UDP datagrams between two ends, which takes time and loses some: kernels without netem cannot.
//!
//! ```text
//!   left ── veth ── right: PORT ── redirected ──▶ relay ── loopback, later ──▶ PORT
//! ```
//!
//! The daemon at the right takes the relay for its peer, which has roamed.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::error::{Doing as _, Result};
use crate::namespace::Namespace;
use crate::tool;

/// The nftables table that redirects.
const TABLE: &str = "inet convoy_detour";
/// The zone of conntrack of the flows that are redirected.
const ZONE: u16 = 7;
/// Most datagrams under way, both ways together; further ones are lost.
const MAX_UNDER_WAY: usize = 16_384;
/// How often the relay looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);
/// Same losses in each run.
const SEED: u64 = 7;

/// A detour until it is dropped.
pub struct Detour {
    right: Namespace,
    is_over: Arc<AtomicBool>,
    relay: Option<JoinHandle<()>>,
}

impl Detour {
    /// Sends datagrams for `port` that arrive at `right` on `interface`, and their answers, on a detour that takes
    /// `delay` each way and loses `percent`.
    ///
    /// # Errors
    /// If nft or a socket fails.
    pub fn start(
        right: &Namespace,
        (interface, port): (&str, u16),
        delay: Duration,
        percent: f64,
    ) -> Result<Self> {
        let own = port + 1;
        let opened = right.run(|| -> io::Result<[UdpSocket; 2]> {
            // Flows keep the port to which they were redirected once.
            let outer = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, own))?;
            let inner = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            inner.connect((Ipv4Addr::LOCALHOST, port))?;
            for socket in [&outer, &inner] {
                socket.set_nonblocking(true)?;
            }
            Ok([outer, inner])
        })?;
        let sockets = opened.doing("open the sockets of a detour")?;
        // In a zone of its own: what the right end has sent just before would make a flow that is not redirected.
        let rules = format!(
            "table {TABLE} {{
                chain marks_arriving {{
                    type filter hook prerouting priority raw
                    iifname \"{interface}\" udp dport {port} ct zone set {ZONE}
                }}
                chain marks_leaving {{
                    type filter hook output priority raw
                    udp sport {own} ct zone set {ZONE}
                }}
                chain arriving {{
                    type nat hook prerouting priority dstnat
                    iifname \"{interface}\" udp dport {port} redirect to :{own}
                }}
            }}\n"
        );
        tool::run(right, "nft", &["-f", "-"], &rules)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let relay = thread::spawn(move || relay(&sockets, delay, percent / 100.0, &told));
        Ok(Self {
            right: right.clone(),
            is_over,
            relay: Some(relay),
        })
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(relay) = self.relay.take() {
            let _ = relay.join();
        }
        let rules = format!("delete table {TABLE}\n");
        let _ = tool::run(&self.right, "nft", &["-f", "-"], &rules);
    }
}

/// Relays between the left end, at the first socket, and the daemon at the right, at the other one.
fn relay(sockets: &[UdpSocket; 2], delay: Duration, lost: f64, is_over: &AtomicBool) {
    let mut random = StdRng::seed_from_u64(SEED);
    let mut left = None;
    // By the time of arrival: from which socket it came, and the datagram.
    let mut under_way: VecDeque<(Instant, usize, Vec<u8>)> = VecDeque::new();
    let mut buffer = [0; 65_535];
    while !is_over.load(Ordering::Relaxed) {
        let next = under_way.front().map(|(at, ..)| *at);
        let wait = next.map_or(LOOK, |at| at.saturating_duration_since(Instant::now()));
        let fds = sockets.each_ref();
        let mut fds = fds.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        // Interrupted: read the sockets anyway.
        let _ = ppoll(&mut fds, Some(wait.min(LOOK).into()), None);
        for from in [0, 1] {
            while let Ok((length, sender)) = sockets[from].recv_from(&mut buffer) {
                if from == 0 {
                    left = Some(sender);
                }
                if !random.random_bool(lost) && under_way.len() < MAX_UNDER_WAY {
                    let at = Instant::now() + delay;
                    under_way.push_back((at, from, buffer[..length].to_vec()));
                }
            }
        }
        while let Some((_, from, datagram)) = under_way.pop_front_if(|it| it.0 <= Instant::now()) {
            // An end that is absent or has no room loses it.
            let _ = match (from, left) {
                (0, _) => sockets[1].send(&datagram),
                (_, Some(left)) => sockets[0].send_to(&datagram, left),
                (_, None) => continue,
            };
        }
    }
}
