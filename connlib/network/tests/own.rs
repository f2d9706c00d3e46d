//! The addresses of a host whose interfaces change.
//!
//! ```text
//!  host: lo, eth0 ── veth ── eth0: other
//! ```

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{net::SocketAddr, time::Duration};

use convoy_lab::{Lab, Namespace, require_root_lab};
use convoy_network::{counters::Refusal, own::Own, policy::Policy};
use tokio::time::{Instant, sleep};

const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn an_address_is_refused_from_when_it_is_added_until_it_is_deleted() {
    within("an_address_is_refused_from", async |host, policy| {
        for (address, target) in [
            ("192.0.2.7/24", "192.0.2.7"),
            ("2001:db8::7/64", "2001:db8::7"),
        ] {
            assert_eq!(policy.check(at(target)), Ok(()), "{target}");
            host.link().add_address("eth0", address).unwrap();
            until(policy, target, Err(Refusal::Forbidden)).await;
            let mapped = format!("64:ff9b::{target}");
            if target.contains('.') {
                assert_eq!(policy.check(at(&mapped)), Err(Refusal::Forbidden));
            }
            host.link().remove_address("eth0", address).unwrap();
            until(policy, target, Ok(())).await;
        }
    });
}

#[test]
fn what_a_network_is_broadcast_to_is_refused_with_it_but_neighbours_are_not() {
    within("what_a_network_is_broadcast_to", async |host, policy| {
        host.link().add_address("eth0", "192.0.2.7/25").unwrap();
        until(policy, "192.0.2.7", Err(Refusal::Forbidden)).await;
        until(policy, "192.0.2.127", Err(Refusal::Forbidden)).await;
        for neighbour in ["192.0.2.6", "192.0.2.8", "192.0.2.128", "192.0.2.255"] {
            assert_eq!(policy.check(at(neighbour)), Ok(()), "{neighbour}");
        }
    });
}

#[test]
fn addresses_vanish_with_their_interface() {
    within(
        "addresses_vanish_with_their_interface",
        async |host, policy| {
            let addresses = ["192.0.2.7/24", "2001:db8::7/64"];
            host.link().bring_up("eth0", 1500, &addresses).unwrap();
            until(policy, "192.0.2.7", Err(Refusal::Forbidden)).await;
            until(policy, "2001:db8::7", Err(Refusal::Forbidden)).await;
            host.link().remove("eth0").unwrap();
            until(policy, "192.0.2.7", Ok(())).await;
            until(policy, "2001:db8::7", Ok(())).await;
        },
    );
}

#[test]
fn a_network_that_a_route_makes_local_is_refused() {
    within(
        "a_network_that_a_route_makes_local",
        async |host, policy| {
            host.link().own_network("198.51.100.0/24").unwrap();
            until(policy, "198.51.100.200", Err(Refusal::Forbidden)).await;
            assert_eq!(policy.check(at("198.51.101.1")), Ok(()));
            let mut remove = host.command("ip");
            remove.args(["route", "delete", "local", "198.51.100.0/24", "dev", "lo"]);
            assert!(remove.status().unwrap().success());
            until(policy, "198.51.100.200", Ok(())).await;
        },
    );
}

#[test]
fn of_many_changes_at_once_none_is_missed() {
    within("of_many_changes_at_once", async |host, policy| {
        let addresses: Vec<_> = (0..2_000)
            .map(|n| format!("10.7.{}.{}/32", n / 250, n % 250))
            .collect();
        host.link().bring_up("eth0", 1500, &addresses).unwrap();
        for address in &addresses {
            let target = address.trim_end_matches("/32");
            until(policy, target, Err(Refusal::Forbidden)).await;
        }
    });
}

/// Runs a test in the namespace `host`, whose addresses the policy follows.
fn within(test: &str, body: impl AsyncFnOnce(&Namespace, &Policy) + Send) {
    if !require_root_lab(test) {
        return;
    }
    let lab = Lab::new().unwrap();
    let [host, other] = ["host", "other"].map(|label| lab.namespace(label).unwrap());
    lab.veth(&host, "eth0", &[], &other, "eth0", &[], 1500)
        .unwrap();
    let inside = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let policy = Policy {
                own: Own::follow().await.unwrap(),
                ..Policy::default()
            };
            body(&host, &policy).await;
        });
    };
    host.run(inside).unwrap();
}

async fn until(policy: &Policy, target: &str, expected: Result<(), Refusal>) {
    let end = Instant::now() + DEADLINE;
    while policy.check(at(target)) != expected {
        assert!(Instant::now() < end, "{target} is still not {expected:?}");
        sleep(Duration::from_millis(1)).await;
    }
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), 80)
}
