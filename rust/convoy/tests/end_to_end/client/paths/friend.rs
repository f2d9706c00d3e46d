//! One friend: a machine with a tunnel to the hub, and the commands that are run there.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    process::{Child, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use convoy_lab::{Namespace, eventually};
use serde_json::Value;

use super::friends::renumber;
use crate::{
    client::outcome::{Outcome, Running},
    router::Joined,
    scene::{DEADLINE, convoy_program, output_of},
    twins::{private_key, public_key},
};

/// The files of `/etc` that the client's programs need.
const ETC: &str = "alternatives group gai.conf host.conf hosts iproute2 ld.so.cache ld.so.conf \
     ld.so.conf.d nsswitch.conf passwd protocols services";
/// Numbers that are sent to see whether all arrive, the time between two, and the time for the last ones.
const NUMBERS: u8 = 50;
const LOOK: Duration = Duration::from_millis(20);
const LATE: Duration = Duration::from_secs(5);

/// A machine with a tunnel `wg0` to the hub.
pub(crate) struct Friend {
    pub(crate) place: Namespace,
    pub(crate) outside: Joined,
    /// Its address inside the tunnel.
    pub(crate) inside: String,
    number: u8,
    commands: AtomicUsize,
}

impl Friend {
    /// Gives the machine files of `/etc` and `/var/lib` of its own.
    pub(crate) fn new(place: Namespace, outside: Joined, number: u8) -> Self {
        let line = format!(
            "umask 022; mkdir -p /run/etc/wireguard /run/lib; chmod 700 /run/etc/wireguard
             (cd /etc; cp -a {ETC} /run/etc) 2>/dev/null || true
             echo nameserver 192.0.2.53 > /run/etc/resolv.conf
             mount --bind /run/etc /etc; mount --bind /run/lib /var/lib"
        );
        output_of(&place, "sh", &["-ec", &line]);
        Self {
            place,
            outside,
            inside: format!("10.8.0.{number}"),
            number,
            commands: AtomicUsize::new(0),
        }
    }

    /// Writes its file: a tunnel to the hub at this address, with these lines under `[Interface]`, these allowed IPs,
    /// and these lines under `[Peer]`.
    pub(crate) fn configure(&self, at: IpAddr, interface: &str, allowed: &str, hub: &str) {
        let (own, key) = (private_key(self.number), public_key(1));
        let Self { inside, number, .. } = self;
        let at = SocketAddr::new(at, 51820);
        let text = format!(
            "[Interface]\nPrivateKey = {own}\nAddress = {inside}/24\nListenPort = 5182{number}\n{interface}\n\
             [Peer]\nPublicKey = {key}\nEndpoint = {at}\nAllowedIPs = {allowed}\n\
             PersistentKeepalive = 25\n{hub}\n"
        );
        let path = self.place.run_directory().join("etc/wireguard/wg0.conf");
        fs::write(&path, text).unwrap();
        output_of(&self.place, "chmod", &["600", "/etc/wireguard/wg0.conf"]);
    }

    /// The line that makes the other friend a direct peer.
    pub(crate) fn direct(&self) -> String {
        let other = 5 - self.number;
        format!("#convoy: Direct = {} 10.8.0.{other}/32", public_key(other))
    }

    pub(crate) fn convoy(&self, arguments: &[&str]) -> Outcome {
        self.start(arguments).wait()
    }

    /// Follows the events of its tunnel, which is not up yet.
    pub(crate) fn follow_events(&self) -> Running {
        let events = self.start(&["events", "--json", "wg0"]);
        let waits = || events.said().contains("waiting").then_some(());
        assert!(eventually(DEADLINE, waits).is_some(), "{}", events.said());
        events
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.place.command(convoy_program());
        command.args(arguments);
        command.env("LOG_LEVEL", "debug").env_remove("RUST_LOG");
        command.env_remove("DBUS_SYSTEM_BUS_ADDRESS");
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let file = |kind| {
            let name = format!("{kind}-{number:03}");
            self.place.run_directory().join(name)
        };
        Running::start(command, file("out"), file("said"))
    }

    /// The status of the direct peer at this address, or the whole status if the tunnel's process has not been told of
    /// it yet.
    fn direct_status(&self, other: &str) -> Result<Value, Value> {
        let outcome = self.convoy(&["status", "--json", "wg0"]).succeeds();
        let status: Value = serde_json::from_str(&outcome.stdout).unwrap();
        let peers = status["interfaces"][0]["peers"].as_array().unwrap();
        let directs = peers.iter().filter_map(|peer| peer["direct"].as_array());
        let mut directs = directs.flatten();
        let found = directs.find(|direct| direct["address"] == other);
        found.cloned().ok_or_else(|| status.clone())
    }

    /// The kind and address of the path to the other friend, or why there is none but by the hub.
    pub(crate) fn path(&self, other: &Self) -> Result<(String, String), String> {
        self.path_to(&other.inside)
    }

    /// The same for a direct peer at this address.
    pub(crate) fn path_to(&self, other: &str) -> Result<(String, String), String> {
        let status = self.direct_status(other);
        let status = status.map_err(|_| "it is not told of yet".to_owned())?;
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        match status["path"].as_str() {
            Some("direct" | "relay") => Ok((text("kind"), text("remote"))),
            _ => Err(text("why")),
        }
    }

    /// The hub's address, as its tunnel has it now.
    pub(crate) fn hub_endpoint(&self) -> String {
        let shown = output_of(&self.place, "wg", &["show", "wg0", "endpoints"]);
        let endpoint = shown.split_whitespace().nth(1);
        endpoint.unwrap_or_default().to_owned()
    }

    /// Sends a packet each 20 ms to the other friend, until it is dropped.
    pub(crate) fn start_ping(&self, other: &Self) -> Ping {
        self.start_ping_to(&other.inside)
    }

    /// The same to any address.
    pub(crate) fn start_ping_to(&self, address: &str) -> Ping {
        let mut command = self.place.command("ping");
        command.args(["-n", "-q", "-i", "0.02", address]);
        command.stdout(Stdio::null());
        Ping(command.spawn().unwrap())
    }

    /// Requires that all of many packets to the other friend are echoed.
    pub(crate) fn reaches(&self, other: &Self) {
        let lost = self.lost(other);
        assert_eq!(lost, [0; 0], "lost on the way to {}", other.inside);
    }

    /// Requires that the hub answers.
    pub(crate) fn reaches_hub(&self) {
        let answers = || {
            let mut command = self.place.command("ping");
            command.args(["-n", "-q", "-c", "1", "-W", "1", "10.8.0.1"]);
            command.output().unwrap().status.success().then_some(())
        };
        // A peer whose sessions are gone is called again after 15 s.
        assert!(eventually(3 * DEADLINE, answers).is_some());
    }

    /// Gets another address in place of its own; returns it, with the port.
    pub(crate) fn moves(&self) -> String {
        let moved = renumber(&self.place, self.outside.v4);
        format!("{moved}:5182{}", self.number)
    }

    /// Sends numbers to the other friend, [`LOOK`] apart, and returns those that are not echoed.
    fn lost(&self, other: &Self) -> Vec<u8> {
        let bind = |friend: &Self| {
            let address = (friend.inside.parse::<Ipv4Addr>().unwrap(), 0);
            let socket = friend.place.run(|| UdpSocket::bind(address));
            let socket = socket.unwrap().unwrap();
            socket.set_nonblocking(true).unwrap();
            let address = socket.local_addr().unwrap();
            (socket, address)
        };
        let ((sender, _), (answerer, to)) = (bind(self), bind(other));
        let mut missing: Vec<_> = (0..NUMBERS).collect();
        let mut buffer = [0; 8];
        let mut echo = |missing: &mut Vec<u8>| {
            while let Ok((length, from)) = answerer.recv_from(&mut buffer) {
                answerer.send_to(&buffer[..length], from).unwrap();
            }
            while sender.recv(&mut buffer).is_ok() {
                missing.retain(|number| *number != buffer[0]);
            }
        };
        for number in 0..NUMBERS {
            sender.send_to(&[number], to).unwrap();
            thread::sleep(LOOK);
            echo(&mut missing);
        }
        let all = || {
            echo(&mut missing);
            missing.is_empty().then_some(())
        };
        let _ = eventually(LATE, all);
        missing
    }

    /// Returns what its commands have said.
    pub(super) fn log(&self) -> String {
        let files = fs::read_dir(self.place.run_directory()).unwrap().flatten();
        let mut paths: Vec<_> = files.map(|file| file.path()).collect();
        paths.sort();
        let is_log = |name: &str| name.starts_with("out-") || name.starts_with("said-");
        paths.retain(|path| {
            path.file_name()
                .and_then(|it| it.to_str())
                .is_some_and(is_log)
        });
        let logs = paths.iter().map(|path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            format!("--- {}: {}\n{text}", self.inside, path.display())
        });
        logs.collect()
    }
}

/// A program that ends when dropped.
pub(crate) struct Ping(Child);

impl Drop for Ping {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
