use std::{fmt::Write as _, fs, os::unix::fs::PermissionsExt as _};

use crate::{Loaded, Report, to_wg_quick};

const OWN: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";
const SERVER: &str = "turns:turn.example.org Username = alice";
const FILES: &str = "CaFile = own ca.pem PasswordFile = my password";

fn read_with(authorities: &[u8], values: &[&str]) -> Result<Loaded, Report> {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8], mode| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    write("my password", b"hunter2\n", 0o600);
    write("own ca.pem", authorities, 0o644);
    let mut text = OWN.to_owned();
    for value in values {
        writeln!(text, "#convoy: Turn = {value}").unwrap();
    }
    crate::read(&write("wg0.conf", text.as_bytes(), 0o600))
}

fn refused(authorities: &[u8], value: &str) -> String {
    match read_with(authorities, &[value]) {
        Ok(_) => panic!("{value} was taken"),
        Err(report) => report.render(false),
    }
}

fn certificate() -> String {
    let authority = rcgen::generate_simple_self_signed(["test".to_owned()]).unwrap();
    authority.cert.pem()
}

#[test]
fn own_authorities_are_read_without_a_warning_and_written_back() {
    let pem = format!("# the lab's\n{}{}", certificate(), certificate());
    let value =
        "turns:turn.example.org Username = alice cafile= own ca.pem  passwordfile =my password";
    let loaded = read_with(pem.as_bytes(), &[value]).unwrap_or_else(|report| panic!("{report}"));
    assert!(!loaded.warnings.render(false).contains("others can read"));
    let turn = &loaded.config.interface.turns[0];
    assert_eq!(turn.authorities.as_deref(), Some(pem.as_bytes()));
    assert_eq!(turn.password.as_ref().unwrap().0, "hunter2");
    let written = to_wg_quick(&loaded.config);
    let line = format!("#convoy: Turn = turns:turn.example.org:5349 Username = alice {FILES}\n");
    assert!(written.contains(&line), "{line}{}", *written);
}

#[test]
fn servers_differ_by_their_authorities() {
    let value = format!("{SERVER} {FILES}");
    let read = |pem: &str| {
        let loaded = read_with(pem.as_bytes(), &[&value]).unwrap_or_else(|it| panic!("{it}"));
        loaded.config.interface.turns[0].value.clone()
    };
    let (one, other) = (certificate(), certificate());
    assert_eq!(read(&one), read(&one));
    assert_ne!(read(&one), read(&other));
}

#[test]
fn a_file_without_a_certificate_or_with_a_damaged_one_is_refused_at_its_place() {
    let good = certificate();
    let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let none = "expected a certificate in PEM form";
    let cases = [
        (String::new(), none),
        ("hello\n".to_owned(), none),
        (key.to_owned(), none),
        (damaged.to_owned(), "certificate 1 of this file is damaged"),
        (
            good[..good.len() / 2].to_owned(),
            "certificate 1 of this file is damaged",
        ),
        (
            format!("{good}{damaged}"),
            "certificate 2 of this file is damaged",
        ),
    ];
    for (pem, expected) in cases {
        let report = refused(pem.as_bytes(), &format!("{SERVER} {FILES}"));
        assert!(
            report.contains("invalid file with certificates"),
            "{report}"
        );
        assert!(report.contains(expected), "{pem}: {report}");
        assert!(report.contains("wg0.conf:3:66"), "{report}");
    }
    let bytes = [0xFF, 0, 0xFE];
    let report = refused(&bytes, &format!("{SERVER} {FILES}"));
    assert!(report.contains(none), "{report}");
}

#[test]
fn a_file_that_is_absent_or_too_long_is_refused() {
    let absent = format!("{SERVER} CaFile = absent.pem PasswordFile = my password");
    let report = refused(b"", &absent);
    let expected = "cannot read the file with certificates: it does not exist";
    assert!(report.contains(expected), "{report}");
    let long = certificate().repeat(300);
    let report = refused(long.as_bytes(), &format!("{SERVER} {FILES}"));
    assert!(report.contains("it has more than 102400 bytes"), "{report}");
}

#[test]
fn authorities_are_of_servers_by_tls_alone_and_stand_before_the_password() {
    let cases = [
        (
            format!("turn:turn.example.org Username = alice {FILES}"),
            "`CaFile` of a server by turns: alone",
        ),
        (
            format!("turn:turn.example.org?transport=tcp Username = alice {FILES}"),
            "`CaFile` of a server by turns: alone",
        ),
        (
            format!("{SERVER} CaFile = own ca.pem"),
            "`CaFile = PATH PasswordFile = PATH`",
        ),
        (
            format!("{SERVER} PasswordFile = my password CaFile = own ca.pem"),
            "`CaFile = PATH` before `PasswordFile = PATH`",
        ),
        (
            format!("{SERVER} CaFile = PasswordFile = my password"),
            "`CaFile = PATH PasswordFile = PATH`",
        ),
        (
            format!("{SERVER} CaFile = own ca.pem PasswordFile ="),
            "`PasswordFile = PATH`",
        ),
        (
            "turns:turn.example.org Username = CaFile = x PasswordFile = y".to_owned(),
            "`Username = NAME`",
        ),
    ];
    for (value, expected) in cases {
        let report = refused(certificate().as_bytes(), &value);
        assert!(report.contains(expected), "{value}: {report}");
    }
}
