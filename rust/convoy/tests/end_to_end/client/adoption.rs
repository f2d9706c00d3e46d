//! A supervisor takes over a tunnel that goes on without one.

use std::{thread, time::Duration};

use convoy_lab::{Pid, Turn, eventually};
use nix::sys::signal::{Signal, kill};

use super::{
    process::{crash, proc_file},
    stream::Stream,
    world::{BEHIND, BEHIND_ONLY, EVERYTHING, World},
};
use crate::{scene::DEADLINE, twins::public_key};

/// How long the tunnel may carry nothing.
const PAUSE: Duration = Duration::from_secs(2);

#[test]
fn the_next_up_takes_over_the_running_tunnel() {
    let _alone = Turn::alone("it bounds how long packets pause");
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n#convoy: KillSwitch = on\n", EVERYTHING);
    let before = world.dump();
    world.up();
    let streams = BEHIND.map(|to| Stream::start(&world, to));
    let (supervisor, tunnel) = (world.supervisor(), world.tunnel());
    let carried = Carried::of(&world);
    crash(supervisor);
    streams.iter().for_each(Stream::flows);
    world.status_becomes("state", "without supervisor");
    world.up();
    world.status_becomes("state", "up");
    assert_eq!(world.tunnel(), tunnel);
    assert_ne!(world.supervisor(), supervisor);
    streams.iter().for_each(Stream::flows);
    carried.is_unharmed(streams);
    world.down();
    world.is_left_as(&before);
}

#[test]
fn the_supervisor_that_took_over_watches_the_tunnel_as_the_first_did() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    let before = world.dump();
    world.up();
    crash(world.supervisor());
    world.up();
    crash(world.tunnel());
    world.reaches_all_behind();
    world.convoy(&["reload", "wg0"]).succeeds();
    world.shell("wg set wg0 fwmark 0x1234");
    world.reaches_all_behind();
    world.shell("ip link delete wg0");
    world.is_left_as(&before);
}

#[test]
fn what_was_changed_meanwhile_is_applied() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    let stream = Stream::start(&world, BEHIND[0]);
    let (tunnel, session) = (world.tunnel(), world.session());
    crash(world.supervisor());
    let another = public_key(9);
    let more = format!(
        "{EVERYTHING}PersistentKeepalive = 25\n[Peer]\nPublicKey = {another}\nAllowedIPs = 10.99.0.0/16\n"
    );
    world.configure("DNS = 10.8.0.1\nMTU = 1400\n", &more);
    let before = world.dump();
    world.up();
    stream.flows();
    assert_eq!(world.tunnel(), tunnel);
    let peers = world.shell("wg show wg0 dump");
    let peer = |key: &str| {
        let line = peers.lines().find(|line| line.starts_with(key));
        line.unwrap_or_else(|| panic!("no {key} in {peers}"))
            .to_owned()
    };
    assert!(peer(&another).contains("10.99.0.0/16"), "{peers}");
    let ours: Vec<_> = peer(&public_key(2))
        .split('\t')
        .map(str::to_owned)
        .collect();
    assert_eq!(
        (ours[4].as_str(), ours[7].as_str()),
        (session.as_str(), "25")
    );
    assert!(world.shell("ip route").contains("10.99.0.0/16 dev wg0"));
    assert!(world.shell("ip link show wg0").contains("mtu 1400"));
    assert_ne!(world.dump(), before);
    drop(stream);
    world.down();
    assert_eq!(world.read("resolv.conf"), "nameserver 192.168.1.1\n");
    assert!(!world.client.link().exists("wg0"));
}

#[test]
fn a_supervisor_becomes_the_program_that_has_been_installed_meanwhile() {
    let _alone = Turn::alone("it bounds how long packets pause");
    let Some(world) = World::new() else { return };
    let hooks = "PostUp = echo >> /run/hooks\nPostDown = echo >> /run/hooks";
    let interface = format!("DNS = 10.8.0.1\n#convoy: KillSwitch = on\n{hooks}\n");
    world.configure(&interface, EVERYTHING);
    let before = world.dump();
    world.up();
    let streams = BEHIND.map(|to| Stream::start(&world, to));
    let (supervisor, tunnel) = (world.supervisor(), world.tunnel());
    let carried = Carried::of(&world);
    // From the background to the foreground, and from there.
    for _ in 0..2 {
        become_new(supervisor);
        world.status_becomes("state", "up");
        streams.iter().for_each(Stream::flows);
    }
    assert_eq!((world.supervisor(), world.tunnel()), (supervisor, tunnel));
    carried.is_unharmed(streams);
    world.convoy(&["reload", "wg0"]).succeeds();
    world.down();
    assert_eq!(world.shell("wc -l < /run/hooks; rm /run/hooks").trim(), "2");
    world.is_left_as(&before);
}

#[test]
fn a_supervisor_survives_any_number_of_signals_to_be_replaced() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
    let before = world.dump();
    world.up();
    let (supervisor, tunnel) = (world.supervisor(), world.tunnel());
    for _ in 0..200 {
        kill(supervisor, Signal::SIGUSR2).unwrap();
        kill(supervisor, Signal::SIGHUP).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    // It may be replaced once more by the last of them.
    world.status_becomes("supervisor_pid", supervisor.as_raw());
    world.status_becomes("tunnel_pid", tunnel.as_raw());
    world.reaches(BEHIND[0]);
    world.down();
    world.is_left_as(&before);
}

/// Makes a supervisor execute its program again.
fn become_new(supervisor: Pid) {
    // The kernel chooses other addresses.
    let addresses = proc_file(supervisor, "auxv");
    kill(supervisor, Signal::SIGUSR2).unwrap();
    let is_new = || (proc_file(supervisor, "auxv") != addresses).then_some(());
    assert!(eventually(DEADLINE, is_new).is_some());
}

#[test]
fn without_a_supervisor_wg_may_change_everything_but_what_needs_a_mark() {
    for (peer, is_marked) in [(BEHIND_ONLY, false), (EVERYTHING, true)] {
        let Some(world) = World::new() else { return };
        world.configure("", peer);
        let before = world.dump();
        world.up();
        world.reaches(BEHIND[0]);
        crash(world.supervisor());
        world.shell("wg set wg0 peer $(wg show wg0 peers) persistent-keepalive 25");
        let port = world.shell("wg set wg0 listen-port 51998 2>&1 || true");
        assert_eq!(port.contains("timed out"), is_marked, "{port}");
        world.reaches(BEHIND[0]);
        assert!(!is_marked || world.log().contains("there is no supervisor"));
        world.down();
        world.is_left_as(&before);
    }
}

/// State that a change of supervisors must leave as it is.
struct Carried<'a> {
    world: &'a World,
    session: String,
    dump: String,
}

impl<'a> Carried<'a> {
    fn of(world: &'a World) -> Self {
        Self {
            world,
            session: world.session(),
            dump: world.dump(),
        }
    }

    fn is_unharmed(&self, streams: [Stream; 2]) {
        Stream::never_paused(&streams, PAUSE);
        assert_eq!(self.world.session(), self.session, "the session was lost");
        assert_eq!(self.world.dump(), self.dump);
    }
}
