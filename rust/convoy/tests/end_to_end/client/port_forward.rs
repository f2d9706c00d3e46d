//! `PortForward`: a port of the provider, whose gateway is the server's end of the tunnel.

use std::{
    fs,
    net::UdpSocket,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use convoy_lab::eventually;

use super::{
    events::Events,
    process::crash,
    world::{EVERYTHING, World},
};
use crate::scene::DEADLINE;

const KEYS: &str = "#convoy: KillSwitch = on\n#convoy: PortForward = nat-pmp\n";
/// They write down the port that they get.
const HOOKS: &str = "PostUp = echo up %p >> /run/ports\n\
     #convoy: PostPortForward = echo %i %p >> /run/ports\n\
     PreDown = echo down %p >> /run/ports\n\
     PostDown = echo gone %p >> /run/ports\n";

#[test]
fn a_providers_port_is_told_to_hooks_status_and_events_and_given_back() {
    let Some(world) = World::new() else { return };
    let gateway = Gateway::start(&world);
    gateway.forwards(4000);
    world.configure(&format!("{KEYS}{HOOKS}"), EVERYTHING);
    let mut events = Events::follow(&world);
    world.up();
    let forwarded = events.until("port_forwarded");
    assert_eq!(forwarded["port"], 4000, "{forwarded}");
    assert_eq!(forwarded["address"], "198.51.100.7", "{forwarded}");
    let mut late = Events::follow(&world);
    assert_eq!(late.until("port_forwarded")["port"], 4000);
    let told = &world.status()["port_forward"];
    assert_eq!(told["port"], 4000, "{told}");
    assert_eq!(told["gateway"], "10.8.0.1", "{told}");
    let text = world.convoy(&["status", "wg0"]).succeeds().stdout;
    let line = "forwarded port: 4000, at 198.51.100.7";
    assert!(text.contains(line), "{text}");
    hooks_said(&world, "up 0\nwg0 4000\n");

    // Another process may have another gateway.
    gateway.forwards(4001);
    crash(world.tunnel());
    assert_eq!(events.until("port_forwarded")["port"], 4001);
    hooks_said(&world, "up 0\nwg0 4000\nwg0 4001\n");

    world.configure(HOOKS, EVERYTHING);
    world.convoy(&["reload", "wg0"]).succeeds();
    let lost = events.until("port_lost");
    let reason = "the configuration wants none any more";
    assert_eq!(lost["reason"], reason, "{lost}");
    gateway.hears_the_end();
    assert!(world.status()["port_forward"].is_null());
    hooks_said(&world, "up 0\nwg0 4000\nwg0 4001\nwg0 0\n");

    world.configure(&format!("{KEYS}{HOOKS}"), EVERYTHING);
    world.convoy(&["reload", "wg0"]).succeeds();
    events.until("port_forwarded");
    hooks_said(&world, "up 0\nwg0 4000\nwg0 4001\nwg0 0\nwg0 4001\n");
    world.down();
    gateway.hears_the_end();
    let all = "up 0\nwg0 4000\nwg0 4001\nwg0 0\nwg0 4001\ndown 4001\ngone 4001\n";
    hooks_said(&world, all);
}

#[test]
fn a_providers_port_outlives_its_supervisor_and_is_given_back_after_both() {
    let Some(world) = World::new() else { return };
    let gateway = Gateway::start(&world);
    gateway.forwards(4000);
    world.configure(&format!("{KEYS}{HOOKS}"), EVERYTHING);
    world.up();
    hooks_said(&world, "up 0\nwg0 4000\n");
    assert!(eventually(DEADLINE, || is_noted(&world, 4000)).is_some());
    crash(world.supervisor());
    gateway.asked();
    world.up();
    let asks_for_it = || gateway.asked().contains(&4000).then_some(());
    assert!(eventually(DEADLINE, asks_for_it).is_some());
    world.status_becomes("state", "up");
    let mut events = Events::follow(&world);
    assert_eq!(events.until("port_forwarded")["port"], 4000);
    crash(world.supervisor());
    world.convoy(&["down", "wg0"]).succeeds();
    gateway.hears_the_end();
    // Nothing has changed for the hooks in between.
    hooks_said(&world, "up 0\nwg0 4000\ndown 4000\ngone 4000\n");
}

#[test]
fn hooks_learn_of_a_port_that_came_while_others_ran_even_if_the_supervisor_is_killed() {
    let Some(world) = World::new() else { return };
    let gateway = Gateway::start(&world);
    gateway.forwards(4000);
    let hook = "#convoy: PostPortForward = echo %p >> /run/ports; until [ -e /run/go ]; do sleep 0.1; done\n";
    world.configure(&format!("{KEYS}{hook}"), EVERYTHING);
    world.up();
    hooks_said(&world, "4000\n");
    // Another process may have another gateway.
    gateway.forwards(4001);
    crash(world.tunnel());
    assert!(eventually(DEADLINE, || is_noted(&world, 4001)).is_some());
    crash(world.supervisor());
    world.shell("touch /run/go");
    world.up();
    hooks_said(&world, "4000\n4001\n");
    world.down();
}

#[test]
fn a_gateway_that_answers_nonsense_forwards_nothing_and_the_status_says_why() {
    let Some(world) = World::new() else { return };
    let gateway = Gateway::start(&world);
    gateway.forwards(0);
    world.configure(&format!("{KEYS}{HOOKS}"), EVERYTHING);
    world.up();
    let problem = "the answer of the gateway 10.8.0.1 in the tunnel is refused: it has the port 0";
    let is_told = || {
        let told = world.status()["port_forward"]["problem"] == problem;
        told.then_some(())
    };
    assert!(
        eventually(DEADLINE, is_told).is_some(),
        "{}",
        world.status()
    );
    world.down();
    hooks_said(&world, "up 0\ndown 0\ngone 0\n");
}

/// Returns whether the next supervisor would find this port.
fn is_noted(world: &World, port: u16) -> Option<()> {
    let state = fs::read_to_string(world.client.run_directory().join("convoy/wg0.state"));
    let state = state.unwrap_or_default();
    state.contains(&format!(r#""port":{port}"#)).then_some(())
}

/// Waits until the hooks have written this.
fn hooks_said(world: &World, expected: &str) {
    let path = world.client.run_directory().join("ports");
    let said = || fs::read_to_string(&path).unwrap_or_default();
    let is_so = || (said() == expected).then_some(());
    let waited = eventually(DEADLINE, is_so);
    assert!(waited.is_some(), "{:?} is not {expected:?}", said());
}

/// A server of NAT-PMP inside the tunnel.
struct Gateway {
    port: Arc<AtomicU16>,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    fn start(world: &World) -> Self {
        let bind = || UdpSocket::bind("10.8.0.1:5351").unwrap();
        let socket = world.server.run(bind).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let (port, heard, ends) = (Arc::default(), Arc::default(), Arc::default());
        let all = (Arc::clone(&port), Arc::clone(&heard), Arc::clone(&ends));
        let thread = thread::spawn(move || serve(&socket, &all.0, &all.1, &all.2));
        Self {
            port,
            heard,
            ends,
            thread: Some(thread),
        }
    }

    fn forwards(&self, port: u16) {
        self.port.store(port, Ordering::Relaxed);
    }

    /// Ports that were asked for since the last call.
    fn asked(&self) -> Vec<u16> {
        let heard = std::mem::take(&mut *self.heard.lock().unwrap());
        let heard = heard.iter().filter(|it| it.len() == 12);
        heard.map(|it| u16::from_be_bytes([it[6], it[7]])).collect()
    }

    /// Waits until the port is given back, of both protocols.
    fn hears_the_end(&self) {
        let is_over = || {
            let heard = self.heard.lock().unwrap();
            let ends =
                |transport| heard.contains(&vec![0, transport, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
            (ends(1) && ends(2)).then_some(())
        };
        assert!(eventually(DEADLINE, is_over).is_some());
        self.heard.lock().unwrap().clear();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn serve(socket: &UdpSocket, port: &AtomicU16, heard: &Mutex<Vec<Vec<u8>>>, ends: &AtomicBool) {
    let mut buffer = [0; 64];
    while !ends.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let request = &buffer[..length];
        let head = [0, 0x80 | request[1], 0, 0, 0, 0, 0, 9];
        let port = port.load(Ordering::Relaxed).to_be_bytes();
        let answer = match request.get(8..12) {
            // As ProtonVPN, which repeats no port of the client.
            Some(lifetime) => [&head[..], &[0, 0], &port, lifetime].concat(),
            None => [&head[..], &[198, 51, 100, 7]].concat(),
        };
        heard.lock().unwrap().push(request.to_vec());
        // The client may be gone.
        let _ = socket.send_to(&answer, from);
    }
}
