//! Name servers, where systemd-resolved runs and nobody asks it. The test plays it, on a system bus of its own.

use convoy_lab::Bus;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use zbus::{Connection, connection::Builder};

use super::{install, told};
use crate::{
    client::{names::NameServer, outcome::Outcome, world::World},
    scene::convoy_program,
};

#[test]
fn resolved_of_another_network_namespace_or_that_nobody_asks_gets_no_name_servers() {
    let Some(world) = World::with(&["dbus-daemon", "dnsmasq"]) else {
        return;
    };
    // It answers no call, and so `up` would warn.
    let resolved = Resolved::start();
    install(&world, "C05-resolved-not-in-use.conf", "wg0");
    for (text, services) in [
        // As in a container's own network.
        ("nameserver 127.0.0.53", "files dns"),
        ("nameserver 127.0.0.53", "files resolve dns"),
        ("nameserver 192.168.1.1", "files dns"),
    ] {
        world.shell(&format!(
            "echo {text} > /etc/resolv.conf; sed -i 's/^hosts:.*/hosts: {services}/' /etc/nsswitch.conf"
        ));
        let told = told(up(&world, &resolved));
        // The file has half a tunnel, which is said, too.
        let mut others = told
            .lines()
            .filter(|line| !line.contains("IPv6 leaves outside"));
        assert!(!others.any(|line| line.contains("warning")), "{told}");
        let now = world.read("resolv.conf");
        assert!(
            now.contains("nameserver 10.8.0.1\n"),
            "{text}, {services}: {now}"
        );
        world.down();
        assert_eq!(world.read("resolv.conf"), format!("{text}\n"));
    }
}

#[test]
fn names_are_looked_up_at_the_tunnels_server_although_resolved_runs() {
    let Some(world) = World::with(&["dbus-daemon", "dnsmasq", "getent"]) else {
        return;
    };
    let resolved = Resolved::start();
    world.configure(
        "DNS = 10.8.0.1\n",
        "Endpoint = 203.0.113.1:51820\nAllowedIPs = 0.0.0.0/0\n",
    );
    let _server = NameServer::start(&world.server, "10.8.0.1", "198.51.100.1 inside.example\n");
    world.shell("sed -i 's/^hosts:.*/hosts: files dns/' /etc/nsswitch.conf");
    up(&world, &resolved).succeeds();
    assert!(
        world
            .shell("getent hosts inside.example")
            .contains("198.51.100.1")
    );
    world.down();
}

#[test]
fn a_domain_that_cannot_be_routed_alone_is_warned_of() {
    let Some(world) = World::new() else { return };
    world.configure(
        "DNS = 10.8.0.1, ~corp.example\n",
        "Endpoint = 203.0.113.1:51820\nAllowedIPs = 10.8.0.0/24\n",
    );
    let said = told(world.up());
    assert!(said.contains("asked for all names"), "{said}");
    assert!(
        world
            .convoy(&["status", "wg0"])
            .stdout
            .contains("asked for all names")
    );
    world.down();
}

fn up(world: &World, resolved: &Resolved) -> Outcome {
    let mut command = world.client.command("env");
    command.arg(format!(
        "DBUS_SYSTEM_BUS_ADDRESS={}",
        resolved.bus.address()
    ));
    command.arg(convoy_program()).args(["up", "wg0"]);
    command.env_remove("LOG_LEVEL").env_remove("RUST_LOG");
    world.start_command(command).wait().succeeds()
}

/// The service, as far as it has a name.
struct Resolved {
    bus: Bus,
    _service: Connection,
    _runtime: Runtime,
    _directory: TempDir,
}

impl Resolved {
    fn start() -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let bus = Bus::start(&directory.path().join("bus")).unwrap();
        let service = Builder::address(bus.address()).name("org.freedesktop.resolve1");
        let service = runtime.block_on(service.build()).unwrap();
        Self {
            bus,
            _service: service,
            _runtime: runtime,
            _directory: directory,
        }
    }
}
