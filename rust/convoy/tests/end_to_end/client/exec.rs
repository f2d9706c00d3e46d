//! `convoy exec` as a user without any right, in the client's place.

use std::{io, net::TcpListener, os::unix::process::ExitStatusExt as _, thread};

use convoy_lab::{Pid, eventually, measure::process::is_alive};
use nix::sys::signal::{Signal, kill};

use super::{
    capture::{Capture, DNS, Seen},
    names::NameServer,
    process::crash,
    user::{
        FILE, PROGRAM, RUNTIME, Started, USER, daemon, error, exec, holder, no_process_is_left,
        nothing_is_left, said, shell, succeeds, supervisor, user, world, world_with,
    },
    world::BEHIND,
};
use crate::{
    confinement::{bits, field},
    scene::DEADLINE,
};

#[test]
fn a_user_without_rights_reaches_what_is_behind_the_tunnel_and_nothing_else() {
    let Some(world) = world("DNS = 10.8.0.1\n") else {
        return;
    };
    for address in BEHIND {
        let ping = ["ping", "-n", "-c3", "-i0.2", "-W2", address];
        succeeds(&exec(&world, &ping));
    }
    // The host's router answers the host, not the command.
    assert!(world.answers("192.168.1.1"));
    assert!(
        !exec(&world, &["ping", "-n", "-c1", "-W1", "192.168.1.1"])
            .status
            .success()
    );
    let links = said(&exec(&world, &["ip", "-o", "link"]));
    assert_eq!(links.lines().count(), 2, "{links}");
    assert!(links.contains("lo:") && links.contains("wg0:"), "{links}");
}

#[test]
fn tcp_arrives_whole_over_both_families() {
    const PORT: u16 = 7_007;
    const BYTES: u64 = 20_000_000;
    let Some(world) = world("") else { return };
    for address in BEHIND {
        let bind = || TcpListener::bind((address, PORT)).unwrap();
        let listener = world.server.run(bind).unwrap();
        let receiver = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            io::copy(&mut stream, &mut io::sink()).unwrap()
        });
        let line = format!("exec 3>/dev/tcp/{address}/{PORT}; head -c {BYTES} /dev/zero >&3");
        succeeds(&exec(&world, &["bash", "-c", &line]));
        assert_eq!(receiver.join().unwrap(), BYTES);
    }
}

#[test]
fn the_command_keeps_user_directory_and_terminal_and_has_no_capability() {
    let Some(world) = world_with("", &["script"]) else {
        return;
    };
    let shown = said(&shell(&world, "id -u; id -g; pwd; cat /proc/self/status"));
    let mut lines = shown.lines();
    let first: Vec<_> = lines.by_ref().take(3).collect();
    assert_eq!(first, ["7777", "7777", "/etc"]);
    let status: String = lines.map(|line| format!("{line}\n")).collect();
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(bits(&status, set), 0, "{status}");
    }
    assert_eq!(field(&status, "NoNewPrivs"), "1");
    let line = format!("{PROGRAM} exec {FILE} -- tty");
    let mut terminal = user(&world, "script");
    terminal.args(["-qec", &line, "/dev/null"]);
    let shown = said(&terminal.output().unwrap());
    assert!(shown.contains("/dev/pts/"), "{shown}");
}

#[test]
fn root_has_no_capability_inside_either() {
    let Some(world) = world("") else { return };
    let mut root = world.client.command(PROGRAM);
    root.args(["exec", FILE, "--", "cat", "/proc/self/status"]);
    let status = said(&root.output().unwrap());
    assert_eq!(field(&status, "Uid"), "0\t0\t0\t0");
    for set in ["CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(bits(&status, set), 0, "{status}");
    }
}

#[test]
fn exit_statuses_are_those_of_the_command_or_say_why_there_is_none() {
    let Some(world) = world("") else { return };
    assert_eq!(shell(&world, "exit 7").status.code(), Some(7));
    world.shell("echo true > /etc/plain; chmod 644 /etc/plain");
    let killed = shell(&world, "kill -TERM $$").status;
    assert_eq!(killed.signal(), Some(libc::SIGTERM));
    for (command, code) in [("no-such-program", 127), ("/etc/plain", 126)] {
        let outcome = exec(&world, &[command]);
        assert_eq!(outcome.status.code(), Some(code), "{outcome:?}");
        assert!(error(&outcome).contains(command), "{outcome:?}");
    }
    world.shell(&format!("echo Nonsense >> {FILE}"));
    let outcome = exec(&world, &["true"]);
    assert_eq!(outcome.status.code(), Some(125), "{outcome:?}");
    assert!(error(&outcome).contains("is not valid"), "{outcome:?}");
}

#[test]
fn signals_reach_the_command_itself() {
    let Some(world) = world("") else { return };
    let mut command = Started::new(
        &world,
        "trap 'exit 9' TERM; echo $$; while :; do read -r _; done",
    );
    let pid = command.line();
    assert_eq!(pid, command.child.id().to_string());
    kill(command.pid(), Signal::SIGTERM).unwrap();
    assert_eq!(command.child.wait().unwrap().code(), Some(9));
    nothing_is_left(&world);
}

#[test]
fn name_servers_are_the_files_own_even_when_the_host_renames_its_own() {
    let Some(world) = world("DNS = 10.8.0.1, example.org\n") else {
        return;
    };
    let _server = NameServer::start(
        &world.server,
        "10.8.0.1",
        "198.51.100.1 behind.example.org\n",
    );
    let show =
        "while read -r _; do cat /etc/resolv.conf; grep ^hosts /etc/nsswitch.conf; echo end; done";
    let mut command = Started::new(&world, show);
    let expected = "nameserver 10.8.0.1\nsearch example.org\nhosts: files dns\n";
    assert_eq!(command.until("end"), expected);
    for file in ["resolv.conf", "nsswitch.conf", "passwd"] {
        world.shell(&format!(
            "cp /etc/{file} /etc/new; echo '# nameserver 9.9.9.9' >> /etc/new; mv /etc/new /etc/{file}"
        ));
    }
    assert_eq!(command.until("end"), expected);
    drop(command);
    let found = shell(&world, "getent hosts behind && tail -n1 /etc/passwd");
    let found = said(&found);
    assert!(found.contains("198.51.100.1"), "{found}");
    assert!(found.contains("# nameserver"), "{found}");
}

#[test]
fn services_of_the_host_that_look_names_up_are_hidden() {
    let Some(world) = world("") else { return };
    let hidden = [
        "/run/systemd/resolve/io.systemd.Resolve",
        "/run/nscd/socket",
        "/run/avahi-daemon/socket",
        "/run/dbus/system_bus_socket",
        "/run/user/7777/bus",
        "/run/user/7777/systemd/private",
    ];
    let shown = ["/run/systemd/machines", "/run/user/7777/pulse/native"];
    for path in hidden.iter().chain(&shown) {
        world.shell(&format!("mkdir -p $(dirname {path}); echo here > {path}"));
    }
    world.shell(&format!("chown -R {USER} {RUNTIME}"));
    let list = [&hidden[..], &shown[..]].concat().join(" ");
    let mut command = Started::new(
        &world,
        &format!(
            "while read -r _; do for it in {list}; do [ -e $it ] && echo $it; done; echo end; done"
        ),
    );
    let expected: String = shown.map(|path| format!("{path}\n")).concat();
    assert_eq!(command.until("end"), expected);
    // A restarted service recreates its directory.
    for directory in ["/run/dbus", "/run/nscd", "/run/systemd/resolve"] {
        world.shell(&format!(
            "rm -r {directory}; mkdir {directory}; touch {directory}/socket"
        ));
    }
    assert_eq!(command.until("end"), expected);
}

#[test]
fn nothing_leaves_outside_the_tunnel_even_while_its_process_is_killed_again_and_again() {
    let Some(world) = world("DNS = 10.8.0.1\n") else {
        return;
    };
    let capture = Capture::new(&world);
    let talk = "echo begun; while :; do ping -n -c1 -W1 198.51.100.1; ping -n -c1 -W1 2001:db8:ffff::1
                ping -n -c1 -W1 192.0.2.7; timeout 0.2 getent hosts secret.example; done > /run/user/7777/shared/log 2>&1";
    let mut command = Started::new(&world, talk);
    assert_eq!(command.line(), "begun");
    let answers = || {
        world.shell(&format!(
            "grep -c 'bytes from 198.51.100.1' {RUNTIME}/shared/log || true"
        ))
    };
    let count = || answers().trim().parse::<usize>().unwrap_or(0);
    for _ in 0..3 {
        let before = count();
        let goes_on = || (count() > before).then_some(());
        assert!(
            eventually(2 * DEADLINE, goes_on).is_some(),
            "no more answers"
        );
        crash(daemon(&world));
    }
    let before = count();
    assert!(eventually(2 * DEADLINE, || (count() > before).then_some(())).is_some());
    drop(command);
    let seen = capture.seen();
    assert!(seen.iter().any(|packet| packet.is_datagram()), "{seen:?}");
    let leaks: Vec<_> = seen.iter().filter(|packet| packet.is_inner()).collect();
    assert!(leaks.is_empty(), "{leaks:?}");
    let questions: Vec<_> = seen
        .iter()
        .filter(|packet| packet.udp == Some(DNS))
        .collect();
    assert!(questions.is_empty(), "{questions:?}");
    let strays =
        |packet: &&Seen| packet.is_from_client() && packet.is_leak() && !packet.is_refusal();
    let strays: Vec<_> = seen.iter().filter(strays).collect();
    assert!(strays.is_empty(), "{strays:?}");
    nothing_is_left(&world);
}

#[test]
fn a_kill_of_the_command_or_the_supervisor_ends_everything() {
    let Some(world) = world("") else { return };
    let script = "setsid sleep 1000 & echo $!; wait";
    for victim in ["the command", "the supervisor", "the holder"] {
        let mut command = Started::new(&world, script);
        let left = Pid::from_raw(command.line().parse().unwrap());
        if victim == "the holder" {
            crash(holder(left));
            kill(command.pid(), Signal::SIGKILL).unwrap();
        } else {
            let is_supervisor = victim == "the supervisor";
            let pid = is_supervisor.then(|| supervisor(&world));
            kill(pid.unwrap_or(command.pid()), Signal::SIGKILL).unwrap();
        }
        let ended = eventually(DEADLINE, || (!is_alive(left)).then_some(()));
        assert!(
            ended.is_some(),
            "what the command has started outlives {victim}"
        );
        let status = command.child.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{victim}");
        no_process_is_left();
        // What a killed supervisor leaves are sockets, which the next one replaces.
        succeeds(&exec(&world, &["true"]));
        nothing_is_left(&world);
    }
}

#[test]
fn another_command_joins_by_the_name_and_the_tunnel_stays_for_the_last_one() {
    let Some(world) = world("") else { return };
    let mut first = Started::new(&world, "echo begun; read -r _");
    assert_eq!(first.line(), "begun");
    let before = daemon(&world);
    let join = |words: &[&str]| {
        let mut command = user(&world, PROGRAM);
        command.args(["exec", "wg0", "--"]).args(words);
        command.output().unwrap()
    };
    succeeds(&join(&["ping", "-n", "-c1", "-W2", BEHIND[0]]));
    assert_eq!(daemon(&world), before);
    // The same file again would be the same peer twice.
    let again = exec(&world, &["true"]);
    assert_eq!(again.status.code(), Some(125));
    assert!(error(&again).contains("convoy exec wg0 --"), "{again:?}");
    assert_eq!(daemon(&world), before);
    drop(first);
    nothing_is_left(&world);
}

#[test]
fn the_user_sees_its_status_and_ends_it_with_all_commands() {
    let Some(world) = world("") else { return };
    let mut command = Started::new(&world, "echo begun; read -r _");
    assert_eq!(command.line(), "begun");
    let convoy = |word: &str| {
        let mut convoy = user(&world, PROGRAM);
        convoy.args([word, "wg0"]).output().unwrap()
    };
    let shown = said(&convoy("status"));
    for words in ["state: up", "engine: namespace", "commands inside: 1"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    succeeds(&convoy("down"));
    let status = command.child.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    nothing_is_left(&world);
}

#[test]
fn hooks_do_not_run_and_a_warning_says_so() {
    let Some(world) = world("PostUp = touch /run/user/7777/hooked\n") else {
        return;
    };
    let outcome = exec(&world, &["ls", RUNTIME]);
    assert!(!said(&outcome).contains("hooked"));
    assert!(error(&outcome).contains("hooks do not run"), "{outcome:?}");
}

#[test]
fn where_namespaces_or_the_tun_are_forbidden_the_error_names_the_fix() {
    let Some(world) = world_with("", &["unshare"]) else {
        return;
    };
    world.shell("chmod 600 /dev/net/tun");
    let outcome = exec(&world, &["true"]);
    assert_eq!(outcome.status.code(), Some(125));
    assert!(
        error(&outcome).contains("chmod 0666 /dev/net/tun"),
        "{outcome:?}"
    );
    world.shell(&format!("chmod 666 /dev/net/tun; chmod 644 {FILE}"));
    // In a user namespace that was made for this, so that the limit is its own.
    let script = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces
         exec setpriv --bounding-set -all --inh-caps -all {PROGRAM} exec {FILE} -- true"
    );
    let mut forbidden = world.client.command("unshare");
    forbidden.args(["--user", "--map-root-user", "sh", "-c", &script]);
    let outcome = forbidden.output().unwrap();
    assert_eq!(outcome.status.code(), Some(125), "{outcome:?}");
    assert!(
        error(&outcome).contains("user.max_user_namespaces=15000"),
        "{outcome:?}"
    );
    nothing_is_left(&world);
}
