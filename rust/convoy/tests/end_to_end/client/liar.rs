//! A name server that says what a test wants, true or not.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use convoy_lab::Namespace;

const PORT: u16 = 53;
/// How long its threads wait before they look whether the test is over.
const PATIENCE: Duration = Duration::from_millis(20);
/// Datagrams for one question.
const FLOOD: u16 = 10_000;

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;

/// A name server; ends when dropped.
pub(super) struct Liar {
    state: Arc<State>,
    threads: Vec<JoinHandle<()>>,
}

struct State {
    says: Mutex<Says>,
    asked: AtomicUsize,
    is_over: AtomicBool,
}

/// A kind of answer.
#[derive(Clone, Debug)]
pub(super) enum Says {
    Addresses(Vec<IpAddr>),
    /// By UDP only that TCP has more.
    ByTcp(Vec<IpAddr>),
    /// The same, and nothing by TCP.
    Never,
    /// From the wrong port.
    Elsewhere(Vec<IpAddr>),
    /// With another transaction id, again and again.
    Unasked(Vec<IpAddr>),
    /// To another question.
    Beside(Vec<IpAddr>),
    /// The name stands for itself.
    Itself,
    Garbage,
    Nothing,
}

impl Liar {
    pub(super) fn start(place: &Namespace, address: &str, says: Says) -> Self {
        let address = SocketAddr::new(address.parse().unwrap(), PORT);
        let bind = || {
            let udp = |port| UdpSocket::bind((address.ip(), port)).unwrap();
            (udp(PORT), udp(0), TcpListener::bind(address).unwrap())
        };
        let (udp, elsewhere, tcp) = place.run(bind).unwrap();
        udp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let state = Arc::new(State {
            says: Mutex::new(says),
            asked: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let (by_udp, by_tcp) = (Arc::clone(&state), Arc::clone(&state));
        let threads = vec![
            thread::spawn(move || by_udp.serve_udp(&udp, &elsewhere)),
            thread::spawn(move || by_tcp.serve_tcp(&tcp)),
        ];
        Self { state, threads }
    }

    /// From now on it says this.
    pub(super) fn says(&self, says: Says) {
        *self.state.says.lock().unwrap() = says;
    }

    /// Returns how many questions it got.
    pub(super) fn questions(&self) -> usize {
        self.state.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl State {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn says(&self) -> Says {
        self.says.lock().unwrap().clone()
    }

    fn serve_udp(&self, socket: &UdpSocket, elsewhere: &UdpSocket) {
        let mut query = [0; 512];
        while self.goes_on() {
            // An error is a timeout, or reports that the client has left.
            let Ok((length, client)) = socket.recv_from(&mut query) else {
                continue;
            };
            self.asked.fetch_add(1, Ordering::Relaxed);
            let query = &query[..length];
            // A client that has left takes nothing.
            let say = |socket: &UdpSocket, answer: &[u8]| drop(socket.send_to(answer, client));
            match self.says() {
                Says::Addresses(all) => say(socket, &found(query, &all)),
                Says::ByTcp(_) | Says::Never => say(socket, &cut_short(query)),
                Says::Elsewhere(all) => say(elsewhere, &found(query, &all)),
                Says::Unasked(all) => {
                    let mut answer = found(query, &all);
                    for n in 1..FLOOD {
                        let id = u16::from_be_bytes([query[0], query[1]]) ^ n;
                        answer[..2].copy_from_slice(&id.to_be_bytes());
                        say(socket, &answer);
                    }
                }
                Says::Beside(all) => {
                    let mut answer = found(query, &all);
                    // The first letter of the name.
                    answer[13] ^= 1;
                    say(socket, &answer);
                }
                Says::Itself => say(socket, &answer(query, CNAME, &[vec![0xc0, 12]])),
                Says::Garbage => say(socket, &[&query[..2], &[0xff; 64]].concat()),
                Says::Nothing => say(socket, &found(query, &[])),
            }
        }
    }

    fn serve_tcp(self: Arc<Self>, listener: &TcpListener) {
        let mut clients = Vec::new();
        while self.goes_on() {
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(PATIENCE);
                continue;
            };
            let state = Arc::clone(&self);
            clients.push(thread::spawn(move || state.converse(stream)));
        }
        for client in clients {
            let _ = client.join();
        }
    }

    /// Returns when the client leaves or the test is over.
    fn converse(&self, mut stream: TcpStream) {
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut heard = Vec::new();
        while self.goes_on() {
            let mut chunk = [0; 512];
            match stream.read(&mut chunk) {
                Ok(0) => return,
                Ok(length) => heard.extend_from_slice(&chunk[..length]),
                Err(_) => continue,
            }
            while let Some((query, rest)) = message(&heard) {
                if let Says::ByTcp(all) | Says::Addresses(all) = self.says() {
                    let answer = found(query, &all);
                    let length = u16::try_from(answer.len()).unwrap();
                    let framed = [&length.to_be_bytes()[..], &answer].concat();
                    // As above.
                    let _ = stream.write_all(&framed);
                }
                heard = rest.to_vec();
            }
        }
    }
}

/// The first whole message by TCP, and what follows (RFC 1035 §4.2.2).
fn message(heard: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = heard.split_first_chunk()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
}

/// The addresses of the family that the query asks for.
fn found(query: &[u8], all: &[IpAddr]) -> Vec<u8> {
    let family = family(query);
    let records = all.iter().filter_map(|address| match (address, family) {
        (IpAddr::V4(v4), A) => Some(v4.octets().to_vec()),
        (IpAddr::V6(v6), AAAA) => Some(v6.octets().to_vec()),
        _ => None,
    });
    answer(query, family, &records.collect::<Vec<_>>())
}

fn cut_short(query: &[u8]) -> Vec<u8> {
    let mut answer = answer(query, A, &[]);
    answer[2] |= 0x02;
    answer
}

/// An answer with these records (RFC 1035 §4.1).
fn answer(query: &[u8], kind: u16, records: &[Vec<u8>]) -> Vec<u8> {
    let mut answer = query[..end_of_question(query)].to_vec();
    answer[2] |= 0x80;
    answer[3] = 0x80;
    // No records besides the question and these.
    answer[6..12].fill(0);
    let count = u16::try_from(records.len()).unwrap();
    answer[6..8].copy_from_slice(&count.to_be_bytes());
    for record in records {
        // The name of the question, this type, class IN, one minute.
        answer.extend([0xc0, 12]);
        answer.extend(kind.to_be_bytes());
        answer.extend([0, 1, 0, 0, 0, 60]);
        answer.extend(u16::try_from(record.len()).unwrap().to_be_bytes());
        answer.extend(record);
    }
    answer
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
