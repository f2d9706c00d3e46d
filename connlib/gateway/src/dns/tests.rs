use std::{net::SocketAddr, time::Duration};

use hickory_resolver::proto::{
    op::{Message, Query, ResponseCode},
    rr::{Name, RData, Record, RecordType, rdata::A},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

use super::*;
use convoy_network::{Host, Kernel, Network, shares::Limits};

/// Every wait of a test ends after this time.
const DEADLINE: Duration = Duration::from_secs(60);

const QUERIES: Limits = Limits {
    total: 40,
    peer: 16,
    peers: 2,
};

#[tokio::test]
async fn a_query_is_answered_by_the_server_and_then_from_memory() {
    let server = Server::start().await;
    let dns = dns(server.at());
    for round in 0..3 {
        let answer = ask(&dns, &query("target.example."), 1).await;
        assert_eq!(answer.answers.len(), 1, "{round}");
    }
    assert_eq!(server.questions(), 1);
    let totals = dns.totals();
    assert_eq!((totals.opened, totals.closed), (3, 3));
}

#[tokio::test]
async fn a_peer_that_asks_without_end_is_refused_and_nobody_else() {
    // It hears the questions and says nothing.
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let dns = dns(silent.local_addr().unwrap());
    let mut lookups = JoinSet::new();
    for number in 0..20 {
        let (dns, query) = (dns.clone(), query(&format!("{number}.example.")));
        lookups.spawn(async move { ask(&dns, &query, 1).await });
    }
    // Those beyond the peer's share are answered at once.
    for _ in 0..4 {
        let answer = within(lookups.join_next()).await.unwrap().unwrap();
        assert_eq!(answer.metadata.response_code, ResponseCode::Refused);
    }
    assert_eq!(dns.totals().refused(Refusal::TooManyOfPeer), 4);
    assert_eq!((lookups.len(), dns.0.queries.taken()), (16, 16));
    let others = dns
        .0
        .admit(&query("other.example.").to_vec().unwrap(), 2, Over::Udp);
    assert!(others.is_ok());
    // Whoever gives up gives everything back.
    drop(others);
    lookups.shutdown().await;
    assert_eq!(dns.0.queries.taken(), 0);
    let totals = dns.totals();
    assert_eq!(totals.opened, totals.closed);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_is_a_failure_of_this_server() {
    let closed = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr();
    let dns = dns(closed.unwrap());
    let answer = ask(&dns, &query("target.example."), 1).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::ServFail);
    let totals = dns.totals();
    let refused: u64 = Refusal::ALL.iter().map(|it| totals.refused(*it)).sum();
    assert_eq!(refused, 1);
}

#[tokio::test]
async fn datagrams_of_peers_are_answered_and_those_of_strangers_are_counted() {
    let server = Server::start().await;
    let dns = dns(server.at());
    let socket = Kernel(Host).datagrams(local()).await.unwrap();
    let at = socket.local_addr().unwrap();
    let peer_of = |address: IpAddr| (address != IpAddr::from([127, 0, 0, 9])).then_some(1);
    let _serving = spawn(dns.clone().serve_udp(socket, peer_of));
    let stranger = UdpSocket::bind("127.0.0.9:0").await.unwrap();
    let query = query("target.example.").to_vec().unwrap();
    stranger.send_to(&query, at).await.unwrap();
    let client = UdpSocket::bind(local()).await.unwrap();
    // What is no query does not keep it from answering the next one.
    client.send_to(b"\0\x07nonsense", at).await.unwrap();
    client.send_to(&query, at).await.unwrap();
    let mut buffer = [0; 512];
    let (length, _) = within(client.recv_from(&mut buffer)).await.unwrap();
    let answer = Message::from_vec(&buffer[..length]).unwrap();
    assert_eq!(answer.answers.len(), 1);
    let totals = dns.totals();
    let counted = [Refusal::Denied, Refusal::Malformed].map(|it| totals.refused(it));
    assert_eq!(counted, [1, 1]);
    assert_eq!(totals.bytes_in, length as u64);
    stranger.try_recv_from(&mut buffer).unwrap_err();
}

#[tokio::test]
async fn a_connection_carries_many_queries_at_once_and_each_is_answered() {
    let server = Server::start().await;
    let (_serving, mut client, dns) = connected(&server).await;
    let mut sent = Vec::new();
    let mut ids = Vec::new();
    for number in 0..100 {
        let query = query(&format!("{number}.example."));
        ids.push(query.metadata.id);
        sent.extend(framed(&query));
    }
    // Cut anywhere.
    for part in sent.chunks(7) {
        client.write_all(part).await.unwrap();
    }
    client.shutdown().await.unwrap();
    let mut answered = Vec::new();
    for _ in 0..100 {
        let answer = receive(&mut client).await;
        // No more are looked up at once than the peer may.
        assert_eq!(answer.answers.len(), 1);
        answered.push(answer.metadata.id);
    }
    assert_eq!(within(client.read(&mut [0])).await.unwrap(), 0);
    ids.sort_unstable();
    answered.sort_unstable();
    assert_eq!(ids, answered);
    within(until(|| dns.0.connections.taken() == 0)).await;
    assert_eq!(dns.0.queries.taken(), 0);
}

#[tokio::test]
async fn a_connection_ends_with_a_query_that_is_too_long_or_is_none() {
    let server = Server::start().await;
    for bytes in [&[0xff, 0xff, 0][..], &[0, 2, 7, 7]] {
        let (_serving, mut client, dns) = connected(&server).await;
        client.write_all(bytes).await.unwrap();
        // By an end or, as not all was read, by a reset.
        let ended = within(client.read(&mut [0])).await;
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        assert_eq!(dns.totals().refused(Refusal::Malformed), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_if_its_client_sends_no_whole_query_in_time() {
    let server = Server::start().await;
    let (_serving, mut client, dns) = connected(&server).await;
    client.write_all(&[0, 40]).await.unwrap();
    let trickle = async {
        let mut byte = [7];
        loop {
            tokio::select! {
                ended = client.read(&mut byte) => break ended,
                () = tokio::time::sleep(Duration::from_secs(4)) => client.write_all(&[7]).await.unwrap(),
            }
        }
    };
    assert_eq!(within(trickle).await.unwrap(), 0);
    within(until(|| dns.0.connections.taken() == 0)).await;
}

#[tokio::test]
async fn a_peer_has_its_share_of_connections_and_no_more() {
    let server = Server::start().await;
    let (_serving, first, dns) = connected(&server).await;
    let mut clients = vec![first];
    let at = clients[0].peer_addr().unwrap();
    for _ in 0..8 {
        // Some fail at once.
        clients.extend(TcpStream::connect(at).await);
    }
    within(until(|| dns.totals().refused(Refusal::TooManyOfPeer) == 5)).await;
    assert_eq!(dns.0.connections.taken(), 4);
    clients.truncate(4);
    clients[3]
        .write_all(&framed(&query("target.example.")))
        .await
        .unwrap();
    assert_eq!(receive(&mut clients[3]).await.answers.len(), 1);
}

/// A server that knows one address of every name.
struct Server {
    at: SocketAddr,
    questions: Arc<std::sync::atomic::AtomicUsize>,
    _serving: JoinSet<()>,
}

impl Server {
    async fn start() -> Self {
        let socket = UdpSocket::bind(local()).await.unwrap();
        let at = socket.local_addr().unwrap();
        let questions = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = Arc::clone(&questions);
        let serving = spawn(async move {
            let mut buffer = [0; 512];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let mut answer = Message::from_vec(&buffer[..length])
                    .unwrap()
                    .into_response();
                let name = answer.queries[0].name().clone();
                let address = RData::A(A([192, 0, 2, 7].into()));
                answer.add_answer(Record::from_rdata(name, 600, address));
                socket
                    .send_to(&answer.to_vec().unwrap(), from)
                    .await
                    .unwrap();
            }
        });
        Self {
            at,
            questions,
            _serving: serving,
        }
    }

    fn at(&self) -> SocketAddr {
        self.at
    }

    fn questions(&self) -> usize {
        self.questions.load(std::sync::atomic::Ordering::SeqCst)
    }
}

fn dns(server: SocketAddr) -> Dns {
    let connections = Limits {
        total: 8,
        peer: 4,
        peers: 2,
    };
    let upstream = Upstream::Servers(vec![server]);
    Dns::new(upstream, Shares::new(QUERIES), Shares::new(connections)).unwrap()
}

/// A client's connection to a server that is served by the result's first part.
async fn connected(server: &Server) -> (JoinSet<()>, TcpStream, Dns) {
    let dns = dns(server.at());
    let listener = Kernel(Host).listen(local()).await.unwrap();
    let at = listener.local_addr().unwrap();
    let serving = spawn(dns.clone().serve_tcp(listener, |_| Some(1)));
    (serving, TcpStream::connect(at).await.unwrap(), dns)
}

async fn ask(dns: &Dns, query: &Message, peer: u32) -> Message {
    let query = query.to_vec().unwrap();
    let answer = within(dns.answer(&query, peer, Over::Udp)).await;
    Message::from_vec(&answer.unwrap()).unwrap()
}

fn query(name: &str) -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    message
}

fn framed(query: &Message) -> Vec<u8> {
    let query = query.to_vec().unwrap();
    [&(query.len() as u16).to_be_bytes(), &query[..]].concat()
}

async fn receive(stream: &mut TcpStream) -> Message {
    let length = within(stream.read_u16()).await.unwrap();
    let mut message = vec![0; length.into()];
    within(stream.read_exact(&mut message)).await.unwrap();
    Message::from_vec(&message).unwrap()
}

fn spawn(serving: impl Future<Output = ()> + Send + 'static) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(serving);
    tasks
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("not in time")
}

fn local() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}
