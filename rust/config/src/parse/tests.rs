mod forward;
mod strange;

use std::sync::Arc;

use super::*;
use crate::{
    check::check,
    config::{KillSwitch, Table},
    located::{Files, Located, Shown},
    mask::masked,
};

const KEYS: [&str; 3] = [
    "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
    "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=",
    "gN65BkIKy1eCE9pP1wdc8ROUtkHLF2PfAqYdyYBz6EA=",
];

#[test]
fn every_key_of_wg_quick_is_read() {
    let draft = valid(
        "# comment\r\n\
         [interface] # comment\r\n\
         PRIVATEKEY=yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\r\n\
         ListenPort = 51820\n\
         FwMark = 0xca6c\n\
         Address = 10.0.0.1/24,fd00::1 10.0.1.1\n\
         address = 10.0.2.1/32 # comment\n\
         DNS = 10.0.0.53, corp.example,fd00::53\n\
         MTU = 1400\n\
         Table = 1234\n\
         PostUp = ip rule add ipproto tcp dport 22 table 1234; echo \"%i\"\n\
         PostUp = second\n\
         PreUp =\n\
         SaveConfig = True\n\
         \n\
         [Peer]\n\
         PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
         PresharedKey = /UwcSPg38hW/D9Y3tcS1FOV0K1wuURMbS0sesJEP5ak=\n\
         AllowedIPs = 10.192.122.3/32,10.192.124.1/24\n\
         AllowedIPs=::/0\n\
         Endpoint = [2607:5300:60:6b0::c05f:543]:2468\n\
         PersistentKeepalive = 25",
    );
    let it = &draft.interface;
    assert!(it.private_key.is_some());
    assert_eq!(it.listen_port.as_deref(), Some(&51820));
    assert_eq!(it.fwmark.as_deref(), Some(&0xca6c));
    assert_eq!(
        shown(&it.addresses),
        "10.0.0.1/24 fd00::1/128 10.0.1.1/32 10.0.2.1/32"
    );
    assert_eq!(shown(&it.dns_servers), "10.0.0.53 fd00::53");
    assert_eq!(shown(&it.dns_domains), "corp.example");
    assert_eq!(it.mtu.as_deref(), Some(&1400));
    assert_eq!(it.table.as_deref(), Some(&Table::Number(1234)));
    assert_eq!(it.post_up.len(), 2);
    assert!(it.post_up[0].ends_with("; echo \"%i\""));
    assert!(it.pre_up.is_empty());
    assert_eq!(it.save_config.as_deref(), Some(&true));
    let [peer] = &draft.peers[..] else { panic!() };
    assert!(peer.preshared_key.is_some());
    assert_eq!(peer.allowed_ips.len(), 3);
    assert_eq!(peer.allowed_ips[1].address().to_string(), "10.192.124.0");
    assert_eq!(shown(&peer.endpoints), "[2607:5300:60:6b0::c05f:543]:2468");
    assert_eq!(peer.persistent_keepalive.as_deref(), Some(&25));
}

#[test]
fn every_key_of_convoy_is_read() {
    let draft = valid(&format!(
        "[Interface]\n\
         # convoy: killswitch = Persistent\n\
         #convoy:AllowLAN=yes # comment\n\
         #convoy: ExcludedIPs = 192.0.2.0/24, Local\n\
         #convoy: PrivateKeyFile = keys/wg0.key\n\
         [Peer]\n\
         PublicKey = {}\n\
         #convoy: Endpoints = b.example:2, 192.0.2.3:3\n\
         #convoy: PresharedKeyFile = /run/keys/psk\n\
         Endpoint = a.example:1\n",
        KEYS[0],
    ));
    let it = &draft.interface;
    assert_eq!(it.kill_switch.as_deref(), Some(&KillSwitch::Persistent));
    assert_eq!(it.allow_lan.as_deref(), Some(&true));
    assert_eq!(it.excluded_ips.len(), 1);
    assert!(it.exclude_local.is_some());
    assert_eq!(
        it.private_key_file.as_ref().unwrap().to_str(),
        Some("keys/wg0.key")
    );
    let [peer] = &draft.peers[..] else { panic!() };
    assert_eq!(
        shown(&peer.endpoints),
        "a.example:1 b.example:2 192.0.2.3:3"
    );
    assert_eq!(
        peer.preshared_key_file.as_ref().unwrap().to_str(),
        Some("/run/keys/psk")
    );
}

#[test]
fn a_friendly_name_is_for_the_section_it_is_in_or_the_one_below() {
    let draft = valid(&format!(
        "[Interface]\n\
         # friendly_name = Nobody\n\
         \n\
         # friendly_name = Ann\n\
         # of sales\n\
         [Peer]\n\
         PublicKey = {}\n\
         # friendly_name = Bob\n\
         [Peer]\n\
         PublicKey = {}\n\
         \n\
         [Peer]\n\
         #friendly_name=C\u{1b}\u{202e}e\n\
         PublicKey = {}\n",
        KEYS[0], KEYS[1], KEYS[2],
    ));
    let names: Vec<_> = draft
        .peers
        .iter()
        .flat_map(|peer| &peer.friendly_name)
        .collect();
    assert_eq!(names, ["Ann", "Bob", "C??e"]);
}

#[test]
fn all_errors_of_a_file_are_reported_with_their_places() {
    let report = invalid(&format!(
        "[Interface]\n\
         ListenPort = many\n\
         Adress = 10.0.0.1\n\
         AllowedIPs = ::/0\n\
         KillSwitch = on\n\
         #convoy: MTU = 1400\n\
         #convoy: KillSwitch = onn\n\
         [Pear]\n\
         Whatever = 1\n\
         [Peer]\n\
         PublicKey = {}\n\
         AllowedIPs = 10.0.0.0/8, 10.0.0.0/40\n\
         Endpoint\n\
         [Peer]\n\
         AllowedIPs = 10.0.0.1\n\
         PresharedKey =",
        KEYS[0],
    ));
    for expected in [
        "error: invalid value for `ListenPort`\n --> wg0.conf:2:14\n",
        "^^^^ expected a number from 0 to 65535",
        "error: unknown key `Adress`\n --> wg0.conf:3:1",
        "= help: did you mean `Address`?",
        "error: `AllowedIPs` in `[Interface]`\n --> wg0.conf:4:1",
        "^^^^^^^^^^ belongs in `[Peer]`",
        "= help: write `#convoy: KillSwitch = …`",
        "= help: write `MTU = …`",
        "= help: did you mean `on`?",
        "error: unknown section\n --> wg0.conf:8:1",
        "= help: did you mean `[Peer]`?",
        "wg0.conf:12:35",
        "^^ expected a prefix length from 0 to 32",
        "error: neither a section nor a key with a value\n  --> wg0.conf:13:1",
        "= help: did you mean `Endpoint = …`?",
        "error: `PresharedKey` has no value",
        "error: missing `PublicKey`\n  --> wg0.conf:14:1",
    ] {
        assert!(
            report.contains(expected),
            "{expected}\nis missing from\n{report}"
        );
    }
    assert_eq!(report.matches("error: ").count(), 11, "{report}");
}

#[test]
fn no_report_shows_a_secret() {
    let secret = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk";
    let report = invalid(&format!(
        "[Interface]\n\
         PrivateKey = {secret}\n\
         PrivatKey = {secret}=\n\
         {secret}\n\
         PresharedKey = {secret}=\n\
         [Peer]\n\
         PresharedKey = {secret}A\n\
         PresharedKey {secret}=\n\
         PreshardKey = {secret}="
    ));
    for at in 0..secret.len() - 3 {
        assert!(!report.contains(&secret[at..at + 4]), "{report}");
    }
    let stars = "*".repeat(secret.len());
    assert!(
        report.contains(&format!("2 | PrivateKey = {stars}")),
        "{report}"
    );
    assert!(report.contains(&"^".repeat(secret.len())), "{report}");
    assert!(report.contains("found 43 characters"), "{report}");
}

/// A person who mistakes one key for another.
#[test]
fn a_private_key_in_the_place_of_something_else_is_not_shown() {
    // Without `+` and `/`, so that it may be a name.
    let secret = "yAnz5TFplXXJte14tji3zlMNqKhd2rYUIgJBgB3fBmk";
    for (line, column) in [
        (format!("PublicKey = {secret}"), 13),
        (format!("PublicKey = {secret}0="), 13),
        (format!("PublicKey = {}=", &secret[1..]), 13),
        (format!("Endpoint = {secret}"), 12),
        (format!("Endpoint = {secret}="), 12),
        (format!("AllowedIPs = {secret}"), 14),
        (format!("#convoy: Endpoints = {secret}"), 22),
        (format!("#convoy: PublicKey = {secret}"), 10),
        (format!("#convoy: Direct = {secret}"), 19),
        (format!("#convoy: Direct = {secret} 10.0.0.3/32"), 19),
    ] {
        let report = invalid(&format!("[Interface]\n[Peer]\n{line}\n"));
        for at in 0..secret.len() - 3 {
            assert!(!report.contains(&secret[at..at + 4]), "{report}");
        }
        assert!(
            report.contains(&format!("wg0.conf:3:{column}\n")),
            "{report}"
        );
    }
    let wrapped = "BmkyAnzTFplXXJtetjizlMNq";
    for line in [format!("{wrapped}="), format!("#convoy: {wrapped}=")] {
        let report = invalid(&format!("[Interface]\nPrivateKey = {secret}\n{line}\n"));
        assert!(!report.contains(wrapped), "{report}");
    }
}

/// In any file.
#[test]
fn a_malformed_key_of_a_drop_in_is_not_shown() {
    let secret = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk";
    let drop_in = format!("[Peer]\nPublicKey = {secret}\n");
    let (_, report) = parsed(&["[Interface]\n", &drop_in]);
    let report = report.to_string();
    let stars = "*".repeat(secret.len());
    assert!(
        report.contains(&format!("2 | PublicKey = {stars}\n")),
        "{report}"
    );
    assert!(report.contains("1.conf:2:13"), "{report}");
    assert!(!report.contains(&secret[..4]), "{report}");
}

#[test]
fn ignored_and_overridden_values_are_warned_about() {
    let warnings = warnings(&format!(
        "[Interface]\n\
         MTU = 1280\n\
         MTU = 1200\n\
         Address = fd00::1/64, fd00::1/64\n\
         PostUp = echo \"a # b\"\n\
         #convoy KillSwitch = on\n\
         #convoy: AllowLAN = yes\n\
         [Peer]\n\
         PublicKey = {}\n\
         AllowedIPs = 10.0.0.1/24, 10.0.0.0/24\n\
         Endpoint = fd00::1:51820\n\
         [Peer]\n\
         PublicKey = {}\n\
         AllowedIPs = 10.0.0.0/24\n\
         [Interface]",
        KEYS[0], KEYS[1],
    ));
    for expected in [
        "`MTU` is set twice",
        "disables IPv6",
        "duplicate address",
        "`#` starts a comment even inside quotes",
        "`#convoy` without a colon is ignored",
        "`AllowLAN` has no effect without the kill switch",
        "a prefix with host bits set",
        "duplicate prefix",
        "help: write [fd00::1]:51820",
        "the tunnel's networks hold the endpoint fd00::1",
        "two peers claim the same prefix",
        "no `PrivateKey`",
        "a second `[Interface]` section",
    ] {
        assert!(
            warnings.contains(expected),
            "{expected}\nis missing from\n{warnings}"
        );
    }
    assert_eq!(warnings.matches("warning: ").count(), 13, "{warnings}");
}

#[test]
fn the_later_peer_has_a_prefix_that_two_list() {
    let text = format!(
        "[Interface]\n[Peer]\nPublicKey={}\nAllowedIPs=::/0,::1\n[Peer]\nPublicKey={}\nAllowedIPs=::/0",
        KEYS[0], KEYS[1],
    );
    let (draft, report) = parsed(&[&text]);
    assert!(!report.has_errors());
    let counts: Vec<_> = draft
        .peers
        .iter()
        .map(|peer| peer.allowed_ips.len())
        .collect();
    assert_eq!(counts, [1, 1]);
}

#[test]
fn contradictions_show_both_places() {
    let report = invalid(&format!(
        "[Interface]\n\
         PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n\
         #convoy: PrivateKeyFile = a\n\
         [Peer]\n\
         PublicKey = {key}\n\
         [Peer]\n\
         PublicKey = {key}",
        key = KEYS[0],
    ));
    for expected in [
        "`PrivateKey` and `PrivateKeyFile` are both set",
        "wg0.conf:2:14",
        "wg0.conf:3:27",
        "two peers have the same public key",
        "wg0.conf:7:13",
        "wg0.conf:5:13",
    ] {
        assert!(
            report.contains(expected),
            "{expected}\nis missing from\n{report}"
        );
    }
}

#[test]
fn a_drop_in_has_peers_only_and_claims_nothing_twice() {
    let main = format!(
        "[Interface]\n[Peer]\nPublicKey={}\nAllowedIPs=::/0",
        KEYS[0]
    );
    let peer = |key| format!("[Peer]\nPublicKey={key}\nAllowedIPs=fd00::/64");
    let (draft, report) = parsed(&[&main, &peer(KEYS[1])]);
    assert!(!report.has_errors());
    assert_eq!(draft.peers.len(), 2);

    let (_, report) = parsed(&[&main, &peer(KEYS[1]), &peer(KEYS[2])]);
    let report = report.to_string();
    assert!(
        report.contains("error: two peers claim the same prefix"),
        "{report}"
    );
    assert!(
        report.contains("2.conf:3:12") && report.contains("1.conf:3:12"),
        "{report}"
    );

    let (_, report) = parsed(&[&main, "[Interface]\nMTU = x\n"]);
    assert_eq!(report.to_string().matches("error: ").count(), 1, "{report}");
    let (_, report) = parsed(&[&main, &peer(KEYS[0])]);
    assert!(
        report
            .to_string()
            .contains("two peers have the same public key")
    );
}

fn valid(text: &str) -> Draft {
    let (draft, report) = parsed(&[text]);
    assert!(!report.has_errors(), "{report}");
    draft
}

fn invalid(text: &str) -> String {
    let (_, report) = parsed(&[text]);
    assert!(report.has_errors());
    report.to_string()
}

fn warnings(text: &str) -> String {
    let (_, report) = parsed(&[text]);
    assert!(!report.has_errors(), "{report}");
    report.to_string()
}

/// The draft of `wg0.conf`, `1.conf`, …
fn parsed(texts: &[&str]) -> (Draft, Report) {
    let tables = RouteTables::parse("");
    let (mut draft, mut report) = (Draft::default(), Report::default());
    let mut files = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        parse(index, text, &tables, &mut draft, &mut report);
        let name = if index == 0 {
            "wg0".to_owned()
        } else {
            index.to_string()
        };
        let path = format!("{name}.conf").into();
        let text = masked(text);
        files.push(Shown { path, text });
    }
    check(&mut draft, &mut report);
    report.files = Arc::new(Files(files));
    (draft, report)
}

fn shown<T: std::fmt::Display>(list: &[Located<T>]) -> String {
    let items: Vec<_> = list.iter().map(|it| it.value.to_string()).collect();
    items.join(" ")
}
