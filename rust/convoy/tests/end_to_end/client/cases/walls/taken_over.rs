//! Somebody has taken a running process over, and wants more.

use std::{fs, io::ErrorKind::PermissionDenied, os::unix::fs::MetadataExt as _};

use convoy_lab::{Pid, eventually};
use nix::sys::signal::{Signal, kill};

use super::{Inside, becomes_confined, uid};
use crate::{
    client::{
        process::proc_file,
        user,
        world::{BEHIND, EVERYTHING, World},
    },
    confinement::field,
    scene::{Bed, DEADLINE},
    twins::private_key,
};

const CWD: u64 = libc::AT_FDCWD as i64 as u64;

#[test]
fn it_opens_and_removes_no_file_and_starts_nothing() {
    let Some(bed) = Bed::new() else { return };
    let shadow = bed.namespace.run_directory().join("precious");
    fs::write(&shadow, "").unwrap();
    has_no_files(bed.daemon.pid());
    assert!(shadow.exists());
}

#[test]
fn nor_does_the_tunnel_of_up_whose_supervisor_keeps_its_control_socket_to_itself() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    has_no_files(world.tunnel());
    // The tunnel goes on.
    world.reaches(BEHIND[0]);
    world.down();
}

#[test]
fn nor_does_the_tunnel_of_a_command_without_root() {
    let Some(world) = user::world("") else { return };
    let mut started = user::Started::new(&world, "echo begun; read line");
    assert_eq!(started.line(), "begun");
    has_no_files(user::daemon(&world));
}

fn has_no_files(pid: Pid) {
    let mut inside = Inside::of(pid);
    for path in [
        c"/etc/passwd",
        c"/etc/shadow",
        c"/proc/self/maps",
        c"/dev/null",
        c"/",
        c"/run/precious",
    ] {
        let name = inside.text(path);
        let how = inside.put(&[0; 24]);
        let path_only = libc::O_PATH as u64;
        let calls: [(libc::c_long, [u64; 4]); 12] = [
            (libc::SYS_open, [name, 0, 0, 0]),
            (libc::SYS_openat, [CWD, name, 0, 0]),
            (libc::SYS_openat, [CWD, name, path_only, 0]),
            (libc::SYS_openat2, [CWD, name, how, 24]),
            (libc::SYS_unlink, [name, 0, 0, 0]),
            (libc::SYS_unlinkat, [CWD, name, 0, 0]),
            (libc::SYS_truncate, [name, 0, 0, 0]),
            (libc::SYS_chmod, [name, 0o777, 0, 0]),
            (libc::SYS_mkdir, [name, 0o777, 0, 0]),
            (libc::SYS_rename, [name, name, 0, 0]),
            (libc::SYS_execve, [name, 0, 0, 0]),
            (libc::SYS_inotify_add_watch, [0, name, 1, 0]),
        ];
        for (number, arguments) in calls {
            refused(
                &mut inside,
                &format!("{number} {}", path.to_string_lossy()),
                number,
                &arguments,
            );
        }
    }
    for (what, number, arguments) in [
        ("fork", libc::SYS_fork, [0; 2]),
        ("clone", libc::SYS_clone, [libc::SIGCHLD as u64, 0]),
        ("setuid", libc::SYS_setuid, [0; 2]),
        (
            "unshare",
            libc::SYS_unshare,
            [libc::CLONE_NEWUSER as u64, 0],
        ),
        ("io_uring", libc::SYS_io_uring_setup, [8, 0]),
        ("bpf", libc::SYS_bpf, [0; 2]),
    ] {
        refused(&mut inside, what, number, &arguments);
    }
}

#[test]
fn it_has_no_sockets_but_for_datagrams_routes_and_links() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
    world.up();
    let mut inside = Inside::of(world.tunnel());
    let (raw, stream) = (libc::SOCK_RAW as u64, libc::SOCK_STREAM as u64);
    let netlink = libc::AF_NETLINK as u64;
    // NETLINK_ROUTE is 0.
    for protocol in 1..=22 {
        let what = format!("netlink protocol {protocol}");
        let flags = raw | libc::SOCK_CLOEXEC as u64;
        refused(
            &mut inside,
            &what,
            libc::SYS_socket,
            &[netlink, flags, protocol],
        );
    }
    for (what, family, kind) in [
        ("packet", libc::AF_PACKET, raw),
        ("vsock", libc::AF_VSOCK, stream),
        ("bluetooth", libc::AF_BLUETOOTH, raw),
        ("alg", libc::AF_ALG, stream),
        ("xdp", libc::AF_XDP, raw),
        (
            "a Unix stream, as of control sockets",
            libc::AF_UNIX,
            stream,
        ),
        ("raw IPv4", libc::AF_INET, raw),
    ] {
        refused(
            &mut inside,
            what,
            libc::SYS_socket,
            &[family as u64, kind, 1],
        );
    }
    inside.call(libc::SYS_socket, &[netlink, raw, 0]).unwrap();
}

#[test]
fn it_reaches_no_other_tunnel() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.shell(
        "sed 's/^AllowedIPs.*/AllowedIPs = 192.0.2.0\\/24/; s/^Address.*/Address = 10.9.0.2\\/24/' \
         /etc/wireguard/wg0.conf > /etc/wireguard/wg1.conf; chmod 600 /etc/wireguard/wg1.conf",
    );
    world.up();
    world.convoy(&["up", "wg1"]).succeeds();
    let other = tunnel_of(&world, "wg1");
    assert_ne!(uid(world.tunnel()), uid(other));
    let (own, other) = (world.tunnel(), other.as_raw().cast_unsigned().into());
    let mut inside = Inside::of(own);
    let memory = inside.put(&[0; 32]);
    for (what, number, arguments) in [
        ("tgkill", libc::SYS_tgkill, [other, other, 0, 0, 0, 0]),
        ("tkill", libc::SYS_tkill, [other, 0, 0, 0, 0, 0]),
        ("kill", libc::SYS_kill, [other, 0, 0, 0, 0, 0]),
        ("prlimit", libc::SYS_prlimit64, [other, 7, 0, memory, 0, 0]),
        (
            "scheduling",
            libc::SYS_sched_setscheduler,
            [other, 3, memory, 0, 0, 0],
        ),
        (
            "reading",
            libc::SYS_process_vm_readv,
            [other, memory, 1, memory, 1, 0],
        ),
        ("tracing", libc::SYS_ptrace, [16, other, 0, 0, 0, 0]),
        ("pidfd", libc::SYS_pidfd_open, [other, 0, 0, 0, 0, 0]),
    ] {
        refused(&mut inside, what, number, &arguments);
    }
    // Its own limits and threads are within reach.
    inside
        .call(libc::SYS_prlimit64, &[0, 7, 0, memory])
        .unwrap();
    let own = own.as_raw().cast_unsigned().into();
    inside.call(libc::SYS_tgkill, &[own, own, 0]).unwrap();
    drop(inside);
    world.convoy(&["down", "wg1"]).succeeds();
}

fn tunnel_of(world: &World, name: &str) -> Pid {
    let said = world.convoy(&["status", name, "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_str(&said).unwrap();
    let pid = status["interfaces"][0]["tunnel_pid"].as_i64();
    Pid::from_raw(i32::try_from(pid.unwrap()).unwrap())
}

#[test]
fn every_process_has_a_uid_of_its_own_and_its_memory_is_hidden_until_a_profiler_asks() {
    let Some(first) = Bed::new() else { return };
    let Some(second) = Bed::new() else { return };
    for bed in [&first, &second] {
        becomes_confined(bed.daemon.pid());
    }
    let users = [&first, &second].map(|bed| uid(bed.daemon.pid()));
    assert!(
        users.iter().all(|user| (60_706..=61_183).contains(user)),
        "{users:?}"
    );
    assert_ne!(users[0], users[1]);
    let pid = first.daemon.pid();
    let owner = || fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid();
    assert_eq!(owner(), 0);
    let status = proc_file(pid, "status");
    assert_eq!(field(&status, "NoNewPrivs"), "1");
    kill(pid, Signal::SIGUSR1).unwrap();
    let is_shown = || (owner() == users[0]).then_some(());
    assert!(eventually(DEADLINE, is_shown).is_some());
}

#[test]
fn somebody_without_rights_profiles_no_tunnel_and_learns_nothing_of_it() {
    let Some(world) = World::with(&["setpriv", "perf", "strace"]) else {
        return;
    };
    world.configure("", EVERYTHING);
    world.admit_nobody();
    world.up();
    world.reaches(BEHIND[0]);
    let (tunnel, key) = (world.tunnel(), private_key(1));
    becomes_confined(tunnel);
    world.shell("mkdir -m 777 /run/theirs");
    let pid = tunnel.to_string();
    for daemon in [vec!["wg0"], vec!["--pid", &pid]] {
        let words = ["profile", "--secs=1", "--out=/run/theirs/profile"];
        let refused = world
            .as_nobody(&[&words[..], &daemon].concat())
            .ends_with(1);
        assert!(refused.stderr.contains("(fix: run as root"), "{refused:?}");
        let left = world.shell("cat /run/theirs/profile/* 2>/dev/null || true");
        for text in [&refused.stdout, &refused.stderr, &left] {
            for secret in [key.as_str(), "203.0.113.1", "10.8.0"] {
                assert!(!text.contains(secret), "{secret}: {text}");
            }
        }
        // It has not made itself visible to them.
        let owner = fs::metadata(format!("/proc/{tunnel}/environ")).unwrap();
        assert_eq!(owner.uid(), 0);
    }
    assert!(!world.log().contains("profilers may attach"));
    world.reaches(BEHIND[0]);
}

fn refused(inside: &mut Inside, what: &str, number: libc::c_long, arguments: &[u64]) {
    let outcome = inside.call(number, arguments);
    let is_refused = outcome
        .as_ref()
        .is_err_and(|error| error.kind() == PermissionDenied);
    assert!(is_refused, "{what}: {outcome:?}");
}
