//! A tunnel is to be taken over, by an upgrade or after a crash, and that fails.

use convoy_lab::{Pid, eventually};
use nix::sys::signal::{Signal, kill};

use super::{BEHIND, EVERYTHING, Leaks, ON, OUTSIDE, World};
use crate::{
    client::process::{crash, kill_all},
    scene::DEADLINE,
};

/// Makes the next start impossible, and possible again.
struct Obstacle {
    name: &'static str,
    /// Arguments of the first `up`.
    arguments: &'static [&'static str],
    place: fn(&World),
    /// A part of the error message.
    reason: &'static str,
}

/// With the metrics' socket, a port or a file in the way.
const OBSTACLES: [Obstacle; 6] = [
    Obstacle {
        name: "taken port",
        arguments: &[],
        place: |world| world.configure(&format!("{ON}ListenPort = 40404\n"), EVERYTHING),
        reason: "40404",
    },
    Obstacle {
        name: "directory in place of the metrics' socket",
        arguments: &["--metrics=unix:/run/metrics"],
        place: |world| drop(world.shell("rm -f /run/metrics; mkdir -p /run/metrics")),
        reason: "/run/metrics",
    },
    Obstacle {
        name: "no token",
        arguments: &[
            "--metrics=unix:/run/metrics",
            "--metrics-token-file=/run/token",
        ],
        place: |world| drop(world.shell("rm -rf /run/token; mkdir /run/token")),
        reason: "/run/token",
    },
    Obstacle {
        name: "bad file",
        arguments: &[],
        place: |world| world.configure(&format!("{ON}MTU = many\n"), EVERYTHING),
        reason: "MTU",
    },
    Obstacle {
        name: "no key",
        arguments: &[],
        place: |world| {
            world.write(
                "wireguard/wg0.conf",
                &format!("[Interface]\n#convoy: PrivateKeyFile = missing\n{ON}"),
            );
        },
        reason: "missing",
    },
    Obstacle {
        name: "no file",
        arguments: &[],
        place: |world| drop(world.shell("rm -f /etc/wireguard/wg0.conf")),
        reason: "wg0.conf",
    },
];

impl Obstacle {
    fn begin(&self, world: &World) -> Vec<&'static str> {
        world.configure(ON, EVERYTHING);
        world.shell(
            "rm -rf /run/metrics /run/token; openssl rand -hex 32 > /run/token 2>/dev/null \
             || echo 0123456789abcdef0123456789abcdef > /run/token; chmod 600 /run/token",
        );
        [&["up", "wg0"], self.arguments].concat()
    }
}

/// A socket at the port that [`OBSTACLES`] ask for, in both families.
fn take_port(world: &World) -> [std::net::UdpSocket; 2] {
    let bind = || ["0.0.0.0:40404", "[::]:40404"].map(|at| std::net::UdpSocket::bind(at).ok());
    let bound = world.client.run(bind).unwrap();
    let mut bound = bound.into_iter().flatten();
    let first = bound.next().unwrap();
    let second = bound.next().unwrap_or_else(|| first.try_clone().unwrap());
    [first, second]
}

/// A tunnel that works, before the obstacle is placed.
struct Working<'a> {
    world: &'a World,
    leaks: &'a Leaks,
    name: &'static str,
    tunnel: Pid,
    session: String,
}

impl<'a> Working<'a> {
    fn before(obstacle: &Obstacle, world: &'a World, leaks: &'a Leaks) -> Self {
        world.convoy(&obstacle.begin(world)).succeeds();
        world.reaches_all_behind();
        leaks.begin();
        Self {
            world,
            leaks,
            name: obstacle.name,
            tunnel: world.tunnel(),
            session: world.session(),
        }
    }

    /// Neither the tunnel nor the kill switch was touched.
    fn goes_on(&self) {
        let Self { world, name, .. } = self;
        assert_eq!(world.tunnel(), self.tunnel, "{name}");
        assert_eq!(world.session(), self.session, "{name}");
        world.reaches_all_behind();
        assert!(!world.answers(OUTSIDE[0]), "{name}");
        self.leaks.none(name);
    }

    fn ends(self) {
        self.world.down();
        self.leaks.begins();
    }
}

#[test]
fn an_upgrade_that_cannot_be_made_leaves_the_supervisor_the_tunnel_and_the_switch() {
    let Some(world) = World::new() else { return };
    let leaks = Leaks::watch(&world);
    let _port = take_port(&world);
    for obstacle in OBSTACLES {
        let working = Working::before(&obstacle, &world, &leaks);
        let supervisor = world.supervisor();
        (obstacle.place)(&world);
        kill(supervisor, Signal::SIGUSR2).unwrap();
        let is_told = || world.log().contains("this version stays").then_some(());
        let name = obstacle.name;
        assert!(eventually(DEADLINE, is_told).is_some(), "{name}");
        assert_eq!(world.supervisor(), supervisor, "{name}");
        working.goes_on();
        working.ends();
        world.shell("rm -f /run/out-* /run/said-*");
    }
}

#[test]
fn an_up_after_a_crash_that_fails_leaves_the_tunnel_and_the_switch() {
    let Some(world) = World::new() else { return };
    let leaks = Leaks::watch(&world);
    let _port = take_port(&world);
    for obstacle in OBSTACLES {
        let working = Working::before(&obstacle, &world, &leaks);
        crash(world.supervisor());
        (obstacle.place)(&world);
        let up = [&["up", "wg0"], obstacle.arguments].concat();
        for _ in 0..2 {
            let failed = world.convoy(&up).fails_with(obstacle.reason);
            assert_eq!(failed.code, Some(1), "{}", obstacle.name);
        }
        working.goes_on();
        // Without the obstacle it is taken over.
        world.convoy(&obstacle.begin(&world)).succeeds();
        working.goes_on();
        working.ends();
    }
}

#[test]
fn an_up_that_fails_where_both_processes_were_killed_keeps_the_switch_closed() {
    let Some(world) = World::new() else { return };
    let leaks = Leaks::watch(&world);
    let _port = take_port(&world);
    world.configure(ON, EVERYTHING);
    let before = world.dump();
    for (name, after_crash, failing) in [
        ("port", false, format!("{ON}ListenPort = 40404\n")),
        ("hook before", false, format!("{ON}PreUp = false\n")),
        ("hook after", false, format!("{ON}PostUp = false\n")),
        (
            "hook after, and a service manager",
            true,
            format!("{ON}PostUp = false\n"),
        ),
    ] {
        world.configure(ON, EVERYTHING);
        world.up();
        world.reaches(BEHIND[0]);
        leaks.begin();
        kill_all(&world);
        if after_crash {
            world.convoy(&["down", "wg0", "--after-crash"]).succeeds();
        }
        world.configure(&failing, EVERYTHING);
        let failed = world.convoy(&["up", "wg0"]);
        assert_eq!(failed.code, Some(1), "{name}: {failed:?}");
        assert!(failed.stderr.contains("stays"), "{name}: {failed:?}");
        assert!(!world.answers(OUTSIDE[0]), "{name}");
        leaks.none(name);
        world
            .convoy(&["down", "wg0", "--open-kill-switch"])
            .succeeds();
        leaks.begins();
        world.configure(ON, EVERYTHING);
        world.is_left_as(&before);
    }
}

#[test]
fn a_first_up_that_fails_leaves_the_switch_as_open_as_it_was() {
    let Some(world) = World::new() else { return };
    let _port = take_port(&world);
    world.configure(&format!("{ON}ListenPort = 40404\n"), EVERYTHING);
    let before = world.dump();
    world.convoy(&["up", "wg0"]).fails_with("40404");
    world.is_left_as(&before);
    world.configure(&format!("{ON}PostUp = false\n"), EVERYTHING);
    world.convoy(&["up", "wg0"]).fails_with("PostUp");
    world.reaches(OUTSIDE[0]);
}
