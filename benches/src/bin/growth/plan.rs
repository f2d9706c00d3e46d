//! Which tests run in which tunnels, and about how long that takes.

use std::time::Duration;

use convoy_benches::growth::{Tunnel, USUAL};

/// The largest is what an MTU of 1,420 takes whole, the one before what most programs send.
const SIZES: [u32; 6] = [64, 256, 512, 1_024, 1_200, 1_392];
const JUMBO_SIZES: [u32; 2] = [4_096, 8_192];
const STREAMS: [u32; 4] = [1, 4, 16, 64];
const MORE_PEERS: [u32; 3] = [100, 1_000, 10_000];
/// What every IPv6 link carries.
const LEAST_MTU: u32 = 1_280;
/// Over Ethernet with frames of 9,000 bytes.
const JUMBO_MTU: u32 = 8_920;

/// A process of the speed test: its namespaces, its TCP without a tunnel, its latency without load.
const SETTING_UP: Duration = Duration::from_millis(2_500);
/// Before a test's counted seconds: TCP begins slowly.
const TCP_WARMUP: Duration = Duration::from_millis(500);
/// A search for a rate: about 14 probes.
const UDP_SEARCH: Duration = Duration::from_secs(11);

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Every call is made once a round.
    pub(crate) rounds: u32,
    /// Counted seconds of a test.
    pub(crate) secs: u32,
    /// No two have the same tunnel.
    pub(crate) calls: Vec<Call>,
}

/// What one process of the speed test measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) tunnel: Tunnel,
    /// As the speed test names them.
    pub(crate) tests: Vec<String>,
}

impl Plan {
    /// Everything, in about eight minutes with three rounds.
    pub(crate) fn full(rounds: u32) -> Self {
        let usual = [tests("tcp-", &STREAMS), tests("udp-", &SIZES)].concat();
        let one_stream = || tests("tcp-", &[1]);
        let jumbo = [one_stream(), tests("udp-", &JUMBO_SIZES)].concat();
        let mut calls = vec![call(USUAL, usual)];
        calls.extend(MORE_PEERS.map(|peers| call(Tunnel { peers, ..USUAL }, one_stream())));
        calls.push(call(with_mtu(LEAST_MTU), one_stream()));
        calls.push(call(with_mtu(JUMBO_MTU), jumbo));
        Self {
            rounds,
            secs: 2,
            calls,
        }
    }

    /// A place or two on every axis, once, within half a minute.
    pub(crate) fn quick() -> Self {
        let usual = [tests("tcp-", &[1, 4]), tests("udp-", &[1_200])].concat();
        let many = Tunnel {
            peers: 100,
            ..USUAL
        };
        Self {
            rounds: 1,
            secs: 1,
            calls: vec![
                call(USUAL, usual),
                call(many, tests("tcp-", &[1])),
                call(with_mtu(JUMBO_MTU), tests("tcp-", &[1])),
            ],
        }
    }

    /// About how long it takes.
    pub(crate) fn planned(&self) -> Duration {
        let counted = Duration::from_secs(self.secs.into());
        let test = |name: &String| match name.starts_with("udp-") {
            true => UDP_SEARCH + counted,
            false => TCP_WARMUP + counted,
        };
        let call = |call: &Call| {
            let tests: Duration = call.tests.iter().map(test).sum();
            SETTING_UP + counted + tests
        };
        self.calls.iter().map(call).sum::<Duration>() * self.rounds
    }
}

impl Call {
    /// The speed test's arguments.
    pub(crate) fn arguments(&self, secs: u32) -> Vec<String> {
        let Tunnel { mtu, peers } = self.tunnel;
        let options = [("--mtu", mtu), ("--peers", peers), ("--secs", secs)];
        let options = options.map(|(option, value)| [option.to_owned(), value.to_string()]);
        let tests = ["--tests".to_owned(), self.tests.join(",")];
        [options.concat(), tests.to_vec()].concat()
    }
}

fn call(tunnel: Tunnel, tests: Vec<String>) -> Call {
    Call { tunnel, tests }
}

fn with_mtu(mtu: u32) -> Tunnel {
    Tunnel { mtu, ..USUAL }
}

fn tests(kind: &str, numbers: &[u32]) -> Vec<String> {
    let numbers = numbers.iter();
    numbers.map(|number| format!("{kind}{number}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_takes_five_to_eight_minutes_and_a_trial_half_a_one() {
        let minutes = Plan::full(3).planned().as_secs_f64() / 60.0;
        assert!((5.0..8.0).contains(&minutes), "{minutes}");
        assert!(Plan::quick().planned() <= Duration::from_secs(30));
    }

    #[test]
    fn each_tunnel_is_measured_by_one_process() {
        for Plan { calls, .. } in [Plan::full(1), Plan::quick()] {
            for (number, call) in calls.iter().enumerate() {
                let before = &calls[..number];
                assert!(before.iter().all(|other| other.tunnel != call.tunnel));
            }
        }
    }

    #[test]
    fn one_stream_is_measured_in_every_tunnel() {
        let calls = Plan::full(3).calls;
        let tunnels: Vec<_> = calls.iter().map(|call| call.tunnel).collect();
        assert!(
            calls
                .iter()
                .all(|call| call.tests.contains(&"tcp-1".to_owned()))
        );
        let peers = |peers| tunnels.contains(&Tunnel { peers, ..USUAL });
        assert!([1, 100, 1_000, 10_000].into_iter().all(peers));
        let mtu = |mtu| tunnels.contains(&with_mtu(mtu));
        assert!([1_280, 1_420, 8_920].into_iter().all(mtu));
    }

    #[test]
    fn a_call_is_told_the_tunnel_and_its_tests() {
        let jumbo = Plan::full(3).calls.pop().unwrap();
        let arguments = jumbo.arguments(2).join(" ");
        assert_eq!(
            arguments,
            "--mtu 8920 --peers 1 --secs 2 --tests tcp-1,udp-4096,udp-8192"
        );
    }
}
