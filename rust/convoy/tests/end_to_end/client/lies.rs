//! Name servers that lie, hang or refuse.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use convoy_lab::{Turn, eventually};

use super::{
    liar::{Liar, Says},
    process::proc_file,
    world::{BEHIND, World},
};
use crate::{confinement::field, scene::DEADLINE};

const NAMED: &str = "Endpoint = vpn.example.org:51820\nAllowedIPs = 0.0.0.0/0, ::/0\n";
const SERVER: &str = "203.0.113.1";

/// Where no server can be: also not at the client's own addresses.
const NOWHERE: [&str; 11] = [
    "0.0.0.0",
    "127.0.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "10.8.0.2",
    "::",
    "::1",
    "ff02::1",
    "fe80::1",
    "::ffff:127.0.0.1",
    "fd08::2",
];
/// Where only the tunnel leads.
const WITHIN: [&str; 2] = ["10.8.0.77", "fd08::77"];

/// How long `status` and `down` may take, far less than any look-up that nobody bounds.
const RESPONSIVE: Duration = Duration::from_secs(5);
/// The most memory of a supervisor, in kB.
const MEMORY: u64 = 64 << 10;

#[test]
fn addresses_that_no_server_can_have_are_left_out_and_shown() {
    let Some(world) = World::new() else { return };
    let liar = Liar::start(&world.net, "192.168.1.1", addresses(&NOWHERE));
    world.configure("", NAMED);
    let before = world.dump();
    world.up();
    has_problem(&world, "no host's address");
    assert_eq!(world.endpoint(), "(none)");
    liar.says(addresses(&WITHIN));
    world.convoy(&["reload", "wg0"]).succeeds();
    has_problem(&world, "that the tunnel itself leads to");
    assert_eq!(world.endpoint(), "(none)");
    liar.says(addresses(&[&NOWHERE[..], &[SERVER]].concat()));
    world.is_at("203.0.113.1:51820");
    world.reaches_all_behind();
    assert!(world.status()["peers"][0]["problem"].is_null());
    world.down();
    world.is_left_as(&before);
}

#[test]
#[ignore = "make interop"]
fn whatever_a_name_server_says_the_client_answers_and_connects_at_the_truth() {
    let _alone = Turn::alone("it measures how long commands take");
    let Some(world) = World::new() else { return };
    let liar = Liar::start(&world.net, "192.168.1.1", Says::Nothing);
    world.configure("", NAMED);
    let before = world.dump();
    let lie = || vec!["203.0.113.66".parse().unwrap()];
    let many = |count| {
        Says::ByTcp(
            (0..count)
                .map(|n| Ipv4Addr::from_bits(0xc612_0000 + n).into())
                .collect(),
        )
    };
    for (what, says) in [
        ("another id", Says::Unasked(lie())),
        ("another port", Says::Elsewhere(lie())),
        ("another question", Says::Beside(lie())),
        ("garbage", Says::Garbage),
        ("nothing", Says::Nothing),
        ("silence by TCP", Says::Never),
        ("a loop", Says::Itself),
        ("nowhere", addresses(&NOWHERE)),
        ("hundreds", many(400)),
        // More than is read of an answer.
        ("thousands", many(4_000)),
    ] {
        liar.says(says.clone());
        world.up();
        // The hundreds are not reached, but might be servers.
        let has_none = world.endpoint() == "(none)";
        assert_eq!(has_none, what != "hundreds", "{what}");
        if !has_none {
            assert!(!world.answers(BEHIND[0]));
        }
        for _ in 0..3 {
            is_responsive(what, || drop(world.status()));
        }
        let asked = liar.questions();
        let is_asked = || (liar.questions() > asked).then_some(());
        assert!(eventually(3 * DEADLINE, is_asked).is_some(), "{what}");
        let status = proc_file(world.supervisor(), "status");
        let memory: u64 = field(&status, "VmHWM")
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        eprintln!("{what}: {memory} kB");
        assert!(memory < MEMORY, "{what}: {memory} kB");
        liar.says(addresses(&[SERVER]));
        world.is_at("203.0.113.1:51820");
        world.reaches(BEHIND[0]);
        // While it asks again.
        liar.says(says);
        world.changes_network();
        is_responsive(what, || drop(world.down()));
        world.changes_network_back();
        world.is_left_as(&before);
    }
}

/// Strict filters are the default of some distributions. The reply has no mark unless the rules give it one, and
/// without it the way back leads into the tunnel.
#[test]
#[ignore = "make interop"]
fn an_answer_by_tcp_passes_a_strict_reverse_path_filter() {
    let Some(world) = World::new() else { return };
    // Beyond the default route, and no router's own address: their ARP requests would have to pass, too.
    world.write("resolv.conf", "nameserver 203.0.113.2\n");
    world.shell("for it in all eth0; do echo 1 > /proc/sys/net/ipv4/conf/$it/rp_filter; done");
    let by_tcp = |address: &str| Says::ByTcp(vec![address.parse().unwrap()]);
    let liar = Liar::start(&world.server, "203.0.113.2", by_tcp(SERVER));
    world.configure("", NAMED);
    world.up();
    world.is_at("203.0.113.1:51820");
    world.reaches(BEHIND[0]);
    liar.says(by_tcp("203.0.113.2"));
    world.shell_at(&world.net, "ip route add blackhole 203.0.113.1/32");
    world.changes_network();
    world.is_at("203.0.113.2:51820");
    world.reaches(BEHIND[0]);
}

fn addresses(texts: &[&str]) -> Says {
    let all = texts.iter().map(|text| text.parse::<IpAddr>().unwrap());
    Says::Addresses(all.collect())
}

fn is_responsive(what: &str, ask: impl FnOnce()) {
    let start = Instant::now();
    ask();
    let time = start.elapsed();
    assert!(time < RESPONSIVE, "{what}: {time:?}");
}

fn has_problem(world: &World, words: &str) {
    let mut said = String::new();
    let has = || {
        let status = world.status();
        status["peers"][0]["problem"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut said);
        said.contains(words).then_some(())
    };
    assert!(
        eventually(DEADLINE, has).is_some(),
        "no {words:?} in {said:?}"
    );
}
