use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use super::*;
use crate::{Loaded, Report, to_wg_quick};

const OWN: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";
const WORDS: &str = "Username = alice PasswordFile = turn.password";

fn read_with(password: &[u8], lines: &[String]) -> Result<Loaded, Report> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("turn.password");
    fs::write(&file, password).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let path = directory.path().join("wg0.conf");
    let lines: String = lines
        .iter()
        .map(|it| format!("#convoy: Turn = {it}\n"))
        .collect();
    fs::write(&path, format!("{OWN}{lines}")).unwrap();
    crate::read(&path)
}

fn read(value: &str) -> Result<Loaded, Report> {
    read_with(b"hunter2\n", &[value.to_owned()])
}

fn refused(value: &str) -> String {
    match read(value) {
        Ok(_) => panic!("{value} was taken"),
        Err(report) => report.render(false),
    }
}

#[test]
fn servers_are_read_with_the_ports_of_their_schemes_and_written_back() {
    let cases = [
        (
            "turn:turn.example.org",
            "turn:turn.example.org:3478",
            RelayTransport::Udp,
        ),
        (
            "turn:192.0.2.7:443?transport=udp",
            "turn:192.0.2.7:443",
            RelayTransport::Udp,
        ),
        (
            "turn:[2001:db8::7]?transport=tcp",
            "turn:[2001:db8::7]:3478?transport=tcp",
            RelayTransport::Tcp,
        ),
        (
            "TURNS:turn.example.org",
            "turns:turn.example.org:5349",
            RelayTransport::Tls,
        ),
        (
            "turns:turn.example.org:443?transport=tcp",
            "turns:turn.example.org:443",
            RelayTransport::Tls,
        ),
    ];
    for (uri, written, transport) in cases {
        let config = read(&format!(
            "{uri}  username =alice passwordfile= turn.password"
        ));
        let config = config
            .unwrap_or_else(|report| panic!("{uri}: {report}"))
            .config;
        let turn = &config.interface.turns[0];
        assert_eq!(turn.transport, transport, "{uri}");
        assert_eq!(turn.user, "alice");
        let password = turn.password.as_ref().map(|it| it.0.as_str());
        assert_eq!(password, Some("hunter2"));
        let line = format!("#convoy: Turn = {written} {WORDS}\n");
        let text = to_wg_quick(&config);
        assert!(text.contains(&line), "{line}{}", *text);
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}

#[test]
fn what_is_no_server_is_refused_at_its_place() {
    let cases = [
        ("stun:turn.example.org", "expected turn:HOST"),
        ("turn.example.org", "expected turn:HOST"),
        ("turn://turn.example.org", "no `//`"),
        ("turn:", "a host's name"),
        ("turn:0.0.0.0", "an address that a server can have"),
        ("turn:224.0.0.1:3478", "an address that a server can have"),
        ("turn:[::]", "an address that a server can have"),
        ("turn:10.1", "IPv4 address of four numbers"),
        ("turn:turn.example.org:0", "a port from 1 to 65535"),
        ("turn:[fe80::1%eth0]", "zone"),
        (
            "turn:turn.example.org?transport=sctp",
            "transport=udp or transport=tcp",
        ),
        (
            "turns:turn.example.org?transport=udp",
            "transport=tcp, or nothing",
        ),
    ];
    for (uri, expected) in cases {
        let report = refused(&format!("{uri} {WORDS}"));
        assert!(report.contains(expected), "{uri}: {report}");
        assert!(report.contains("wg0.conf:3:"), "{uri}: {report}");
    }
}

#[test]
fn the_user_and_the_file_are_required() {
    let cases = [
        ("turn:turn.example.org", "`Username = NAME`"),
        (
            "turn:turn.example.org PasswordFile = p",
            "`Username = NAME`",
        ),
        (
            "turn:turn.example.org Username = PasswordFile = p",
            "`Username = NAME`",
        ),
        (
            "turn:turn.example.org Username = alice",
            "`PasswordFile = PATH`",
        ),
        (
            "turn:turn.example.org Username = alice PasswordFile =",
            "`PasswordFile = PATH`",
        ),
    ];
    for (value, expected) in cases {
        let report = refused(value);
        assert!(report.contains(expected), "{value}: {report}");
    }
    let long = "x".repeat(509);
    let report = refused(&format!(
        "turn:a.example Username = {long} PasswordFile = p"
    ));
    assert!(report.contains("at most 508 bytes"), "{report}");
}

#[test]
fn a_password_in_the_line_is_refused_and_never_shown() {
    for value in [
        format!("turn:alice:hunter2@turn.example.org {WORDS}"),
        "turn:alice:hunter2@turn.example.org".to_owned(),
        "turn:turn.example.org Username = alice Password = hunter2".to_owned(),
        "turn:turn.example.org Username = alice hunter2 PasswordFile = p".to_owned(),
        "turn:turn.example.org alice hunter2".to_owned(),
    ] {
        let report = refused(&value);
        assert!(!report.contains("hunter2"), "{value}: {report}");
    }
}

#[test]
fn a_file_with_anything_but_one_line_is_refused_and_not_shown() {
    let line = || vec![format!("turn:turn.example.org {WORDS}")];
    for good in [
        &b"hunter2"[..],
        b"hunter2\n",
        b"hunter2\r\n",
        b" hunter2 \n",
    ] {
        read_with(good, &line()).unwrap();
    }
    let long = [b'x'; 509];
    for bad in [
        &b""[..],
        b"\n",
        b"hunter2\nmore\n",
        b"hunt\x07er2",
        b"\xff",
        &long,
    ] {
        let report = read_with(bad, &line()).unwrap_err().render(false);
        assert!(report.contains("invalid file with a password"), "{report}");
        assert!(!report.contains("hunt"), "{report}");
    }
    let absent = refused("turn:turn.example.org Username = alice PasswordFile = absent");
    assert!(
        absent.contains("cannot read the file with the password"),
        "{absent}"
    );
}

#[test]
fn there_are_no_more_servers_than_the_bound() {
    let lines = |count: usize| -> Vec<_> {
        (0..count)
            .map(|n| format!("turn:t{n}.example.org {WORDS}"))
            .collect()
    };
    read_with(b"p", &lines(MAX_TURN_SERVERS)).unwrap();
    let report = read_with(b"p", &lines(MAX_TURN_SERVERS + 1)).unwrap_err();
    assert!(report.render(false).contains("more than 4 TURN servers"));
}

#[test]
fn a_password_that_others_can_read_is_warned_about() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.conf");
    fs::write(
        &path,
        format!("{OWN}#convoy: Turn = turn:a.example {WORDS}\n"),
    )
    .unwrap();
    let file = directory.path().join("turn.password");
    fs::write(&file, "hunter2").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let warnings = crate::read(Path::new(&path))
        .unwrap()
        .warnings
        .render(false);
    assert!(
        warnings.contains("others can read this file with the password"),
        "{warnings}"
    );
}
