//! The tunnel's process has a user of its own and almost no rights.

use std::{fs, os::unix::fs::MetadataExt as _};

use convoy_lab::{Pid, eventually};

use super::{
    process::{crash, proc_file},
    world::{BEHIND, EVERYTHING, World},
};
use crate::{
    confinement::{KEPT, SUPERVISED, bits, field, statuses},
    scene::{Bed, DEADLINE, convoy_program},
};

#[test]
fn the_tunnel_runs_under_another_uid_with_two_capabilities() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    is_confined(world.tunnel(), SUPERVISED);
    // So does the one that is started in its place.
    crash(world.tunnel());
    world.reaches(BEHIND[0]);
    is_confined(world.tunnel(), SUPERVISED);
    let supervisor = proc_file(world.supervisor(), "status");
    assert!(field(&supervisor, "Uid").starts_with("0\t"), "{supervisor}");
}

#[test]
fn neither_process_leaves_a_core_dump() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    for pid in [world.supervisor(), world.tunnel()] {
        let limits = proc_file(pid, "limits");
        let line = limits.lines().find(|l| l.starts_with("Max core file size"));
        let words: Vec<_> = line.unwrap().split_whitespace().collect();
        assert!(matches!(words[4], "0" | "1"), "{limits}");
    }
}

#[test]
fn with_net_admin_alone_it_comes_up() {
    let Some(world) = World::with(&["setpriv"]) else {
        return;
    };
    world.configure("DNS = 10.8.0.1\n#convoy: KillSwitch = on\n", EVERYTHING);
    let before = world.dump();
    for command in [["up", "wg0"], ["reload", "wg0"], ["down", "wg0"]] {
        let mut confined = world.client.command("setpriv");
        confined.args(["--bounding-set=-all,+net_admin", "--inh-caps=-all"]);
        confined.arg(convoy_program()).args(command);
        world.start_command(confined).wait().succeeds();
        if command[0] != "down" {
            world.reaches_all_behind();
        }
    }
    world.is_left_as(&before);
}

#[test]
fn somebody_without_rights_is_told_what_is_missing() {
    let Some(world) = World::with(&["setpriv"]) else {
        return;
    };
    world.configure("", EVERYTHING);
    world.admit_nobody();
    let before = world.dump();
    let outcome = world.as_nobody(&["up", "/etc/wg0.conf"]).ends_with(1);
    let said = outcome.stderr.to_lowercase();
    let advice = ["root", "permission", "cap_net_admin"];
    assert!(advice.iter().any(|word| said.contains(word)), "{said}");
    world.is_left_as(&before);
}

#[test]
fn so_does_an_ordinary_daemon() {
    let Some(bed) = Bed::new() else { return };
    bed.namespace.link().set_up("wg0").unwrap();
    let pid = bed.daemon.pid();
    // It answers before it has given up its rights.
    let has_all_threads = || (statuses(pid).len() >= 3).then_some(());
    assert!(eventually(DEADLINE, has_all_threads).is_some());
    is_confined(pid, KEPT);
}

/// `kept`: its capabilities.
fn is_confined(pid: Pid, kept: u64) {
    let threads = statuses(pid);
    assert!(threads.len() >= 3, "{threads:?}");
    let users = field(&threads[0], "Uid");
    let uid: u32 = users.split('\t').next().unwrap().parse().unwrap();
    assert!((60_706..=61_183).contains(&uid), "{uid}");
    for status in threads {
        assert_eq!(
            field(&status, "Uid"),
            [uid; 4].map(|uid| uid.to_string()).join("\t")
        );
        assert!(
            !field(&status, "Gid").split('\t').any(|gid| gid == "0"),
            "{status}"
        );
        assert_eq!(field(&status, "Groups"), "", "{status}");
        let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
        let sets = sets.map(|set| bits(&status, set));
        assert_eq!(sets, [0, kept, kept, kept, 0], "{status}");
        assert_eq!(field(&status, "NoNewPrivs"), "1");
        // A filter (proc_pid_status(5)).
        assert_eq!(field(&status, "Seccomp"), "2");
    }
    // Nobody without further rights may look into it.
    let owner = fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid();
    assert_eq!(owner, 0);
}
