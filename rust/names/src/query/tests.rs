//! Against a name server played by the test, on loopback.

mod suffixes;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, UdpSocket},
};

use super::*;

const A: u16 = 1;
const AAAA: u16 = 28;
const NS: u16 = 2;
const NXDOMAIN: u8 = 3;
/// 2001:db8::1.
const DOCUMENTATION: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const NAME: &str = "vpn.example.org";

/// The answers to a query, given its type.
type Answers = fn(&[u8], u16) -> Vec<Vec<u8>>;

#[test]
fn both_families_are_asked_for() {
    let outcome = ask(|query, family| {
        vec![match family {
            A => found(query, A, &[192, 0, 2, 1]),
            _ => found(query, AAAA, &DOCUMENTATION),
        }]
    });
    let mut addresses = outcome.unwrap();
    addresses.sort_unstable();
    let expected = ["192.0.2.1", "2001:db8::1"].map(|it| it.parse::<IpAddr>().unwrap());
    assert_eq!(addresses, expected);
}

#[test]
fn one_family_is_enough() {
    let outcome = ask(|query, family| {
        vec![match family {
            A => found(query, A, &[192, 0, 2, 1]),
            _ => without_records(query, 0),
        }]
    });
    assert_eq!(outcome, Ok(vec![[192, 0, 2, 1].into()]));
}

/// As some home routers do.
#[test]
fn a_server_that_never_answers_for_one_family_does_not_hold_up_the_other() {
    let outcome = ask(|query, family| match family {
        A => vec![found(query, A, &[192, 0, 2, 1])],
        _ => Vec::new(),
    });
    assert_eq!(outcome, Ok(vec![[192, 0, 2, 1].into()]));
}

#[test]
fn a_name_that_does_not_exist_and_a_server_that_fails_are_told_apart() {
    const SERVFAIL: u8 = 2;
    let outcome = ask(|query, _| vec![without_records(query, NXDOMAIN)]);
    assert_eq!(outcome, Err(Failure::Unknown));
    let outcome = ask(|query, _| vec![without_records(query, SERVFAIL)]);
    assert!(matches!(outcome, Err(Failure::Refused(_))), "{outcome:?}");
}

#[test]
fn an_answer_to_another_query_is_ignored() {
    let outcome = ask(|query, family| {
        let mut forged = found(query, A, &[203, 0, 113, 1]);
        forged[0] ^= 0xff;
        match family {
            A => vec![forged, found(query, A, &[192, 0, 2, 1])],
            _ => vec![without_records(query, 0)],
        }
    });
    assert_eq!(outcome, Ok(vec![[192, 0, 2, 1].into()]));
}

#[test]
fn a_truncated_answer_is_fetched_by_tcp() {
    let outcome = ask(|query, _| vec![truncated(query)]);
    // The test's server answers all queries by TCP so.
    assert_eq!(outcome, Ok(vec![[192, 0, 2, 77].into()]));
}

#[test]
fn an_answer_of_many_servers_and_addresses_takes_little_memory() {
    let before = most_memory();
    let outcome = ask_by_tcp(|query, _| vec![referral_with_addresses(query)]);
    let grown = most_memory() - before;
    assert!(grown < 64 << 20, "{grown} bytes");
    assert_eq!(outcome, Err(Failure::Nonsense("cut short")));
}

/// A server that sends its clients from name to name would otherwise hold them for as long as it likes.
#[test]
fn a_server_has_its_time_however_many_names_it_refers_to() {
    const TIME: Duration = Duration::from_millis(100);
    let outcome = ask_within(TIME, |query, _| {
        std::thread::sleep(TIME / 3);
        vec![alias(query)]
    });
    assert_eq!(outcome, Err(Failure::Silence));
}

#[test]
fn a_name_that_stands_for_itself_is_not_found() {
    let outcome = ask(|query, _| vec![alias(query)]);
    assert_eq!(outcome, Err(Failure::NotFound));
}

#[test]
fn a_server_that_refuses_its_port_fails_at_once() {
    let outcome = on_runtime(async {
        let (udp, tcp) = sockets().await;
        let port = udp.local_addr().unwrap().port();
        drop((udp, tcp));
        question(port).ask().await
    });
    assert_eq!(outcome, Err(Failure::Unreachable));
}

#[test]
fn what_is_no_answer_to_the_question_is_refused_or_ignored() {
    let outcome = ask(|query, _| vec![[&query[..2], b"nonsense"].concat()]);
    assert_eq!(outcome, Err(Failure::Nonsense("malformed")));
    let outcome = ask(|query, _| {
        let mut foreign = found(query, A, &[192, 0, 2, 1]);
        // The class of the record: CHAOS.
        let class = foreign.len() - 4 - 2 - 4 - 1;
        foreign[class] = 3;
        vec![foreign]
    });
    let expected = Failure::Nonsense("one to another question");
    assert_eq!(outcome, Err(expected));
    let outcome = ask(|query, family| {
        let mut forged = found(query, A, &[203, 0, 113, 1]);
        forged[13] ^= 1;
        match family {
            A => vec![Vec::new(), forged, found(query, A, &[192, 0, 2, 1])],
            _ => vec![without_records(query, 0)],
        }
    });
    assert_eq!(outcome, Ok(vec![[192, 0, 2, 1].into()]));
}

#[test]
fn an_address_that_no_server_can_have_is_left_out() {
    let outcome = ask(|query, family| match family {
        A => vec![found(query, A, &[127, 0, 0, 1])],
        _ => vec![found(query, AAAA, &DOCUMENTATION)],
    });
    assert_eq!(outcome, Ok(vec!["2001:db8::1".parse().unwrap()]));
    let outcome = ask(|query, family| match family {
        A => vec![found(query, A, &[0, 0, 0, 0])],
        _ => vec![without_records(query, 0)],
    });
    let reason = outcome.unwrap_err().to_string();
    assert_eq!(reason, "the name server says 0.0.0.0, no host's address");
}

#[test]
fn a_server_that_only_refers_to_others_refuses_unless_there_is_no_such_name() {
    fn answers<const CODE: u8>(query: &[u8], _: u16) -> Vec<Vec<u8>> {
        let mut referral = found(query, NS, &[0xc0, 12]);
        referral[3] |= CODE;
        // The record is one about authority.
        referral.swap(7, 9);
        vec![referral]
    }
    let outcome = ask(answers::<0>);
    assert!(matches!(outcome, Err(Failure::Refused(_))), "{outcome:?}");
    assert_eq!(ask(answers::<NXDOMAIN>), Err(Failure::Unknown));
}

fn ask(answers: Answers) -> Result<Vec<IpAddr>, Failure> {
    ask_within(SERVER_TIME, answers)
}

fn ask_within(time: Duration, answers: Answers) -> Result<Vec<IpAddr>, Failure> {
    ask_both(time, answers, other_address)
}

/// Answers a query by TCP.
fn other_address(query: &[u8], family: u16) -> Vec<Vec<u8>> {
    vec![match family {
        A => found(query, A, &[192, 0, 2, 77]),
        _ => without_records(query, 0),
    }]
}

/// Asks a server whose answers by UDP are truncated.
fn ask_by_tcp(answers: Answers) -> Result<Vec<IpAddr>, Failure> {
    ask_both(SERVER_TIME, |query, _| vec![truncated(query)], answers)
}

fn ask_both(time: Duration, by_udp: Answers, by_tcp: Answers) -> Result<Vec<IpAddr>, Failure> {
    on_runtime(async {
        let (udp, tcp) = sockets().await;
        let port = udp.local_addr().unwrap().port();
        let question = Question {
            time,
            ..question(port)
        };
        tokio::select! {
            outcome = question.ask() => outcome,
            () = serve_udp(udp, by_udp) => unreachable!(),
            () = serve_tcp(tcp, by_tcp) => unreachable!(),
        }
    })
}

fn question(port: u16) -> Question<'static> {
    const LOOPBACK: &Server = &Server {
        address: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        zone: None,
    };
    Question {
        name: NAME,
        search: &[],
        server: LOOPBACK,
        port,
        mark: None,
        own: &[],
        time: SERVER_TIME,
    }
}

/// Both on one port.
async fn sockets() -> (UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
            return (udp, tcp);
        }
    }
}

async fn serve_udp(socket: UdpSocket, answers: Answers) {
    let mut query = [0; 512];
    loop {
        let (len, from) = socket.recv_from(&mut query).await.unwrap();
        let query = &query[..len];
        for answer in answers(query, family(query)) {
            socket.send_to(&answer, from).await.unwrap();
        }
    }
}

async fn serve_tcp(listener: TcpListener, answers: Answers) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            while let Ok(len) = stream.read_u16().await {
                let mut query = vec![0; len.into()];
                stream.read_exact(&mut query).await.unwrap();
                for answer in answers(&query, family(&query)) {
                    let length = (answer.len() as u16).to_be_bytes();
                    // The client may have left.
                    let _ = stream.write_all(&[&length, &answer[..]].concat()).await;
                }
            }
        });
    }
}

/// The type in the only question.
fn family(query: &[u8]) -> u16 {
    let end = end_of_question(query);
    u16::from_be_bytes([query[end - 4], query[end - 3]])
}

fn end_of_question(query: &[u8]) -> usize {
    let mut at = 12;
    while query[at] != 0 {
        at += 1 + usize::from(query[at]);
    }
    at + 5
}

/// An answer with this response code (RFC 1035 §4.1.1).
fn without_records(query: &[u8], code: u8) -> Vec<u8> {
    let mut answer = query[..end_of_question(query)].to_vec();
    answer[2] |= 0x80;
    answer[3] = 0x80 | code;
    // No records besides the question.
    answer[6..12].fill(0);
    answer
}

fn truncated(query: &[u8]) -> Vec<u8> {
    let mut answer = without_records(query, 0);
    answer[2] |= 0x02;
    answer
}

fn found(query: &[u8], family: u16, address: &[u8]) -> Vec<u8> {
    let mut answer = without_records(query, 0);
    answer[7] = 1;
    answer.extend(record(family, address));
    answer
}

/// A record of the name of the question: this type, class IN, one minute.
fn record(family: u16, data: &[u8]) -> Vec<u8> {
    let [high, low] = family.to_be_bytes();
    let length = data.len() as u8;
    [&[0xc0, 12, high, low, 0, 1, 0, 0, 0, 60, 0, length], data].concat()
}

/// The longest answer that names a server as often as that server's addresses.
fn referral_with_addresses(query: &[u8]) -> Vec<u8> {
    const EACH: u16 = 2_100;
    let mut answer = without_records(query, 0);
    answer[8..10].copy_from_slice(&EACH.to_be_bytes());
    answer[10..12].copy_from_slice(&EACH.to_be_bytes());
    // The server's name is that of the domain.
    let server = [0xc0, 12 + 4];
    answer.extend(record(NS, &server).repeat(EACH.into()));
    let address = [&server, &record(A, &[192, 0, 2, 1])[2..]].concat();
    answer.extend(address.repeat(EACH.into()));
    answer
}

/// The most memory that this process has had so far, in bytes.
fn most_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|it| it.trim().strip_suffix(" kB"));
    kilobytes.unwrap().parse::<usize>().unwrap() << 10
}

/// Says that the name stands for itself.
fn alias(query: &[u8]) -> Vec<u8> {
    const CNAME: u16 = 5;
    found(query, CNAME, &[0xc0, 12])
}

fn on_runtime<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}
