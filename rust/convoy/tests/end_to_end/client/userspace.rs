//! `convoy up --userspace` as a user without any right, in the client's place.

pub(super) mod ports;

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    process::{Child, Stdio},
};

use convoy_lab::{Pid, eventually, measure::process::is_alive};
use nix::sys::signal::{Signal, kill};

use super::{
    capture::{Capture, DNS, Seen},
    names::NameServer,
    process::crash,
    user::{
        FILE, PROGRAM, convoy, daemon, error, exec, holder, no_process_is_left, nothing_is_left,
        said, succeeds, user, world, world_with,
    },
    world::{BEHIND, World},
};
use crate::scene::DEADLINE;
use ports::{
    ECHO, answers_datagrams, connect, echo, echo_datagrams, echoes, forwards, http_connect,
    is_served, socks5, socks5_answers_datagrams, status, up, up_with,
};

const NAMES: &str = "198.51.100.1 behind.example.org\n";

/// Servers behind the tunnel and at the client, and the name server that knows the former.
fn with_servers() -> Option<(World, NameServer)> {
    let world = world("DNS = 10.8.0.1\n")?;
    let names = NameServer::start(&world.server, "10.8.0.1", NAMES);
    echo(&world.server, (BEHIND[0], ECHO));
    echo_datagrams(&world.server, (BEHIND[0], ECHO));
    echo(&world.client, ("127.0.0.1", ECHO));
    Some((world, names))
}

/// A listener of each kind, leading to these servers.
fn listeners() -> [String; 6] {
    let target = format!("{}:{ECHO}", BEHIND[0]);
    [
        format!("-L=8001:{target}"),
        format!("-L=8002:{target}/udp"),
        format!("-L=8003:behind.example.org:{ECHO}"),
        format!("-R=2222:127.0.0.1:{ECHO}"),
        "--socks5=1080".to_owned(),
        "--http-connect=127.0.0.1:3128".to_owned(),
    ]
}

/// Requires that each of [`listeners`] leads to its server.
fn all_are_served(world: &World) {
    for port in [8001, 8003] {
        echoes(connect(&world.client, ("127.0.0.1", port)).unwrap());
    }
    echoes(connect(&world.client, ("::1", 8001)).unwrap());
    answers_datagrams(&world.client, 8002);
    for own in ["10.8.0.2", "fd08::2"] {
        echoes(connect(&world.server, (own, 2222)).unwrap());
    }
    echoes(socks5(world, 1080, "behind.example.org").unwrap());
    socks5_answers_datagrams(world, 1080, "behind.example.org");
    echoes(http_connect(world, 3128, "behind.example.org"));
}

#[test]
fn ports_lead_inside_and_out_and_the_status_counts() {
    let Some((world, _names)) = with_servers() else {
        return;
    };
    up(&world, &listeners().each_ref().map(String::as_str));
    all_are_served(&world);
    assert_eq!(socks5(&world, 1080, "nowhere.example.org").unwrap_err(), 4);
    let shown = status(&world);
    assert_eq!(shown["engine"], "namespace", "{shown}");
    assert_eq!(shown["peers"][0]["state"], "connected", "{shown}");
    assert!(shown["peers"][0]["latest_handshake"].is_u64(), "{shown}");
    let socks = &forwards(&shown, ":1080")[0];
    assert_eq!(socks["refused"]["unknown_name"], 1, "{shown}");
    assert_eq!(socks["opened"], 2, "{shown}");
    let reverse = &forwards(&shown, ":2222")[0];
    assert_eq!(
        (&reverse["is_inside"], &reverse["opened"]),
        (&true.into(), &2.into()),
        "{shown}"
    );
    let text = said(&user(&world, PROGRAM).arg("status").output().unwrap());
    for words in ["engine: namespace", "8001", "refused: unknown name 1"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    down(&world);
}

#[test]
fn where_the_tun_is_forbidden_the_other_engine_does_the_same() {
    let Some((world, _names)) = with_servers() else {
        return;
    };
    world.shell("chmod 600 /dev/net/tun");
    let listeners = listeners();
    let args = listeners.each_ref().map(String::as_str);
    let forced = up_with(&world, &[&args[..], &["--engine=namespace"]].concat());
    assert_eq!(forced.status.code(), Some(1), "{forced:?}");
    assert!(error(&forced).contains("chmod 0666"), "{forced:?}");
    let outcome = up_with(&world, &args);
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(error(&outcome).contains("engine `smoltcp`"), "{outcome:?}");
    all_are_served(&world);
    let mut lasting = connect(&world.client, ("127.0.0.1", 8001)).unwrap();
    lasting.write_all(b"still").unwrap();
    crash(daemon(&world));
    let mut back = [0; 5];
    lasting.read_exact(&mut back).unwrap();
    let shown = status(&world);
    assert_eq!(shown["engine"], "smoltcp", "{shown}");
    let warnings = shown["warnings"].to_string();
    assert!(warnings.contains("chmod 0666"), "{shown}");
    let mut join = user(&world, PROGRAM);
    let joined = join.args(["exec", "wg0", "--", "true"]).output().unwrap();
    assert!(error(&joined).contains("engine `namespace`"), "{joined:?}");
    down(&world);
}

#[test]
fn keys_of_the_file_do_the_same_and_commands_join() {
    let keys = format!(
        "#convoy: Allow = 127.0.0.0/8\n#convoy: Forward = *:8001:{}:{ECHO}\n#convoy: Reverse = 10.8.0.2:2222:[::1]:{ECHO}\n\
         #convoy: Socks5 = 1080\n#convoy: LoginFile = login\n",
        BEHIND[0]
    );
    let Some(world) = world(&keys) else { return };
    world.shell("echo me:secret > /etc/login; chown 7777 /etc/login; chmod 600 /etc/login");
    echo(&world.server, (BEHIND[0], ECHO));
    echo(&world.client, ("::1", ECHO));
    let checked = user(&world, PROGRAM)
        .args(["check", FILE])
        .output()
        .unwrap();
    assert_eq!(error(&checked), "", "{checked:?}");
    let outcome = exec(&world, &["true"]);
    assert!(error(&outcome).contains("--userspace"), "{outcome:?}");
    nothing_is_left(&world);
    up(&world, &[]);
    echoes(connect(&world.client, ("127.0.0.1", 8001)).unwrap());
    echoes(connect(&world.server, ("10.8.0.2", 2222)).unwrap());
    connect(&world.server, ("fd08::2", 2222)).unwrap_err();
    // From another address than those that are allowed.
    let denied = connect(&world.net, ("192.168.1.2", 8001)).and_then(|mut it| it.read(&mut [0]));
    denied.unwrap_err();
    socks5(&world, 1080, BEHIND[0]).unwrap_err();
    let before = daemon(&world);
    let mut join = user(&world, PROGRAM);
    join.args(["exec", "wg0", "--", "ping", "-n", "-c1", "-W2", BEHIND[0]]);
    succeeds(&join.output().unwrap());
    assert_eq!(daemon(&world), before);
    let shown = status(&world);
    let refused = &forwards(&shown, ":8001")[0]["refused"];
    assert_eq!(refused["denied"], 1, "{shown}");
    down(&world);
}

#[test]
fn a_connection_outlasts_the_tunnel_process_and_nothing_leaves_beside_the_tunnel() {
    let Some(world) = world("DNS = 10.8.0.1\n") else {
        return;
    };
    let _names = NameServer::start(&world.server, "10.8.0.1", NAMES);
    echo(&world.server, (BEHIND[0], ECHO));
    let capture = Capture::new(&world);
    up(
        &world,
        &[&format!("-L=8001:{}:{ECHO}", BEHIND[0]), "--socks5=1080"],
    );
    let mut lasting = connect(&world.client, ("127.0.0.1", 8001)).unwrap();
    for round in 0..3 {
        lasting.write_all(b"still").unwrap();
        let mut back = [0; 5];
        lasting.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"still", "{round}");
        // A name of its own each time, as answers are remembered.
        let name = format!("secret{round}.example.org");
        assert!(socks5(&world, 1080, &name).is_err());
        echoes(socks5(&world, 1080, "behind.example.org").unwrap());
        if round < 2 {
            crash(daemon(&world));
        }
    }
    let seen = capture.seen();
    assert!(seen.iter().any(Seen::is_datagram), "{seen:?}");
    let questions = |packet: &&Seen| packet.udp == Some(DNS);
    let strays = |packet: &&Seen| packet.is_inner() || packet.is_from_client() && packet.is_leak();
    let leaks: Vec<_> = seen
        .iter()
        .filter(|it| !it.is_refusal() && (questions(it) || strays(it)))
        .collect();
    assert!(leaks.is_empty(), "{leaks:?}");
    let shown = status(&world);
    let warnings = shown["warnings"].to_string();
    assert!(warnings.contains("died 2 times"), "{shown}");
    down(&world);
}

#[test]
fn what_cannot_be_is_said_and_undone() {
    let Some(world) = world("") else { return };
    let bind = || TcpListener::bind("127.0.0.1:8001").unwrap();
    let _taken = world.client.run(bind).unwrap();
    for (args, words) in [
        (&["-L=8001:a.example:80"][..], "127.0.0.1:8001"),
        (&["-L=*:8002:a.example:80"], "--allow"),
        (&["--socks5=192.168.1.2:1080"], "--login-file"),
        (&["-R=192.168.1.2:80:127.0.0.1:80"], "10.8.0.2"),
        (
            &["--socks5=1080", "--login-file=/etc/missing"],
            "/etc/missing",
        ),
    ] {
        let outcome = up_with(&world, args);
        assert_eq!(outcome.status.code(), Some(1), "{args:?}: {outcome:?}");
        assert!(error(&outcome).contains(words), "{args:?}: {outcome:?}");
        nothing_is_left(&world);
    }
    for (args, words) in [
        (&["-L=8001"][..], "port:host:port"),
        (&["--allow=here"], "a prefix"),
        (&["--adopt"], "--adopt"),
    ] {
        let outcome = up_with(&world, args);
        assert_eq!(outcome.status.code(), Some(2), "{args:?}: {outcome:?}");
        assert!(error(&outcome).contains(words), "{args:?}: {outcome:?}");
    }
    let mut host = user(&world, PROGRAM);
    let outcome = host.args(["up", FILE]).output().unwrap();
    let text = error(&outcome);
    assert!(
        text.contains("--userspace") && text.contains("convoy exec"),
        "{text}"
    );
    world.shell(&format!(
        "sed -i 's/^Address.*/#convoy: Forward = 80/' {FILE}"
    ));
    let outcome = up_with(&world, &[]);
    assert!(
        error(&outcome).contains("invalid value for `Forward`"),
        "{outcome:?}"
    );
    assert_eq!(outcome.status.code(), Some(1));
    nothing_is_left(&world);
    let none = user(&world, PROGRAM)
        .args(["down", "wg0"])
        .output()
        .unwrap();
    assert!(error(&none).contains("wg0 is not up"), "{none:?}");
}

#[test]
fn a_kill_of_the_supervisor_or_the_holder_leaves_nothing_in_the_way() {
    let Some(world) = world("") else { return };
    echo(&world.server, (BEHIND[0], ECHO));
    let local = format!("-L=8001:{}:{ECHO}", BEHIND[0]);
    for victim in ["the supervisor", "the holder"] {
        up(&world, &[&local]);
        let mut join = user(&world, PROGRAM);
        join.args(["exec", "wg0", "--", "sleep", "1000"]);
        let mut inside = Killed(join.spawn().unwrap());
        let pid = Pid::from_raw(inside.0.id().cast_signed());
        let is_inside = || (status(&world)["commands"] == 1).then_some(());
        assert!(eventually(DEADLINE, is_inside).is_some());
        let pid_of_supervisor = convoy(&world, "up").unwrap();
        crash(match victim {
            "the holder" => holder(pid),
            _ => pid_of_supervisor,
        });
        let ended = || (!is_alive(pid_of_supervisor)).then_some(());
        assert!(eventually(DEADLINE, ended).is_some(), "{victim}");
        inside.0.wait().unwrap();
        no_process_is_left();
        up(&world, &[&local]);
        echoes(connect(&world.client, ("127.0.0.1", 8001)).unwrap());
        down(&world);
    }
}

#[test]
fn a_tunnel_of_root_with_the_same_name_is_another_one() {
    let Some(world) = world("") else { return };
    let root = |words: &[&str]| world.client.command(PROGRAM).args(words).output().unwrap();
    succeeds(&root(&["up", FILE]));
    up(&world, &["--socks5=1080"]);
    assert_eq!(status(&world)["engine"], "namespace");
    let all = user(&world, PROGRAM).arg("status").output().unwrap();
    assert_eq!(error(&all), "", "{all:?}");
    let reload = user(&world, PROGRAM)
        .args(["reload", "wg0"])
        .output()
        .unwrap();
    assert!(error(&reload).contains("down, and up again"), "{reload:?}");
    down(&world);
    assert!(said(&root(&["status", "wg0"])).contains("state: up"));
    succeeds(&root(&["down", "wg0"]));
}

#[test]
fn signals_end_it_in_the_foreground_and_log_the_counters() {
    let Some(world) = world("") else { return };
    echo(&world.server, (BEHIND[0], ECHO));
    let mut command = user(&world, PROGRAM);
    let local = format!("-L=8001:{}:{ECHO}", BEHIND[0]);
    command.args(["up", FILE, "--userspace", "-f", &local]);
    command.stdout(Stdio::piped());
    let mut child = Killed(command.spawn().unwrap());
    let pid = Pid::from_raw(child.0.id().cast_signed());
    let connected = || connect(&world.client, ("127.0.0.1", 8001)).ok();
    echoes(eventually(DEADLINE, connected).unwrap());
    is_served(&world, 8001);
    let again = up_with(&world, &[]);
    assert!(error(&again).contains("runs already"), "{again:?}");
    kill(pid, Signal::SIGUSR1).unwrap();
    kill(pid, Signal::SIGTERM).unwrap();
    assert!(child.0.wait().unwrap().success());
    let mut log = String::new();
    child
        .0
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut log)
        .unwrap();
    assert!(
        log.contains("\"counters\"") && log.contains("SIGTERM"),
        "{log}"
    );
    assert!(!log.contains(BEHIND[0]), "an inner destination: {log}");
    nothing_is_left(&world);
}

#[test]
fn where_namespaces_are_forbidden_the_error_names_the_fix() {
    let Some(world) = world_with("", &["unshare"]) else {
        return;
    };
    world.shell(&format!("chmod 600 /dev/net/tun; chmod 644 {FILE}"));
    let outcome = up_with(&world, &["--engine=namespace"]);
    assert!(
        error(&outcome).contains("chmod 0666 /dev/net/tun"),
        "{outcome:?}"
    );
    // In a user namespace that was made for this, so that the limit is its own.
    let script = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces
         exec setpriv --bounding-set -all --inh-caps -all {PROGRAM} up {FILE} --userspace \
         --engine=namespace"
    );
    let mut forbidden = world.client.command("unshare");
    forbidden.args(["--user", "--map-root-user", "sh", "-c", &script]);
    let outcome = forbidden.output().unwrap();
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(
        error(&outcome).contains("user.max_user_namespaces=15000"),
        "{outcome:?}"
    );
    nothing_is_left(&world);
}

#[test]
fn without_descriptors_it_refuses_and_goes_on_later() {
    let Some(world) = world_with("", &["prlimit"]) else {
        return;
    };
    echo(&world.server, (BEHIND[0], ECHO));
    let mut command = user(&world, "prlimit");
    let local = format!("-L=8001:{}:{ECHO}", BEHIND[0]);
    command.args(["--nofile=64", PROGRAM, "up", FILE, "--userspace", &local]);
    succeeds(&command.output().unwrap());
    let flood: Vec<_> = (0..60)
        .filter_map(|_| connect(&world.client, ("127.0.0.1", 8001)).ok())
        .collect();
    let refused = || {
        let supervisor = convoy(&world, "up")?;
        let open = std::fs::read_dir(format!("/proc/{supervisor}/fd"))
            .ok()?
            .count();
        (open >= 60).then_some(())
    };
    assert!(
        eventually(DEADLINE, refused).is_some(),
        "descriptors are left"
    );
    drop(flood);
    is_served(&world, 8001);
    let shown = status(&world);
    let refused = &forwards(&shown, ":8001")[0]["refused"]["no_descriptors"];
    assert!(refused.as_u64().is_some_and(|count| count > 0), "{shown}");
    down(&world);
}

/// A process that does not outlast its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends the tunnel as its user.
pub(super) fn down(world: &World) {
    succeeds(&user(world, PROGRAM).args(["down", "wg0"]).output().unwrap());
    nothing_is_left(world);
}
