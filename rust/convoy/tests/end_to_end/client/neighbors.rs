//! Docker beside a tunnel: its rules, its bridge, and containers there.
//!
//! ```text
//!  containers            client
//!   eth0 172.17.0.2 ──┬── docker0 172.17.0.1 ──┬── wg0
//!   eth0 172.17.0.3 ──┘                        └── eth0
//! ```

use std::process::{ExitStatus, Stdio};

use convoy_lab::{Namespace, eventually};

use super::{
    capture::{Capture, Seen},
    process::kill_all,
    world::{BEHIND, EVERYTHING, World},
};
use crate::scene::DEADLINE;

const CLOSED: &str = "#convoy: KillSwitch = on\n";
/// In the net, not behind the tunnel.
const OUTSIDE: &str = "203.0.113.254";
const BRIDGE: &str = "172.17.0.1";

/// Rules that dockerd loads by iptables-nft(8) for its default bridge and a published port, in the words of nft(8).
const RULES: &str = "
    table ip nat {
        chain DOCKER {
            iifname docker0 return
            iifname != docker0 tcp dport 8080 dnat to 172.17.0.2:80
        }
        chain PREROUTING {
            type nat hook prerouting priority -100; policy accept;
            fib daddr type local jump DOCKER
        }
        chain OUTPUT {
            type nat hook output priority -100; policy accept;
            ip daddr != 127.0.0.0/8 fib daddr type local jump DOCKER
        }
        chain POSTROUTING {
            type nat hook postrouting priority 100; policy accept;
            oifname != docker0 ip saddr 172.17.0.0/16 masquerade
            ip saddr 172.17.0.2 ip daddr 172.17.0.2 tcp dport 80 masquerade
        }
    }
    table ip filter {
        chain DOCKER {
            iifname != docker0 oifname docker0 ip daddr 172.17.0.2 tcp dport 80 accept
        }
        chain DOCKER-USER {
            return
        }
        chain DOCKER-ISOLATION-STAGE-2 {
            oifname docker0 drop
            return
        }
        chain DOCKER-ISOLATION-STAGE-1 {
            iifname docker0 oifname != docker0 jump DOCKER-ISOLATION-STAGE-2
            return
        }
        chain FORWARD {
            type filter hook forward priority 0; policy drop;
            jump DOCKER-USER
            jump DOCKER-ISOLATION-STAGE-1
            oifname docker0 ct state related,established accept
            oifname docker0 jump DOCKER
            iifname docker0 oifname != docker0 accept
            iifname docker0 oifname docker0 accept
        }
    }";

#[test]
fn containers_reach_the_world_through_the_tunnel_and_not_without_it() {
    let Some(world) = World::new() else { return };
    world.configure(CLOSED, EVERYTHING);
    let [container, _] = docker(&world);
    let (before, rules) = (world.dump(), rules(&world));
    let capture = Capture::new(&world);
    reaches(&container, OUTSIDE);
    capture.until(is_leak);

    world.up();
    capture.seen();
    reaches(&container, BEHIND[0]);
    assert!(
        !answers(&container, &[OUTSIDE]),
        "it is not behind the tunnel"
    );
    leaks_nothing(&capture, "up");
    assert_eq!(self::rules(&world), rules);

    kill_all(&world);
    let targets = [BEHIND[0], OUTSIDE];
    assert!(!answers(&container, &targets));
    // So that only the kill switch is left.
    let delete = "ip rule delete not fwmark 51820 table 51820";
    world.shell(&format!("{delete} suppress_prefixlength 0; {delete}"));
    assert!(world.shell("ip route get 198.51.100.1").contains("eth0"));
    assert!(!answers(&container, &targets));
    leaks_nothing(&capture, "killed");

    world.up();
    reaches(&container, BEHIND[0]);
    leaks_nothing(&capture, "up again");
    assert_eq!(self::rules(&world), rules);
    world.down();
    world.is_left_as(&before);
    assert_eq!(self::rules(&world), rules);
    reaches(&container, OUTSIDE);
    capture.until(is_leak);
}

#[test]
fn without_a_kill_switch_containers_go_through_the_tunnel_too() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    let [container, other] = docker(&world);
    let (before, rules) = (world.dump(), rules(&world));
    world.up();
    for to in [BEHIND[0], BRIDGE, "172.17.0.3"] {
        reaches(&container, to);
    }
    reaches(&other, "172.17.0.2");
    let capture = Capture::new(&world);
    reaches(&container, BEHIND[0]);
    leaks_nothing(&capture, "up");
    assert_eq!(self::rules(&world), rules);
    world.down();
    world.is_left_as(&before);
}

#[test]
fn a_closed_kill_switch_lets_containers_and_host_talk_only_if_the_local_network_is_allowed() {
    let Some(world) = World::new() else { return };
    world.configure(CLOSED, EVERYTHING);
    world.up();
    // Docker starts later.
    let [container, other] = docker(&world);
    reaches(&container, BEHIND[0]);
    assert!(!answers(&container, &[BRIDGE]));
    assert!(!world.answers("172.17.0.2"));
    world.down();

    world.configure(&format!("{CLOSED}#convoy: AllowLAN = yes\n"), EVERYTHING);
    world.up();
    for to in [BEHIND[0], BRIDGE, "172.17.0.3", "192.168.1.1"] {
        reaches(&container, to);
    }
    reaches(&other, "172.17.0.2");
    world.reaches("172.17.0.2");
    assert!(
        !answers(&container, &[OUTSIDE]),
        "it is not behind the tunnel"
    );
    // Another of Docker's networks.
    world.shell("ip link add br-a type bridge; ip address add 172.18.0.1/16 dev br-a");
    world.shell("ip link set br-a up; ip link set veth1 master br-a");
    let inside = |line: &str| {
        let output = other.command("sh").args(["-ec", line]).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    };
    inside("ip address add 172.18.0.2/16 dev eth0");
    reaches(&other, "172.18.0.1");
    world.reaches("172.18.0.2");
}

/// Makes the bridge with two containers, and loads the rules.
fn docker(world: &World) -> [Namespace; 2] {
    world.shell(&format!(
        "echo 1 > /proc/sys/net/ipv4/ip_forward; ip link add docker0 type bridge
         ip address add {BRIDGE}/16 dev docker0; ip link set docker0 up; echo '{RULES}' | nft -f -"
    ));
    let containers = [0, 1].map(|number| {
        let container = world.lab().namespace("container").unwrap();
        let (port, address) = (
            format!("veth{number}"),
            format!("172.17.0.{}/16", number + 2),
        );
        let near = (&world.client, port.as_str());
        let lab = world.lab();
        lab.veth(near.0, near.1, &[], &container, "eth0", &[&address], 1_500)
            .unwrap();
        world.shell(&format!("ip link set {port} master docker0"));
        let bridge = BRIDGE.parse().unwrap();
        container
            .link()
            .add_route_through("default", bridge)
            .unwrap();
        container
    });
    // The kernel notices the carriers late.
    let is_up = || {
        let links = world.shell("ip -o link show type bridge; ip -o link show type veth");
        (links.matches("state UP").count() == 4).then_some(())
    };
    assert!(eventually(DEADLINE, is_up).is_some());
    containers
}

/// Docker's rules, as they are now.
fn rules(world: &World) -> String {
    world.shell("nft list table ip nat; nft list table ip filter")
}

/// Returns whether one ping of a container's to any of these is answered within a second.
fn answers(container: &Namespace, addresses: &[&str]) -> bool {
    let ping = |address: &&str| {
        let mut ping = container.command("ping");
        let ping = ping.args(["-q", "-n", "-c1", "-W1", *address]);
        ping.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    let pings: Vec<_> = addresses.iter().map(ping).collect();
    let ends = pings.into_iter().map(|ping| ping.unwrap().wait().unwrap());
    ends.filter(ExitStatus::success).count() > 0
}

fn reaches(container: &Namespace, address: &str) {
    let answered = || answers(container, &[address]).then_some(());
    assert!(
        eventually(DEADLINE, answered).is_some(),
        "{address} does not answer a container"
    );
}

fn leaks_nothing(capture: &Capture, when: &str) {
    let seen = capture.seen();
    let leaks: Vec<_> = seen.iter().filter(|packet| is_leak(packet)).collect();
    assert!(leaks.is_empty(), "{when}: {leaks:?}");
}

/// Returns whether it belongs into the tunnel, or comes from a container without masquerading.
fn is_leak(packet: &Seen) -> bool {
    packet.is_leak() || packet.from.to_string().starts_with("172.1")
}
