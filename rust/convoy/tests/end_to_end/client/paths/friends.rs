//! Two friends, their routers, and the hub that both trust: a program that knows nothing of direct paths.

use std::{
    fs::{self, File},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::Child,
    thread,
};

use convoy_lab::{Lab, Namespace, Turn, eventually, wireguard::Daemon};
use convoy_turn_server::{RelayServer, RelayTransport};

use super::{HARD, friend::Friend, meeting::meet, numbers::Tallies};
use crate::{
    hub::forward,
    pairing::Program,
    router::{Joined, Router, RouterOptions},
    scene::{DEADLINE, lab_with, output_of},
    turn_server::{PASSWORD, USER, start_stun, start_turn_of},
    twins::{private_key, public_key},
};

/// The hub's port after it has moved.
const MOVED_PORT: u16 = 51_999;

/// The families of networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Families {
    Both,
    OnlyIpv6,
}

/// The friends, and all that is between them.
///
/// Prints what their commands said when the test fails.
pub(crate) struct Friends {
    pub(crate) all: [Friend; 2],
    pub(crate) hub: Namespace,
    pub(crate) at_hub: Joined,
    /// The families of the friends' networks, and of the servers.
    families: Families,
    pub(crate) internet: Router,
    /// The router of each friend; the same one for both if they share it.
    pub(crate) homes: Vec<Router>,
    pub(crate) lab: Lab,
    stun: Vec<RelayServer>,
    pub(super) stun_at: Option<SocketAddr>,
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
                options.map(|options| internet.router(lab, label, options))
            });
            homes.collect()
        })
    }

    /// Friends behind a hard NAT each, and behind firewalls that let nothing over IPv6 pass between them.
    pub(crate) fn kept_apart() -> Option<Self> {
        let home = RouterOptions { ipv6: true, ..HARD };
        let friends = Self::apart([Some(home), Some(home)])?;
        for (home, friend) in friends.homes.iter().zip(friends.all.iter().rev()) {
            home.cut(friend.outside.v6.unwrap().into());
        }
        Some(friends)
    }

    /// The same without IPv4.
    pub(crate) fn kept_apart_without_ipv4() -> Option<Self> {
        let mut friends = Self::kept_apart()?;
        friends.families = Families::OnlyIpv6;
        for friend in &friends.all {
            output_of(&friend.place, "ip", &["-4", "addr", "flush", "dev", "eth0"]);
            friends.configure(friend, "", &friend.direct());
        }
        Some(friends)
    }

    /// Friends behind a router each, which are behind the router of a provider that has hairpin.
    pub(crate) fn behind_provider(router: RouterOptions) -> Option<Self> {
        Self::new(Program::WireguardGo, |lab, internet| {
            let provider = RouterOptions {
                inside: [100, 64],
                hairpin: true,
                ..router
            };
            let provider = internet.router(lab, "provider", provider);
            let home = |label| Some(provider.router(lab, label, router));
            ["home-a", "home-b"].map(home).into()
        })
    }

    /// Friends behind one router.
    pub(crate) fn together(router: RouterOptions) -> Option<Self> {
        Self::new(Program::WireguardGo, |lab, internet| {
            vec![Some(internet.router(lab, "home", router))]
        })
    }

    fn new(
        hub_program: Program,
        homes: impl FnOnce(&Lab, &Router) -> Vec<Option<Router>>,
    ) -> Option<Self> {
        let needed = ["ip", "nft", "ping", "wg"];
        let (turn, lab) = lab_with(&[hub_program], &needed)?;
        let internet = Router::internet(&lab);
        let hub = lab.namespace("hub").unwrap();
        let at_hub = internet.host(&hub, "eth0");
        forward(&hub);
        let homes = homes(&lab, &internet);
        let all = [2, 3].map(|number| {
            let place = lab.namespace(["a", "b"][usize::from(number) - 2]).unwrap();
            let home = homes[usize::from(number - 2).min(homes.len() - 1)].as_ref();
            let outside = home.unwrap_or(&internet).host(&place, "eth0");
            Friend::new(place, outside, number)
        });
        let friends = Self {
            hub_program,
            daemon: Some(start_hub(&hub, hub_program)),
            all,
            hub,
            at_hub,
            families: Families::Both,
            internet,
            homes: homes.into_iter().flatten().collect(),
            lab,
            stun: Vec::new(),
            stun_at: None,
            servers: Vec::new(),
            _turn: turn,
        };
        set_up_hub(&friends.hub);
        for friend in &friends.all {
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
        let hub_at = match self.families {
            Families::Both => self.at_hub.v4.into(),
            Families::OnlyIpv6 => self.at_hub.v6.unwrap().into(),
        };
        friend.configure(hub_at, interface, allowed, hub);
    }

    /// Starts a STUN server at the internet, and configures it at both friends.
    pub(crate) fn use_stun(&mut self) {
        let (place, joined) = self.place_of_server();
        let address = self.at(joined);
        self.stun.push(start_stun(&place, address));
        self.ask(address);
    }

    /// Starts a STUN server and a TURN server at the internet, and configures the one at both friends, the other one at
    /// the `owners`, with these lines.
    pub(crate) fn use_turn(&mut self, owners: &[usize], lines: &str) -> RelayServer {
        self.use_stun();
        let (place, joined) = self.place_of_server();
        let address = self.at(joined);
        let other = match self.families {
            Families::Both => joined.v6.map(IpAddr::from),
            Families::OnlyIpv6 => None,
        };
        let server = start_turn_of(&place, address, other, RelayTransport::Udp);
        self.give_turn(owners, address, lines);
        server
    }

    /// The same with coturn for both.
    pub(crate) fn relay_by_coturn(&mut self, owners: &[usize]) {
        self.relay_by_coturn_with(owners, &["--lt-cred-mech"]);
    }

    /// The same with relayed addresses of IPv6 alone, or else of IPv4.
    pub(crate) fn relay_by_coturn_of(&mut self, is_ipv6: bool, owners: &[usize]) {
        let at = if is_ipv6 { "@v6" } else { "@v4" };
        let at = format!("--relay-ip={at}");
        self.relay_by_coturn_with(owners, &["--lt-cred-mech", &at]);
    }

    fn relay_by_coturn_with(&mut self, owners: &[usize], options: &[&str]) {
        let user = format!("--user={USER}:{PASSWORD}");
        let options = [options, &["--realm=example.org", &user]].concat();
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

    /// In the options, `@v4` and `@v6` stand for the server's addresses.
    fn start_coturn(&mut self, options: &[&str]) -> SocketAddr {
        let (place, joined) = self.place_of_server();
        let address = self.at(joined);
        let mut command = place.command("turnserver");
        let addresses = [joined.v4.into(), joined.v6.unwrap().into()];
        let named = |option: &&str| {
            let [v4, v6] = addresses.map(|it: IpAddr| it.to_string());
            option.replace("@v4", &v4).replace("@v6", &v6)
        };
        command.args(options.iter().map(named));
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

    /// A machine for a server at the internet, and its addresses.
    fn place_of_server(&mut self) -> (Namespace, Joined) {
        let number = self.stun.len() + self.servers.len();
        let place = self.lab.namespace(&format!("stun-{number}")).unwrap();
        let joined = self.internet.host(&place, "eth0");
        (place, joined)
    }

    /// Returns where friends reach a server that has these addresses.
    fn at(&self, joined: Joined) -> SocketAddr {
        match self.families {
            Families::Both => (joined.v4, 3478).into(),
            Families::OnlyIpv6 => (joined.v6.unwrap(), 3478).into(),
        }
    }

    pub(crate) fn up(&self) {
        for friend in &self.all {
            friend.convoy(&["up", "wg0"]).succeeds();
        }
    }

    /// Waits until both have a direct path, to addresses of these kinds: at the first friend, and at the second.
    pub(crate) fn meet_by(&self, at_first: &str, at_second: &str) -> Tallies {
        let [a, b] = &self.all;
        meet([a, b], [at_first, at_second])
    }

    /// Brings the tunnels up, and requires that the first friend finds no path to the second, for this reason, and
    /// reaches it by the hub.
    pub(crate) fn stay_at_the_hub(&self, why: &str) {
        self.up();
        let [a, b] = &self.all;
        let ping = a.start_ping(b);
        let is_told = || (a.path(b) == Err(why.to_owned())).then_some(());
        let found = eventually(2 * DEADLINE, is_told);
        assert!(found.is_some(), "{:?}", a.path(b));
        drop(ping);
        a.reaches(b);
    }

    /// Makes the router of both friends carry nothing from one of its links to another.
    pub(crate) fn keep_apart(&self) {
        let rule = "insert rule inet convoy_router forward \
             iifname \"lan*\" oifname \"lan*\" ct status & dnat != dnat drop";
        output_of(&self.homes[0].namespace, "nft", &[rule]);
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
        set_up_hub(&self.hub);
    }

    /// Packets that the hub has forwarded.
    pub(crate) fn at_hub(&self) -> u64 {
        self.hub.link().statistics("wg0").unwrap().recv_packets
    }

    /// Moves the hub to another address and port, from which it speaks to both friends; returns the address.
    pub(crate) fn move_hub(&self) -> SocketAddr {
        let moved = renumber(&self.hub, self.at_hub.v4);
        let line = format!(
            "wg set wg0 listen-port {MOVED_PORT}
             ping -n -q -c 1 -W 20 10.8.0.2
             ping -n -q -c 1 -W 20 10.8.0.3"
        );
        output_of(&self.hub, "sh", &["-ec", &line]);
        (moved, MOVED_PORT).into()
    }
}

/// Makes the namespace's `wg0` the hub of both friends.
pub(crate) fn set_up_hub(place: &Namespace) {
    let own = private_key(1);
    let [a, b] = [2, 3].map(public_key);
    let link = place.link();
    link.bring_up("wg0", 1_420, &["10.8.0.1/24"]).unwrap();
    let line = format!(
        "echo {own} > /run/key
         wg set wg0 listen-port 51820 private-key /run/key \
             peer {a} allowed-ips 10.8.0.2/32 peer {b} allowed-ips 10.8.0.3/32"
    );
    output_of(place, "sh", &["-ec", &line]);
}

fn start_hub(place: &Namespace, program: Program) -> Daemon {
    Daemon::start(place, &program.implementation(), "wg0").unwrap()
}

/// Gives the machine another address in place of its own, which is returned.
pub(super) fn renumber(place: &Namespace, former: Ipv4Addr) -> Ipv4Addr {
    let [first, second, third, last] = former.octets();
    let moved = Ipv4Addr::new(first, second, third, last + 7);
    let line = format!(
        "gateway=$(ip -4 route show default | cut -d' ' -f3)
         length=$(ip -4 -o addr show eth0 | sed 's/.*inet [^/]*.\\([0-9]*\\).*/\\1/')
         ip addr add {moved}/$length dev eth0
         ip addr delete {former}/$length dev eth0
         ip addr replace {moved}/$length dev eth0
         ip route replace default via $gateway"
    );
    output_of(place, "sh", &["-ec", &line]);
    moved
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
