//! Others move or delete the interface.

use convoy_lab::{Namespace, eventually};
use nix::sys::signal::{Signal, kill};

use super::{
    process::crash,
    stream::Stream,
    world::{BEHIND, BEHIND_ONLY, EVERYTHING, World},
};
use crate::scene::{DEADLINE, output_of};

#[test]
fn a_deleted_interface_ends_both_processes_and_puts_everything_back() {
    let Some(world) = World::new() else { return };
    let hooks = "PostDown = echo PostDown >> /run/hooks\n";
    let interface = format!("DNS = 10.8.0.1\n{hooks}");
    world.configure(&interface, EVERYTHING);
    let before = world.dump();
    let running = world.start(&["up", "wg0", "-f"]);
    world.reaches_all_behind();
    world.status_becomes("state", "up");
    world.shell("ip link delete wg0");
    running.wait().succeeds();
    world.is_left_as(&before);
    assert_eq!(world.shell("cat /run/hooks"), "PostDown\n");
}

#[test]
fn a_removed_uapi_socket_ends_it_too() {
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n", EVERYTHING);
    let before = world.dump();
    world.up();
    world.reaches(BEHIND[0]);
    world.shell("rm /run/wireguard/wg0.sock");
    world.is_left_as(&before);
}

#[test]
fn an_interface_that_moves_to_another_namespace_leaves_the_supervisors_care() {
    let Some(world) = World::new() else { return };
    let pod = world.lab().namespace("pod").unwrap();
    world.configure("DNS = 10.8.0.1\n", EVERYTHING);
    let before = world.dump();
    world.up();
    world.reaches(BEHIND[0]);
    move_to(&world, &pod);
    let is_free = || {
        let rules = world.shell("ip rule; ip -6 rule; nft list ruleset; cat /etc/resolv.conf");
        let is_ours = ["51820", "convoy", "10.8.0.1"];
        (!is_ours.iter().any(|mark| rules.contains(mark))).then_some(())
    };
    assert!(eventually(DEADLINE, is_free).is_some(), "{}", world.dump());
    world.reaches("203.0.113.254");
    assert!(
        world.log().contains("left this network namespace"),
        "{}",
        world.log()
    );
    // The tunnel itself goes on there.
    works_in(&pod);
    world.down();
    world.is_left_as(&before);
    let is_gone = || (!pod.link().exists("wg0")).then_some(());
    assert!(eventually(DEADLINE, is_gone).is_some());
}

#[test]
fn the_kill_switch_of_an_interface_that_moves_stays_closed() {
    let Some(world) = World::new() else { return };
    let pod = world.lab().namespace("pod").unwrap();
    world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
    let before = world.dump();
    world.up();
    world.reaches(BEHIND[0]);
    move_to(&world, &pod);
    let is_free = || (!world.shell("ip rule").contains("51820")).then_some(());
    assert!(eventually(DEADLINE, is_free).is_some());
    assert!(!world.answers("203.0.113.254"));
    works_in(&pod);
    // Its datagrams keep the mark that the kill switch wants.
    world.convoy(&["reload", "wg0"]).succeeds();
    works_in(&pod);
    world.down();
    world.is_left_as(&before);
    world.reaches("203.0.113.254");
}

#[test]
fn the_kill_switch_of_an_interface_that_moved_opens_by_reload_and_after_a_crash() {
    let Some(world) = World::new() else { return };
    for is_killed in [false, true] {
        let pod = world.lab().namespace("pod").unwrap();
        world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
        let before = world.dump();
        world.up();
        move_to(&world, &pod);
        let has_left = || (!world.shell("ip rule").contains("51820")).then_some(());
        assert!(eventually(DEADLINE, has_left).is_some());
        assert!(!world.answers("203.0.113.254"));
        if is_killed {
            crash(world.supervisor());
            assert!(!world.answers("203.0.113.254"));
        } else {
            world.configure("", EVERYTHING);
            world.convoy(&["reload", "wg0"]).succeeds();
            world.reaches("203.0.113.254");
        }
        world.down();
        world.reaches("203.0.113.254");
        world.is_left_as(&before);
    }
}

#[test]
fn the_pause_of_an_interface_that_moves_ends_by_resume() {
    let Some(world) = World::new() else { return };
    let pod = world.lab().namespace("pod").unwrap();
    world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
    world.up();
    world.convoy(&["pause", "wg0", "--for", "5m"]).succeeds();
    move_to(&world, &pod);
    let has_left = || {
        world
            .log()
            .contains("left this network namespace")
            .then_some(())
    };
    assert!(eventually(DEADLINE, has_left).is_some());
    world.reaches("203.0.113.254");
    world.convoy(&["resume", "wg0"]).succeeds();
    assert!(!world.answers("203.0.113.254"));
    world.down();
    world.reaches("203.0.113.254");
}

#[test]
fn an_interface_that_moved_outlives_its_supervisor() {
    let Some(world) = World::new() else { return };
    let pod = world.lab().namespace("pod").unwrap();
    world.configure("", EVERYTHING);
    let before = world.dump();
    world.up();
    move_to(&world, &pod);
    works_in(&pod);
    // Another version could not take it over.
    kill(world.supervisor(), Signal::SIGUSR2).unwrap();
    let stays = || world.log().contains("this version stays").then_some(());
    assert!(eventually(DEADLINE, stays).is_some(), "{}", world.log());
    works_in(&pod);
    crash(world.supervisor());
    works_in(&pod);
    world.down();
    world.is_left_as(&before);
}

#[test]
fn an_interface_that_comes_back_is_watched_again() {
    let Some(world) = World::new() else { return };
    let pod = world.lab().namespace("pod").unwrap();
    world.configure("", BEHIND_ONLY);
    world.up();
    world.reaches(BEHIND[0]);
    let link_becomes = |state: &str| {
        let is_so = || (world.status()["stats"]["state"]["link"] == state).then_some(());
        assert!(eventually(DEADLINE, is_so).is_some(), "{}", world.status());
    };
    for _ in 0..2 {
        move_to(&world, &pod);
        works_in(&pod);
        // The tunnel may not look there.
        output_of(&pod, "ip", &["link", "set", "wg0", "down"]);
        link_becomes("up");
        let client = world.client.pid();
        output_of(
            &pod,
            "ip",
            &["link", "set", "wg0", "netns", &client.to_string()],
        );
        link_becomes("down");
        world.shell("ip address add 10.8.0.2/24 dev wg0; ip link set wg0 up");
        link_becomes("up");
        world.reaches("10.8.0.1");
    }
    world.down();
}

#[test]
fn an_interface_with_another_name_is_told_of_until_it_has_its_own_again() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    let before = world.dump();
    world.up();
    let is_told = || {
        let warnings = world.status()["warnings"].to_string();
        warnings.contains("there is no interface wg0")
    };
    assert!(!is_told());
    world.shell("ip link set wg0 down; ip link set wg0 name other");
    assert!(is_told(), "{}", world.status());
    world.shell("ip link set other name wg0; ip link set wg0 up");
    assert!(!is_told(), "{}", world.status());
    world.reaches(BEHIND[0]);
    world.down();
    world.is_left_as(&before);
}

#[test]
fn a_link_that_was_set_down_works_again_once_it_is_up() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    let before = world.dump();
    world.up();
    let stream = Stream::start(&world, BEHIND[0]);
    world.shell("ip link set wg0 down");
    assert!(!world.answers(BEHIND[0]));
    world.shell("ip link set wg0 up");
    stream.flows();
    drop(stream);
    world.down();
    world.is_left_as(&before);
}

/// Moves wg0, and gives it its addresses and routes there.
fn move_to(world: &World, pod: &Namespace) {
    world.shell(&format!("ip link set wg0 netns {}", pod.pid()));
    let line = "ip address add 10.8.0.2/24 dev wg0; ip address add fd08::2/64 dev wg0 nodad; \
                ip link set wg0 up; ip route add default dev wg0; ip -6 route add default dev wg0";
    output_of(pod, "sh", &["-ec", line]);
}

fn works_in(pod: &Namespace) {
    for to in BEHIND {
        output_of(pod, "ping", &["-n", "-c1", "-W20", to]);
    }
}
