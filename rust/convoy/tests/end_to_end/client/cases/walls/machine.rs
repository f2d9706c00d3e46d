//! Machines on which somebody else, or chance, has prepared something.

use std::{fs, os::unix::fs::PermissionsExt as _};

use super::uid;
use crate::{
    client::{
        user,
        world::{BEHIND, EVERYTHING, World},
    },
    scene::convoy_program,
};

#[test]
fn a_program_that_others_may_not_execute_still_loses_its_rights() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    // A build of this kind is too large for `/run`.
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("convoy");
    // By another process: while this one could write to it, children of other tests would keep it from being executed.
    world.shell(&format!(
        "install -m 700 '{}' '{program}'; '{program}' up wg0 >/dev/null 2>&1",
        convoy_program().display(),
        program = program.display()
    ));
    world.reaches(BEHIND[0]);
    let user = uid(world.tunnel());
    assert!((60_706..=61_183).contains(&user), "{user}");
    world.down();
}

#[test]
fn a_program_in_the_working_directory_is_not_run() {
    let Some(world) = World::with(&["env"]) else {
        return;
    };
    world.configure(
        "DNS = 10.8.0.1\n#convoy: KillSwitch = on\nPostUp = ip link show wg0\n",
        EVERYTHING,
    );
    world.shell(
        "mkdir -m 777 /run/theirs; cd /run/theirs
         for name in nft resolvconf bash sh wg-quick ip; do
             printf '#!/bin/sh\\necho $0 >> /run/theirs/ran\\n' > $name; chmod 755 $name
         done",
    );
    let program = convoy_program().display().to_string();
    for path in [
        "-u PATH",
        "PATH=",
        "PATH=:",
        "PATH=.",
        "PATH=theirs:../run/theirs:",
        "PATH=/nowhere:",
    ] {
        for command in ["up wg0", "down wg0 --open-kill-switch", "doctor || true"] {
            world.shell(&format!(
                "cd /run/theirs; env {path} {program} {command} > /dev/null 2>&1"
            ));
        }
        let ran = fs::read_to_string(world.client.run_directory().join("theirs/ran"));
        assert!(ran.is_err(), "{path}: {ran:?}");
    }
}

#[test]
fn the_umask_of_the_caller_does_not_open_the_directory_of_journals() {
    for umask in ["0", "077"] {
        let Some(world) = World::new() else { return };
        world.configure("", EVERYTHING);
        let program = convoy_program().display().to_string();
        world.shell(&format!("umask {umask}; {program} up wg0 > /dev/null 2>&1"));
        let run = world.client.run_directory().join("convoy");
        let mode = fs::metadata(run).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "{umask}: {mode:o}");
        assert_eq!(world.shell("find /run/convoy ! -type l -perm /022"), "");
        world.down();
    }
}

#[test]
fn a_journal_that_somebody_has_planted_is_not_believed() {
    for preparation in [
        // Somebody else's journal.
        "chown 1000 /run/convoy/x1.journal",
        // One that others may write to, and one in a directory of that kind.
        "chmod 666 /run/convoy/x1.journal",
        "chmod 777 /run/convoy",
        // A link to a journal elsewhere.
        "mv /run/convoy/x1.journal /run/j; ln -s /run/j /run/convoy/x1.journal",
        // A directory of somebody else's.
        "chown 1000 /run/convoy",
        // Root's, with what is never changed.
        "true",
    ] {
        let Some(world) = World::new() else { return };
        world.shell(&format!(
            r#"mkdir -p -m 755 /run/convoy; echo old > /run/victim; umask 077
               boot=$(cat /proc/sys/kernel/random/boot_id); net=$(readlink /proc/self/ns/net)
               printf '{{"convoy":1,"boot":"%s","namespace":"%s"}}\n{{"id":1,"change":{{"what":{{"sysctl":{{"path":"/run/victim","value":"old"}}}},"before":{{"content":"planted"}}}}}}\n' \
                   $boot $net > /run/convoy/x1.journal
               {preparation}"#
        ));
        let outcome = world.convoy(&["down", "--all"]);
        assert_eq!(
            world.shell("cat /run/victim"),
            "old\n",
            "{preparation}: {outcome:?}"
        );
        assert!(
            outcome.stderr.contains("(fix: "),
            "{preparation}: {outcome:?}"
        );
    }
}

#[test]
fn a_directory_in_tmp_of_somebody_elses_does_not_keep_a_user_from_exec() {
    let Some(world) = user::world("") else { return };
    world.shell(
        "mkdir -p /run/tmp; chmod 1777 /run/tmp; mount --bind /run/tmp /tmp
         mkdir -m 777 /tmp/convoy-7777; chown 1000 /tmp/convoy-7777",
    );
    let mut command = user::user(&world, user::PROGRAM);
    command.env_remove("XDG_RUNTIME_DIR");
    command.args([
        "exec",
        user::FILE,
        "--",
        "ping",
        "-n",
        "-c3",
        "-i0.2",
        "-W2",
        BEHIND[0],
    ]);
    // Nor is its directory of logind's there.
    world.shell("rm -rf /run/user/7777");
    user::succeeds(&command.output().unwrap());
    let left = world.shell("find /tmp/convoy-7777 -type s; ls -d /tmp/convoy-7777.*");
    assert_eq!(left.lines().count(), 1, "{left}");
}

#[test]
fn a_resolvconf_that_hangs_keeps_nobody_from_taking_the_tunnel_down() {
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n", EVERYTHING);
    world.shell(
        "mkdir /run/bin; printf '#!/bin/sh\\n[ \"$1\" = -a ] || sleep 1000\\n' > /run/bin/resolvconf
         chmod 755 /run/bin/resolvconf",
    );
    let program = convoy_program().display().to_string();
    let up = world.shell(&format!("PATH=/run/bin:$PATH {program} up wg0 2>&1"));
    world.reaches(BEHIND[0]);
    let down = world.shell(&format!(
        "PATH=/run/bin:$PATH {program} down wg0 2>&1 || true"
    ));
    assert!(down.contains("resolvconf did not end within"), "{up}{down}");
    assert_eq!(world.shell("ip -o link show wg0 2>/dev/null || true"), "");
}

#[test]
fn a_full_run_directory_does_not_stop_down() {
    let Some(world) = World::new() else { return };
    let many: Vec<_> = (0..200).map(|n| format!("10.77.{n}.0/24")).collect();
    let peer = format!(
        "Endpoint = 203.0.113.1:51820\nAllowedIPs = {}\n",
        many.join(", ")
    );
    world.configure("#convoy: KillSwitch = on\n", &peer);
    world.shell("mkdir -p /run/convoy; mount -t tmpfs -o mode=755,size=256k tmpfs /run/convoy");
    let before = world.shell("ip -o route; nft list ruleset");
    world.up();
    world.shell("dd if=/dev/zero of=/run/convoy/filler bs=1k 2>/dev/null || true");
    world.down();
    assert_eq!(world.shell("ip -o route; nft list ruleset"), before);
    assert_eq!(world.shell("find /run/convoy -name '*.journal'"), "");
}

#[test]
fn a_file_that_others_may_write_to_is_not_given_to_wg_quick() {
    let Some(world) = World::with(&["wg-quick"]) else {
        return;
    };
    world.configure("", EVERYTHING);
    let program = convoy_program().display().to_string();
    world.shell(
        "mkdir -m 777 /run/home; cp /etc/wireguard/wg0.conf /run/home; chown 1000 /run/home/wg0.conf",
    );
    let quick = format!("WG_QUICK_USERSPACE_IMPLEMENTATION='{program}' wg-quick");
    world.shell(&format!(
        "{quick} up /etc/wireguard/wg0.conf > /dev/null 2>&1"
    ));
    let refused = world
        .convoy(&["up", "--adopt", "/run/home/wg0.conf"])
        .ends_with(1);
    assert!(refused.stderr.contains("may not run"), "{refused:?}");
    assert!(refused.stderr.contains("(fix: "), "{refused:?}");
    // The tunnel of wg-quick goes on.
    world.reaches(BEHIND[0]);
}

#[test]
fn a_mark_that_is_a_table_of_the_system_is_refused() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
    world.up();
    let routes = || world.shell("ip route show table all | grep -v cache; ip rule");
    let before = routes();
    for mark in [253, 254, 255] {
        let set = world.shell(&format!("wg set wg0 fwmark {mark} 2>&1 || echo refused"));
        assert!(set.contains("refused"), "{mark}: {set}");
    }
    assert_eq!(routes(), before);
    for mark in ["253", "254", "255", "0xfe"] {
        let interface = format!("#convoy: KillSwitch = on\nFwMark = {mark}\n");
        world.configure(&interface, EVERYTHING);
        for command in ["check", "reload", "up"] {
            let refused = world.convoy(&[command, "wg0"]).fails_with("FwMark");
            for part in ["wg0.conf:5", "the number of the tunnel's table", "main"] {
                assert!(refused.stderr.contains(part), "{command}: {refused:?}");
            }
        }
        assert_eq!(routes(), before);
        world.reaches(BEHIND[0]);
    }
    world.down();
    for mark in ["253", "254", "255"] {
        world.configure(&format!("FwMark = {mark}\n"), EVERYTHING);
        world.convoy(&["up", "wg0"]).fails_with("FwMark");
    }
}
