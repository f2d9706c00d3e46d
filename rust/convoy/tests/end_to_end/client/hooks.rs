//! PreUp, PostUp, PreDown and PostDown.

use std::{fs, path::Path};

use convoy_lab::{Pid, eventually};
use nix::sys::signal::Signal;

use super::{
    process::{crash, kill_all, proc_file},
    world::{BEHIND, EVERYTHING, World},
};
use crate::{
    confinement::field,
    scene::{DEADLINE, processes},
};

/// Starts what daemons become: a process with a session of its own whose parent has ended.
const DAEMON: &str = "(setsid sleep 1007 &)";

/// One that writes down its name, the interface's, and what is there already.
fn saying(hook: &str, number: u8) -> String {
    format!(
        "{hook} = echo {hook} {number} %i $(ip -o link show %i 2>/dev/null | wc -l) \
         $(ip rule | grep -v suppress | grep -c 51820) \"$(wg show %i peers 2>/dev/null | wc -l)\" >> /run/hooks\n"
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
fn the_next_up_leaves_the_hooks_of_a_tunnel_that_goes_on_and_undoes_those_of_a_dead_one() {
    let Some(world) = World::new() else { return };
    let hooks = ["PreUp", "PostUp", "PreDown", "PostDown"];
    let hooks = hooks.map(|hook| format!("{hook} = echo {hook} >> /run/hooks\n"));
    world.configure(&hooks.concat(), EVERYTHING);
    world.up();
    crash(world.supervisor());
    world.up();
    assert_eq!(
        world.shell("cat /run/hooks; rm /run/hooks"),
        "PreUp\nPostUp\n"
    );
    kill_all(&world);
    world.up();
    assert_eq!(world.shell("cat /run/hooks"), "PostDown\nPreUp\nPostUp\n");
}

#[test]
fn a_tunnel_whose_file_and_supervisor_are_gone_goes_down_without_its_hooks() {
    let Some(world) = World::new() else { return };
    let hooks = "PreDown = touch /run/hooks\nPostDown = touch /run/hooks\n";
    let interface = format!("DNS = 10.8.0.1\n{hooks}#convoy: KillSwitch = on\n");
    world.configure(&interface, EVERYTHING);
    let before = world.dump();
    world.up();
    crash(world.supervisor());
    world.shell("mv /etc/wireguard/wg0.conf /run");
    let said = world.plainly(&["down", "wg0"]).succeeds().stderr;
    assert!(said.contains("no hooks run"), "{said}");
    world.shell("mv /run/wg0.conf /etc/wireguard");
    world.is_left_as(&before);
    assert!(!world.client.run_directory().join("hooks").exists());
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
        let hook = format!("{hook} = {DAEMON}; setsid sleep 1007 & {hang}\n");
        world.configure(&format!("DNS = 10.8.0.1\n{hook}"), EVERYTHING);
        let before = world.dump();
        let running = world.start(&["up", "wg0", "-f"]);
        let hangs = || (sleepers(&world, "1007").len() >= 4).then_some(());
        assert!(eventually(DEADLINE, hangs).is_some(), "{}", running.said());
        running.signal(Signal::SIGTERM);
        let outcome = running.wait();
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
        world.is_left_as(&before);
    }
}

#[test]
#[ignore = "make interop"]
fn a_hook_that_hangs_ends_after_a_minute_with_all_that_it_started() {
    let Some(world) = World::new() else { return };
    for (hook, command) in [("PostUp", "up"), ("PreDown", "down")] {
        let hang = format!("trap '' TERM INT; {DAEMON}; setsid sleep 1007 & sleep 1007");
        let interface = format!("DNS = 10.8.0.1\n{hook} = {hang}\n#convoy: KillSwitch = on\n");
        world.configure(&interface, EVERYTHING);
        let before = world.dump();
        if command == "down" {
            world.up();
        }
        let mut running = world.start(&[command, "wg0"]);
        let ended = eventually(4 * DEADLINE, || running.has_ended().then_some(()));
        assert!(ended.is_some(), "{}", running.said());
        let outcome = running.wait().fails_with("took longer than 60 s");
        assert!(outcome.stderr.contains(hook), "{outcome:?}");
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
fn a_daemon_that_a_hook_starts_outlives_the_tunnel_and_none_that_ends_stays_a_zombie() {
    let Some(world) = World::new() else { return };
    world.configure(&format!("PostUp = {DAEMON}\n").repeat(2), EVERYTHING);
    world.up();
    let both = || <[Pid; 2]>::try_from(sleepers(&world, "1007")).ok();
    let [first, second] = eventually(DEADLINE, both).expect("both daemons run");
    let supervisor = world.supervisor().to_string();
    for daemon in [first, second] {
        assert_eq!(field(&proc_file(daemon, "status"), "PPid"), supervisor);
    }
    crash(first);
    let is_buried = || {
        // The supervisor looks whenever it does something.
        world.status();
        let is_there = Path::new(&format!("/proc/{first}")).exists();
        (!is_there).then_some(())
    };
    assert!(eventually(DEADLINE, is_buried).is_some());
    world.down();
    assert_eq!(sleepers(&world, "1007"), [second]);
}

#[test]
fn a_failing_hook_takes_its_own_daemons_along_but_not_those_of_earlier_hooks() {
    let Some(world) = World::new() else { return };
    let hooks = format!("PostUp = {DAEMON}\nPostUp = (setsid sleep 1008 &); exit 3\n");
    world.configure(&hooks, EVERYTHING);
    world.convoy(&["up", "wg0"]).fails_with("PostUp failed");
    assert_eq!(sleepers(&world, "1008"), []);
    assert_eq!(sleepers(&world, "1007").len(), 1);
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

/// The processes of hooks that sleep for this time.
fn sleepers(world: &World, time: &str) -> Vec<Pid> {
    let line = |pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_one = |pid: &Pid| line(*pid) == format!("sleep\0{time}\0");
    processes(&world.client)
        .into_iter()
        .filter(is_one)
        .collect()
}
