use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
};

use convoy_host::owner;

use super::*;
use crate::finding::Severity;

const KEY: &str = "6Js1ML6BmYk4BhSiqYUEC8xTCtGFSoPDqH4LQb/MqVM=";
const PEER: &str = "L36JdEyNlqFHxQm27ms2JdoZLDTyRFcqCYUCdT8x7iY=";

fn subject(interface: &str, peer: &str, standing: Standing) -> Subject {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.conf");
    let text = format!(
        "[Interface]\nPrivateKey = {KEY}\n{interface}\n[Peer]\nPublicKey = {PEER}\n{peer}\n"
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let loaded = convoy_config::read(&path).ok();
    let planned = loaded.map(|it| Planned {
        config: it.config,
        has_warnings: !it.warnings.is_empty(),
        has_default: ["0.0.0.0/0", "::/0"].map(|all| peer.contains(all)),
        mark: None,
        probing_mark: None,
        foreseen: Ok(Vec::new()),
    });
    Subject {
        name: "wg0".parse().unwrap(),
        path,
        planned,
        standing,
        signs: Signs::default(),
    }
}

fn up(fwmark: u32) -> Standing {
    let status = Status {
        fwmark,
        ..Status::default()
    };
    Standing::Up(Box::new(status))
}

#[test]
fn a_mark_decides_only_where_convoy_or_the_user_leads_all_packets_by_it() {
    let all = "AllowedIPs = 0.0.0.0/0";
    for (interface, peer, standing, expected) in [
        ("", all, Standing::Down, Marking::Planned),
        ("", all, up(51_820), Marking::InPlace),
        ("", "AllowedIPs = 10.0.0.0/8", up(0), Marking::None),
        ("", "AllowedIPs = ::/0", up(51_820), Marking::None),
        ("Table = off\nFwMark = 7", all, up(7), Marking::ByHand),
        ("Table = off", all, up(0), Marking::None),
    ] {
        let subject = subject(interface, peer, standing);
        assert_eq!(subject.marking(), expected, "{interface} {peer}");
    }
}

#[test]
fn a_configuration_is_valid_has_warnings_or_is_an_error() {
    let severity = |interface: &str| {
        let subject = subject(interface, "AllowedIPs = 10.0.0.0/8", Standing::Down);
        judge_config(&subject)[0].severity
    };
    assert_eq!(severity("Address = 10.8.0.2/24"), Severity::Ok);
    assert_eq!(severity("MTU = x"), Severity::Error);
}

#[test]
fn hooks_are_those_of_the_configuration() {
    let subject = subject("PostUp = one\nPreDown = two", "", Standing::Down);
    assert_eq!(subject.hooks(), ["one", "two"]);
    assert!(!subject.has_kill_switch());
}

#[test]
fn an_interface_of_somebody_else_and_a_dead_supervisor_are_told() {
    let judged = |standing| {
        let findings = judge_standing(&subject("", "", standing));
        findings
            .into_iter()
            .map(|finding| finding.severity)
            .max()
            .unwrap()
    };
    assert_eq!(judged(Standing::Down), Severity::Ok);
    assert_eq!(judged(up(0)), Severity::Ok);
    let refusal = owner::refusal(&"wg0".parse().unwrap(), Signs::default());
    assert_eq!(judged(Standing::Foreign(refusal)), Severity::Warning);
    assert_eq!(judged(Standing::Unknown("no".to_owned())), Severity::Note);
    let dead = Status {
        state: Condition::WithoutSupervisor,
        ..Status::default()
    };
    assert_eq!(judged(Standing::Up(Box::new(dead))), Severity::Error);
    let warned = Status {
        warnings: vec!["packets larger than 1280 bytes do not arrive".to_owned()],
        ..Status::default()
    };
    assert_eq!(judged(Standing::Up(Box::new(warned))), Severity::Warning);
}
