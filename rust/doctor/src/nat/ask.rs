//! Asks STUN servers how they see a fresh UDP socket.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use convoy_stun::Client;
use futures_util::future::join;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::{
    net::UdpSocket,
    time::{Instant, timeout_at},
};

use super::facts::Answer;

/// Longest time that the servers have to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Room for a datagram; longer ones are no answers.
const ANSWER_SPACE: usize = 2_048;

/// Asks all servers at once, those of a family over one socket; returns their answers in the same order.
pub(super) async fn ask(servers: &[SocketAddr], mark: Option<u32>) -> Vec<Answer> {
    let of_family = |ipv6| {
        let servers = servers.iter().filter(move |it| it.is_ipv6() == ipv6);
        servers.copied().collect::<Vec<_>>()
    };
    let (v4, v6) = join(
        ask_family((Ipv4Addr::UNSPECIFIED, 0).into(), of_family(false), mark),
        ask_family((Ipv6Addr::UNSPECIFIED, 0).into(), of_family(true), mark),
    )
    .await;
    let (mut v4, mut v6) = (v4.into_iter(), v6.into_iter());
    let answers = servers.iter().filter_map(|server| match server {
        SocketAddr::V4(_) => v4.next(),
        SocketAddr::V6(_) => v6.next(),
    });
    answers.collect()
}

async fn ask_family(local: SocketAddr, servers: Vec<SocketAddr>, mark: Option<u32>) -> Vec<Answer> {
    let count = servers.len();
    if count == 0 {
        return Vec::new();
    }
    match Asking::open(local, servers, mark) {
        Ok(asking) => asking.run().await,
        Err(error) => vec![Answer::Unsent(error.to_string()); count],
    }
}

/// A socket and its questions.
struct Asking {
    socket: UdpSocket,
    local_port: u16,
    begun: Instant,
    questions: Vec<Question>,
}

/// A client for one server alone, as it does not tell which server saw what.
struct Question {
    client: Client,
    was_sent: bool,
    answer: Option<Answer>,
}

impl Asking {
    fn open(local: SocketAddr, servers: Vec<SocketAddr>, mark: Option<u32>) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(local)?;
        socket.set_nonblocking(true)?;
        if let Some(mark) = mark {
            setsockopt(&socket, sockopt::Mark, &mark)?;
        }
        let socket = UdpSocket::from_std(socket)?;
        Ok(Self {
            local_port: socket.local_addr()?.port(),
            socket,
            begun: Instant::now(),
            questions: servers.into_iter().map(Question::new).collect(),
        })
    }

    async fn run(mut self) -> Vec<Answer> {
        let end = self.begun + PATIENCE;
        loop {
            self.send().await;
            let open = self.questions.iter().filter(|it| it.answer.is_none());
            let next = open.filter_map(|it| it.client.poll_timeout()).min();
            let Some(next) = next.filter(|_| Instant::now() < end) else {
                break;
            };
            let mut buffer = [0; ANSWER_SPACE];
            let received = self.socket.recv_from(&mut buffer);
            if let Ok(Ok((length, from))) = timeout_at(end.min(self.begun + next), received).await {
                self.receive(from, &buffer[..length]);
            }
        }
        let answers = self.questions.into_iter();
        answers
            .map(|it| it.answer.unwrap_or(Answer::Silence))
            .collect()
    }

    async fn send(&mut self) {
        for question in &mut self.questions {
            let now = self.begun.elapsed();
            while question.answer.is_none()
                && let Some(request) = question.client.poll_transmit(random, now)
            {
                match self.socket.send_to(&request.bytes, request.to).await {
                    Ok(_) => question.was_sent = true,
                    Err(_) if question.was_sent => {}
                    Err(error) => question.answer = Some(Answer::Unsent(error.to_string())),
                }
            }
        }
    }

    fn receive(&mut self, from: SocketAddr, datagram: &[u8]) {
        let (now, local_port) = (self.begun.elapsed(), self.local_port);
        for question in &mut self.questions {
            // An answer with an error tells no address.
            if question.client.handle_datagram(from, datagram, now) {
                let seen = question.client.addresses().next();
                question.answer = Some(seen.map_or(Answer::Silence, |outside| Answer::Seen {
                    local_port,
                    outside,
                }));
            }
        }
    }
}

impl Question {
    fn new(server: SocketAddr) -> Self {
        let mut client = Client::default();
        client.set_servers(&[server], Duration::ZERO);
        client.start(Duration::ZERO);
        Self {
            client,
            was_sent: false,
            answer: None,
        }
    }
}

fn random() -> Option<[u8; 12]> {
    let mut bytes = [0; 12];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    (filled == Ok(bytes.len())).then_some(bytes)
}
