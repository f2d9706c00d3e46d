//! The data thread while a large configuration is listed and changed, and while all peers shake hands.
//!
//! Each test prints the CPU time of the daemon's ticks and, if pings pass meanwhile, their times. A debug
//! build runs small tests with generous limits. For the figures of a release build:
//!
//! ```text
//! CONVOY_TEST_PROGRAM=$PWD/target/release/convoy cargo test -p convoy --test end_to_end -- \
//!     --ignored --nocapture --test-threads=1 scale::ticks
//! ```

use std::{
    env,
    fmt::Write,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use convoy_lab::{
    Turn,
    measure::counters,
    wireguard::{Daemon, End, Underlay},
};

use super::crowd::Crowd;
use crate::{
    scene::{Pairing, Scene, output_of},
    traffic::ping,
    twins::ask,
};

/// In units of the histogram, 100 µs: what a tick of a release build may take.
const LIMIT: usize = 20;
/// The last bucket, for 6.4 ms and more: what a tick of a debug build may take.
const DEBUG_LIMIT: usize = 64;

#[test]
fn a_tick_is_short_while_many_peers_are_listed_and_replaced() {
    many_peers(2_000, Duration::from_secs(1), DEBUG_LIMIT);
}

#[test]
#[ignore = "needs a release build"]
fn a_tick_of_a_release_build_is_short_while_ten_thousand_peers_are_listed_and_replaced() {
    many_peers(10_000, Duration::from_secs(6), LIMIT);
}

#[test]
fn a_tick_is_short_while_one_peer_with_many_allowed_ips_is_listed_and_replaced() {
    one_busy_peer(30_000, Duration::from_secs(1), DEBUG_LIMIT);
}

#[test]
#[ignore = "needs a release build"]
fn a_tick_of_a_release_build_is_short_while_one_peer_has_130_000_allowed_ips() {
    one_busy_peer(130_000, Duration::from_secs(6), LIMIT);
}

#[test]
fn a_tick_is_short_while_all_peers_shake_hands() {
    all_shake_hands(200, DEBUG_LIMIT);
}

#[test]
#[ignore = "needs a release build"]
fn a_tick_of_a_release_build_is_short_while_a_thousand_peers_shake_hands() {
    all_shake_hands(1_000, LIMIT);
}

#[test]
#[ignore = "needs a release build"]
fn a_tick_of_a_release_build_is_short_while_eight_thousand_peers_shake_hands() {
    all_shake_hands(8_000, LIMIT);
}

fn many_peers(count: usize, pings: Duration, limit: usize) {
    let _alone = Turn::alone("it judges how long ticks take");
    let Some(scene) = scene(limit) else { return };
    let daemon = &scene.right.daemon;
    let mut peers = String::new();
    for peer in 0..count {
        writeln!(peers, "public_key={}", super::key(peer)).unwrap();
        peers.push_str(&networks(peer * 13..(peer + 1) * 13));
    }
    let with_all = format!("{}\n{peers}\n", own(&scene).trim_end_matches('\n'));
    let what = format!("{count} peers with 13 allowed IPs each");
    replaced_and_listed(&scene, &what, &with_all, pings, limit);
    watched(daemon, "link down and up", limit, || {
        scene.right.namespace.link().set_down("wg0").unwrap();
        scene.right.namespace.link().set_up("wg0").unwrap();
        ping(&scene.right, scene.left.inner_v4());
    });
}

fn one_busy_peer(count: usize, pings: Duration, limit: usize) {
    let _alone = Turn::alone("it judges how long ticks take");
    let Some(scene) = scene(limit) else { return };
    let own = own(&scene);
    let (key, networks) = (super::key(0), networks(0..count));
    let with_all = format!(
        "{}\npublic_key={key}\n{networks}\n",
        own.trim_end_matches('\n')
    );
    let what = format!("one peer with {count} allowed IPs");
    replaced_and_listed(&scene, &what, &with_all, pings, limit);
    set(&scene.right.daemon, &with_all);
    for (what, change) in [
        (
            "replace the allowed IPs",
            "replace_allowed_ips=true\nallowed_ip=192.0.2.0/24",
        ),
        ("remove the peer", "remove=true"),
    ] {
        watched(&scene.right.daemon, what, limit, || {
            set(&scene.right.daemon, &with_all);
            let change = format!("set=1\npublic_key={key}\n{change}\n\n");
            set(&scene.right.daemon, &change);
        });
    }
}

/// Sets the configuration, lists it without a pause while pings pass, and replaces it.
fn replaced_and_listed(scene: &Scene, what: &str, with_all: &str, pings: Duration, limit: usize) {
    let (left, hub) = (&scene.left, &scene.right);
    let daemon = &hub.daemon;
    println!("{what}");
    println!("  quiet: {}", pinged(left, hub, pings / 3));
    let own = own(scene);
    watched(daemon, "set", limit, || set(daemon, with_all));
    // This has ended the hub's session, which the other end does not know.
    ping(hub, left.inner_v4());
    watched(daemon, "listed without a pause", limit, || {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let lister = scope.spawn(|| {
                let mut listings = 0;
                while !is_over.load(Ordering::Relaxed) {
                    assert!(ask(daemon, b"get=1\n\n").ends_with(b"errno=0\n\n"));
                    listings += 1;
                }
                listings
            });
            let times = pinged(left, hub, pings);
            is_over.store(true, Ordering::Relaxed);
            println!("  {times}, {} listings", lister.join().unwrap());
        });
    });
    watched(
        daemon,
        "replaced by itself, by one peer, and back",
        limit,
        || {
            for request in [with_all, &own, with_all] {
                set(daemon, request);
            }
        },
    );
    ping(hub, left.inner_v4());
}

fn all_shake_hands(count: usize, limit: usize) {
    let _alone = Turn::alone("it judges how long ticks take");
    let Some(scene) = scene(limit) else { return };
    let hub = &scene.right;
    let mut crowd = Crowd::new(&scene, count);
    set(&hub.daemon, &crowd.as_peers());
    watched(
        &hub.daemon,
        &format!("{count} peers begin a handshake"),
        limit,
        || {
            crowd.begin();
            crowd.run_until_all_have_handshakes(1);
        },
    );
    hub.namespace.link().set_down("wg0").unwrap();
    set(&hub.daemon, &crowd.as_peers_to_keep_alive());
    watched(&hub.daemon, "the daemon begins them", limit, || {
        hub.namespace.link().set_up("wg0").unwrap();
        crowd.run_until_all_have_handshakes(2);
    });
}

/// The hub's own configuration, from which it can begin a handshake.
fn own(scene: &Scene) -> String {
    let mut config = scene.right.config.clone();
    config.peers[0].endpoint = Some(scene.left.outer(Underlay::V4));
    config.to_string()
}

/// Two daemons with a session; `None` if the limit of a release build would meet another build.
fn scene(limit: usize) -> Option<Scene> {
    if limit == LIMIT && env::var_os("CONVOY_TEST_PROGRAM").is_none() {
        eprintln!("skipped: CONVOY_TEST_PROGRAM does not name a release build");
        return None;
    }
    let scene = Scene::new(Pairing::ConvoyToConvoy)?;
    ping(&scene.left, scene.right.inner_v4());
    Some(scene)
}

fn set(daemon: &Daemon, request: &str) {
    let answer = ask(daemon, request.as_bytes());
    assert_eq!(String::from_utf8_lossy(&answer), "errno=0\n\n");
}

/// Lines of a request with networks that no test sends to.
fn networks(numbers: impl Iterator<Item = usize>) -> String {
    numbers
        .map(|n| {
            format!(
                "allowed_ip=11.{}.{}.{}/32\n",
                n >> 16,
                n >> 8 & 255,
                n & 255
            )
        })
        .collect()
}

/// Prints the CPU time of the daemon's ticks during `work`, and asserts that no tick reached the limit.
fn watched(daemon: &Daemon, what: &str, limit: usize, work: impl FnOnce()) {
    let before = ticks(daemon);
    work();
    let after = ticks(daemon);
    let counts: Vec<_> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
    let from = |bound: usize| counts[bound..].iter().sum::<u64>();
    let longest = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
    println!(
        "  {what}: {} ticks; of 0.5 ms and more: {}, 1 ms: {}, 1.5 ms: {}, 2 ms: {}; the longest {:.1} ms and more",
        from(0),
        from(5),
        from(10),
        from(15),
        from(20),
        longest as f64 / 10.0
    );
    assert_eq!(from(limit), 0, "{what}: {counts:?}");
}

/// The histogram of the CPU time of ticks.
fn ticks(daemon: &Daemon) -> Vec<u64> {
    let mut counters = counters(daemon).unwrap().unwrap();
    counters.histograms.remove("cpu_time_per_tick").unwrap()
}

/// Pings every millisecond; returns the times as text.
fn pinged(from: &End, to: &End, time: Duration) -> String {
    let count = time.as_millis().to_string();
    let to = to.inner_v4().to_string();
    let said = output_of(
        &from.namespace,
        "ping",
        &["-n", "-i0.001", "-c", &count, "-W1", &to],
    );
    let times = said.lines().filter_map(|line| line.split_once("time="));
    let mut times: Vec<f64> = times
        .map(|(_, time)| time.trim_end_matches(" ms").parse().unwrap())
        .collect();
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    format!(
        "{} of {count} pings answered, p50 {}, p99 {}, worst {} ms",
        times.len(),
        at(50),
        at(99),
        at(100)
    )
}
