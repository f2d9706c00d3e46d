//! Names that search domains complete.

use super::*;

/// A captive portal's domain knows all names, and one on the way to it has the same name as another host.
#[test]
fn both_families_of_a_name_are_of_one_suffix() {
    fn answers(query: &[u8], family: u16) -> Vec<Vec<u8>> {
        const PORTAL: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        let name = &query[12..end_of_question(query) - 4];
        // The last one is the root's.
        let lengths = name.iter().filter(|it| **it < 0x20).count();
        vec![match (lengths - 1, family) {
            // vpn.example.org, and host.one.
            (2 | 3, A) => found(query, A, &[192, 0, 2, 1]),
            (2 | 3, _) => without_records(query, 0),
            (_, AAAA) => found(query, AAAA, &PORTAL),
            _ => without_records(query, NXDOMAIN),
        }]
    }
    let search = ["one", "portal.of.two.example"].map(str::to_owned);
    for name in [NAME, "host", "vpn.example.org."] {
        let outcome = ask_with_search(name, &search, answers);
        assert_eq!(outcome, Ok(vec![[192, 0, 2, 1].into()]), "{name}");
    }
}

#[test]
fn a_server_that_ignores_questions_for_ipv6_does_not_hide_the_next_suffix() {
    fn answers(query: &[u8], family: u16) -> Vec<Vec<u8>> {
        let name = &query[12..end_of_question(query) - 4];
        let is_second = name.windows(3).any(|it| it == b"two");
        match (family, is_second) {
            (A, true) => vec![found(query, A, &[192, 0, 2, 1])],
            (A, false) => vec![without_records(query, NXDOMAIN)],
            _ => Vec::new(),
        }
    }
    let search = ["one", "two"].map(str::to_owned);
    let outcome = ask_with_search("host", &search, answers);
    assert_eq!(outcome, Ok(vec![[192, 0, 2, 1].into()]));
}

#[test]
fn a_name_that_nobody_has_is_asked_of_no_server() {
    fn answers(query: &[u8], _: u16) -> Vec<Vec<u8>> {
        vec![found(query, A, &[192, 0, 2, 1])]
    }
    let search = ["one".to_owned()];
    for name in ["vpn.onion", "Vpn.Onion.", "vpn.invalid"] {
        let outcome = ask_with_search(name, &search, answers);
        assert_eq!(outcome, Err(Failure::Unknown), "{name}");
    }
    let outcome = ask_with_search("onion", &search, answers);
    assert_eq!(outcome, Ok(vec![[192, 0, 2, 1].into()]));
}

fn ask_with_search(
    name: &str,
    search: &[String],
    answers: Answers,
) -> Result<Vec<IpAddr>, Failure> {
    on_runtime(async {
        let (udp, tcp) = sockets().await;
        let port = udp.local_addr().unwrap().port();
        let question = Question {
            name,
            search,
            ..question(port)
        };
        tokio::select! {
            outcome = question.ask() => outcome,
            () = serve_udp(udp, answers) => unreachable!(),
            () = serve_tcp(tcp, other_address) => unreachable!(),
        }
    })
}
