//! Either end moves to another port, address and IP version while TCP runs in both directions; replies leave from the
//! address that was contacted.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use convoy_lab::eventually;

use super::{
    guest::PATIENCE,
    pair::{Pair, Role, for_each_role, right_v4},
};
use crate::{
    roaming::speak_until,
    scene::wg_dump,
    traffic::{SetOnDrop, tcp_between},
};

const BYTES: u64 = 20_000_000;
const PORT: u16 = 51_999;

for_each_role! {
    fn tcp_survives_convoy_roaming(role: Role) {
        let Some(pair) = Pair::new(role) else { return };
        let seen_at = |endpoint: &str| is_seen(endpoint, || pair.guest_dump(2));
        let left = &pair.left;
        let set = |lines: &str| {
            let request = format!("set=1\n{lines}\n\n");
            assert_eq!(left.daemon.request(&request).unwrap().trim(), "errno=0");
        };
        let link = left.namespace.link();
        under_tcp(&pair, |step| match step {
            1 => {
                set(&format!("listen_port={PORT}"));
                seen_at("10.9.0.1:51999");
            }
            2 => {
                link.remove_address("outside", "10.9.0.1/24").unwrap();
                link.add_address("outside", "10.9.0.7/24").unwrap();
                seen_at("10.9.0.7:51999");
            }
            _ => {
                link.remove_address("outside", "10.9.0.7/24").unwrap();
                let peer = hex::encode(pair.keys.public);
                let endpoint = "[fd09::2]:51820";
                // A datagram that arrived over IPv4 just before sets the endpoint back.
                until(|| {
                    set(&format!("public_key={peer}\nupdate_only=true\nendpoint={endpoint}"));
                    thread::sleep(Duration::from_millis(50));
                    (wg_dump(left, 1)[2] == endpoint).then_some(())
                });
                seen_at("[fd09::1]:51999");
            }
        });
    }

    fn tcp_survives_the_kernel_roaming(role: Role) {
        let Some(pair) = Pair::new(role) else { return };
        let seen_at = |endpoint: &str| is_seen(endpoint, || wg_dump(&pair.left, 1)[2].clone());
        under_tcp(&pair, |step| match step {
            1 => {
                pair.shell("wg set wg0 listen-port 51999");
                seen_at("10.9.0.2:51999");
            }
            2 => {
                pair.shell("ip address delete 10.9.0.2/24 dev outside; ip address add 10.9.0.7/24 dev outside");
                seen_at("10.9.0.7:51999");
            }
            _ => {
                let peer = pair.left.keys.public_base64();
                pair.shell("ip address delete 10.9.0.7/24 dev outside");
                until(|| {
                    pair.shell(&format!("wg set wg0 peer {peer} endpoint '[fd09::1]:51820'"));
                    (pair.guest_dump(2) == "[fd09::1]:51820").then_some(())
                });
                seen_at("[fd09::2]:51999");
            }
        });
    }

    fn replies_come_from_the_address_that_was_contacted(role: Role) {
        let Some(pair) = Pair::new(role) else { return };
        let (peer, kernel) = (pair.left.keys.public_base64(), hex::encode(pair.keys.public));
        for (address, endpoint) in
            [("10.9.0.22/24", "10.9.0.22:51820"), ("fd09::22/64", "[fd09::22]:51820")]
        {
            let link = pair.left.namespace.link();
            match role {
                Role::ConvoyToKernel => {
                    pair.shell(&format!("ip address add {address} dev outside"));
                    let request = format!("set=1\npublic_key={kernel}\nendpoint={endpoint}\n\n");
                    assert_eq!(pair.left.daemon.request(&request).unwrap().trim(), "errno=0");
                }
                Role::KernelToConvoy => {
                    link.add_address("outside", address).unwrap();
                    pair.shell(&format!("wg set wg0 peer {peer} endpoint '{endpoint}'"));
                }
            }
            pair.begin();
            let seen = match role {
                Role::ConvoyToKernel => wg_dump(&pair.left, 1)[2].clone(),
                Role::KernelToConvoy => pair.guest_dump(2),
            };
            assert_eq!(seen, endpoint);
        }
    }
}

/// Calls `step` with 1, 2 and 3 once that many quarters of the data have arrived in both directions.
fn under_tcp(pair: &Pair, step: impl Fn(u64)) {
    pair.begin();
    let (left, right) = (&pair.left.namespace, &pair.right);
    let done = AtomicBool::new(false);
    let (up, down) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let _end = SetOnDrop(&done);
        // A datagram overtaken during a move points the other end back until the next datagram.
        scope.spawn(|| speak_until(left, right_v4(), &done));
        scope.spawn(|| speak_until(right, pair.left.inner_v4(), &done));
        let transfers = [
            scope.spawn(|| tcp_between(left, right, right_v4(), BYTES, &up)),
            scope.spawn(|| tcp_between(right, left, pair.left.inner_v6(), BYTES, &down)),
        ];
        for quarter in 1..=3 {
            let enough = |count: &AtomicU64| count.load(Ordering::Relaxed) >= BYTES / 4 * quarter;
            let arrived = eventually(PATIENCE, || (enough(&up) && enough(&down)).then_some(()));
            assert!(arrived.is_some(), "TCP has stalled: {up:?} {down:?}");
            step(quarter);
        }
        transfers
            .into_iter()
            .for_each(|transfer| transfer.join().unwrap());
    });
}

fn is_seen(endpoint: &str, shown: impl Fn() -> String) {
    let seen = eventually(PATIENCE, || (shown() == endpoint).then_some(()));
    assert!(seen.is_some(), "seen at {}, not at {endpoint}", shown());
}

fn until(condition: impl FnMut() -> Option<()>) {
    assert!(eventually(PATIENCE, condition).is_some());
}
