//! Two ends that reach each other only through a relay.
//!
//! ```text
//!   left 10.8.0.1 ═════════════════ tunnel ═════════════════ 10.8.0.2 right
//!     10.9.1.1 ── veth ── 10.9.1.9  relay  10.9.2.9 ── veth ── 10.9.2.2
//! ```

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    thread,
    time::Duration,
};

use convoy_lab::{
    Lab, Turn, eventually,
    wireguard::{End, Identity},
};
use nix::sys::socket::{setsockopt, sockopt};

use super::relay::{Census, Direction, Impairments, Relay, Side, Tally};
use crate::{
    scene::{DEADLINE, convoy, lab},
    stats::Stats,
    traffic::ping,
};

const PORT: u16 = 51_820;
const MTU: u32 = 1_420;
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Packets of a flow, few enough to fit into every buffer on the way.
const FLOW: u32 = 4_000;
const SOCKET_BUFFER: usize = 16 * 1024 * 1024;

/// The tunnel and the relay. Prints the relay's account when the test fails.
pub(crate) struct Relayed {
    pub(crate) left: End,
    pub(crate) right: End,
    pub(crate) relay: Relay,
    _lab: Lab,
    _turn: Turn,
}

impl Relayed {
    /// Nothing has been sent yet. `None` if the machine cannot provide a lab.
    pub(crate) fn new(seed: u64, impairments: &Impairments) -> Option<Self> {
        let (turn, lab) = lab(&["wg", "ping"])?;
        let [a, middle, b] = ["left", "relay", "right"].map(|label| lab.namespace(label).unwrap());
        let side = |end, n: u8| {
            let (own, cable) = (format!("10.9.{n}.{n}/24"), format!("veth{n}"));
            let relays = format!("10.9.{n}.9/24");
            lab.veth(end, "veth0", &[&own], &middle, &cable, &[&relays], 1_500)
                .unwrap();
            Side {
                local: ([10, 9, n, 9], PORT).into(),
                end: ([10, 9, n, n], PORT).into(),
            }
        };
        let (to_left, to_right) = (side(&a, 1), side(&b, 2));
        let relay = Relay::start(&middle, to_left, to_right, seed, impairments);
        let (own, other) = (Identity::new(1), Identity::new(2));
        let start = |namespace, identity, peer| {
            End::start(namespace, &convoy(), identity, vec![peer], MTU).unwrap()
        };
        Some(Self {
            right: start(&b, &other, own.as_peer(None)),
            left: start(&a, &own, other.as_peer(Some(to_left.local))),
            relay,
            _lab: lab,
            _turn: turn,
        })
    }

    /// Both ends have a session; no impairments yet.
    pub(crate) fn connected(seed: u64) -> Option<Self> {
        let scene = Self::new(seed, &Impairments::default())?;
        ping(&scene.left, scene.right.inner_v4());
        ping(&scene.right, scene.left.inner_v6());
        Some(scene)
    }

    /// Sends numbered packets from left to right. Exactly those whose datagrams are new by the relay's account
    /// must arrive, each once.
    pub(crate) fn flow_arrives(&self) {
        let address = SocketAddr::new(self.right.inner_v4(), 7_000);
        let bind = |end: &End, to| end.namespace.run(|| UdpSocket::bind(to)).unwrap().unwrap();
        let (receiver, sender) = (bind(&self.right, address), bind(&self.left, ANY));
        setsockopt(&receiver, sockopt::RcvBufForce, &SOCKET_BUFFER).unwrap();
        let taken = || {
            let link = self.left.namespace.link();
            let refused = link.statistics(self.left.daemon.interface()).unwrap();
            Stats::of(&self.left).outbound_packets() + refused.sent_drop
        };
        let before = (taken(), self.all_is_counted().census.packets);
        for number in 0..FLOW {
            let mut packet = [0; 1_000];
            packet[..4].copy_from_slice(&number.to_le_bytes());
            sender.send_to(&packet, address).unwrap();
            if number % 20 == 0 {
                // A longer burst would overflow queues before encryption.
                thread::sleep(Duration::from_millis(1));
            }
        }
        let all_taken = || (taken() - before.0 == u64::from(FLOW)).then_some(());
        assert!(eventually(DEADLINE, all_taken).is_some());
        let expected = self.all_is_counted().census.packets - before.1;
        let mut seen = HashSet::new();
        while let Some(number) = hear(&receiver, seen.len() as u64 == expected) {
            assert!(seen.insert(number), "{number} came twice");
        }
        assert_eq!(seen.len() as u64, expected, "packets");
    }

    /// Waits until every datagram has passed the relay, which holds none back any more, and its receiver has
    /// counted it correctly; returns the account of those to the right.
    pub(crate) fn all_is_counted(&self) -> Tally {
        self.is_counted(Direction::ToLeft, &self.right, &self.left);
        self.is_counted(Direction::ToRight, &self.left, &self.right)
    }

    fn is_counted(&self, direction: Direction, sender: &End, receiver: &End) -> Tally {
        let accounts = || {
            let sent = datagrams(sender, "segments_per_send");
            let tally = self.relay.tally(direction);
            (sent, tally, Counted::of(receiver))
        };
        let agreed = eventually(DEADLINE, || {
            self.relay.release_held(direction);
            let (sent, tally, counted) = accounts();
            let all_through = tally.received == sent && tally.waiting == 0;
            (all_through && counted.agrees_with(&tally.census)).then_some(tally)
        });
        agreed.unwrap_or_else(|| panic!("{direction:?}: {:#?}", accounts()))
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        eprintln!("--- the relay's seed is {}", self.relay.seed());
        for direction in Direction::BOTH {
            eprintln!("{direction:?}: {:?}", self.relay.tally(direction));
        }
        for end in [&self.left, &self.right] {
            let label = end.namespace.label();
            eprintln!("--- {label} counted {:?}", Stats::of(end));
            eprintln!("--- {label} daemon wrote:\n{}", end.daemon.log());
        }
    }
}

/// How an end has counted the datagrams that it received.
#[derive(Debug)]
struct Counted {
    packets: u64,
    replay: u64,
    behind_window: u64,
    /// Not a message, not authentic, or of no session.
    foreign: u64,
    /// Any other reason, and drops by the kernel.
    others: u64,
}

impl Counted {
    fn of(end: &End) -> Self {
        const FOREIGN: [&str; 4] = [
            "inbound_not_wireguard",
            "inbound_bad_tag",
            "inbound_unknown_session",
            "inbound_expired_session",
        ];
        let stats = Stats::of(end);
        let drop = |reason: &str| stats.dropped(reason);
        let all: u64 = stats.inbound_drops().map(|(_, count)| count).sum();
        let (replay, behind_window) = (drop("inbound_replay"), drop("inbound_behind_window"));
        let foreign = FOREIGN.into_iter().map(drop).sum();
        Self {
            packets: stats.inbound_packets(),
            replay,
            behind_window,
            foreign,
            others: all - replay - behind_window - foreign + stats.event("udp_kernel_drops"),
        }
    }

    fn agrees_with(&self, census: &Census) -> bool {
        let apart = [self.replay, self.behind_window, self.foreign];
        let expected = [census.repeated, census.behind_window, census.altered];
        // A datagram whose counter was altered may count as late or repeated.
        let all_refused = apart.iter().sum::<u64>() == expected.iter().sum::<u64>();
        let is_refused_right = apart == expected || (census.altered > 0 && all_refused);
        self.packets == census.packets && self.others == 0 && is_refused_right
    }
}

/// Datagrams that an end has sent or received, from the histogram of its system calls.
pub(crate) fn datagrams(end: &End, histogram: &str) -> u64 {
    let stats = Stats::of(end);
    let counts = stats.histograms[histogram].iter();
    (0..)
        .zip(counts)
        .map(|(size, count): (u64, _)| size * count)
        .sum()
}

/// The next packet's number; `None` if none comes. Waits only briefly once all have come.
fn hear(socket: &UdpSocket, is_complete: bool) -> Option<u32> {
    let patience = match is_complete {
        true => Duration::from_millis(100),
        false => DEADLINE,
    };
    socket.set_read_timeout(Some(patience)).unwrap();
    let mut packet = [0; 1_001];
    let length = socket.recv(&mut packet).ok()?;
    assert_eq!(length, 1_000);
    packet.first_chunk().copied().map(u32::from_le_bytes)
}
