//! The machine sleeps and wakes up elsewhere. The test plays logind, on a system bus of its own.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use convoy_lab::{Bus, PacketSocket, eventually};
use etherparse::{SlicedPacket, TransportSlice};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use zbus::{Connection, connection::Builder};

use super::world::{BEHIND, EVERYTHING, World};
use crate::scene::{DEADLINE, convoy_program};

/// The first byte of a handshake initiation (section 5.4.2 of the WireGuard paper).
const INITIATION: u8 = 1;

#[test]
fn after_sleep_a_handshake_follows_at_once_although_the_network_looks_the_same() {
    let Some((world, logind)) = sleeper() else {
        return;
    };
    let before = world.dump();
    up(&world, &logind);
    let cable = PacketSocket::hearing(&world.net, "lan").unwrap();
    logind.announce(true);
    // Another home with the same addresses inside: no change of this host's network tells.
    world.shell_at(
        &world.net,
        "nft 'table ip home { chain leaving { type nat hook postrouting priority 100; }; }'
         nft 'add rule ip home leaving oifname wan ip daddr 203.0.113.1 snat to 203.0.113.254'",
    );
    logind.announce(false);
    initiates(&cable, "192.168.1.2", Instant::now());
    is_at(&world, "203.0.113.254:");
    world.reaches_all_behind();
    world.down();
    world.is_left_as(&before);
}

#[test]
fn after_sleep_in_another_network_a_handshake_follows_at_once_from_the_new_address() {
    let Some((world, logind)) = sleeper() else {
        return;
    };
    let before = world.dump();
    up(&world, &logind);
    let processes = [world.supervisor(), world.tunnel()];
    let all = |signal| processes.map(|pid| kill(pid, signal).unwrap());
    let cable = PacketSocket::hearing(&world.net, "lan").unwrap();
    logind.announce(true);
    // As the kernel freezes them.
    all(Signal::SIGSTOP);
    moves(&world, "192.168.1.3");
    all(Signal::SIGCONT);
    logind.announce(false);
    initiates(&cable, "192.168.1.3", Instant::now());
    is_at(&world, "192.168.1.3:");
    world.reaches_all_behind();
    world.down();
    moves(&world, "192.168.1.2");
    world.is_left_as(&before);
}

/// A client for a tunnel, and the service that tells it of sleep.
fn sleeper() -> Option<(World, Logind)> {
    let world = World::with(&["dbus-daemon"])?;
    world.configure("", EVERYTHING);
    Some((world, Logind::start()))
}

/// Brings wg0 up, and waits until it listens to logind.
fn up(world: &World, logind: &Logind) {
    let mut command = world.client.command("env");
    command.arg(format!("DBUS_SYSTEM_BUS_ADDRESS={}", logind.bus.address()));
    command.arg(convoy_program()).args(["up", "wg0"]);
    command.env("LOG_LEVEL", "debug");
    world.start_command(command).wait().succeeds();
    world.reaches(BEHIND[0]);
    // The supervisor answers once it listens.
    world.status_becomes("state", "up");
}

/// Gives the client this address in place of the one that it has.
fn moves(world: &World, address: &str) {
    world.shell(&format!(
        "ip -4 address flush dev eth0; ip address add {address}/24 dev eth0
         ip route add default via 192.168.1.1"
    ));
}

/// Waits for an initiation from this address, and prints when it came.
fn initiates(cable: &PacketSocket, address: &str, woken: Instant) {
    let source: Ipv4Addr = address.parse().unwrap();
    let is_initiation = |frame: &[u8]| {
        let packet = SlicedPacket::from_ethernet(frame).ok()?;
        let ip = packet.net.as_ref()?.ipv4_ref()?;
        let Some(TransportSlice::Udp(udp)) = &packet.transport else {
            return None;
        };
        let is_ours = ip.header().source_addr() == source && udp.destination_port() == 51_820;
        (is_ours && udp.payload().first() == Some(&INITIATION)).then_some(())
    };
    let begins = || is_initiation(&cable.receive(Duration::from_millis(100)).unwrap()?);
    assert!(eventually(DEADLINE, begins).is_some(), "no handshake");
    eprintln!("handshake {:?} after the signal", woken.elapsed());
}

/// Waits until the server sees the client there.
fn is_at(world: &World, endpoint: &str) {
    let seen = || world.shell_at(&world.server, "wg show wg0 endpoints");
    let is_there = || seen().contains(&format!("\t{endpoint}")).then_some(());
    assert!(eventually(DEADLINE, is_there).is_some(), "{}", seen());
}

/// logind, as far as it tells of sleep.
struct Logind {
    bus: Bus,
    service: Connection,
    runtime: Runtime,
    _directory: TempDir,
}

impl Logind {
    fn start() -> Self {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let bus = Bus::start(&directory.path().join("bus")).unwrap();
        let service = Builder::address(bus.address()).name("org.freedesktop.login1");
        let service = runtime.block_on(service.build()).unwrap();
        Self {
            bus,
            service,
            runtime,
            _directory: directory,
        }
    }

    /// Tells that the machine is about to sleep, or has woken up.
    fn announce(&self, begins: bool) {
        let (path, manager) = ("/org/freedesktop/login1", "org.freedesktop.login1.Manager");
        let sent =
            self.service
                .emit_signal(None::<&str>, path, manager, "PrepareForSleep", &begins);
        self.runtime.block_on(sent).unwrap();
    }
}
