use std::{
    net::{IpAddr, SocketAddr},
    os::{fd::OwnedFd, unix::net::UnixListener},
    path::PathBuf,
    sync::Mutex,
};

use convoy_proto::config::DeviceUpdate;
use convoy_tun::{Offload, memory};
use nix::poll::{PollFd, PollFlags, poll};
use tokio::sync::Notify;

use super::*;
use convoy_uapi::Refused;

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(20);

const PEER: PublicKey = PublicKey([7; 32]);

/// Another process than the supervisor, which is this one.
const CLIENT: Option<Pid> = Some(Pid::from_raw(1));

#[tokio::test]
async fn a_supervisor_gets_the_tun() {
    let mut bed = Bed::new();
    let (path, kernel) = (bed.path.clone(), bed.kernel.clone());
    bed.serving(async {
        let mut supervisor = introduced(&path).await;
        let (hello, descriptors) = supervisor.receive_with::<ToSupervisor>().await.unwrap();
        let expected = ToSupervisor::Hello {
            version: protocol::BUILD.to_owned(),
            interface: "memory".to_owned(),
            has_outer: false,
        };
        assert_eq!(hello, expected);
        let [tun, _line] = <[OwnedFd; 2]>::try_from(descriptors).unwrap();
        let is_readable = || {
            let mut fds = [PollFd::new(tun.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, 0_u8).unwrap() == 1
        };
        assert!(!is_readable());
        kernel.send(b"packet");
        assert!(is_readable());
        assert_eq!(supervisor.process(), Some(Pid::this()));
    })
    .await;
}

#[tokio::test]
async fn a_newcomer_waits_until_the_supervisor_is_gone() {
    /// Enough that the tunnel has seen the newcomer meanwhile.
    const EXCHANGES: u8 = 50;
    let mut bed = Bed::new();
    let (path, tunnel) = (bed.path.clone(), bed.tunnel.clone());
    bed.serving(async {
        let mut first = greeted(&path).await;
        let mut second = introduced(&path).await;
        for n in 0..EXCHANGES {
            let peers = vec![PublicKey([n; 32])];
            first.send(&follow(&peers)).await.unwrap();
            tunnel.until(Call::Follow(peers)).await;
        }
        let greeting = second.stream().try_read(&mut [0]);
        assert_eq!(greeting.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(first);
        tunnel.until(Call::Follow(vec![])).await;
        second.receive_with::<ToSupervisor>().await.unwrap();
        second.send(&follow(&[PEER])).await.unwrap();
        tunnel.until(Call::Follow(vec![PEER])).await;
    })
    .await;
}

#[tokio::test]
async fn a_stranger_is_told_nothing_and_changes_nothing() {
    let mut bed = Bed::new();
    let (path, tunnel) = (bed.path.clone(), bed.tunnel.clone());
    bed.serving(async {
        let _silent = connect(&path).await;
        for has_supervisor in [false, true] {
            let mut supervisor = match has_supervisor {
                true => Some(greeted(&path).await),
                false => None,
            };
            for said in ["nonsense\n", "{\"type\":\"stop\"}\n", "\n"] {
                let mut stranger = connect(&path).await;
                write_raw(&stranger, said.as_bytes()).await;
                let lost = stranger.next::<ToSupervisor>().await.unwrap_err();
                assert!(matches!(lost, Lost::Closed), "{lost}");
                if let Some(supervisor) = &mut supervisor {
                    supervisor.send(&follow(&[PEER])).await.unwrap();
                    tunnel.until(Call::Follow(vec![PEER])).await;
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_bad_line_ends_the_connection_and_nothing_else() {
    let mut bed = Bed::new();
    let (path, tunnel) = (bed.path.clone(), bed.tunnel.clone());
    bed.serving(async {
        let endless = "x".repeat(2 << 20);
        for line in ["nonsense\n", "{\"type\":\"follow\"}\n", "\n", &endless] {
            let mut supervisor = greeted(&path).await;
            write_raw(&supervisor, line.as_bytes()).await;
            let lost = supervisor.next::<ToSupervisor>().await.unwrap_err();
            assert!(matches!(lost, Lost::Closed), "{lost}");
            tunnel.until(Call::Follow(vec![])).await;
        }
        let mut supervisor = greeted(&path).await;
        supervisor.send(&ToTunnel::Unknown).await.unwrap();
        let peers = vec![Key(PEER)];
        supervisor
            .send(&ToTunnel::Handshake { peers })
            .await
            .unwrap();
        tunnel.until(Call::HandshakeNow(vec![PEER])).await;
    })
    .await;
}

#[tokio::test]
async fn the_supervisor_hears_of_handshakes() {
    let mut bed = Bed::new();
    let (path, tunnel) = (bed.path.clone(), bed.tunnel.clone());
    bed.serving(async {
        let mut supervisor = greeted(&path).await;
        let (peer, endpoint) = (Key(PEER), SocketAddr::from(([192, 0, 2, 9], 4_500)));
        for (outcome, answered, given_up) in [
            (Outcome::Unanswered, false, false),
            (Outcome::GivenUp, false, true),
            (Outcome::Answered, true, false),
        ] {
            tunnel.report(PeerEvent {
                moved_to: Some(endpoint),
                path: None,
                relay: None,
                ..PeerEvent::handshake(PEER, outcome)
            });
            let handshake = ToSupervisor::Handshake {
                peer,
                answered,
                given_up,
            };
            for expected in [ToSupervisor::Moved { peer, endpoint }, handshake] {
                assert_eq!(supervisor.next::<ToSupervisor>().await.unwrap(), expected);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_supervisor_decides_about_a_clients_change() {
    let mut bed = Bed::new();
    let (path, questions) = (bed.path.clone(), bed.questions.clone());
    bed.serving(async {
        let mut supervisor = greeted(&path).await;
        for refused in [Some("it is pinned".to_owned()), None] {
            let asking = ask(&questions, mark(7));
            let message = supervisor.next::<ToSupervisor>().await.unwrap();
            let ToSupervisor::Asks {
                id,
                fwmark: Some(7),
                listen_port: None,
            } = message
            else {
                panic!("{message:?}");
            };
            let late = ToTunnel::Answers {
                id: id + 1000,
                refused: None,
            };
            supervisor.send(&late).await.unwrap();
            let answer = refused.clone();
            let answer = ToTunnel::Answers {
                id,
                refused: answer,
            };
            supervisor.send(&answer).await.unwrap();
            let decided = asking.await.unwrap().err().map(|Refused(reason)| reason);
            assert_eq!(decided, refused);
        }
    })
    .await;
}

#[tokio::test]
async fn a_change_waits_no_longer_than_its_supervisor_lives() {
    let mut bed = Bed::new();
    let (path, questions) = (bed.path.clone(), bed.questions.clone());
    let questions = questions.with_time(3 * DEADLINE);
    bed.serving(async {
        let mut supervisor = greeted(&path).await;
        let asking = ask(&questions, port(9));
        supervisor.next::<ToSupervisor>().await.unwrap();
        drop(supervisor);
        asking.await.unwrap().unwrap();
        // Now there is nobody to ask.
        ask(&questions, port(9)).await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn another_mark_waits_for_the_next_supervisor_and_not_for_long() {
    let mut bed = Bed::new();
    let (path, questions) = (bed.path.clone(), bed.questions.clone());
    let brief = questions.clone().with_time(Duration::ZERO);
    let questions = questions.with_time(3 * DEADLINE);
    bed.serving(async {
        // Nobody waits for this one when a supervisor comes.
        ask(&brief, mark(8)).await.unwrap().unwrap();
        let before = ask(&questions, mark(7));
        let mut supervisor = greeted(&path).await;
        let first = supervisor.next::<ToSupervisor>().await.unwrap();
        drop(supervisor);
        let mut next = greeted(&path).await;
        assert_eq!(next.next::<ToSupervisor>().await.unwrap(), first);
        let ToSupervisor::Asks { id, fwmark, .. } = first else {
            panic!("{first:?}");
        };
        assert_eq!(fwmark, Some(7));
        next.send(&ToTunnel::Answers { id, refused: None })
            .await
            .unwrap();
        before.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_supervisor_stops_the_tunnel_and_hears_that_it_ends() {
    let mut bed = Bed::new();
    let mut supervisor = introduced(&bed.path).await;
    let stop = async {
        supervisor.receive_with::<ToSupervisor>().await.unwrap();
        supervisor.send(&ToTunnel::Stop).await.unwrap();
    };
    let ((), ()) = tokio::join!(bed.supervised.serve(), stop);
    bed.supervised.say_ended("a test").await;
    drop(bed);
    let reason = "a test".to_owned();
    let expected = ToSupervisor::Ended { reason };
    assert_eq!(supervisor.next::<ToSupervisor>().await.unwrap(), expected);
    let lost = supervisor.next::<ToSupervisor>().await.unwrap_err();
    assert!(matches!(lost, Lost::Closed), "{lost}");
}

#[tokio::test]
async fn an_end_without_a_supervisor_is_told_to_nobody() {
    let mut bed = Bed::new();
    bed.supervised.say_ended("a test").await;
}

struct Bed {
    path: PathBuf,
    tunnel: Fake,
    kernel: memory::Kernel,
    supervised: Supervised<Fake>,
    questions: Questions,
    _directory: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.tunnel");
        let listener = UnixListener::bind(&path).unwrap();
        let (device, kernel) = memory::pair(Offload::default(), 1420).unwrap();
        let tunnel = Fake::default();
        let supervision = Supervision {
            listener,
            outlives_supervisor: true,
            has_outer: false,
        };
        let (supervised, questions) = Supervised::new(
            supervision,
            tunnel.clone(),
            device,
            SupervisorsPrivileges::new(),
        )
        .unwrap();
        Self {
            path,
            tunnel,
            kernel,
            supervised,
            questions,
            _directory: directory,
        }
    }

    /// Runs `test` while the tunnel serves supervisors.
    async fn serving(&mut self, test: impl Future<Output = ()>) {
        tokio::select! {
            () = self.supervised.serve() => panic!("the tunnel has stopped"),
            done = timeout(DEADLINE, test) => done.unwrap(),
        }
    }
}

async fn connect(path: &PathBuf) -> Connection {
    Connection::new(UnixStream::connect(path).await.unwrap())
}

async fn introduced(path: &PathBuf) -> Connection {
    let mut connection = connect(path).await;
    connection.send(&ToTunnel::hello()).await.unwrap();
    connection
}

async fn greeted(path: &PathBuf) -> Connection {
    let mut connection = introduced(path).await;
    connection.receive_with::<ToSupervisor>().await.unwrap();
    connection
}

fn follow(peers: &[PublicKey]) -> ToTunnel {
    let peers = peers.iter().copied().map(Key).collect();
    ToTunnel::Follow { peers }
}

/// Asks in a thread, as the UAPI does.
fn ask(
    questions: &Questions,
    update: DeviceUpdate,
) -> tokio::task::JoinHandle<Result<(), Refused>> {
    let questions = questions.clone();
    tokio::task::spawn_blocking(move || questions.permit(&update, CLIENT))
}

fn mark(fwmark: u32) -> DeviceUpdate {
    DeviceUpdate {
        fwmark: Some(fwmark),
        ..DeviceUpdate::default()
    }
}

fn port(listen_port: u16) -> DeviceUpdate {
    DeviceUpdate {
        listen_port: Some(listen_port),
        ..DeviceUpdate::default()
    }
}

/// The tunnel may close the connection before it has read everything.
async fn write_raw(connection: &Connection, mut bytes: &[u8]) {
    let stream = connection.stream();
    while !bytes.is_empty() {
        stream.writable().await.unwrap();
        match stream.try_write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// A tunnel that records its calls and returns what the test has set.
#[derive(Clone, Debug, Default)]
struct Fake(std::sync::Arc<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    last: Mutex<Option<Call>>,
    called: Notify,
    event: Mutex<Option<PeerEvent>>,
    reported: Notify,
}

#[derive(Debug, PartialEq, Eq)]
enum Call {
    Follow(Vec<PublicKey>),
    HandshakeNow(Vec<PublicKey>),
    SetDirects(Directs),
    SetRelays(Vec<Relay>),
    SetOuter(Vec<IpAddr>),
}

impl Fake {
    /// Waits until the last call is `expected`, and forgets it.
    async fn until(&self, expected: Call) {
        loop {
            let called = self.0.called.notified();
            let is_it = |last: &mut Call| *last == expected;
            if self.0.last.lock().unwrap().take_if(is_it).is_some() {
                return;
            }
            called.await;
        }
    }

    fn call(&self, call: Call) {
        *self.0.last.lock().unwrap() = Some(call);
        self.0.called.notify_one();
    }

    fn report(&self, event: PeerEvent) {
        *self.0.event.lock().unwrap() = Some(event);
        self.0.reported.notify_one();
    }
}

impl Handshakes for Fake {
    async fn follow(&self, peers: &[PublicKey]) -> Result<(), Closed> {
        self.call(Call::Follow(peers.to_vec()));
        Ok(())
    }

    async fn handshake_now(&self, peers: &[PublicKey]) -> Result<(), Closed> {
        self.call(Call::HandshakeNow(peers.to_vec()));
        Ok(())
    }

    async fn set_directs(&self, directs: Directs) -> Result<(), Closed> {
        self.call(Call::SetDirects(directs));
        Ok(())
    }

    async fn set_relays(&self, relays: Vec<Relay>) -> Result<(), Closed> {
        self.call(Call::SetRelays(relays));
        Ok(())
    }

    async fn set_outer(&self, outer: Outer) -> Result<(), Closed> {
        self.call(Call::SetOuter(outer.addresses));
        Ok(())
    }

    async fn next_event(&self) -> PeerEvent {
        loop {
            if let Some(event) = self.0.event.lock().unwrap().take() {
                return event;
            }
            self.0.reported.notified().await;
        }
    }
}
