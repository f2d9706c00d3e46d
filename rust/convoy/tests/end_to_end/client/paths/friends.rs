//! Two friends, their routers, and the hub that both trust: a program that knows nothing of direct paths.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    process::Child,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use convoy_lab::{
    Joined, Lab, Namespace, RelayServer, RelayTransport, Router, RouterOptions, StunServer, Turn,
    eventually, wireguard::Daemon,
};
use serde_json::Value;

use crate::{
    client::outcome::{Outcome, Running},
    hub::forward,
    pairing::Program,
    scene::{DEADLINE, convoy_program, lab_with, output_of},
    turn_server::{PASSWORD, USER, start_turn},
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

/// The friends, and all that is between them.
///
/// Prints what their commands said when the test fails.
pub(crate) struct Friends {
    pub(crate) all: [Friend; 2],
    pub(crate) hub: Namespace,
    pub(crate) at_hub: Joined,
    pub(crate) internet: Router,
    /// The router of each friend; the same one for both if they share it.
    pub(crate) homes: Vec<Router>,
    pub(crate) lab: Lab,
    stun: Vec<StunServer>,
    stun_at: Option<SocketAddr>,
    pub(super) servers: Vec<Child>,
    hub_program: Program,
    daemon: Option<Daemon>,
    _turn: Turn,
}

impl Friends {
    /// Friends behind a router each; none for a friend at the internet itself. `None` if the machine cannot provide
    /// them.
    pub(crate) fn apart(routers: [Option<RouterOptions>; 2]) -> Option<Self> {
        Self::around(Program::WireguardGo, routers)
    }

    /// The same with this program as the hub.
    pub(crate) fn around(hub: Program, routers: [Option<RouterOptions>; 2]) -> Option<Self> {
        Self::new(hub, |lab, internet| {
            let labels = ["home-a", "home-b"];
            let routers = routers.into_iter().zip(labels);
            let homes = routers.map(|(options, label)| {
                options.map(|options| internet.router(lab, label, options).unwrap())
            });
            homes.collect()
        })
    }

    /// Friends behind a router each, which are behind the router of a provider that has hairpin.
    pub(crate) fn behind_provider(router: RouterOptions) -> Option<Self> {
        Self::new(Program::WireguardGo, |lab, internet| {
            let provider = RouterOptions {
                inside: [100, 64],
                hairpin: true,
                ..router
            };
            let provider = internet.router(lab, "provider", provider).unwrap();
            let home = |label| Some(provider.router(lab, label, router).unwrap());
            ["home-a", "home-b"].map(home).into()
        })
    }

    /// Friends behind one router.
    pub(crate) fn together(router: RouterOptions) -> Option<Self> {
        Self::new(Program::WireguardGo, |lab, internet| {
            vec![Some(internet.router(lab, "home", router).unwrap())]
        })
    }

    fn new(
        hub_program: Program,
        homes: impl FnOnce(&Lab, &Router) -> Vec<Option<Router>>,
    ) -> Option<Self> {
        let needed = ["ip", "nft", "ping", "wg"];
        let (turn, lab) = lab_with(&[hub_program], &needed)?;
        let internet = Router::internet(&lab).unwrap();
        let hub = lab.namespace("hub").unwrap();
        let at_hub = internet.host(&hub, "eth0").unwrap();
        forward(&hub);
        let homes = homes(&lab, &internet);
        let all = [2, 3].map(|number| {
            let place = lab.namespace(["a", "b"][usize::from(number) - 2]).unwrap();
            let home = homes[usize::from(number - 2).min(homes.len() - 1)].as_ref();
            let outside = home.unwrap_or(&internet).host(&place, "eth0").unwrap();
            Friend {
                place,
                outside,
                inside: format!("10.8.0.{number}"),
                number,
                commands: AtomicUsize::new(0),
            }
        });
        let friends = Self {
            hub_program,
            daemon: Some(start_hub(&hub, hub_program)),
            all,
            hub,
            at_hub,
            internet,
            homes: homes.into_iter().flatten().collect(),
            lab,
            stun: Vec::new(),
            stun_at: None,
            servers: Vec::new(),
            _turn: turn,
        };
        friends.set_up_hub();
        for friend in &friends.all {
            friend.set_up();
            friends.configure(friend, "", &friend.direct());
        }
        Some(friends)
    }

    /// Writes the file of a friend, with these lines under `[Interface]` and under the hub's `[Peer]`.
    pub(crate) fn configure(&self, friend: &Friend, interface: &str, hub: &str) {
        self.configure_all(friend, interface, "10.8.0.0/24", hub);
    }

    /// The same with these allowed IPs.
    pub(crate) fn configure_all(&self, friend: &Friend, interface: &str, allowed: &str, hub: &str) {
        let (own, key) = (private_key(friend.number), public_key(1));
        let Friend { inside, number, .. } = friend;
        let text = format!(
            "[Interface]\nPrivateKey = {own}\nAddress = {inside}/24\nListenPort = 5182{number}\n{interface}\n\
             [Peer]\nPublicKey = {key}\nEndpoint = {}:51820\nAllowedIPs = {allowed}\nPersistentKeepalive = 25\n{hub}\n",
            self.at_hub.v4
        );
        let path = friend.place.run_directory().join("etc/wireguard/wg0.conf");
        fs::write(&path, text).unwrap();
        output_of(&friend.place, "chmod", &["600", "/etc/wireguard/wg0.conf"]);
    }

    /// Starts a STUN server at the internet, and configures it at both friends.
    pub(crate) fn use_stun(&mut self) {
        let (place, address) = self.place_of_server();
        let server = StunServer::start(&place, address).unwrap();
        self.stun.push(server);
        self.ask(address);
    }

    /// Starts a STUN server and a TURN server at the internet, and configures the one at both friends, the other one at
    /// the `owners`, with these lines.
    pub(crate) fn use_turn(&mut self, owners: &[usize], lines: &str) -> RelayServer {
        self.use_stun();
        let (place, address) = self.place_of_server();
        let server = start_turn(&place, address, RelayTransport::Udp);
        self.give_turn(owners, address, lines);
        server
    }

    /// The same with coturn for both.
    pub(crate) fn relay_by_coturn(&mut self, owners: &[usize]) {
        let user = format!("--user={USER}:{PASSWORD}");
        let options = ["--lt-cred-mech", "--realm=example.org", &user];
        let address = self.start_coturn(&options);
        self.stun_at = Some(address);
        self.give_turn(owners, address, "");
    }

    fn give_turn(&self, owners: &[usize], server: SocketAddr, lines: &str) {
        let stun = self.stun_at.expect("a STUN server");
        for (number, friend) in self.all.iter().enumerate() {
            let turn = match owners.contains(&number) {
                true => {
                    let file = "etc/wireguard/turn.password";
                    fs::write(friend.place.run_directory().join(file), PASSWORD).unwrap();
                    output_of(
                        &friend.place,
                        "chmod",
                        &["600", "/etc/wireguard/turn.password"],
                    );
                    format!(
                        "#convoy: Turn = turn:{server} Username = {USER} PasswordFile = turn.password"
                    )
                }
                false => String::new(),
            };
            let lines = format!("#convoy: Stun = {stun}\n{turn}\n{lines}");
            let allowed = match lines.contains("KillSwitch") {
                true => "0.0.0.0/0, ::/0",
                false => "10.8.0.0/24",
            };
            self.configure_all(friend, &lines, allowed, &friend.direct());
        }
    }

    /// The same as [`Self::use_stun`] with coturn.
    pub(crate) fn use_coturn(&mut self) {
        let address = self.start_coturn(&["--stun-only"]);
        self.ask(address);
    }

    fn start_coturn(&mut self, options: &[&str]) -> SocketAddr {
        let (place, address) = self.place_of_server();
        let mut command = place.command("turnserver");
        command.args(options);
        command.args(["--no-cli", "--no-tls", "--no-dtls", "--log-file=stdout"]);
        command.args(["--pidfile=/run/turnserver.pid", "--listening-ip"]);
        command.arg(address.ip().to_string());
        let log = File::create(place.run_directory().join("log")).unwrap();
        self.servers.push(command.stdout(log).spawn().unwrap());
        let listens = || {
            output_of(&place, "ss", &["-Hlun"])
                .contains(":3478")
                .then_some(())
        };
        assert!(eventually(DEADLINE, listens).is_some());
        address
    }

    fn ask(&mut self, server: SocketAddr) {
        self.stun_at = Some(server);
        for friend in &self.all {
            let line = format!("#convoy: Stun = {server}");
            self.configure(friend, &line, &friend.direct());
        }
    }

    /// A machine at the internet, and the address of a server there.
    fn place_of_server(&mut self) -> (Namespace, SocketAddr) {
        let number = self.stun.len() + self.servers.len();
        let place = self.lab.namespace(&format!("stun-{number}")).unwrap();
        let joined = self.internet.host(&place, "eth0").unwrap();
        (place, (joined.v4, 3478).into())
    }

    pub(crate) fn up(&self) {
        for friend in &self.all {
            friend.convoy(&["up", "wg0"]).succeeds();
        }
    }

    /// Waits until both have a direct path, with data every 20 ms from the first to the second; returns how long it took
    /// from the first packet on.
    fn meet(&self) -> Duration {
        let [a, b] = &self.all;
        let ping = a.start_ping(b);
        let begun = Instant::now();
        let are_direct = || (a.path(b).is_ok() && b.path(a).is_ok()).then(|| begun.elapsed());
        let took = eventually(2 * DEADLINE, are_direct);
        drop(ping);
        took.unwrap_or_else(|| panic!("{:?} {:?}", a.path(b), b.path(a)))
    }

    /// Waits until both have a direct path, to addresses of these kinds: at the first friend, and at the second.
    pub(crate) fn meet_by(&self, at_first: &str, at_second: &str) {
        let took = self.meet();
        let [a, b] = &self.all;
        let are_there = || {
            let kind = |path: Result<(String, String), String>| path.map(|(kind, _)| kind);
            let kinds = [kind(a.path(b)), kind(b.path(a))];
            (kinds == [Ok(at_first.to_owned()), Ok(at_second.to_owned())]).then_some(())
        };
        // The best path may answer after the first.
        let found = eventually(DEADLINE, are_there);
        assert!(found.is_some(), "{:?} {:?}", a.path(b), b.path(a));
        println!("the friends met after {} ms", took.as_millis());
    }

    /// Requires that packets go straight from one friend to the other, and all of them.
    pub(crate) fn talk_directly(&self) {
        let [a, b] = &self.all;
        let before = self.at_hub();
        a.reaches(b);
        b.reaches(a);
        let at_hub = self.at_hub() - before;
        assert!(at_hub < 10, "{at_hub} packets went by the hub");
    }

    /// Replaces the hub's process by another one.
    pub(crate) fn restart_hub(&mut self) {
        self.daemon = None;
        self.daemon = Some(start_hub(&self.hub, self.hub_program));
        self.set_up_hub();
    }

    /// Packets that the hub has forwarded.
    pub(crate) fn at_hub(&self) -> u64 {
        self.hub.link().statistics("wg0").unwrap().rx_packets
    }

    fn set_up_hub(&self) {
        let own = private_key(1);
        let [a, b] = [2, 3].map(public_key);
        let link = self.hub.link();
        link.bring_up("wg0", 1_420, &["10.8.0.1/24"]).unwrap();
        let line = format!(
            "echo {own} > /run/key
             wg set wg0 listen-port 51820 private-key /run/key \
                 peer {a} allowed-ips 10.8.0.2/32 peer {b} allowed-ips 10.8.0.3/32"
        );
        output_of(&self.hub, "sh", &["-ec", &line]);
    }
}

impl Friend {
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

    /// The status of the other friend as a direct peer, or the whole status if the tunnel's process has not been told of
    /// it yet.
    fn direct_status(&self, other: &Self) -> Result<Value, Value> {
        let outcome = self.convoy(&["status", "--json", "wg0"]).succeeds();
        let status: Value = serde_json::from_str(&outcome.stdout).unwrap();
        let peers = status["interfaces"][0]["peers"].as_array().unwrap();
        let directs = peers.iter().filter_map(|peer| peer["direct"].as_array());
        let mut directs = directs.flatten();
        let found = directs.find(|direct| direct["address"] == other.inside);
        found.cloned().ok_or_else(|| status.clone())
    }

    /// The kind and address of the path to the other friend, or why there is none but by the hub.
    pub(crate) fn path(&self, other: &Self) -> Result<(String, String), String> {
        let status = self.direct_status(other);
        let status = status.map_err(|_| "it is not told of yet".to_owned())?;
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        match status["path"].as_str() {
            Some("direct" | "relay") => Ok((text("kind"), text("remote"))),
            _ => Err(text("why")),
        }
    }

    /// Sends a packet each 20 ms to the other friend, until it is dropped.
    pub(crate) fn start_ping(&self, other: &Self) -> Ping {
        let mut command = self.place.command("ping");
        command.args(["-n", "-q", "-i", "0.02", &other.inside]);
        command.stdout(std::process::Stdio::null());
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
        let [first, second, third, last] = self.outside.v4.octets();
        let moved = Ipv4Addr::new(first, second, third, last + 7);
        let line = format!(
            "gateway=$(ip -4 route show default | cut -d' ' -f3)
             length=$(ip -4 -o addr show eth0 | sed 's/.*inet [^/]*.\\([0-9]*\\).*/\\1/')
             ip addr add {moved}/$length dev eth0
             ip addr delete {}/$length dev eth0
             ip addr replace {moved}/$length dev eth0
             ip route replace default via $gateway",
            self.outside.v4
        );
        output_of(&self.place, "sh", &["-ec", &line]);
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

    fn set_up(&self) {
        let line = format!(
            "umask 022; mkdir -p /run/etc/wireguard /run/lib; chmod 700 /run/etc/wireguard
             (cd /etc; cp -a {ETC} /run/etc) 2>/dev/null || true
             echo nameserver 192.0.2.53 > /run/etc/resolv.conf
             mount --bind /run/etc /etc; mount --bind /run/lib /var/lib"
        );
        output_of(&self.place, "sh", &["-ec", &line]);
    }

    fn log(&self) -> String {
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

fn start_hub(place: &Namespace, program: Program) -> Daemon {
    Daemon::start(place, &program.implementation(), "wg0").unwrap()
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

impl Drop for Friends {
    fn drop(&mut self) {
        if thread::panicking() {
            let logs = self.all.iter().map(Friend::log);
            let all: String = logs.collect();
            let lines: Vec<_> = all
                .lines()
                .filter(|line| !line.contains("\"interfaces\""))
                .collect();
            eprintln!("--- the friends' commands wrote:\n{}", lines.join("\n"));
        }
        for server in &mut self.servers {
            // Both fail only if it has ended.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
