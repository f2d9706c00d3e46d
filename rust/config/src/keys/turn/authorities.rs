use std::{fmt::Write as _, fs, os::unix::fs::PermissionsExt as _};

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair};

use crate::{Loaded, Report, key_file::MAX_AUTHORITIES_BYTES, to_wg_quick};

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
    certificate_of(4, 0)
}

/// A certificate whose name has `name` bytes, with `more` bytes in a field that tunnels do not keep.
fn certificate_of(name: usize, more: usize) -> String {
    let key = KeyPair::generate().unwrap();
    signed_by_itself(&key, name, more)
}

/// The shortest that there is.
fn ed25519() -> String {
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    signed_by_itself(&key, 1, 0)
}

fn signed_by_itself(key: &KeyPair, name: usize, more: usize) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "n".repeat(name));
    let comment =
        CustomExtension::from_oid_content(&[2, 16, 840, 1, 113_730, 1, 13], vec![0; more]);
    params.custom_extensions.push(comment);
    params.self_signed(key).unwrap().pem()
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
    let long = certificate() + &"#".repeat(MAX_AUTHORITIES_BYTES);
    let report = refused(long.as_bytes(), &format!("{SERVER} {FILES}"));
    assert!(report.contains("it has more than 524288 bytes"), "{report}");
}

#[test]
fn the_bundle_of_a_whole_system_is_read() {
    // As many bytes as Debian's 144 authorities, of keys, names and the rest.
    let bundle = certificate_of(330, 100).repeat(144);
    assert!(
        (200_000..250_000).contains(&bundle.len()),
        "{}",
        bundle.len()
    );
    let value = format!("{SERVER} {FILES}");
    let loaded = read_with(bundle.as_bytes(), &[&value]).unwrap_or_else(|it| panic!("{it}"));
    let turn = &loaded.config.interface.turns[0];
    assert_eq!(turn.authorities.as_deref(), Some(bundle.as_bytes()));
    let expected = format!("Certificates({} bytes)", bundle.len());
    let printed = format!("{turn:?}");
    assert!(
        printed.contains(&expected) && printed.len() < 1_000,
        "{printed}"
    );
}

#[test]
fn more_authorities_than_a_tunnel_keeps_are_refused() {
    let cases = [
        (
            certificate_of(20, 0).repeat(800),
            "have more than 81920 bytes together",
        ),
        (
            ed25519().repeat(1_001),
            "this file has more than 1000 certificates",
        ),
    ];
    for (pem, expected) in cases {
        assert!(pem.len() < MAX_AUTHORITIES_BYTES, "{}", pem.len());
        let report = refused(pem.as_bytes(), &format!("{SERVER} {FILES}"));
        assert!(
            report.contains("invalid file with certificates"),
            "{report}"
        );
        assert!(report.contains(expected), "{report}");
    }
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
