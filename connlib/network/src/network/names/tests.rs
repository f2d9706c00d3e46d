use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use hickory_resolver::{
    net::runtime::TokioRuntimeProvider,
    proto::{
        op::{Message, MessageType, ResponseCode},
        rr::{RData, Record},
    },
};
use tokio::time::Instant;

use super::*;

/// A test server's behaviour towards a question.
#[derive(Clone, Copy)]
enum Answers {
    /// With an address whose last byte is this one, or its IPv6 equivalent.
    With(u8),
    OnlyIpv4(u8),
    Code(ResponseCode),
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

    fn questions(&self) -> usize {
        self.questions.load(Ordering::Relaxed)
    }
}

fn answer(mut message: Message, answers: Answers) -> Option<Message> {
    message.metadata.message_type = MessageType::Response;
    let query = message.queries[0].clone();
    let (host, is_v4) = (query.name().clone(), query.query_type() == RecordType::A);
    match answers {
        Answers::Never => return None,
        Answers::OnlyIpv4(_) if !is_v4 => return None,
        Answers::Code(code) => message.metadata.response_code = code,
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
    for answers in [Answers::With(1), Answers::Code(ResponseCode::NXDomain)] {
        let (first, second) = (
            Server::start(answers).await,
            Server::start(Answers::With(2)).await,
        );
        let names = names(&[&first, &second]);
        let (found, _) = first_of(&names, "internal.example.").await;
        assert_ne!(found, v4(2));
        assert!(first.questions() > 0);
        assert_eq!(second.questions(), 0);
    }
}

#[tokio::test]
async fn a_server_that_fails_is_followed_by_the_next_one_at_once_and_asked_last_for_a_while() {
    for (code, is_remembered) in [
        (ResponseCode::Refused, true),
        (ResponseCode::NotImp, true),
        // That is about one name.
        (ResponseCode::ServFail, false),
    ] {
        let (first, second) = (
            Server::start(Answers::Code(code)).await,
            Server::start(Answers::With(2)).await,
        );
        let names = names(&[&first, &second]);
        let (found, took) = first_of(&names, "a.example.").await;
        assert_eq!(found, v4(2), "{code}");
        assert!(took < Duration::from_secs(1), "{took:?}");
        let asked = first.questions();
        assert_eq!(first_of(&names, "b.example.").await.0, v4(2));
        assert_eq!(first.questions() == asked, is_remembered, "{code}");
    }
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
