//! PreUp, PostUp, PreDown and PostDown.

use std::fs;

use convoy_lab::eventually;
use nix::sys::signal::Signal;

use super::world::{BEHIND, EVERYTHING, World};
use crate::scene::{DEADLINE, processes};

/// One that writes down its name, the interface's, and what is there already.
fn saying(hook: &str, number: u8) -> String {
    format!(
        "{hook} = echo {hook} {number} %i $(ip -o link show %i 2>/dev/null | wc -l) \
         $(ip rule | grep -c 51820) \"$(wg show %i peers 2>/dev/null | wc -l)\" >> /run/hooks\n"
    )
}

fn all_saying() -> String {
    let hooks = ["PreUp", "PostUp", "PreDown", "PostDown"];
    let pairs = hooks
        .iter()
        .flat_map(|hook| [1, 2].map(|n| saying(hook, n)));
    pairs.collect()
}

#[test]
fn hooks_run_in_order_and_see_what_wg_quicks_see() {
    let Some(world) = World::with(&["wg-quick"]) else {
        return;
    };
    world.configure(&all_saying(), EVERYTHING);
    let before = world.dump();
    world.shell("wg-quick up wg0; wg-quick down wg0");
    let theirs = world.shell("cat /run/hooks; rm /run/hooks");
    world.shell("nft flush ruleset; echo 0 > /proc/sys/net/ipv4/conf/all/src_valid_mark");
    world.is_left_as(&before);
    world.up();
    world.reaches(BEHIND[0]);
    world.down();
    world.is_left_as(&before);
    assert_eq!(world.shell("cat /run/hooks"), theirs);
    assert_eq!(theirs.lines().count(), 8, "{theirs}");
}

#[test]
fn a_failing_hook_undoes_everything() {
    let Some(world) = World::new() else { return };
    for hook in ["PreUp", "PostUp"] {
        let interface = format!(
            "DNS = 10.8.0.1\n{hook} = echo key-in-a-hook; exit 3\n{}#convoy: KillSwitch = on\n",
            saying("PostDown", 1)
        );
        world.configure(&interface, EVERYTHING);
        let before = world.dump();
        let outcome = world.convoy(&["up", "wg0"]).fails_with(hook);
        assert!(outcome.stderr.contains("wg0.conf:5"), "{outcome:?}");
        assert!(
            !outcome.stderr.contains("key-in-a-hook; exit"),
            "{outcome:?}"
        );
        world.is_left_as(&before);
        assert!(
            world
                .shell("cat /run/hooks; rm /run/hooks")
                .contains("PostDown 1 wg0")
        );
    }
}

#[test]
fn a_failing_predown_hook_does_not_keep_the_tunnel_up() {
    let Some(world) = World::new() else { return };
    world.configure("PreDown = exit 3\n", EVERYTHING);
    let before = world.dump();
    world.up();
    world.reaches(BEHIND[0]);
    world.convoy(&["down", "wg0"]).fails_with("PreDown");
    world.is_left_as(&before);
}

#[test]
fn a_hanging_hook_ends_with_the_command_that_waits_for_it() {
    let Some(world) = World::new() else { return };
    for hook in ["PreUp", "PostUp"] {
        // With children that do not listen.
        let hang = "trap '' TERM INT; (trap '' TERM INT; exec sleep 1007) & sleep 1007; sleep 1007";
        world.configure(&format!("DNS = 10.8.0.1\n{hook} = {hang}\n"), EVERYTHING);
        let before = world.dump();
        let running = world.start(&["up", "wg0", "-f"]);
        let hangs = || sleepers(&world).ge(&2).then_some(());
        assert!(eventually(DEADLINE, hangs).is_some(), "{}", running.said());
        running.signal(Signal::SIGTERM);
        let outcome = running.wait();
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
        world.is_left_as(&before);
    }
}

#[test]
fn what_a_hook_leaves_running_in_the_background_holds_nothing_up() {
    let Some(world) = World::new() else { return };
    world.configure("PostUp = sleep 1007 &\n", EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    world.down();
    assert!(!world.client.link().exists("wg0"));
}

#[test]
fn hooks_of_a_file_that_others_can_write_do_not_run() {
    let Some(world) = World::new() else { return };
    world.configure(&all_saying(), EVERYTHING);
    let before = world.dump();
    world.shell("chmod 602 /etc/wireguard/wg0.conf");
    let outcome = world.convoy(&["up", "wg0"]).fails_with("others can write");
    assert!(outcome.stderr.contains("wg0.conf"), "{outcome:?}");
    world.shell("chmod 600 /etc/wireguard/wg0.conf");
    world.is_left_as(&before);
    assert!(!world.client.run_directory().join("hooks").exists());
}

#[test]
fn a_hook_may_set_the_mark() {
    let Some(world) = World::new() else { return };
    world.configure("PostUp = wg set %i fwmark 0x1234\n", EVERYTHING);
    let before = world.dump();
    world.up();
    world.reaches_all_behind();
    assert!(world.shell("ip rule").contains("fwmark 0x1234"));
    world.down();
    world.is_left_as(&before);
}

#[test]
fn the_running_configuration_is_saved_if_wanted() {
    let Some(world) = World::new() else { return };
    world.configure("SaveConfig = true\n", EVERYTHING);
    let another = crate::twins::public_key(9);
    world.up();
    world.shell(&format!(
        "wg set wg0 peer {another} allowed-ips 10.99.0.0/16"
    ));
    world.down();
    let saved = world.read("wireguard/wg0.conf");
    assert!(
        saved.contains(&another) && saved.contains("10.99.0.0/16"),
        "{saved}"
    );
    assert!(saved.contains("SaveConfig = true"), "{saved}");
    let mode = world.shell("stat -c %a /etc/wireguard/wg0.conf");
    assert_eq!(mode, "600\n");
    world.up();
    world.reaches(BEHIND[0]);
    assert!(world.shell("wg show wg0 peers").contains(&another));
}

/// How many of the hook's processes there are.
fn sleepers(world: &World) -> usize {
    let line = |pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let all = processes(&world.client);
    all.iter()
        .filter(|pid| line(**pid).contains("1007"))
        .count()
}
