//! `convoy doctor --nat`: how it sees the routers between a machine and two STUN servers.
//!
//! ```text
//!  a ── home ── internet ──┬── STUN server
//!                          └── STUN server
//! ```

use std::fs;

use convoy_lab::{Lab, Namespace, Turn};
use convoy_turn_server::RelayServer;

use super::{HARD, HOME};
use crate::{
    client::{doctor::Diagnosis, outcome::Outcome},
    router::{Joined, Router, RouterOptions},
    scene::{convoy_program, lab},
    turn_server::start_stun,
    twins::private_key,
};

/// A machine, its router if there is one, and two servers.
struct Scene {
    place: Namespace,
    own: Joined,
    home: Option<Router>,
    servers: [RelayServer; 2],
    _internet: Router,
    _lab: Lab,
    _turn: Turn,
}

impl Scene {
    /// `None` if the machine cannot provide it.
    fn new(home: Option<RouterOptions>) -> Option<Self> {
        let (turn, lab) = lab(&["ip", "nft"])?;
        let internet = Router::internet(&lab);
        let servers = ["stun-0", "stun-1"].map(|label| {
            let place = lab.namespace(label).unwrap();
            let joined = internet.host(&place, "eth0");
            start_stun(&place, (joined.v4, 3478).into())
        });
        let home = home.map(|options| internet.router(&lab, "home", options));
        let place = lab.namespace("a").unwrap();
        let own = home.as_ref().unwrap_or(&internet).host(&place, "eth0");
        Some(Self {
            own,
            place,
            home,
            servers,
            _internet: internet,
            _lab: lab,
            _turn: turn,
        })
    }

    /// Runs `convoy doctor --nat` with both servers.
    fn doctor(&self) -> Diagnosis {
        let [first, second] = self.servers.each_ref().map(|it| it.address.to_string());
        self.doctor_with(&["--stun", &first, "--stun", &second])
    }

    fn doctor_with(&self, arguments: &[&str]) -> Diagnosis {
        let mut command = self.place.command(convoy_program());
        command.args(["doctor", "--nat", "--json"]).args(arguments);
        let output = command.output().unwrap();
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        Diagnosis::of(Outcome {
            code: output.status.code(),
            stdout,
            stderr,
        })
    }
}

/// Requires a finding of this check and severity, with these words.
fn expect(diagnosis: &Diagnosis, id: &str, severity: &str, words: &str) {
    let finding = diagnosis.finding(id);
    let what = finding["what"].as_str().unwrap();
    assert_eq!(finding["severity"], severity, "{what}");
    assert!(what.contains(words), "{what}");
}

fn has(diagnosis: &Diagnosis, id: &str) -> bool {
    diagnosis.all().iter().any(|finding| finding["id"] == id)
}

#[test]
fn doctor_finds_no_nat_at_the_internet_itself() {
    let Some(scene) = Scene::new(None) else {
        return;
    };
    let diagnosis = scene.doctor();
    let own = scene.own.v4.to_string();
    expect(&diagnosis, "nat-addresses", "ok", &own);
    expect(&diagnosis, "nat-server", "ok", &format!(" as {own}:"));
    expect(&diagnosis, "nat", "ok", "no NAT for IPv4");
    assert!(!has(&diagnosis, "nat-mapping"));
}

#[test]
fn doctor_finds_that_a_home_router_maps_endpoint_independently() {
    let Some(scene) = Scene::new(Some(HOME)) else {
        return;
    };
    let outside = scene.home.as_ref().unwrap().outside.unwrap().v4;
    let diagnosis = scene.doctor();
    let own = scene.own.v4.to_string();
    expect(&diagnosis, "nat-addresses", "ok", &own);
    let seen = format!(" as {outside}:");
    expect(&diagnosis, "nat-server", "ok", &seen);
    expect(&diagnosis, "nat", "ok", &format!("servers see {outside}."));
    expect(&diagnosis, "nat-mapping", "ok", "is endpoint-independent");
}

#[test]
fn doctor_asks_the_servers_of_a_file_too() {
    let Some(scene) = Scene::new(Some(HOME)) else {
        return;
    };
    let [first, second] = scene.servers.each_ref().map(|it| it.address.to_string());
    let path = scene.place.run_directory().join("wg7.conf");
    let key = private_key(2);
    let text = format!("[Interface]\nPrivateKey = {key}\n#convoy: Stun = {first}\n");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let diagnosis = scene.doctor_with(&[path]);
    expect(&diagnosis, "nat-server", "ok", &first);
    expect(&diagnosis, "nat-mapping", "note", "cannot be judged");
    let diagnosis = scene.doctor_with(&[path, "--stun", &second]);
    expect(&diagnosis, "nat-mapping", "ok", "is endpoint-independent");
}

#[test]
fn doctor_finds_a_hard_nat() {
    let Some(scene) = Scene::new(Some(HARD)) else {
        return;
    };
    let diagnosis = scene.doctor();
    expect(
        &diagnosis,
        "nat-mapping",
        "warning",
        "not endpoint-independent",
    );
}

#[test]
fn doctor_finds_that_udp_is_blocked() {
    let Some(scene) = Scene::new(Some(HOME)) else {
        return;
    };
    for server in &scene.servers {
        let home = scene.home.as_ref().unwrap();
        home.cut(server.address.ip());
    }
    let diagnosis = scene.doctor();
    expect(&diagnosis, "nat-udp", "warning", "UDP over IPv4 is blocked");
    assert!(!has(&diagnosis, "nat") && !has(&diagnosis, "nat-server"));
}
