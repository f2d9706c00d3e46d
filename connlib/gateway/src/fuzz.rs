//! Fuzzes all that decides about flows, with peers that ask for anything, against a model that remembers who holds what.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use convoy_fuzz::{Result, Unstructured};
use tokio::sync::mpsc;

use super::{
    admission::Admission,
    budget::Budget,
    ends::Ends,
    flows::{Flows, MAX_WAITING, Message},
    pending::Pending,
};
use convoy_network::{
    counters::{Counters, Refusal},
    occupants::Occupants,
    waiting::Waiting,
};
use convoy_network::{
    own::Own,
    peers::Peers,
    policy::Policy,
    shares::{Limits, Share, Shares},
};

const FLOWS: Limits = Limits {
    total: 12,
    peer: 7,
    peers: 3,
};
const PENDING: Limits = Limits {
    total: 7,
    peer: 4,
    peers: 3,
};
/// An address of each peer; the last is nobody's.
const ADDRESSES: [&str; 4] = ["10.8.0.1:7", "10.8.0.2:7", "[fd08::3]:7", "10.9.0.1:7"];
/// Targets, and why they are refused.
const TARGETS: [(&str, Option<Refusal>); 11] = [
    ("198.51.100.1:7", None),
    ("[2001:db8::1]:7", None),
    ("198.51.100.1:8", None),
    // Another peer, or oneself.
    ("10.8.0.1:7", Some(Refusal::TargetDenied)),
    ("[fd08::3]:7", Some(Refusal::TargetDenied)),
    ("[::ffff:10.8.0.2]:7", Some(Refusal::TargetDenied)),
    ("203.0.113.9:7", Some(Refusal::TargetDenied)),
    ("[64:ff9b::203.0.113.9]:7", Some(Refusal::TargetDenied)),
    ("127.0.0.1:7", Some(Refusal::Forbidden)),
    ("192.0.2.7:7", Some(Refusal::Forbidden)),
    ("[::ffff:169.254.169.254]:7", Some(Refusal::Forbidden)),
];
/// Errors in a second, and of these a peer's; the reserve of each of three is 166.
const ERRORS: [usize; 3] = [1_000, 500, 166];

#[test]
fn fuzz_gateways() {
    convoy_fuzz::run("gateways", 2_000, 400, gateways);
}

/// Nobody takes more than a share, everybody gets a reserve, nothing is lost or left over, and each flow hears its own.
fn gateways(input: &mut Unstructured<'_>) -> Result<()> {
    let mut world = World::new();
    let outcome = world.live(input);
    world.end();
    outcome
}

struct World {
    admission: Admission,
    table: Flows,
    counters: Counters,
    budget: Budget,
    now: Instant,
    model: Model,
}

/// The flows that there should be.
struct Model {
    flows: BTreeMap<String, Flow>,
    dropped: u64,
    /// The errors of this second, by peer, and when it began.
    errors: ([usize; 3], Instant),
}

struct Flow {
    ends: Ends,
    peer: usize,
    _share: Share,
    pending: Option<Share>,
    messages: mpsc::Receiver<Message>,
    waiting: VecDeque<u8>,
}

impl World {
    fn new() -> Self {
        let prefixes = [("10.8.0.1", 0), ("10.8.0.2", 1), ("fd08::/64", 2)];
        let prefixes = prefixes.map(|(prefix, peer)| (prefix.parse().unwrap(), peer));
        let now = Instant::now();
        Self {
            admission: Admission {
                peers: Arc::new(Peers::new(prefixes)),
                policy: Policy {
                    allow: vec!["0.0.0.0/0".parse().unwrap()],
                    deny: vec!["203.0.113.0/24".parse().unwrap()],
                    own: Own::fixed(["192.0.2.7".parse().unwrap()]),
                    ..Policy::default()
                },
                flows: Shares::new(FLOWS),
                pending: Shares::new(PENDING),
                opening: Shares::new(PENDING),
                occupants: Occupants::default(),
            },
            table: Flows::default(),
            counters: Counters::default(),
            budget: Budget::new(3, now),
            now,
            model: Model {
                flows: BTreeMap::new(),
                dropped: 0,
                errors: ([0; 3], now),
            },
        }
    }

    fn live(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        while !input.is_empty() {
            match input.int_in_range(0..=6)? {
                0..=2 => self.send(input)?,
                3 => self.receive(input)?,
                4 => {
                    let flow = pick(&mut self.model.flows, input)?;
                    flow.and_then(|it| it.pending.take());
                }
                5 => self.close(input)?,
                _ => self.fail(input)?,
            }
            self.check();
        }
        Ok(())
    }

    /// Messages of a peer, or of a stranger: of a flow that exists, or the first of one.
    fn send(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let peer = input.int_in_range(0..=ADDRESSES.len() - 1)?;
        let (target, denied) = *input.choose(&TARGETS)?;
        let mut from: SocketAddr = ADDRESSES[peer].parse().unwrap();
        from.set_port(input.int_in_range(1..=9)?);
        let ends = Ends {
            peer: from,
            target: target.parse().unwrap(),
        };
        for _ in 0..input.int_in_range(1..=MAX_WAITING / 2)? {
            self.send_one(ends, peer, denied, input.arbitrary()?);
        }
        Ok(())
    }

    fn send_one(&mut self, ends: Ends, peer: usize, denied: Option<Refusal>, content: u8) {
        let passed = self
            .table
            .pass_on(ends, message(content), &self.counters)
            .is_none();
        let name = format!("{ends:?}");
        let flow = self.model.flows.get_mut(&name);
        assert_eq!(passed, flow.is_some(), "{name}");
        match flow {
            Some(flow) if flow.waiting.len() < MAX_WAITING => flow.waiting.push_back(content),
            Some(_) => self.model.dropped += 1,
            None => self.begin(ends, peer, denied, content),
        }
    }

    fn begin(&mut self, ends: Ends, peer: usize, denied: Option<Refusal>, content: u8) {
        let refusal = match (peer, denied) {
            (3, _) => Some(Refusal::Denied),
            (_, Some(denied)) => Some(denied),
            _ => self
                .model
                .refusal(peer, PENDING, |it| it.pending.is_some())
                .or_else(|| self.model.refusal(peer, FLOWS, |_| true)),
        };
        match self.admission.admit(ends, &Pending::default()) {
            Err(found) => assert_eq!(Some(found), refusal, "{ends:?}"),
            Ok((share, pending)) => {
                assert_eq!(refusal, None, "{ends:?}");
                let flow = Flow {
                    ends,
                    peer,
                    _share: share,
                    pending: Some(pending),
                    messages: self.table.begin(ends, message(content)),
                    waiting: [content].into(),
                };
                self.model.flows.insert(format!("{ends:?}"), flow);
            }
        }
    }

    /// A flow takes its next message.
    fn receive(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        if let Some(flow) = pick(&mut self.model.flows, input)? {
            let received = flow.messages.try_recv().ok();
            let received = received.map(|it| it.bytes[0]);
            let expected = flow.waiting.pop_front();
            assert_eq!(received, expected, "{:?}", flow.ends);
        }
        Ok(())
    }

    fn close(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        if let Some(flow) = pick(&mut self.model.flows, input)? {
            let name = format!("{:?}", flow.ends);
            self.table.end(flow.ends);
            self.model.flows.remove(&name);
        }
        Ok(())
    }

    /// Errors that a peer is to hear of, sooner or later.
    fn fail(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        self.now += Duration::from_millis(input.int_in_range(0..=400)?);
        let (errors, second) = &mut self.model.errors;
        if self.now.duration_since(*second) >= Duration::from_secs(1) {
            (*errors, *second) = ([0; 3], self.now);
        }
        let peer = input.int_in_range(0..=2)?;
        let [total, most, reserve] = ERRORS;
        for _ in 0..input.int_in_range(1..=600)? {
            let may = self.budget.spend(peer as u32, self.now);
            errors[peer] += usize::from(may);
            assert!(errors[peer] <= most && errors.iter().sum::<usize>() <= total);
            assert!(may || errors[peer] >= reserve, "{errors:?}");
        }
        Ok(())
    }

    fn check(&self) {
        let flows = &self.model.flows;
        let pending = flows.values().filter(|it| it.pending.is_some());
        assert_eq!(self.admission.flows.taken() as usize, flows.len());
        assert_eq!(self.admission.pending.taken() as usize, pending.count());
        assert_eq!(self.counters.totals().dropped, self.model.dropped);
    }

    /// Nothing is left of flows that have ended.
    fn end(mut self) {
        for flow in std::mem::take(&mut self.model.flows).into_values() {
            self.table.end(flow.ends);
        }
        self.check();
        let limits = [FLOWS, PENDING].map(|it| it.peer);
        let ends = |port| Ends {
            peer: ([10, 8, 0, 1], port).into(),
            target: ([198, 51, 100, 1], 7).into(),
        };
        let none = Pending::default();
        let all = (1..=20).map_while(|port| self.admission.admit(ends(port), &none).ok());
        let all: Vec<_> = all.collect();
        assert_eq!(all.len(), limits[0].min(limits[1]) as usize);
    }
}

impl Model {
    /// Returns why a peer gets no more of some limits, given which flows count.
    fn refusal(
        &self,
        peer: usize,
        limits: Limits,
        counts: impl Fn(&Flow) -> bool,
    ) -> Option<Refusal> {
        let of = |peer| {
            let flows = self.flows.values();
            flows.filter(|it| it.peer == peer && counts(it)).count() as u32
        };
        let held = [of(0), of(1), of(2)];
        let reserve = limits.total / 2 / limits.peers;
        let beyond: u32 = held.iter().map(|it| it.saturating_sub(reserve)).sum();
        let common = limits.total - reserve * limits.peers;
        if held[peer] == limits.peer {
            Some(Refusal::TooManyOfPeer)
        } else if held[peer] >= reserve && beyond == common {
            Some(Refusal::TooMany)
        } else {
            None
        }
    }
}

fn message(content: u8) -> Message {
    Message {
        bytes: Waiting::default().hold(0, &[content], 0).unwrap(),
        hops: 64,
    }
}

fn pick<'a>(
    flows: &'a mut BTreeMap<String, Flow>,
    input: &mut Unstructured<'_>,
) -> Result<Option<&'a mut Flow>> {
    let index = input.int_in_range(0..=31)?;
    let count = flows.len().max(1);
    Ok(flows.values_mut().nth(index % count))
}
