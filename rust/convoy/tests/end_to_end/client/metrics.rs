//! Metrics of a client: its supervisor serves them.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use convoy_lab::eventually;
use nix::sys::signal::{Signal, kill};

use super::{
    process::{crash, kill_all},
    world::{BEHIND, EVERYTHING, World},
};
use crate::{
    metrics::{Answer, get_unix},
    scene::DEADLINE,
    twins::public_key,
};

const UP: [&str; 4] = ["up", "--metrics", "unix:/run/convoy/wg0.metrics", "wg0"];

#[test]
fn the_supervisor_serves_the_tunnels_figures_and_its_own() {
    let Some(world) = World::new() else { return };
    world.configure(
        "",
        &format!("# friendly_name = The \"new\" office\n{EVERYTHING}"),
    );
    let before = world.dump();
    world.convoy(&UP).succeeds();
    world.reaches(BEHIND[0]);
    let metrics = get(&world, "/metrics").body;
    let peer = format!(
        "public_key=\"{}\",name=\"The \\\"new\\\" office\"",
        public_key(2)
    );
    for line in [
        "convoy_tunnel_responding{interface=\"wg0\"} 1".to_owned(),
        "convoy_tunnel_deaths_total{interface=\"wg0\"} 0".to_owned(),
        "convoy_paused{interface=\"wg0\"} 0".to_owned(),
        format!("convoy_peer_session{{interface=\"wg0\",{peer}}} 1"),
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "no {line} in:\n{metrics}"
        );
    }
    crash(world.tunnel());
    let counts_death = || {
        let metrics = get(&world, "/metrics").body;
        let lines = [
            "convoy_tunnel_deaths_total{interface=\"wg0\"} 1",
            "convoy_tunnel_responding{interface=\"wg0\"} 1",
        ];
        lines
            .iter()
            .all(|line| metrics.contains(line))
            .then_some(())
    };
    assert!(eventually(DEADLINE, counts_death).is_some());
    world.down();
    assert!(!socket(&world).exists());
    world.is_left_as(&before);
}

#[test]
fn the_health_check_follows_sessions_and_pauses() {
    let Some(world) = World::with(&["nft"]) else {
        return;
    };
    world.configure("", EVERYTHING);
    world.convoy(&UP).succeeds();
    world.reaches(BEHIND[0]);
    becomes(&world, 200, "ok\n");
    world.convoy(&["pause", "wg0"]).succeeds();
    becomes(&world, 503, "paused: packets leave outside the tunnel\n");
    world.convoy(&["resume", "wg0"]).succeeds();
    becomes(&world, 200, "ok\n");
    // A new tunnel without a session, whose initiations nobody answers.
    let silence =
        "nft 'table inet t { chain c { type filter hook input priority 0; policy drop; }; }'";
    world.shell_at(&world.server, silence);
    crash(world.tunnel());
    let is_ill = || {
        // Until something is sent, nobody misses a session.
        world.answers(BEHIND[0]);
        let answer = get(&world, "/healthz");
        let reason = "no peer has a session: there was no handshake yet\n";
        (answer.status == 503 && answer.body == reason).then_some(())
    };
    assert!(eventually(DEADLINE, is_ill).is_some());
    world.shell_at(&world.server, "nft delete table inet t");
    becomes(&world, 200, "ok\n");
}

#[test]
fn no_scrape_fails_while_the_supervisor_becomes_another_version() {
    const UPGRADES: usize = 5;
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
    world.convoy(&UP).succeeds();
    world.reaches(BEHIND[0]);
    let inode = || fs::metadata(socket(&world)).unwrap().ino();
    let before = inode();
    let (path, is_over) = (socket(&world), AtomicBool::new(false));
    let scrape = || {
        let mut scraped = 0;
        while !is_over.load(Ordering::Relaxed) {
            let answer = get_unix(&path, "/metrics");
            let responds = "convoy_tunnel_responding{interface=\"wg0\"} 1";
            assert_eq!(answer.status, 200);
            assert!(answer.body.contains(responds), "{}", answer.body);
            scraped += 1;
        }
        scraped
    };
    let scraped: usize = thread::scope(|scope| {
        let scrapers = [(); 3].map(|()| scope.spawn(scrape));
        for upgrade in 1..=UPGRADES {
            kill(world.supervisor(), Signal::SIGUSR2).unwrap();
            let is_new = || {
                let log = world.log();
                let taken_over = log.matches("Taking over the tunnel").count();
                let up = log.matches("wg0 is up").count();
                (taken_over == upgrade && up == upgrade + 1).then_some(())
            };
            let done = eventually(DEADLINE, is_new);
            if done.is_none() || upgrade == UPGRADES {
                is_over.store(true, Ordering::Relaxed);
            }
            assert!(done.is_some());
        }
        scrapers.map(|it| it.join().unwrap()).into_iter().sum()
    });
    assert!(scraped >= UPGRADES, "{scraped}");
    assert_eq!(inode(), before, "the socket stays");
    world.down();
    assert!(!socket(&world).exists());
}

#[test]
fn a_killed_supervisors_socket_is_replaced_and_a_living_ones_is_not() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    let before = world.dump();
    world.convoy(&UP).succeeds();
    crash(world.supervisor());
    assert!(socket(&world).exists());
    world.convoy(&UP).succeeds();
    assert_eq!(get(&world, "/metrics").status, 200);
    kill_all(&world);
    world.convoy(&UP).succeeds();
    assert_eq!(get(&world, "/metrics").status, 200);

    let other = world.read("wireguard/wg0.conf");
    let other = other.replace("10.8.0.2/24, fd08::2/64", "10.7.0.2/24");
    let (interface, _) = other.split_once("[Peer]").unwrap();
    world.write("wireguard/wg1.conf", interface);
    let two = ["up", UP[1], UP[2], "wg1"];
    world.convoy(&two).fails_with("already in use");
    assert!(!world.client.link().exists("wg1"));
    assert_eq!(get(&world, "/metrics").status, 200);
    world.down();
    world.shell("rm /etc/wireguard/wg1.conf");
    world.is_left_as(&before);
}

fn becomes(world: &World, status: u16, body: &str) {
    let mut last = None;
    let is_so = || {
        let answer = last.insert(get(world, "/healthz"));
        (answer.status == status && answer.body == body).then_some(())
    };
    assert!(
        eventually(2 * DEADLINE, is_so).is_some(),
        "not {status} {body}: {last:?}"
    );
}

fn get(world: &World, target: &str) -> Answer {
    get_unix(&socket(world), target)
}

fn socket(world: &World) -> std::path::PathBuf {
    world.client.run_directory().join("convoy/wg0.metrics")
}
