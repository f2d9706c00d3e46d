//! Ways from one client to another: straight, by a hub, straight with the hub's help, and by a TURN server.
//!
//! ```text
//!    left: agents                                  right: agent
//!    wg0 convoy up ── veth0 ────────── veth0 ── convoy up wg0
//!            └─────── hub0 ── hub ── hub0 ───────────┘
//!                         coturn
//! ```
//!
//! The hub's machine forwards what comes out of its tunnel, and nothing between its cables. So a client that knows only
//! the address of its peer there needs the TURN server.

use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use convoy_lab::measure::Bed;
use convoy_lab::wireguard::{End, Identity, Implementation, KeyPair};
use convoy_lab::{Namespace, Pid, eventually};
use serde_json::Value;
use tempfile::TempDir;

use super::contender::Contender;
use super::processes::{Processes, write_private};
use super::rootless::wait_until_up;
use crate::agent::{TUNNEL_MTU, connect};
use crate::programs::{Started, find, generate_certificate, output};

/// The interface at all ends, as the lab names it.
const TUNNEL: &str = "wg0";
/// The interface of each client to the hub.
const CABLE: &str = "hub0";
/// The hub's interfaces to the clients, and its addresses there.
const AT_HUB: [(&str, Ipv4Addr); 2] = [
    ("left", Ipv4Addr::new(10, 10, 1, 3)),
    ("right", Ipv4Addr::new(10, 10, 2, 3)),
];
/// Addresses of the clients there.
const AT_CLIENTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 10, 1, 1), Ipv4Addr::new(10, 10, 2, 2)];
/// Network of the right client's cable.
const BEYOND: &str = "10.10.2.0/24";
/// Number of the hub; the clients have 1 and 2.
const HUB: u8 = 3;

/// Beginning of a client's file; the lines of its contender follow.
const FILE: &str = "\
[Interface]
PrivateKey = {own-key}
Address = {own}/24
MTU = 1420
ListenPort = 51820
";
/// Marks a contender's line for the left client; the right one learns where that is.
const LEFT: &str = "left: ";

const TURN_PORT: u16 = 3478;
const USER: &str = "bench";
const PASSWORD: &str = "correct-horse";
/// Time for a TURN server, or for a direct path.
const PATIENCE: Duration = Duration::from_secs(30);
const PROBE: Duration = Duration::from_millis(200);

/// The hub, the TURN server, and the clients.
pub(super) struct Paths {
    /// The left one, then the right one; none before the start.
    clients: Vec<Processes>,
    /// Started for the first contender that needs it.
    turn: Option<Started>,
    /// Holds the TURN server's password, key and certificate, and those of its authority.
    directory: TempDir,
    hub: End,
}

impl Paths {
    /// Adds the hub, and ends the daemons of the tunnel.
    pub(super) fn new(bed: &mut Bed, convoy: &Implementation) -> Result<Self> {
        let lab = bed.lab();
        let place = lab.namespace("hub")?;
        let clients = [&bed.tunnel.left, &bed.tunnel.right];
        let cables = AT_HUB.into_iter().zip(AT_CLIENTS);
        for (client, ((name, far), near)) in clients.into_iter().zip(cables) {
            connect(lab, (&client.namespace, CABLE, near), (&place, name, far))?;
        }
        let link = clients[0].namespace.link();
        link.add_route_through(BEYOND, AT_HUB[0].1.into())?;
        let peer = |(keys, number): (&KeyPair, u8)| {
            let keys = keys.clone();
            Identity { keys, number }.as_peer(None)
        };
        let peers = clients.map(|client| &client.keys).into_iter().zip(1..);
        let (own, peers) = (Identity::new(HUB), peers.map(peer).collect());
        let hub = End::start(&place, convoy, &own, peers, TUNNEL_MTU)?;
        let forward = format!("echo 1 > /proc/sys/net/ipv4/conf/{TUNNEL}/forwarding");
        output(place.command("sh").args(["-c", &forward]))?;
        bed.tunnel.left.kill_daemon()?;
        bed.tunnel.right.kill_daemon()?;
        let paths = Self {
            clients: Vec::new(),
            turn: None,
            directory: tempfile::tempdir()?,
            hub,
        };
        write_private(&paths.path("password"), &format!("{PASSWORD}\n"))?;
        Ok(paths)
    }

    /// Starts the TURN server if `contender` needs it, and fails if this Convoy refuses the contender's file.
    pub(super) fn prepare(&mut self, bed: &Bed, contender: &Contender) -> Result<()> {
        if contender.arguments.contains("Turn =") && self.turn.is_none() {
            self.turn = Some(self.serve()?);
        }
        let client = self.client(bed, contender, true)?;
        let mut check = client.command(&bed.tunnel.left.namespace);
        let checked = output(check.args(["check", &client.file]));
        checked.map(drop).map_err(|error| {
            let (text, marker) = (error.to_string(), "error: ");
            let line = text.lines().find_map(|line| line.split(marker).nth(1));
            anyhow!("convoy refuses its file: {}", line.unwrap_or(&text))
        })
    }

    /// Starts the TURN server, for UDP, TCP and TLS.
    fn serve(&self) -> Result<Started> {
        let [(_, listening), (_, relay)] = AT_HUB;
        let place = &self.hub.namespace;
        let files = |names: [&str; 2]| names.map(|name| self.path(name));
        let (server, authority) = (files(["key", "crt"]), files(["ca.key", "ca.crt"]));
        generate_certificate(&authority, "DNS:authority.bench", None)?;
        generate_certificate(&server, &format!("IP:{listening}"), Some(&authority))?;
        let mut command = place.command(find("turnserver"));
        command.args(["-n", "--no-cli", "--lt-cred-mech", "--realm=bench"]);
        command.args(["--log-file=stdout", "--pidfile=/run/turnserver.pid"]);
        command.args([
            format!("--user={USER}:{PASSWORD}"),
            format!("--listening-ip={listening}"),
            format!("--relay-ip={relay}"),
            format!("--cert={}", server[1].display()),
            format!("--pkey={}", server[0].display()),
        ]);
        let mut turn = Started::new(&mut command).context("(fix: apt-get install coturn)")?;
        turn.wait_until(PATIENCE, |_| {
            let connected = place.run(|| TcpStream::connect((listening, TURN_PORT)).is_ok());
            connected.unwrap_or(false)
        })?;
        Ok(turn)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes the file of a client, and copies the program.
    fn client(&self, bed: &Bed, contender: &Contender, is_left: bool) -> Result<Processes> {
        let (left, right) = (&bed.tunnel.left, &bed.tunnel.right);
        let (own, other, (_, hub)) = match is_left {
            true => (left, right, AT_HUB[0]),
            false => (right, left, AT_HUB[1]),
        };
        let places = [
            ("{own-key}", own.keys.private_base64()),
            ("{own}", own.inner_v4().to_string()),
            ("{other-key}", other.keys.public_base64()),
            ("{other}", other.inner_v4().to_string()),
            ("{hub-key}", self.hub.keys.public_base64()),
            ("{hub}", hub.to_string()),
            ("{user}", USER.to_owned()),
            ("{password}", self.path("password").display().to_string()),
            ("{authority}", self.path("ca.crt").display().to_string()),
        ];
        let text = file(&contender.arguments, is_left, places);
        Processes::new(&contender.program, TUNNEL, &text)
    }

    /// Starts new clients, and waits until packets take the way that `contender` is about.
    pub(super) fn start(&mut self, bed: &mut Bed, contender: &Contender) -> Result<()> {
        self.clients.clear();
        let (left, right) = (&bed.tunnel.left, &bed.tunnel.right);
        for (end, is_left) in [(left, true), (right, false)] {
            let mut client = self.client(bed, contender, is_left)?;
            let mut up = client.command(&end.namespace);
            up.args(["up", "--foreground", &client.file]);
            client.start(&mut up)?;
            self.clients.push(client);
        }
        let (left, via) = (left.namespace.clone(), bed.tunnelled());
        let mut up = wait_until_up(&mut bed.ends, via, || self.check());
        if up.is_ok() && contender.arguments.contains("Direct =") {
            let mut is_direct = || {
                bed.ends.ping(via, PROBE)?;
                self.is_direct(&left)
            };
            let met = eventually(PATIENCE, || match is_direct() {
                Ok(is_direct) => is_direct.then_some(Ok(())),
                Err(error) => Some(Err(error)),
            });
            up = met.unwrap_or_else(|| Err(anyhow!("there is no direct path")));
        }
        if up.is_err() {
            // Too long for a note.
            self.clients.iter().for_each(|it| eprintln!("{}", it.log()));
        }
        up
    }

    /// Whether the left client's packets take the direct path.
    fn is_direct(&self, left: &Namespace) -> Result<bool> {
        let mut status = self.clients[0].command(left);
        let printed = output(status.args(["status", "--json", TUNNEL]))?;
        let status: Value = serde_json::from_str(&printed)?;
        let direct = &status["interfaces"][0]["peers"][0]["direct"][0];
        Ok(direct["path"] == "direct")
    }

    /// Fails if a client has ended.
    pub(super) fn check(&self) -> Result<()> {
        self.clients.iter().try_for_each(Processes::check)
    }

    /// All processes of the left client.
    pub(super) fn pids(&self) -> Result<Vec<Pid>> {
        self.clients.first().context("no client runs")?.pids()
    }
}

/// The file of a client, with its places filled.
fn file(
    contender: &str,
    is_left: bool,
    places: impl IntoIterator<Item = (&'static str, String)>,
) -> String {
    let of_client = |line| match str::strip_prefix(line, LEFT) {
        Some(line) => is_left.then_some(line),
        None => Some(line),
    };
    let lines = contender.lines().filter_map(of_client);
    let text = lines.fold(FILE.to_owned(), |text, line| text + line + "\n");
    let filled = places.into_iter();
    filled.fold(text, |text, (place, value)| text.replace(place, &value))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::tunnel::Set;

    #[test]
    fn places_are_filled_and_only_the_left_client_knows_its_peer_and_the_turn_server() {
        for contender in Set::Paths.contenders(Path::new("convoy"), Path::new("")) {
            let [left, right] =
                [true, false].map(|is_left| file(&contender.arguments, is_left, []));
            assert!(left.contains("Endpoint = "), "{left}");
            let knows_hub = right.contains("{hub-key}");
            assert_eq!(right.contains("Endpoint = "), knows_hub, "{right}");
            let is_private = !right.contains("Turn = ") && !right.contains(LEFT);
            assert!(is_private, "{right}");
            assert_eq!(left.matches("[Peer]").count(), 1, "{left}");
        }
        let places = [("{own-key}", "key".to_owned()), ("{hub}", "hub".to_owned())];
        let text = file("[Peer]\nleft: Endpoint = {hub}:1", true, places);
        assert!(text.contains("PrivateKey = key\n"), "{text}");
        assert!(text.ends_with("[Peer]\nEndpoint = hub:1\n"), "{text}");
    }
}
