use std::{fs, os::unix::fs::PermissionsExt as _};

use super::*;
use crate::encode_key;

#[test]
fn both_files_are_read_and_the_outer_one_is_found_beside_the_inner_one_or_by_its_path() {
    let scene = Scene::new();
    fs::create_dir(scene.folder.path().join("other")).unwrap();
    scene.write("other/hop.conf", OUTER);
    for via in ["hop", "hop.conf", "./hop.conf", "other/hop.conf"] {
        let config = scene.read(&inner(via, "203.0.113.7:51820")).unwrap().config;
        let outer = config.via.expect("an outer tunnel");
        assert_eq!(outer.config.name.as_str(), "hop", "{via}");
        assert_eq!(outer.config.peers.len(), 1);
        assert!(outer.path.is_absolute());
        assert!(outer.config.via.is_none());
    }
}

#[test]
fn the_overhead_depends_on_the_family_of_the_endpoints() {
    let scene = Scene::new();
    for (endpoint, expected) in [
        ("203.0.113.7:51820", 60),
        ("[2001:db8::7]:51820", 80),
        ("vpn.example.org:51820", 80),
    ] {
        let config = scene.read(&inner("hop", endpoint)).unwrap().config;
        assert_eq!(config.inner_overhead(), expected, "{endpoint}");
        assert_eq!(config.via.unwrap().config.inner_overhead(), 0);
    }
}

#[test]
fn turn_servers_belong_in_the_outer_file() {
    let scene = Scene::new();
    scene.write("turn.password", "hunter2\n");
    let turn = "#convoy: Turn = turn:192.0.2.9 Username = a PasswordFile = turn.password\n[Peer]";
    let good = inner("hop", "203.0.113.7:51820");
    scene.write("hop.conf", &OUTER.replace("[Peer]", turn));
    let loaded = scene.read(&good).unwrap();
    assert_eq!(loaded.config.via.unwrap().config.interface.turns.len(), 1);
    assert!(loaded.warnings.is_empty());
    let report = scene.read(&good.replace("[Peer]", turn)).unwrap_err();
    let shown = report.render(false);
    assert!(
        shown.contains("`Turn` belongs in the outer tunnel's file"),
        "{shown}"
    );
    assert!(shown.contains("wg0.conf:5"), "{shown}");
}

#[test]
fn what_does_not_fit_is_refused_with_the_lines_of_both_files() {
    let inner = |endpoint: &str| inner("hop", endpoint);
    let good = inner("203.0.113.7:51820");
    let narrow = OUTER.replace("0.0.0.0/0, ::/0", "198.51.100.0/24");
    let ipv4 = OUTER.replace(", fd09::2/128", "");
    for (inner, outer, expected) in [
        (
            good.clone(),
            narrow,
            "do not hold the endpoint 203.0.113.7|wg0.conf:7|hop.conf:7|add 203.0.113.7",
        ),
        (
            inner("[2001:db8::7]:1"),
            ipv4,
            "no IPv6 `Address`|wg0.conf:7|hop.conf:3",
        ),
        (
            inner("[fe80::1%eth0]:1"),
            OUTER.to_owned(),
            "on a local link|wg0.conf:7",
        ),
        (
            good.clone(),
            OUTER.replace("[Peer]", "#convoy: Via = third\n[Peer]"),
            "goes through another itself|wg0.conf:4|hop.conf:4",
        ),
        (
            good.replace("Via = hop", "Via = wg0"),
            OUTER.to_owned(),
            "through itself|wg0.conf:4",
        ),
        (
            good.replace("Via = hop", "Via = none"),
            OUTER.to_owned(),
            "is not valid|none.conf",
        ),
        (
            good.replace("Via = hop", "Via = a b"),
            OUTER.to_owned(),
            "no name of a tunnel|wg0.conf:4",
        ),
        (
            good.clone(),
            OUTER.replace("PrivateKey", "# PrivateKey"),
            "it has no `PrivateKey`",
        ),
        (
            good.clone(),
            OUTER.replace("Address", "# Address"),
            "it has no `Address`",
        ),
        (
            good.clone(),
            OUTER.replace("Endpoint", "# Endpoint"),
            "none of its peers",
        ),
        (
            good.clone(),
            OUTER.replace("AllowedIPs", "AllowedIP"),
            "is not valid|hop.conf:7",
        ),
        (
            good.replace(&key(20), &key(30)),
            OUTER.to_owned(),
            "same public key|wg0.conf:6|hop.conf:5",
        ),
        (
            good.replace("[Peer]", "#convoy: PortMap = yes\n[Peer]"),
            OUTER.to_owned(),
            "`PortMap` cannot be combined|wg0.conf:5",
        ),
        (
            format!(
                "{good}AllowedIPs = 10.8.0.0/24\n#convoy: Direct = {} 10.8.0.3/32\n",
                key(40)
            ),
            OUTER.to_owned(),
            "`Direct` cannot be combined|wg0.conf:9",
        ),
    ] {
        let scene = Scene::new();
        scene.write("hop.conf", &outer);
        let report = scene.read(&inner).map(|it| it.config).unwrap_err();
        let shown = report.render(false);
        let mut parts = expected.split('|');
        assert!(
            parts.all(|part| shown.contains(part)),
            "{expected}:\n{shown}"
        );
    }
}

#[test]
fn an_outer_tunnel_that_is_too_large_is_refused() {
    let scene = Scene::new();
    let prefixes: Vec<_> = (0..600)
        .map(|n| format!("10.{}.{}.0/24", n / 256, n % 256))
        .collect();
    scene.write(
        "hop.conf",
        &format!("{OUTER}AllowedIPs = {}\n", prefixes.join(", ")),
    );
    let report = scene.read(&inner("hop", "203.0.113.7:51820")).unwrap_err();
    assert!(report.render(false).contains("more than 512"), "{report}");
}

#[test]
fn keys_without_effect_and_a_large_mtu_are_told_once() {
    let scene = Scene::new();
    let more = "DNS = 10.9.0.1\nMTU = 1420\nPostUp = true\n#convoy: KillSwitch = on\n[Peer]";
    scene.write("hop.conf", &OUTER.replace("[Peer]", more));
    let text = inner("hop", "203.0.113.7:51820").replace("[Peer]", "MTU = 1400\n[Peer]");
    let warnings = scene.read(&text).unwrap().warnings.render(false);
    let told = "`DNS`, `PostUp`, `KillSwitch` have no effect in an outer tunnel";
    assert_eq!(warnings.matches(told).count(), 1, "{warnings}");
    assert!(warnings.contains("at most 1360 fits"), "{warnings}");
    let fitting = text.replace("1400", "1360");
    let warnings = scene.read(&fitting).unwrap().warnings.render(false);
    assert!(!warnings.contains("fits"), "{warnings}");
}

/// Lines 1 to 7.
const OUTER: &str = "\
[Interface]
PrivateKey = 2AnoYzJg3Rcx8LtVbAs4eSpnkDWbMRmCCyALgGBmFXk=
Address = 10.9.0.2/32, fd09::2/128
[Peer]
PublicKey = Hh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4=
Endpoint = 192.0.2.1:51820
AllowedIPs = 0.0.0.0/0, ::/0
";

/// Lines 1 to 7.
fn inner(via: &str, endpoint: &str) -> String {
    format!(
        "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\nAddress = 10.8.0.2/24\n\
         #convoy: Via = {via}\n[Peer]\nPublicKey = {}\nEndpoint = {endpoint}\n",
        key(20)
    )
}

fn key(byte: u8) -> String {
    encode_key(&[byte; 32]).to_string()
}

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        scene.write("hop.conf", OUTER);
        scene
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn read(&self, inner: &str) -> Result<Loaded, Report> {
        self.write("wg0.conf", inner);
        crate::read(&self.folder.path().join("wg0.conf"))
    }
}
