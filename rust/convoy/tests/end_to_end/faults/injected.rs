//! Errors of system calls, injected by `strace`.

use std::fs;

use convoy_lab::{require_programs, wireguard::End};

use super::{batches_sent, convoy_after, until};
use crate::{
    scene::{Pairing, Scene, output_of},
    stats::Stats,
    traffic::ping,
};

#[test]
fn a_batch_that_fails_with_eio_is_sent_one_by_one_until_routes_change() {
    let Some(mut scene) = scene("a send that fails with EIO") else {
        return;
    };
    // Few enough that one batch sent one by one uses them up: TCP waits longer after each isolated
    // loss.
    inject(&mut scene, "sendmsg", "EIO:when=200..219");
    let (left, right) = (&scene.left, &scene.right);
    batches_sent(left, right);
    let stats = Stats::of(left);
    let refused = stats.event("gso_refused_batches");
    assert!(refused > 0, "{stats:?}");
    // A refused batch loses nothing, a refused single datagram is lost; quinn-udp tries each twice.
    assert_eq!(2 * (refused + stats.lost_outbound()), injected(left));

    let route = ["route", "add", "192.0.2.0/24", "dev", "veth0"];
    output_of(&left.namespace, "ip", &route);
    until(left, "segmentation is tried again", |stats| {
        stats.number("gso_suspended_destinations") == 0
    });
    assert!(batches_sent(left, right) > 0);
}

/// quinn-udp then retries without them, and on its own would leave them out from then on.
#[test]
fn a_single_eio_does_not_cost_the_ecn_bits() {
    let Some(mut scene) = scene("a send that fails with EIO once") else {
        return;
    };
    inject(&mut scene, "sendmsg", "EIO:when=200");
    let (left, right) = (&scene.left, &scene.right);
    batches_sent(left, right);
    let trace = trace(left);
    let (before, after) = trace.split_once("(INJECTED)").unwrap();
    let with_bits = |trace: &str| trace.matches("cmsg_type=IP_TOS").count();
    assert!(with_bits(before) > 100);
    assert!(with_bits(after) > 50, "{}", with_bits(after));
    assert_eq!(Stats::of(left).lost_outbound(), 0);
}

#[test]
fn a_send_without_buffers_is_retried_three_times_then_dropped() {
    let Some(mut scene) = scene("a send that finds no buffers") else {
        return;
    };
    for (calls, tries) in [("200..202", 3), ("200..203", 3)] {
        inject(&mut scene, "sendmsg", &format!("ENOBUFS:when={calls}"));
        let (left, right) = (&scene.left, &scene.right);
        assert!(batches_sent(left, right) > 0);
        let stats = Stats::of(left);
        assert_eq!(stats.event("udp_send_put_off"), tries);
        let is_lost = injected(left) > tries;
        assert_eq!(stats.dropped("outbound_no_buffers") > 0, is_lost);
        assert_eq!(stats.lost_outbound(), stats.dropped("outbound_no_buffers"));
        assert_eq!(
            stats.event("gso_refused_batches"),
            0,
            "GSO must not be blamed"
        );
    }
}

#[test]
fn a_refused_coalesced_write_is_repeated_packet_by_packet() {
    let Some(mut scene) = scene("a refused coalesced write") else {
        return;
    };
    inject(&mut scene, "write", "EINVAL:when=100");
    let (left, right) = (&scene.left, &scene.right);
    while injected(left) == 0 {
        batches_sent(right, left);
    }
    let stats = Stats::of(left);
    let refused = stats.event("tun_refused_trains");
    // Two threads write, and each has its own counters.
    assert_eq!(
        refused + stats.dropped("inbound_write_failed"),
        injected(left)
    );
    let is_off = stats.state("tun_coalescing") == "off";
    assert_eq!(is_off, refused > 0);
    batches_sent(right, left);
}

#[test]
fn a_write_that_fails_with_eio_is_a_counted_drop_and_nothing_more() {
    let Some(mut scene) = scene("a write that fails with EIO") else {
        return;
    };
    inject(&mut scene, "write", "EIO:when=100..102");
    let (left, right) = (&scene.left, &scene.right);
    while injected(left) == 0 {
        batches_sent(right, left);
    }
    let stats = Stats::of(left);
    assert!(stats.dropped("inbound_write_failed") >= injected(left));
    assert_eq!(stats.state("tun_coalescing"), "on", "must not be blamed");
    assert!(stats.at_least(2, "packets_per_write") > 0);
}

fn scene(test: &str) -> Option<Scene> {
    if !require_programs(test, &["strace"]) {
        return None;
    }
    Scene::new(Pairing::ConvoyToConvoy)
}

/// Restarts the left daemon with an injected error in strace(1)'s syntax; of `write` calls, only
/// those to the TUN count.
fn inject(scene: &mut Scene, call: &str, error: &str) {
    let only = match call {
        "write" => "-P /dev/net/tun",
        _ => "",
    };
    let strace = "exec strace -D -f -qq --seccomp-bpf -o /var/run/trace -e signal=none";
    let before = format!("{strace} {only} -e trace={call} -e inject={call}:error={error}");
    let program = convoy_after(&scene.left.namespace, &before);
    scene.left.replace_daemon(&program).unwrap();
    // The other end must learn its endpoint.
    ping(&scene.left, scene.right.inner_v4());
}

/// Calls into which an error was injected.
fn injected(end: &End) -> u64 {
    trace(end).matches("(INJECTED)").count() as u64
}

fn trace(end: &End) -> String {
    fs::read_to_string(end.namespace.run_directory().join("trace")).unwrap()
}
