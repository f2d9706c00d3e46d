//! Many peers and many allowed IPs. Each test prints its times and memory but asserts only a generous
//! limit: benches measure speed.

mod crowd;
mod ticks;

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use convoy_lab::measure::counters;

use convoy_lab::Turn;

use crate::{
    scene::{Bed, output_of},
    twins::ask,
};

const PEERS: usize = 10_000;
const ALLOWED_IPS: usize = 130_000;

/// A hundred times the usual time.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn ten_thousand_peers_are_set_and_listed() {
    let _alone = Turn::alone("it reports durations");
    let Some(bed) = Bed::new() else { return };
    let before = bed.resident();
    let mut request = "set=1\nprivate_key=".to_owned() + &"11".repeat(32) + "\nlisten_port=51820\n";
    for peer in 0..PEERS {
        let key = key(peer);
        let (high, low) = (peer / 256, peer % 256);
        writeln!(request, "public_key={key}\nallowed_ip=10.{high}.{low}.0/24").unwrap();
    }
    request.push('\n');
    bed.timed("set 10,000 peers", || bed.set(&request));
    let after = bed.resident();
    let each = (after - before) * 1024 / PEERS as u64;
    println!("memory: {before} KiB without peers, {after} KiB with 10,000: {each} bytes a peer");

    let listing = bed.timed("list 10,000 peers", || bed.listing());
    assert_eq!(listing.matches("\npublic_key=").count(), PEERS);
    let shown = bed.timed("wg show", || {
        output_of(&bed.namespace, "wg", &["show", "wg0"])
    });
    assert_eq!(shown.matches("\npeer: ").count(), PEERS);
    bed.timed("set 10,000 peers again", || bed.set(&request));
    let change = format!("set=1\npublic_key={}\nallowed_ip=192.0.2.0/24\n\n", key(7));
    bed.timed("change one of 10,000 peers", || bed.set(&change));
    bed.namespace.link().set_up("wg0").unwrap();
    bed.namespace.link().set_down("wg0").unwrap();
    bed.timed("remove 10,000 peers", || {
        bed.set("set=1\nreplace_peers=true\n\n")
    });
    assert!(!bed.listing().contains("public_key"));
    let counted = counters(&bed.daemon).unwrap().unwrap();
    let ticks = &counted.histograms["cpu_time_per_tick"];
    let longer = |bound: usize| ticks[bound..].iter().sum::<u64>();
    println!(
        "ticks of 1 ms: {}, of 2 ms and more: {}",
        longer(10),
        longer(20)
    );
}

#[test]
fn a_hundred_and_thirty_thousand_allowed_ips_are_set_and_listed() {
    let _alone = Turn::alone("it reports durations");
    let Some(bed) = Bed::new() else { return };
    // In an order that does not suit a tree.
    let networks: Vec<_> = (0..ALLOWED_IPS)
        .map(|n| n * 48_271 % ALLOWED_IPS)
        .map(|n| {
            format!(
                "allowed_ip=10.{}.{}.{}/32\n",
                n >> 16,
                n >> 8 & 255,
                n & 255
            )
        })
        .collect();
    let give = |peer, networks: &[String]| {
        let lines: String = networks.concat();
        format!("set=1\npublic_key={}\n{lines}\n", key(peer))
    };
    let of_first = |listing: &str| {
        let allowed_ips = listing.split("\npublic_key=").nth(1).unwrap().lines();
        let allowed_ips = allowed_ips.filter(|line| line.starts_with("allowed_ip="));
        allowed_ips
            .map(|line| format!("{line}\n"))
            .collect::<Vec<_>>()
    };
    bed.timed("set 130,000 allowed IPs of one peer", || {
        bed.set(&give(0, &networks));
    });
    let listing = bed.timed("list them", || bed.listing());
    assert!(
        of_first(&listing) == networks,
        "the order of the listing differs"
    );
    let moved: Vec<_> = networks.iter().rev().step_by(2).cloned().collect();
    bed.timed("move half of them to another peer", || {
        bed.set(&give(1, &moved));
    });
    let kept: Vec<_> = networks.iter().step_by(2).cloned().collect();
    assert!(
        of_first(&bed.listing()) == kept,
        "networks that were not moved are gone"
    );
    let removals: Vec<_> = kept.iter().map(|line| line.replace('=', "=-")).collect();
    bed.timed("remove the rest one by one", || {
        bed.set(&give(0, &removals));
    });
    assert!(of_first(&bed.listing()).is_empty());

    let spread: String = (0..PEERS)
        .map(|peer| {
            let own = &networks[peer * 13..][..13];
            format!(
                "public_key={}\nreplace_allowed_ips=true\n{}",
                key(peer),
                own.concat()
            )
        })
        .collect();
    bed.timed("set 13 allowed IPs of each of 10,000 peers", || {
        bed.set(&format!("set=1\n{spread}\n"));
    });
    let listing = bed.timed("list them", || bed.listing());
    assert_eq!(listing.matches("\nallowed_ip=").count(), ALLOWED_IPS);
}

impl Bed {
    fn set(&self, request: &str) {
        let answer = ask(&self.daemon, request.as_bytes());
        assert_eq!(String::from_utf8_lossy(&answer), "errno=0\n\n");
    }

    /// The listing with a line feed before every line, the first one too.
    fn listing(&self) -> String {
        let answer = ask(&self.daemon, b"get=1\n\n");
        format!("\n{}", String::from_utf8(answer).unwrap())
    }

    fn timed<T>(&self, what: &str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let outcome = work();
        let took = start.elapsed();
        println!("{what}: {} ms", took.as_millis());
        assert!(took < PATIENCE, "{what} took {took:?}");
        outcome
    }
}

/// A peer's public key: any bytes will do.
fn key(peer: usize) -> String {
    format!("{:064x}", (peer + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
