//! Two ends that know each other only through a relay.
//!
//! ```text
//!   left 10.8.0.1 ═════════════════ tunnel ═════════════════ 10.8.0.2 right
//!     10.9.1.1 ── veth ── 10.9.1.9  relay  10.9.2.9 ── veth ── 10.9.2.2
//! ```

use std::{sync::MutexGuard, thread};

use convoy_lab::{
    Lab, Namespace, eventually,
    relay::{Census, Direction, Impairments, Relay, Side},
    traffic::{self, Agent, Event, Flow, Request, UdpJob, UdpReceived},
    wireguard::{End, Identity},
};
use serde_json::Value;

use crate::{
    scene::{DEADLINE, convoy, convoy_program, lab},
    traffic::ping,
};

const PORT: u16 = 51_820;
const MTU: u32 = 1_420;

/// The tunnel and the relay; when the test fails, what happened to the datagrams is shown.
pub(crate) struct Relayed {
    pub(crate) left: End,
    pub(crate) right: End,
    pub(crate) relay: Relay,
    _lab: Lab,
    _turn: MutexGuard<'static, ()>,
}

impl Relayed {
    /// Nothing has been sent yet; `None` where there cannot be a lab.
    pub(crate) fn new(seed: u64, impairments: &Impairments) -> Option<Self> {
        let (lab, turn) = lab(&["wg", "ping"])?;
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
        let relay = Relay::start(&middle, to_left, to_right, seed, impairments).unwrap();
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

    /// Both ends have a session, and the network is still a good one.
    pub(crate) fn connected(seed: u64) -> Option<Self> {
        let scene = Self::new(seed, &Impairments::default())?;
        ping(&scene.left, scene.right.inner_v4());
        ping(&scene.right, scene.left.inner_v6());
        Some(scene)
    }

    /// Numbered packets from left to right, and which of them arrived.
    pub(crate) fn flow(&self, packets: u32) -> UdpReceived {
        let rate = 10_000.0;
        let job = |end, flow| {
            Request::Udp(UdpJob {
                end,
                flow,
                payload: 1_000,
                rate_pps: rate,
                seconds: f64::from(packets) / rate,
                run: 1,
            })
        };
        let mut receiver = agent(&self.right.namespace);
        let mut sender = agent(&self.left.namespace);
        receiver
            .ask(&job(traffic::End::Listen, Flow::Receive))
            .unwrap();
        let to = (self.right.inner_v4(), receiver.ready(DEADLINE).unwrap());
        sender
            .ask(&job(traffic::End::Connect(to.into()), Flow::Send))
            .unwrap();
        match receiver.event(DEADLINE).unwrap() {
            Event::UdpReceived(received) => received,
            other => panic!("{other:?}"),
        }
    }

    /// Every datagram that the relay has sent on is counted by its receiver as what it is.
    pub(crate) fn all_is_counted(&self) {
        for (direction, receiver) in [
            (Direction::ToRight, &self.right),
            (Direction::ToLeft, &self.left),
        ] {
            let accounts = || (self.relay.tally(direction), Counted::of(receiver));
            let agree = || {
                let (tally, counted) = accounts();
                (tally.waiting == 0 && counted.agrees_with(&tally.census)).then_some(())
            };
            let agreed = eventually(DEADLINE, agree);
            assert!(agreed.is_some(), "{direction:?}: {:#?}", accounts());
        }
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
            eprintln!("--- {label} counted {}", stats(end));
            eprintln!("--- {label} daemon wrote:\n{}", end.daemon.log());
        }
    }
}

/// What an end has counted of what came to it.
#[derive(Debug)]
struct Counted {
    packets: u64,
    replay: u64,
    behind_window: u64,
    /// What is no message, or does not authenticate, or belongs to no session.
    foreign: u64,
    /// Any other reason, and what the kernel dropped before.
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
        let stats = stats(end);
        let counters = &stats["counters"];
        let drop = |reason: &str| counters["drops"][reason].as_u64().unwrap();
        let drops = counters["drops"].as_object().unwrap();
        let inbound = drops.keys().filter(|reason| reason.starts_with("inbound_"));
        let all: u64 = inbound.map(|reason| drop(reason)).sum();
        let (replay, behind_window) = (drop("inbound_replay"), drop("inbound_behind_window"));
        let foreign = FOREIGN.into_iter().map(drop).sum();
        let kernel = counters["state"]["udp_kernel_drops"].as_str().unwrap();
        Self {
            packets: counters["inbound"]["packets"].as_u64().unwrap(),
            replay,
            behind_window,
            foreign,
            others: all - replay - behind_window - foreign + kernel.parse::<u64>().unwrap(),
        }
    }

    fn agrees_with(&self, census: &Census) -> bool {
        let apart = [self.replay, self.behind_window, self.foreign];
        let expected = [census.repeated, census.behind_window, census.altered];
        // A counter that was altered may look like a late or a repeated one.
        let all_refused = apart.iter().sum::<u64>() == expected.iter().sum::<u64>();
        let is_refused_right = apart == expected || (census.altered > 0 && all_refused);
        self.packets == census.packets && self.others == 0 && is_refused_right
    }
}

/// What `convoy stats --json` shows of an end.
pub(crate) fn stats(end: &End) -> Value {
    let answer = end.daemon.request("get=convoy_stats\n\n").unwrap();
    let json = answer.lines().next().unwrap().strip_prefix("convoy_stats=");
    serde_json::from_str(json.unwrap()).unwrap()
}

fn agent(namespace: &Namespace) -> Agent {
    let mut command = namespace.command(convoy_program());
    command.args(["lab-inside", "traffic"]);
    Agent::spawn(command).unwrap()
}
