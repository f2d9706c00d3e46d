//! The path to a peer gets narrow, or disappears for a while.

use std::{
    net::{IpAddr, Ipv6Addr},
    thread,
    time::Duration,
};

use convoy_lab::{eventually, wireguard::End};
use nix::sys::signal::Signal;

use super::{batches_sent, carry, ends, send_into_the_tunnel, until};
use crate::{
    hub::forward,
    pairing::Program::Convoy,
    scene::{DEADLINE, Pairing, Scene, convoy, lab_with, output_of, wg_dump},
    star::Star,
    stats::Stats,
    sticky::contact_at,
    traffic::{answers_of, during_tcp, ping},
};

#[test]
fn a_narrow_route_suspends_segmentation_for_its_own_peer_only() {
    let Some(star) = Star::new(Convoy, &[Convoy; 2]) else {
        return;
    };
    let (hub, narrow, wide) = (&star.hub, &star.spokes[0], &star.spokes[1]);
    assert!(batches_sent(hub, narrow) > 0);
    assert_eq!(Stats::of(hub).event("gso_refused_batches"), 0);

    set_route_mtu(hub, "1280");
    // News of the change may come after the first refusal, and lets segmentation be tried once more.
    let is_felt = || {
        let is_fragmented = batches_sent(hub, narrow) == 0;
        let suspended = Stats::of(hub).number("gso_suspended_destinations");
        (is_fragmented && suspended == 1).then_some(())
    };
    let is_felt = eventually(DEADLINE, is_felt);
    assert!(is_felt.is_some(), "the kernel must fragment");
    let refused = Stats::of(hub).event("gso_refused_batches");
    assert!(refused > 0);
    assert!(
        batches_sent(hub, wide) > 0,
        "the other peer must be unaffected"
    );

    // Zero means the interface's MTU.
    set_route_mtu(hub, "0");
    until(hub, "segmentation is tried again", |stats| {
        stats.number("gso_suspended_destinations") == 0
    });
    assert!(batches_sent(hub, narrow) > 0);
    let stats = Stats::of(hub);
    assert_eq!(stats.event("gso_refused_batches"), refused);
    assert_eq!(stats.event("udp_sources_lost"), 0, "not to blame");
    assert_eq!((stats.lost_outbound(), stats.state("gso")), (0, "on"));
}

/// The hop fragments, so nobody needs to learn that it is narrow.
#[test]
fn batches_go_through_a_narrow_ipv4_hop() {
    let Some((left, right, _lab)) = around_a_narrow_hop(|n, host| [10, 9, n, host].into(), 16)
    else {
        return;
    };
    assert!(batches_sent(&left, &right) > 0);
    let stats = Stats::of(&left);
    assert_eq!(stats.event("gso_refused_batches"), 0);
    assert_eq!(stats.lost_outbound(), 0);
}

/// The hop reports that it is narrow and drops a datagram. Then the sender fragments.
#[test]
fn tcp_goes_through_a_narrow_ipv6_hop() {
    let address =
        |n: u8, host: u8| Ipv6Addr::new(0xfd09, 0, 0, n.into(), 0, 0, 0, host.into()).into();
    let Some((left, right, _lab)) = around_a_narrow_hop(address, 32) else {
        return;
    };
    for (from, to) in [(&left, &right), (&right, &left)] {
        carry(from, to);
        assert_eq!(Stats::of(from).lost_outbound(), 0);
    }
    assert!(Stats::of(&left).event("gso_refused_batches") > 0);
}

#[test]
fn a_source_address_that_is_gone_costs_neither_segmentation_nor_a_handshake() {
    let Some(mut scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let address = "10.9.0.22/24";
    let link = scene.right.namespace.link();
    link.add_address("veth0", address).unwrap();
    // Adding the address changes routes, upon which the daemon may forget its source once.
    let is_kept = eventually(DEADLINE, || {
        contact_at(&mut scene, "10.9.0.22:51820");
        ping(&scene.left, scene.right.inner_v4());
        thread::sleep(Duration::from_millis(200));
        ping(&scene.right, scene.left.inner_v4());
        (wg_dump(&scene.left, 1)[2] == "10.9.0.22:51820").then_some(())
    });
    assert!(is_kept.is_some());
    let (left, right) = (&scene.left, &scene.right);
    let handshakes = Stats::of(right).handshakes();
    during_tcp(right, left, 1, |_| {
        // While stopped, the daemon cannot learn this from rtnetlink before it must send.
        right.daemon.signal(Signal::SIGSTOP).unwrap();
        send_into_the_tunnel(right, left, 10);
        let link = right.namespace.link();
        link.remove_address("veth0", address).unwrap();
        right.daemon.signal(Signal::SIGCONT).unwrap();
        until(right, "the source is lost", |stats| {
            stats.event("udp_sources_lost") > 0
        });
    });
    let stats = Stats::of(right);
    assert_eq!(stats.event("gso_refused_batches"), 0, "not to blame");
    assert_eq!(stats.lost_outbound(), 0);
    assert_eq!(stats.handshakes(), handshakes, "the session must survive");
    assert_eq!(wg_dump(left, 1)[2], "10.9.0.2:51820");
    assert!(batches_sent(right, left) > 0);
}

#[test]
fn a_network_outage_costs_counted_drops_but_no_session() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    during_tcp(left, right, 3, |_| {
        let link = left.namespace.link();
        let before = Stats::of(left).dropped("outbound_send_failed");
        link.remove_address("veth0", "10.9.0.1/24").unwrap();
        until(left, "the network is gone", |stats| {
            stats.dropped("outbound_send_failed") > before
        });
        link.add_address("veth0", "10.9.0.1/24").unwrap();
    });
    went_on_as_before(left, right);
}

#[test]
fn a_cable_pulled_repeatedly_under_tcp_does_not_cost_the_session() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    during_tcp(left, right, 4, |step| {
        // With the near end down the kernel has no route; with the far end down it drops on send.
        let (end, lost): (_, fn(&End) -> u64) = match step % 2 {
            1 => (left, |left| Stats::of(left).dropped("outbound_send_failed")),
            _ => (right, dropped_by_the_cable),
        };
        let before = lost(left);
        end.namespace.link().set_down("veth0").unwrap();
        let look = || (lost(left) > before).then_some(());
        let is_felt = eventually(DEADLINE, look);
        end.namespace.link().set_up("veth0").unwrap();
        assert!(is_felt.is_some(), "step {step} lost nothing");
    });
    went_on_as_before(left, right);
}

/// Two ends and a hop between them; one side of the hop has an MTU of 1,280.
///
/// ```text
///   left n=1 ── 1,500 bytes ── hop ── 1,280 bytes ── n=2 right
/// ```
fn around_a_narrow_hop(
    address: impl Fn(u8, u8) -> IpAddr,
    prefix: u8,
) -> Option<(End, End, impl Sized)> {
    let (turn, lab) = lab_with(&[Convoy], &["wg", "ping"])?;
    let [left, hop, right] = ["left", "hop", "right"].map(|label| lab.namespace(label).unwrap());
    forward(&hop);
    for (end, name, n, mtu) in [(&left, "veth1", 1, 1_500), (&right, "veth2", 2, 1_280)] {
        let length = if prefix == 16 { 24 } else { 64 };
        let [near, far] = [n, 9].map(|host| format!("{}/{length}", address(n, host)));
        lab.veth(end, "veth0", &[&near], &hop, name, &[&far], mtu)
            .unwrap();
        let everything = format!("{}/{prefix}", address(0, 0));
        let link = end.link();
        link.add_route_through(&everything, address(n, 9)).unwrap();
    }
    let (left, right) = ends(&left, &convoy(), &right, address(2, 2));
    let is_answered = || answers_of(&left, right.inner_v4(), 1_420).then_some(());
    assert!(eventually(DEADLINE, is_answered).is_some());
    Some((left, right, (lab, turn)))
}

fn went_on_as_before(left: &End, right: &End) {
    let stats = Stats::of(left);
    assert_eq!(stats.handshakes(), 1, "the session must survive");
    assert_eq!(stats.event("gso_refused_batches"), 0, "not to blame");
    assert!(batches_sent(left, right) > 0);
    let lost = stats.dropped("outbound_send_failed");
    assert_eq!(
        Stats::of(left).lost_outbound(),
        lost,
        "nothing else may be lost"
    );
}

fn dropped_by_the_cable(left: &End) -> u64 {
    left.namespace.link().statistics("veth0").unwrap().sent_drop
}

/// Sets the MTU of the hub's route to its first spoke.
fn set_route_mtu(hub: &End, mtu: &str) {
    let route = "route replace 10.9.2.0/24 dev veth2 proto kernel scope link src 10.9.2.1 mtu";
    let arguments: Vec<_> = route.split(' ').chain([mtu]).collect();
    output_of(&hub.namespace, "ip", &arguments);
}
