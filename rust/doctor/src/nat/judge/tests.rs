use convoy_portmap::Protocol;

use super::*;
use crate::finding::Severity::{self, Note, Ok, Warning};

const OWN: [&str; 2] = ["2001:db8::7", "192.168.1.7"];
/// The socket's port at this machine.
const PORT: u16 = 40_000;

/// A server as `name=address:port`, or its address and port alone, with the address at which it saw the socket.
fn asked(server: &str, outside: &str) -> Asked {
    let answer = match outside {
        "" => Answer::Silence,
        "unsent" => Answer::Unsent("Network is unreachable (os error 101)".to_owned()),
        outside => Answer::Seen {
            local_port: PORT,
            outside: outside.parse().unwrap(),
        },
    };
    let (server, address) = server.split_once('=').unwrap_or((server, server));
    Asked {
        server: server.to_owned(),
        address: address.parse().unwrap(),
        answer,
    }
}

fn facts(own: &[&str], answers: &[(&str, &str)]) -> Facts {
    let answers = answers.iter();
    Facts {
        own: own.iter().map(|it| it.parse().unwrap()).collect(),
        asked: answers
            .map(|(server, outside)| asked(server, outside))
            .collect(),
        ..Facts::default()
    }
}

/// The findings about the servers' answers as a whole.
fn judged(own: &[&str], answers: &[(&str, &str)]) -> Vec<(String, Severity, String)> {
    let findings = judge(&facts(own, answers)).into_iter();
    let findings = findings.filter(|it| ![ADDRESSES, SERVER].contains(&&*it.id));
    findings.map(|it| (it.id, it.severity, it.what)).collect()
}

/// Requires findings of these checks and severities, each with these words.
fn expect(own: &[&str], answers: &[(&str, &str)], expected: &[(&str, Severity, &str)]) {
    let found = judged(own, answers);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((id, severity, what), expected) in found.iter().zip(expected) {
        let is_as_expected =
            (id.as_str(), *severity) == (expected.0, expected.1) && what.contains(expected.2);
        assert!(is_as_expected, "{what:?} is not {expected:?}");
    }
}

#[test]
fn a_router_that_forwards_ports_is_told_with_its_protocol() {
    let router = |asked| {
        let facts = Facts {
            router: Some(asked),
            ..Facts::default()
        };
        let finding = judge(&facts).pop().unwrap();
        assert_eq!(finding.id, ROUTER);
        (finding.severity, finding.what)
    };
    let address = [192, 168, 0, 1].into();
    let forwards = |protocol| {
        router(Result::Ok(Probed {
            router: address,
            protocol,
        }))
    };
    let what = "The router 192.168.0.1 forwards ports, by UPnP.";
    assert_eq!(forwards(Some(Protocol::Upnp)), (Ok, what.to_owned()));
    let (severity, what) = forwards(None);
    assert_eq!(severity, Note);
    assert!(what.contains("neither PCP, NAT-PMP nor UPnP"), "{what}");
    assert_eq!(router(Err(Problem::NoGateway)).0, Ok);
    let (severity, what) = router(Err(Problem::System("no".to_owned())));
    assert!(severity == Note && what.contains("is not known"), "{what}");
}

#[test]
fn a_machine_that_servers_see_at_its_own_address_is_behind_no_nat() {
    let own = ["198.51.100.7"];
    let no_nat = [(NAT, Ok, "no NAT for IPv4")];
    let first = ("192.0.2.1:3478", "198.51.100.7:40000");
    expect(&own, &[first], &no_nat);
    expect(
        &own,
        &[first, ("192.0.2.2:3478", "198.51.100.7:40000")],
        &no_nat,
    );
}

#[test]
fn a_machine_whose_port_is_another_outside_is_behind_a_nat_at_its_own_address() {
    let answers = [("192.0.2.1:3478", "198.51.100.7:40001")];
    let found = judged(&["198.51.100.7"], &answers);
    assert!(found[0].2.contains("There is a NAT"), "{found:?}");
}

#[test]
fn a_mapping_is_endpoint_independent_if_two_servers_see_the_same() {
    expect(
        &OWN,
        &[
            ("192.0.2.1:3478", "203.0.113.5:50000"),
            ("192.0.2.2:3478", "203.0.113.5:50000"),
        ],
        &[
            (NAT, Ok, "There is a NAT for IPv4: servers see 203.0.113.5."),
            (MAPPING, Ok, "is endpoint-independent"),
        ],
    );
}

#[test]
fn a_nat_is_hard_if_servers_see_different_ports() {
    let hard = [
        (NAT, Ok, "203.0.113.5."),
        (MAPPING, Warning, "direct paths to peers behind such"),
    ];
    let first = ("192.0.2.1:3478", "203.0.113.5:50000");
    expect(
        &OWN,
        &[first, ("192.0.2.2:3478", "203.0.113.5:50001")],
        &hard,
    );
    // Two ports of one server show it, too.
    expect(
        &OWN,
        &[first, ("192.0.2.1:3479", "203.0.113.5:50001")],
        &hard,
    );
}

#[test]
fn udp_is_blocked_if_no_server_answers() {
    let silent = [("192.0.2.1:3478", ""), ("a:1=192.0.2.2:1", "")];
    let what = "no answer within 5 s from 192.0.2.1:3478, a:1 (192.0.2.2:1)";
    expect(&OWN, &silent, &[(UDP, Warning, what)]);
    let count = judge(&facts(&OWN, &silent)).len();
    assert_eq!(count, 2, "no finding for each server");
}

#[test]
fn the_mapping_cannot_be_judged_by_one_server() {
    let one = ("192.0.2.1:3478", "203.0.113.5:50000");
    let unknown = [
        (NAT, Ok, "203.0.113.5"),
        (MAPPING, Note, "cannot be judged"),
    ];
    expect(&OWN, &[one], &unknown);
    expect(&OWN, &[one, ("192.0.2.2:3478", "")], &unknown);
    let same_address = ("192.0.2.1:3479", "203.0.113.5:50000");
    expect(&OWN, &[one, same_address], &unknown);
    let findings = judge(&facts(&OWN, &[one]));
    let fix = findings.last().unwrap().fix.clone().unwrap();
    assert!(
        fix.contains("--stun") && fix.contains("#convoy: Stun"),
        "{fix}"
    );
}

#[test]
fn without_servers_it_is_told_what_to_add() {
    expect(&OWN, &[], &[(NAT, Note, "without STUN servers")]);
}

#[test]
fn a_machine_with_ipv6_only_is_not_told_of_ipv4() {
    let own = ["2001:db8::7"];
    let answers = [
        ("a:3478=192.0.2.1:3478", "unsent"),
        ("a:3478=[2001:db8:1::1]:3478", "[2001:db8::7]:40000"),
        ("[2001:db8:1::2]:3478", "[2001:db8::7]:40000"),
    ];
    expect(&own, &answers, &[(NAT, Ok, "no NAT for IPv6")]);
    let findings = judge(&facts(&own, &answers));
    assert!(findings.iter().all(|it| it.severity == Ok), "{findings:?}");
}

#[test]
fn each_family_is_judged_by_its_own_servers() {
    let answers = [
        ("192.0.2.1:3478", "203.0.113.5:50000"),
        ("192.0.2.2:3478", "203.0.113.5:50001"),
        ("[2001:db8:1::1]:3478", "[2001:db8::7]:40000"),
    ];
    let expected = [
        (NAT, Ok, "a NAT for IPv4"),
        (MAPPING, Warning, "hard"),
        (NAT, Ok, "no NAT for IPv6"),
    ];
    expect(&OWN, &answers, &expected);
}

#[test]
fn servers_that_see_one_port_at_different_addresses_mean_no_hard_nat() {
    expect(
        &OWN,
        &[
            ("192.0.2.1:3478", "203.0.113.5:50000"),
            ("192.0.2.2:3478", "203.0.113.6:50000"),
        ],
        &[
            (NAT, Ok, "203.0.113.5, 203.0.113.6"),
            (MAPPING, Warning, "the same port at different addresses"),
        ],
    );
}

#[test]
fn a_server_in_the_same_network_tells_nothing_of_the_nat() {
    let near = ("192.168.1.9:3478", "192.168.1.7:40000");
    let far = ("192.0.2.1:3478", "203.0.113.5:50000");
    let found = judged(&OWN, &[near, far]);
    assert_eq!((&*found[1].0, found[1].1), (MAPPING, Note), "{found:?}");
}

#[test]
fn servers_that_cannot_be_asked_are_told_with_the_reason() {
    let answers = [
        ("192.0.2.1:3478", "203.0.113.5:50000"),
        ("192.0.2.2:3478", ""),
        ("[2001:db8:1::1]:3478", "unsent"),
    ];
    let mut facts = facts(&OWN, &answers);
    let unresolved = ("b:3478".to_owned(), "no such name".to_owned());
    facts.unresolved.push(unresolved);
    facts.tunnels.push("wg7".to_owned());
    let findings = judge(&facts);
    for (id, severity, what) in [
        (SERVER, Warning, "b:3478 has no address: no such name."),
        (ROUTE, Note, "Requests leave by wg7"),
        (
            SERVER,
            Ok,
            "sees the fresh UDP port 40000 as 203.0.113.5:50000.",
        ),
        (SERVER, Note, "192.0.2.2:3478 does not answer."),
        (SERVER, Warning, "sent to [2001:db8:1::1]:3478: Network is"),
    ] {
        let is_it = |it: &&Finding| it.id == id && it.what.contains(what);
        let found = findings.iter().find(is_it);
        let found = found.unwrap_or_else(|| panic!("no {what} in {findings:?}"));
        assert_eq!(found.severity, severity, "{what}");
    }
}
