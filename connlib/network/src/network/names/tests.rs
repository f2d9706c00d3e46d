use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use hickory_resolver::{
    config::ResolverOpts,
    net::runtime::TokioRuntimeProvider,
    proto::{
        op::{Message, MessageType, ResponseCode},
        rr::{RData, Record, rdata::NS},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::Instant,
};

use super::*;
use crate::network::Host;

/// A test server's behaviour towards a question.
#[derive(Clone, Copy, Debug)]
enum Answers {
    /// With an address whose last byte is this one, or its IPv6 equivalent.
    With(u8),
    OnlyIpv4(u8),
    Code(ResponseCode),
    /// With this byte, unless the question has extensions, which are puzzling.
    Plain(u8),
    /// With this code and the servers of a zone; without an error, as one that looks no names up.
    Referral(ResponseCode),
    /// With 1 for names below `internal`, and else so.
    Internal(&'static Answers),
    /// For IPv4 so; it ignores questions for IPv6.
    Silent6(&'static Answers),
    /// With this many addresses.
    Many(u8),
    /// From a zone of names, each with the last bytes of its addresses of IPv4 and of IPv6; no other name exists.
    Zone(&'static [(&'static str, Option<u8>, Option<u8>)]),
    Never,
}

struct Server {
    at: SocketAddr,
    questions: Arc<AtomicUsize>,
}

impl Server {
    async fn start(answers: Answers) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (at, questions) = (socket.local_addr().unwrap(), Arc::default());
        let counted: Arc<AtomicUsize> = Arc::clone(&questions);
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                counted.fetch_add(1, Ordering::Relaxed);
                let question = Message::from_vec(&buffer[..length]).unwrap();
                if let Some(answer) = answer(question, answers) {
                    socket
                        .send_to(&answer.to_vec().unwrap(), from)
                        .await
                        .unwrap();
                }
            }
        });
        Self { at, questions }
    }

    /// A server whose answers by UDP are truncated; counts questions by TCP.
    async fn start_by_tcp(answer: fn(&[u8]) -> Vec<u8>) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (at, questions) = (tcp.local_addr().unwrap(), Arc::default());
        let udp = UdpSocket::bind(at).await.unwrap();
        let counted: Arc<AtomicUsize> = Arc::clone(&questions);
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = udp.recv_from(&mut buffer).await {
                let mut message = Message::from_vec(&buffer[..length]).unwrap();
                message.metadata.message_type = MessageType::Response;
                message.metadata.truncation = true;
                let answer = message.to_vec().unwrap();
                udp.send_to(&answer, from).await.unwrap();
            }
        });
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    while let Ok(length) = stream.read_u16().await {
                        let mut query = vec![0; length.into()];
                        stream.read_exact(&mut query).await.unwrap();
                        counted.fetch_add(1, Ordering::Relaxed);
                        let answer = answer(&query);
                        let length = (answer.len() as u16).to_be_bytes();
                        // The client may have left.
                        let _ = stream.write_all(&[&length, &answer[..]].concat()).await;
                    }
                });
            }
        });
        Self { at, questions }
    }

    fn questions(&self) -> usize {
        self.questions.load(Ordering::Relaxed)
    }
}

fn answer(mut message: Message, answers: Answers) -> Option<Message> {
    message.metadata.message_type = MessageType::Response;
    let query = message.queries[0].clone();
    let (host, is_v4) = (query.name().clone(), query.query_type() == RecordType::A);
    match answers {
        Answers::Silent6(others) if is_v4 => return answer(message, *others),
        Answers::Silent6(_) => return None,
        Answers::Plain(_) if message.edns.is_some() => {
            return answer(message, Answers::Code(ResponseCode::FormErr));
        }
        Answers::Plain(byte) => return answer(message, Answers::With(byte)),
        Answers::Internal(_) if host.to_ascii().ends_with(".internal.") => {
            return answer(message, Answers::With(1));
        }
        Answers::Internal(others) => return answer(message, *others),
        Answers::Zone(zone) => {
            let name = host.to_ascii();
            let found = zone.iter().find(|(it, ..)| *it == name);
            let byte = found.map(|(_, v4, v6)| if is_v4 { *v4 } else { *v6 });
            let answers = match byte {
                Some(Some(byte)) => Answers::With(byte),
                Some(None) => Answers::Code(ResponseCode::NoError),
                None => Answers::Code(ResponseCode::NXDomain),
            };
            return answer(message, answers);
        }
        Answers::Referral(code) => {
            message.metadata.response_code = code;
            let server = Name::from_ascii("ns.example.").unwrap();
            let data = RData::NS(NS(server));
            message.add_authority(Record::from_rdata(Name::root(), 60, data));
        }
        Answers::Never => return None,
        Answers::OnlyIpv4(_) if !is_v4 => return None,
        Answers::Code(code) => message.metadata.response_code = code,
        Answers::Many(count) => {
            for byte in 0..count {
                let data = RData::A(std::net::Ipv4Addr::new(192, 0, 2, byte).into());
                message.add_answer(Record::from_rdata(host.clone(), 60, data));
            }
        }
        Answers::With(byte) | Answers::OnlyIpv4(byte) => {
            let data = match is_v4 {
                true => RData::A(std::net::Ipv4Addr::new(192, 0, 2, byte).into()),
                false => RData::AAAA(std::net::Ipv6Addr::from(u128::from(byte)).into()),
            };
            message.add_answer(Record::from_rdata(host, 60, data));
        }
    }
    Some(message)
}

fn names(servers: &[&Server]) -> Names<TokioRuntimeProvider> {
    let servers = NameServers {
        servers: servers.iter().map(|it| it.at).collect(),
        ..NameServers::default()
    };
    Names::new(&servers, TokioRuntimeProvider::default()).unwrap()
}

/// The IPv4 address of a name, and how long it took.
async fn first_of(
    names: &Names<TokioRuntimeProvider>,
    name: &str,
) -> (Option<SocketAddr>, Duration) {
    let begun = Instant::now();
    let found = names.resolve(name, 80).await.unwrap_or_default();
    (found.first().copied(), begun.elapsed())
}

fn v4(byte: u8) -> Option<SocketAddr> {
    Some(([192, 0, 2, byte], 80).into())
}

#[tokio::test]
async fn a_second_server_hears_nothing_while_the_first_one_answers_even_if_there_is_no_such_name() {
    for answers in [
        Answers::With(1),
        Answers::Code(ResponseCode::NXDomain),
        Answers::Referral(ResponseCode::NXDomain),
    ] {
        let (first, second) = (
            Server::start(answers).await,
            Server::start(Answers::With(2)).await,
        );
        let names = names(&[&first, &second]);
        let (found, _) = first_of(&names, "internal.example.").await;
        assert_ne!(found, v4(2));
        assert!(first.questions() > 0);
        assert_eq!(second.questions(), 0, "{answers:?}");
    }
}

#[tokio::test]
async fn a_server_that_fails_for_a_name_is_followed_by_the_next_one_and_asked_first_for_others() {
    const FAILURES: [&Answers; 5] = [
        &Answers::Code(ResponseCode::Refused),
        &Answers::Code(ResponseCode::NotImp),
        &Answers::Code(ResponseCode::FormErr),
        &Answers::Code(ResponseCode::ServFail),
        &Answers::Referral(ResponseCode::NoError),
    ];
    for failure in FAILURES {
        let (first, second) = (
            Server::start(Answers::Internal(failure)).await,
            Server::start(Answers::With(2)).await,
        );
        let names = names(&[&first, &second]);
        for name in ["a.example.", "b.example."] {
            let (found, took) = first_of(&names, name).await;
            assert_eq!(found, v4(2), "{failure:?}");
            assert!(took < Duration::from_secs(1), "{took:?}");
            // The next server does not know those inside.
            let (found, _) = first_of(&names, &format!("{name}internal.")).await;
            assert_eq!(found, v4(1), "{failure:?}");
        }
    }
}

#[tokio::test]
async fn a_server_that_only_refers_to_others_says_nothing_about_the_name() {
    let server = Server::start(Answers::Referral(ResponseCode::NoError)).await;
    names(&[&server])
        .resolve("a.example.", 80)
        .await
        .unwrap_err();
}

#[tokio::test]
async fn a_server_that_is_silent_about_one_name_is_asked_first_for_others() {
    let (first, second) = (
        Server::start(Answers::Internal(&Answers::Never)).await,
        Server::start(Answers::With(2)).await,
    );
    let names = names(&[&first, &second]);
    // An answer comes while the silence lasts.
    let (slow, other) = tokio::join!(
        first_of(&names, "slow.example."),
        first_of(&names, "a.internal.")
    );
    assert_eq!((slow.0, other.0), (v4(2), v4(1)));
    assert_eq!(first_of(&names, "b.internal.").await.0, v4(1));
}

#[tokio::test]
async fn a_silent_server_costs_its_patience_once() {
    let (first, second) = (
        Server::start(Answers::Never).await,
        Server::start(Answers::With(2)).await,
    );
    let names = names(&[&first, &second]);
    let (found, took) = first_of(&names, "a.example.").await;
    assert_eq!(found, v4(2));
    assert!(took < Duration::from_secs(4), "{took:?}");
    let (found, took) = first_of(&names, "b.example.").await;
    assert_eq!(found, v4(2));
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[tokio::test]
async fn a_server_that_ignores_questions_for_ipv6_costs_50_milliseconds() {
    let server = Server::start(Answers::OnlyIpv4(1)).await;
    let names = names(&[&server]);
    for name in ["a.example.", "b.example."] {
        let (found, took) = first_of(&names, name).await;
        assert_eq!(found, v4(1));
        assert!(took < Duration::from_millis(500), "{took:?}");
    }
}

/// Names that two domains complete, by one server.
fn completing(server: SocketAddr) -> Names<TokioRuntimeProvider> {
    let names = NameServers {
        servers: vec![server],
        search: ["one.example", "two.example"].map(str::to_owned).into(),
        ..NameServers::default()
    };
    Names::new(&names, TokioRuntimeProvider::default()).unwrap()
}

#[tokio::test]
async fn both_families_of_a_name_are_of_one_suffix() {
    const ZONE: Answers = Answers::Zone(&[
        ("printer.one.example.", Some(1), None),
        ("printer.two.example.", Some(2), Some(2)),
        ("www.site.", Some(3), None),
        ("www.site.one.example.", Some(4), Some(4)),
        ("late.two.example.", Some(5), Some(5)),
        ("bare.", Some(6), None),
        ("six.one.example.", None, Some(7)),
    ]);
    let server = Server::start(ZONE).await;
    let names = completing(server.at);
    for (name, expected) in [
        ("printer", "192.0.2.1"),
        ("www.site", "192.0.2.3"),
        ("late", "192.0.2.5 ::5"),
        ("bare", "192.0.2.6"),
        ("printer.one.example.", "192.0.2.1"),
        ("six", "::7"),
        ("printer.", ""),
        ("unknown", ""),
    ] {
        let found = names.resolve(name, 80).await.unwrap();
        let found: Vec<_> = found.iter().map(|it| it.ip().to_string()).collect();
        assert_eq!(found.join(" "), expected, "{name}");
    }
}

#[tokio::test]
async fn a_server_that_ignores_questions_for_ipv6_does_not_hide_the_next_suffix() {
    const ZONE: Answers = Answers::Zone(&[("printer.two.example.", Some(2), None)]);
    let server = Server::start(Answers::Silent6(&ZONE)).await;
    let names = completing(server.at);
    let (found, took) = first_of(&names, "printer").await;
    assert_eq!(found, v4(2));
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// The address of another suffix would be another host's.
#[tokio::test]
async fn questions_for_ipv4_that_are_lost_lead_to_no_other_suffix() {
    const ZONE: Answers = Answers::Zone(&[
        ("printer.one.example.", Some(1), None),
        ("printer.two.example.", Some(2), Some(2)),
    ]);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let names = completing(socket.local_addr().unwrap());
    let serving = async {
        let mut buffer = [0; 512];
        let mut lost = 0;
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let question = Message::from_vec(&buffer[..length]).unwrap();
            if question.queries[0].query_type() == RecordType::A && lost < 2 {
                lost += 1;
                continue;
            }
            let answer = answer(question, ZONE).unwrap().to_vec().unwrap();
            socket.send_to(&answer, from).await.unwrap();
        }
    };
    let found = tokio::select! {
        found = names.resolve("printer", 80) => found.unwrap(),
        () = serving => unreachable!(),
    };
    assert_eq!(found, ["192.0.2.1:80".parse().unwrap()]);
}

#[tokio::test]
async fn special_names_are_asked_of_nobody() {
    let server = Server::start(Answers::With(1)).await;
    let names = completing(server.at);
    for (name, expected) in [
        ("site.onion", ""),
        ("www.Site.ONION", ""),
        ("site.onion.", ""),
        ("gone.invalid", ""),
        ("localhost", "127.0.0.1 ::1"),
        ("a.localhost", "127.0.0.1 ::1"),
    ] {
        let found = names.resolve(name, 80).await.unwrap();
        let found: Vec<_> = found.iter().map(|it| it.ip().to_string()).collect();
        assert_eq!(found.join(" "), expected, "{name}");
        assert_eq!(server.questions(), 0, "{name}");
    }
    // Hosts may have such names in their domain.
    for name in ["onion", "invalid", "onion.example"] {
        assert_eq!(first_of(&names, name).await.0, v4(1), "{name}");
    }
}

#[tokio::test]
async fn the_system_is_not_asked_for_names_that_nobody_has() {
    for name in ["site.onion", "site.onion.", "gone.invalid"] {
        let found = Host.resolve(name, 80).await.unwrap();
        assert_eq!(found, [] as [SocketAddr; 0], "{name}");
    }
    for name in ["localhost", "a.localhost", "A.LocalHost."] {
        let found = Host.resolve(name, 80).await.unwrap();
        let is_own = !found.is_empty() && found.iter().all(|it| it.ip().is_loopback());
        assert!(is_own, "{name}: {found:?}");
    }
}

#[tokio::test]
async fn the_servers_of_this_host_are_asked_without_extensions() {
    let server = Server::start(Answers::Plain(1)).await;
    let mut config = NameServerConfig::udp_and_tcp(server.at.ip());
    let connections = config.connections.iter_mut();
    connections.for_each(|it| it.port = server.at.port());
    let config = ResolverConfig::from_parts(None, Vec::new(), vec![config]);
    let mut options = ResolverOpts::default();
    // resolv.conf has it where systemd-resolved wrote it.
    options.edns0 = true;
    let servers = system::servers(&config, options, &Arc::default()).unwrap();
    let name = Name::from_ascii("a.example.").unwrap();
    let found = servers.lookup(name, RecordType::A).await.unwrap();
    assert_eq!(found.answers().len(), 1);
}

/// Long answers for names that a client makes up would otherwise take a gigabyte: each may have 64 KiB.
#[tokio::test]
async fn many_long_answers_are_not_remembered_and_short_ones_are() {
    fn many<const COUNT: u8>(query: &[u8]) -> Vec<u8> {
        let query = Message::from_vec(query).unwrap();
        answer(query, Answers::Many(COUNT))
            .unwrap()
            .to_vec()
            .unwrap()
    }
    for (server, is_remembered) in [
        (Server::start_by_tcp(many::<1>).await, true),
        (Server::start_by_tcp(many::<64>).await, false),
    ] {
        let servers = NameServers {
            servers: vec![server.at],
            families: vec![Family::V4],
            ..NameServers::default()
        };
        let names = Names::new(&servers, TokioRuntimeProvider::default()).unwrap();
        for number in 0..400 {
            let (found, _) = first_of(&names, &format!("{number}.example.")).await;
            assert_eq!(found, v4(0), "{number}");
        }
        let before = server.questions();
        first_of(&names, "0.example.").await;
        assert_eq!(server.questions() == before, is_remembered);
    }
}

#[tokio::test]
async fn an_answer_of_many_servers_and_addresses_takes_little_memory() {
    let server = Server::start_by_tcp(referral_with_addresses).await;
    let names = names(&[&server]);
    let before = most_memory();
    let found = names.resolve("host.example.", 80).await;
    assert!(found.is_err(), "{found:?}");
    let grown = most_memory() - before;
    assert!(grown < 64 << 20, "{grown} bytes");
}

/// The longest answer to a question that names a server, and that server's address, as often.
fn referral_with_addresses(query: &[u8]) -> Vec<u8> {
    const EACH: u16 = 2_100;
    // The domain of the question's name, "host.example.".
    const SERVER: [u8; 2] = [0xc0, 12 + 5];
    let count = EACH.to_be_bytes();
    let head = [&query[..2], &[0x80, 0x80, 0, 1, 0, 0], &count, &count].concat();
    let server = [&[0xc0, 12, 0, 2, 0, 1, 0, 0, 0, 60, 0, 2], &SERVER[..]].concat();
    let address = [&SERVER[..], &[0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]].concat();
    let many = |record: Vec<u8>| record.repeat(EACH.into());
    [head, query[12..].to_vec(), many(server), many(address)].concat()
}

/// The most memory that this process has had so far, in bytes.
fn most_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|it| it.trim().strip_suffix(" kB"));
    kilobytes.unwrap().parse::<usize>().unwrap() << 10
}
