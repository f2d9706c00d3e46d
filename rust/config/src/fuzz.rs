//! Parses arbitrary files: nothing panics, no report shows a secret, and a file that is accepted
//! stays the same when it is written and parsed again.

use std::sync::Arc;

use convoy_fuzz::{Result, Unstructured};

use crate::{
    config::{Config, Interface},
    draft::Draft,
    file_text::text_of,
    key::Dialect,
    keys::of_tunnel,
    located::{Files, Shown},
    mask::masked,
    parse::parse,
    report::Report,
    route_tables::RouteTables,
    to_wg_quick,
};

/// A private key, in the form that `wg genkey` gives it.
const SECRET: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
const PUBLIC: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";

#[test]
fn fuzz_config_files() {
    convoy_fuzz::run("config_files", 4000, 1500, |input| {
        let main = file(input)?;
        let drop_in = file(input)?;
        examine(&main, &drop_in);
        Ok(())
    });
}

#[test]
fn fuzz_config_bytes() {
    convoy_fuzz::run("config_bytes", 2000, 600, |input| {
        let bytes = input.bytes(input.len())?;
        let (text, flaw) = text_of(bytes);
        assert_eq!(text.len(), bytes.len());
        assert_eq!(
            flaw.is_none(),
            *text.as_bytes() == *bytes && !text.contains('\0')
        );
        examine(&text, "");
        Ok(())
    });
}

fn examine(main: &str, drop_in: &str) {
    let (config, report) = read(&[main, drop_in]);
    let shown = report.render(true);
    let plain = report.to_string();
    for at in 0..SECRET.len() - 8 {
        let part = &SECRET[at..at + 8];
        assert!(!shown.contains(part) && !plain.contains(part), "{plain}");
    }
    assert_eq!(report.is_empty(), plain.is_empty());
    let (Some(config), true) = (config, drop_in.is_empty()) else {
        return;
    };
    let written = to_wg_quick(&config);
    let (again, report) = read(&[&written]);
    let again = again.unwrap_or_else(|| panic!("{report}"));
    assert_eq!(again.interface, config.interface, "{}", *written);
    assert_eq!(again.peers, config.peers, "{}", *written);
    assert_eq!(*to_wg_quick(&again), *written);
}

/// As [`crate::Reader::read`], but of texts, and without key files.
pub(crate) fn read(texts: &[&str]) -> (Option<Config>, Report) {
    let tables = RouteTables::parse("100 office");
    let (mut draft, mut report) = (Draft::default(), Report::default());
    for (file, text) in texts.iter().enumerate() {
        parse(file, text, &tables, &mut draft, &mut report);
    }
    crate::check::check(&mut draft, &mut report);
    let files = texts.iter().map(|text| Shown {
        path: "wg0.conf".into(),
        text: masked(text),
    });
    report.files = Arc::new(Files(files.collect()));
    let Draft {
        interface, peers, ..
    } = draft;
    let config = (!report.has_errors()).then(|| Config {
        interface,
        peers,
        ..empty()
    });
    (config, report)
}

pub(crate) fn empty() -> Config {
    Config {
        name: "wg0".parse().expect("a valid name"),
        interface: Interface::default(),
        peers: Vec::new(),
        hooks_trusted: Ok(()),
        files: Arc::default(),
        source: None,
        via: None,
    }
}

/// A file that resembles a valid one.
fn file(input: &mut Unstructured<'_>) -> Result<String> {
    let mut text = String::new();
    while !input.is_empty() && input.ratio(30, 31)? {
        line(input, &mut text)?;
        text.push_str(input.choose(&["\n", "\n", "\n", "\r\n", " # x\n", "\n\n"])?);
    }
    Ok(text)
}

fn line(input: &mut Unstructured<'_>, text: &mut String) -> Result<()> {
    match input.int_in_range(0..=19)? {
        0 => text.push_str(input.choose(&["[Interface]", "[ interface ]", "[Peer", "[S]"])?),
        1 => text.push_str("[Interface]"),
        2..=3 => {
            text.push_str("[Peer]\nPublicKey = ");
            // Not the same key each time: two peers with one key are refused.
            let digit = input.choose(b"ABCDEFGHIJ")?;
            text.push(char::from(*digit));
            text.push_str(&PUBLIC[1..]);
        }
        4 => text.push_str("# friendly_name = "),
        5 => text.push_str(SECRET),
        6 => text.push_str("#convoy "),
        7 => text.push_str(input.arbitrary::<&str>()?),
        8 => direct(input, text)?,
        9 => turn(input, text)?,
        _ => pair(input, text)?,
    }
    Ok(())
}

/// A peer behind the one above, or one in a section that suits it.
fn direct(input: &mut Unstructured<'_>, text: &mut String) -> Result<()> {
    if input.ratio(1, 2)? {
        let address = input.choose(&["10.0.0.1/24", "fd00::1"])?;
        text.push_str(&format!("[Interface]\nAddress = {address}\n"));
        text.push_str(&format!("[Peer]\nPublicKey = {PUBLIC}\nAllowedIPs = "));
        text.push_str(input.choose(&["0.0.0.0/0, ::/0", "10.0.0.0/8", "fd00::/64"])?);
        text.push('\n');
    }
    let key = match input.ratio(1, 8)? {
        true => SECRET.to_owned(),
        false => format!("{}{}", char::from(*input.choose(b"KLMNO")?), &PUBLIC[1..]),
    };
    text.push_str(&format!("#convoy: Direct = {key} "));
    for _ in 0..input.int_in_range(1..=3)? {
        text.push_str(input.choose(&["10.0.0.1", "10.0.0.9/32", "fd00::1/128", "10.0.0.0/30"])?);
        text.push_str(input.choose(&["", "", ",", ", "])?);
    }
    text.push_str(input.choose(&["", " PresharedKeyFile = /run/key", " PresharedKeyFile"])?);
    Ok(())
}

/// A TURN server, or an outer tunnel; parts may be missing, doubled or out of order.
fn turn(input: &mut Unstructured<'_>, text: &mut String) -> Result<()> {
    if input.ratio(1, 8)? {
        text.push_str("#convoy: Via = ");
        text.push_str(input.choose(&[
            "wg1",
            "/etc/wireguard/wg1.conf",
            "../x.conf",
            "",
            SECRET,
        ])?);
        return Ok(());
    }
    text.push_str("#convoy: Turn = ");
    text.push_str(input.choose(&["turn:", "turns:", "TURN:", "turn://", "stun:", ""])?);
    text.push_str(input.choose(&["192.0.2.1", "[fd00::1]", "relay.example", "u:p@host", ""])?);
    text.push_str(input.choose(&["", ":443", ":0", ":x"])?);
    text.push_str(input.choose(&["", "", "?transport=tcp", "?transport=udp", "?x"])?);
    for _ in 0..input.int_in_range(0..=5)? {
        text.push_str(input.choose(&[" ", " ", "\t", "  "])?);
        text.push_str(input.choose(&[
            "Username",
            "CaFile",
            "PasswordFile",
            "cafile",
            "Password",
        ])?);
        text.push_str(input.choose(&[" = ", "=", "= ", " "])?);
        text.push_str(input.choose(&["alice", "own ca.pem", "turn.password", "", "é", SECRET])?);
    }
    Ok(())
}

fn pair(input: &mut Unstructured<'_>, text: &mut String) -> Result<()> {
    let keys: Vec<_> = of_tunnel().collect();
    let key = input.choose(&keys)?;
    if (key.dialect == Dialect::Convoy) != input.ratio(1, 30)? {
        text.push_str("#convoy: ");
    }
    let mut name = key.name.to_owned();
    if input.ratio(1, 10)? {
        name = name.to_lowercase();
    }
    if input.ratio(1, 20)? {
        name.pop();
    }
    text.push_str(&name);
    text.push_str(input.choose(&[" = ", "=", " =", "\t=\x0b", " "])?);
    loop {
        let is_a_key = key.form.is_a_key() || key.dialect == Dialect::Convoy;
        let value = input.choose(&VALUES)?;
        text.push_str(match is_a_key && input.ratio(1, 2)? {
            true => SECRET,
            false => value,
        });
        if input.ratio(3, 4)? {
            return Ok(());
        }
        text.push_str(input.choose(&[",", ", ", " ", "/", ":"])?);
    }
}

const VALUES: [&str; 44] = [
    "",
    "0",
    "1",
    "25",
    "1400",
    "51820",
    "65536",
    "4294967295",
    "0x1f",
    "off",
    "auto",
    "office",
    "true",
    "False",
    "yes",
    "on",
    "persistent",
    "local",
    "10.0.0.1",
    "10.0.0.1/24",
    "0.0.0.0/0",
    "::/0",
    "fd00::1",
    "fd00::1/64",
    "::ffff:1.2.3.4/128",
    "1.2.3.4:5",
    "[::1]:5",
    "[fe80::1%e]:5",
    "::1:5",
    "vpn.example:443",
    "corp.example",
    "~.",
    "/run/key",
    "echo %i \"#\"",
    "é",
    "\u{202e}",
    "\u{1b}[31m",
    "= =",
    "80:host:80",
    "*:80:[fd00::1]:80",
    "10.0.0.1:80",
    "64K",
    "[",
    SECRET,
];
