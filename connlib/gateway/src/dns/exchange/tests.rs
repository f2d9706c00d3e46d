use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use hickory_resolver::proto::{
    op::{Edns, Message, Query as Asked},
    rr::{Name, RecordType},
};
use tokio::{net::TcpListener, task::JoinSet};

use super::*;
use crate::{Dns, Upstream};
use convoy_network::shares::{Limits, Shares};

/// Every wait of a test ends after this time.
const DEADLINE: Duration = Duration::from_secs(60);
/// A record of a type that nobody knows; its owner is the question's name.
const RECORD: &[u8] = b"\xc0\x0c\xff\0\0\x01\0\0\x02\x58\0\x03\x07\xc0\xff";
/// A name server of the question's name.
const NS: &[u8] = b"\xc0\x0c\0\x02\0\x01\0\0\x02\x58\0\x02\xc0\x0c";

/// A behavior of a test's server, over UDP; over TCP, it knows a thousand records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    /// With a record, and the word that it is authentic.
    Signed,
    Truncated,
    /// With this code, unless the query has no EDNS.
    Puzzled(u8),
    /// With this code, unless the query has EDNS.
    Plain(u8),
    Refused,
    /// To the servers of a zone.
    Referral,
    Never,
    /// The first query is lost.
    Second,
    /// Forged answers come first.
    Forged,
}

struct Server {
    at: SocketAddr,
    questions: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl Server {
    async fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let socket = UdpSocket::bind(at).await.unwrap();
        let questions = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&questions);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let count = counter.fetch_add(1, Ordering::Relaxed);
                for reply in replies(&buffer[..length], answers, count) {
                    socket.send_to(&reply, from).await.unwrap();
                }
            }
        });
        serving.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut query = vec![0; stream.read_u16().await.unwrap().into()];
                stream.read_exact(&mut query).await.unwrap();
                let reply = reply(&query, [0x81, 0xa0], 1_000);
                stream.write_u16(reply.len() as u16).await.unwrap();
                stream.write_all(&reply).await.unwrap();
            }
        });
        Self {
            at,
            questions,
            _serving: serving,
        }
    }
}

fn replies(query: &[u8], answers: Answers, count: usize) -> Vec<Vec<u8>> {
    let has_edns = query[11] != 0;
    let signed = reply(query, [0x81, 0xa0], 1);
    match answers {
        Answers::Never => vec![],
        Answers::Second if count == 0 => vec![],
        Answers::Refused => vec![reply(query, [0x81, 0x85], 0)],
        Answers::Truncated => vec![reply(query, [0x83, 0x80], 0)],
        // Without the question, as old servers do.
        Answers::Puzzled(code) if has_edns => {
            vec![[&query[..2], &[0x81, 0x80 | code], &[0; 8]].concat()]
        }
        Answers::Plain(_) if has_edns => vec![],
        Answers::Plain(code) if code != 0 => vec![reply(query, [0x81, 0x80 | code], 0)],
        Answers::Referral => {
            let mut referral = [&reply(query, [0x81, 0x80], 0), NS].concat();
            referral[9] = 1;
            vec![referral]
        }
        Answers::Forged => {
            let mut forged = signed.clone();
            forged[0] ^= 1;
            vec![b"nonsense".to_vec(), forged, signed]
        }
        _ => vec![signed],
    }
}

fn reply(query: &[u8], flags: [u8; 2], records: u16) -> Vec<u8> {
    let name = query[12..].iter().position(|byte| *byte == 0).unwrap();
    let question = name + 1 + 4;
    let mut bytes = [
        &query[..2],
        &flags,
        &[0, 1],
        &records.to_be_bytes(),
        &[0; 4],
    ]
    .concat();
    bytes.extend(&query[12..12 + question]);
    (0..records).for_each(|_| bytes.extend(RECORD));
    bytes
}

fn dns(servers: &[&Server]) -> Dns {
    let limits = Limits {
        total: 64,
        peer: 64,
        peers: 1,
    };
    let upstream = Upstream::Servers(servers.iter().map(|it| it.at).collect());
    Dns::new(upstream, Shares::new(limits), Shares::new(limits)).unwrap()
}

async fn ask(dns: &Dns, name: &str, over: Over) -> Message {
    ask_for(dns, &query(name, true), over).await
}

/// A query with EDNS, for signatures as well or not.
fn query(name: &str, dnssec_ok: bool) -> Message {
    let mut query = Message::query();
    let name = Name::from_ascii(name).unwrap();
    query.add_query(Asked::query(name, RecordType::Unknown(65_280)));
    let mut edns = Edns::new();
    edns.set_dnssec_ok(dnssec_ok);
    query.set_edns(edns);
    query
}

fn question() -> Question {
    let query = query("a.example.", false).to_vec().unwrap();
    Question::read(&query, Over::Udp).unwrap()
}

async fn ask_for(dns: &Dns, query: &Message, over: Over) -> Message {
    let query = query.to_vec().unwrap();
    let answer = timeout(DEADLINE, dns.answer(&query, 1, over)).await;
    Message::from_vec(&answer.unwrap().unwrap()).unwrap()
}

#[tokio::test]
async fn an_answer_comes_whole_in_spite_of_loss_forgery_and_servers_without_edns() {
    for answers in [
        Answers::Signed,
        Answers::Second,
        Answers::Forged,
        Answers::Puzzled(1),
        Answers::Puzzled(2),
        Answers::Puzzled(4),
    ] {
        let server = Server::start(answers).await;
        let dns = dns(&[&server]);
        for over in [Over::Udp, Over::Tcp] {
            let answer = ask(&dns, "a.example.", over).await;
            assert_eq!(answer.answers.len(), 1);
            assert!(answer.metadata.authentic_data);
            assert!(answer.edns.unwrap().flags().dnssec_ok);
        }
        let totals = dns.totals();
        assert_eq!((totals.opened, totals.closed), (2, 2));
    }
}

#[tokio::test]
async fn a_truncated_answer_is_fetched_by_tcp_if_the_client_uses_it() {
    let server = Server::start(Answers::Truncated).await;
    let dns = dns(&[&server]);
    let by_udp = ask(&dns, "a.example.", Over::Udp).await;
    assert!(by_udp.metadata.truncation && by_udp.answers.is_empty());
    let by_tcp = ask(&dns, "a.example.", Over::Tcp).await;
    assert!(!by_tcp.metadata.truncation);
    assert_eq!(by_tcp.answers.len(), 1_000);
}

#[tokio::test]
async fn signed_answers_come_from_the_next_server_if_the_first_one_does_not_help() {
    for (answers, is_remembered) in [
        (Answers::Refused, false),
        (Answers::Referral, false),
        (Answers::Never, true),
    ] {
        let servers = [
            Server::start(answers).await,
            Server::start(Answers::Signed).await,
        ];
        let dns = dns(&servers.each_ref());
        assert_eq!(ask(&dns, "a.example.", Over::Udp).await.answers.len(), 1);
        let asked = servers[0].questions.load(Ordering::Relaxed);
        assert_eq!(ask(&dns, "b.example.", Over::Udp).await.answers.len(), 1);
        let is_same = servers[0].questions.load(Ordering::Relaxed) == asked;
        assert_eq!(is_same, is_remembered, "{answers:?}");
    }
}

#[tokio::test]
async fn a_server_that_drops_queries_with_edns_is_asked_without() {
    let server = Server::start(Answers::Plain(0)).await;
    let dns = dns(&[&server]);
    let mut query = query("a.example.", false);
    query.metadata.authentic_data = true;
    let answer = ask_for(&dns, &query, Over::Udp).await;
    assert_eq!(answer.answers.len(), 1);
    assert!(answer.metadata.authentic_data && answer.edns.is_some());
}

#[tokio::test]
async fn a_server_that_fails_without_edns_is_not_asked_so_again() {
    let server = Server::start(Answers::Plain(2)).await;
    let question = question();
    exchange(server.at, &question).await.unwrap_err();
    assert_eq!(server.questions.load(Ordering::Relaxed), 2);
}

/// While the answer without EDNS is on its way.
#[tokio::test]
async fn a_late_answer_to_the_query_with_edns_counts_unless_it_is_an_error() {
    for (late, records) in [(1, 0), (0, 1)] {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let at = socket.local_addr().unwrap();
        let question = question();
        let serving = async {
            let mut queries = [[0; 512]; 2];
            let mut from = at;
            for query in &mut queries {
                (_, from) = socket.recv_from(query).await.unwrap();
            }
            let late = reply(&queries[0], [0x81, 0x80 | late], records);
            socket.send_to(&late, from).await.unwrap();
            if records == 0 {
                let answer = reply(&queries[1], [0x81, 0x80], 1);
                socket.send_to(&answer, from).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            answer = timeout(DEADLINE, exchange(at, &question)) => {
                let answer = question.pass(&answer.unwrap().unwrap());
                let answer = Message::from_vec(&answer).unwrap();
                assert_eq!(answer.answers.len(), 1);
            }
            () = serving => unreachable!(),
        }
    }
}

#[tokio::test]
async fn names_of_this_host_alone_are_asked_of_nobody() {
    let server = Server::start(Answers::Signed).await;
    let dns = dns(&[&server]);
    let gone = ResponseCode::NXDomain;
    for (name, code) in [
        ("localhost.", ResponseCode::NoError),
        ("a.localhost.", ResponseCode::NoError),
        ("gone.invalid.", gone),
        ("www.site.onion.", gone),
        ("Site.Onion.", gone),
        ("onion.", gone),
    ] {
        let answer = ask(&dns, name, Over::Udp).await;
        assert_eq!(answer.metadata.response_code, code, "{name}");
        assert!(answer.answers.is_empty() && !answer.metadata.authentic_data);
        let mut plain = query(name, false);
        plain.queries[0].set_query_type(RecordType::A);
        let answer = ask_for(&dns, &plain, Over::Udp).await;
        assert_eq!(answer.metadata.response_code, code, "{name}");
        assert_eq!(answer.answers.is_empty(), code == gone, "{name}");
    }
    assert_eq!(server.questions.load(Ordering::Relaxed), 0);
}
