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
fn a_server_that_ignores_questions_for_a_family_does_not_hide_the_next_suffix() {
    fn answers<const SILENT: u16, const CODE: u8>(query: &[u8], family: u16) -> Vec<Vec<u8>> {
        match (family, is_below(query, b"two")) {
            (family, _) if family == SILENT => Vec::new(),
            (A, true) => vec![found(query, A, &[192, 0, 2, 1])],
            (_, true) => vec![found(query, AAAA, &DOCUMENTATION)],
            (_, false) => vec![without_records(query, CODE)],
        }
    }
    let search = ["one", "two"].map(str::to_owned);
    for (answers, expected) in [
        (answers::<AAAA, 3> as Answers, IpAddr::from([192, 0, 2, 1])),
        (answers::<AAAA, 0>, [192, 0, 2, 1].into()),
        (answers::<A, 3>, DOCUMENTATION.into()),
        (answers::<A, 0>, DOCUMENTATION.into()),
    ] {
        let outcome = ask_with_search("host", &search, answers);
        assert_eq!(outcome, Ok(vec![expected]));
    }
}

/// Some servers know no name that has IPv4 addresses alone, if they are asked for IPv6 (RFC 4074 §4.2).
#[test]
fn a_late_answer_counts_if_no_other_name_is_known() {
    let search = ["one".to_owned()];
    let outcome = on_runtime(async {
        let (udp, tcp) = sockets().await;
        let port = udp.local_addr().unwrap().port();
        let question = Question {
            name: "host",
            search: &search,
            ..question(port)
        };
        let serving = async {
            let mut buffer = [0; 512];
            let mut held = None;
            loop {
                let (len, from) = udp.recv_from(&mut buffer).await.unwrap();
                let query = &buffer[..len];
                if is_below(query, b"one") && family(query) == A {
                    held = Some((found(query, A, &[192, 0, 2, 1]), from));
                    continue;
                }
                let negative = (without_records(query, NXDOMAIN), from);
                let late = held.take_if(|_| !is_below(query, b"one"));
                for (answer, to) in [negative].into_iter().chain(late) {
                    udp.send_to(&answer, to).await.unwrap();
                }
            }
        };
        tokio::select! {
            outcome = question.ask() => outcome,
            () = serving => unreachable!(),
            () = serve_tcp(tcp) => unreachable!(),
        }
    });
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
            () = serve_tcp(tcp) => unreachable!(),
        }
    })
}

/// Whether the name in the question has such a label.
fn is_below(query: &[u8], label: &[u8]) -> bool {
    let name = &query[12..end_of_question(query) - 4];
    name.windows(label.len()).any(|it| it == label)
}
