use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::PathBuf,
};

use convoy_proto::config::PrivateKey;
use tokio::sync::oneshot;

use super::{lines::MAX_LINE, *};

const KEY: &str = "b85996fecc9c7f1fc6d2572a76eda11d59bcd20be8e543b15ce4bd85a8e75a33";

#[test]
fn a_set_is_applied_and_a_get_shows_it() {
    let daemon = Daemon::start();
    assert_eq!(
        daemon.ask("set=1\nlisten_port=7\nfwmark=9\n\n"),
        "errno=0\n\n"
    );
    let listing = daemon.ask("get=1\n\n");
    assert_eq!(listing, "listen_port=7\nfwmark=9\nerrno=0\n\n");
}

#[test]
fn several_requests_share_one_connection() {
    let daemon = Daemon::start();
    let answers = daemon.ask("set=1\nlisten_port=7\n\nget=1\n\nset=1\nx\n\nget=1\n\n");
    let expected = "errno=0\n\nlisten_port=7\nerrno=0\n\nerrno=-71\n\nlisten_port=7\nerrno=0\n\n";
    assert_eq!(answers, expected);
}

#[test]
fn a_wrong_line_changes_nothing() {
    let daemon = Daemon::start();
    let answer = daemon.ask("set=1\nlisten_port=7\nfwmark=x\nlisten_port=8\n\n");
    assert_eq!(answer, "errno=-22\n\n");
    assert!(daemon.applied().is_empty());
}

#[test]
fn a_request_that_is_cut_off_changes_nothing() {
    let daemon = Daemon::start();
    assert_eq!(daemon.ask("set=1\nlisten_port=7\n"), "errno=-71\n\n");
    assert_eq!(daemon.ask("set=1\nlisten_po"), "errno=-71\n\n");
    assert!(daemon.applied().is_empty());
}

#[test]
fn a_get_with_an_extra_line_is_invalid() {
    let daemon = Daemon::start();
    let answers = daemon.ask("get=1\nlisten_port=7\n\nget=1\n\n");
    assert_eq!(answers, "errno=-22\n\nerrno=0\n\n");
}

#[test]
fn an_unknown_operation_ends_the_connection() {
    let daemon = Daemon::start();
    for garbage in [
        "get=2\n\n",
        "\n",
        "\0\u{ff}\n\n",
        "set=1 \nlisten_port=7\n\n",
    ] {
        assert_eq!(daemon.ask(garbage), "", "{garbage:?}");
    }
    assert!(daemon.applied().is_empty());
}

#[test]
fn a_refused_port_is_answered_with_the_kernels_errno() {
    let daemon = Daemon::start();
    let taken = format!("set=1\nlisten_port={TAKEN_PORT}\n\n");
    assert_eq!(daemon.ask(&taken), "errno=-98\n\n");
}

#[test]
fn a_change_without_consent_is_refused_and_changes_nothing() {
    let daemon = Daemon::start();
    let refused = format!("set=1\nfwmark=7\nlisten_port={REFUSED_PORT}\n\n");
    assert_eq!(daemon.ask(&refused), "errno=-1\n\n");
    assert!(daemon.applied().is_empty());
}

#[test]
fn what_was_consented_to_last_is_what_there_is() {
    let racing = Arc::new(Racing::default());
    let service = Arc::new(Service {
        reporter: Arc::new(Reporter::new(
            "wg0".to_owned(),
            None,
            Arc::clone(&racing),
            FIGURES,
        )),
        limits: LIMITS,
        consent: Mutex::default(),
    });
    let clients: [_; 2] = std::array::from_fn(|number| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let client = Arc::new(Clients::default()).admit(ours, LIMITS.time);
        let (client, service) = (client.unwrap(), Arc::clone(&service));
        let request = format!("set=1\nfwmark={}\n\n", number + 1);
        theirs.write_all(request.as_bytes()).unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        let serving = thread::spawn(move || service.converse(&client));
        // The second one comes while the first one's change is on its way.
        while number == 0 && racing.consented.lock().unwrap().is_empty() {
            thread::yield_now();
        }
        serving
    });
    for client in clients {
        client.join().unwrap();
    }
    let consented = racing.consented.lock().unwrap().clone();
    assert_eq!(*racing.applied.lock().unwrap(), consented);
}

/// A tunnel that takes long to apply the first mark.
#[derive(Debug, Default)]
struct Racing {
    consented: Mutex<Vec<u32>>,
    applied: Mutex<Vec<u32>>,
}

impl Control for Arc<Racing> {
    fn needs_consent(&self, _: &DeviceUpdate, _: Option<Pid>) -> bool {
        true
    }

    fn permit(&self, update: &DeviceUpdate, _: Option<Pid>) -> Result<(), Refused> {
        self.consented.lock().unwrap().extend(update.fwmark);
        Ok(())
    }

    fn apply(&self, update: DeviceUpdate) -> Result<(), ApplyError> {
        if update.fwmark == Some(1) {
            thread::sleep(Duration::from_millis(200));
        }
        self.applied.lock().unwrap().extend(update.fwmark);
        Ok(())
    }

    fn snapshot(&self) -> Result<Snapshot, Closed> {
        Err(Closed)
    }
}

#[test]
fn an_endless_line_is_refused() {
    let daemon = Daemon::start();
    let line = "x".repeat(1 << 20);
    let mut stream = daemon.connect();
    stream.write_all(b"set=1\n").unwrap();
    // The daemon closes the connection before it has read everything.
    let _ = stream.write_all(line.as_bytes());
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"errno=-5\n\n");
}

#[test]
fn the_longest_line_is_accepted() {
    let daemon = Daemon::start();
    let key = "k".repeat(MAX_LINE - "=\n".len());
    let answers = daemon.ask(&format!("set=1\n{key}=\n\nget=1\n\n"));
    assert_eq!(answers, "errno=-22\n\nerrno=0\n\n");
}

#[test]
fn a_line_one_byte_too_long_is_refused_even_if_it_arrives_whole() {
    let daemon = Daemon::start();
    let key = "k".repeat(MAX_LINE - "=".len());
    let answers = daemon.ask(&format!("set=1\n{key}=\n\nget=1\n\n"));
    assert_eq!(answers, "errno=-5\n\n");
}

#[test]
fn a_request_over_the_size_limit_is_refused() {
    let daemon = Daemon::start_with(Limits {
        bytes: 1 << 16,
        ..LIMITS
    });
    let mut stream = daemon.connect();
    let _ = stream.write_all("set=1\n".as_bytes());
    let _ = stream.write_all("fwmark=1\n".repeat(1 << 13).as_bytes());
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"errno=-5\n\n");
    assert!(daemon.applied().is_empty());
}

#[test]
fn a_client_that_never_finishes_its_request_delays_nobody() {
    let daemon = Daemon::start();
    let mut stuck = daemon.connect();
    stuck.write_all(b"set=1\nlisten_port=9\n").unwrap();
    assert_eq!(daemon.ask("set=1\nlisten_port=7\n\n"), "errno=0\n\n");
    stuck.write_all(b"\n").unwrap();
    let mut answer = [0; 9];
    stuck.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"errno=0\n\n");
    let ports: Vec<_> = daemon.applied().iter().map(|u| u.listen_port).collect();
    assert_eq!(ports, [Some(7), Some(9)]);
}

#[test]
fn a_client_that_never_finishes_its_request_is_disconnected() {
    let daemon = Daemon::start_with(Limits {
        time: Duration::from_millis(50),
        ..LIMITS
    });
    let mut stream = daemon.connect();
    stream.write_all(b"set=1\nlisten_port=9\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "errno=-5\n\n");
}

#[test]
fn more_clients_than_slots_are_all_served() {
    let daemon = Daemon::start();
    let clients: Vec<_> = (0..MAX_CLIENTS).map(|_| daemon.connect()).collect();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| daemon.ask("get=1\n\n"));
        drop(clients);
        assert_eq!(waiting.join().unwrap(), "errno=0\n\n");
    });
}

#[test]
fn silent_clients_make_room_for_others() {
    let daemon = Daemon::start();
    let silent: Vec<_> = (0..MAX_CLIENTS).map(|_| daemon.connect()).collect();
    for (client, mut stream) in silent.iter().enumerate() {
        stream
            .write_all(&b"set=1\nlisten_port=9\n"[..client % 2 * 20])
            .unwrap();
    }
    for _ in 0..2 * MAX_CLIENTS {
        assert_eq!(daemon.ask("get=1\n\n"), "errno=0\n\n");
    }
    assert!(daemon.applied().is_empty());
}

#[test]
fn a_client_may_keep_its_connection_for_later() {
    let daemon = Daemon::start_with(Limits {
        time: Duration::from_millis(50),
        ..LIMITS
    });
    let mut stream = daemon.connect();
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(150));
        stream.write_all(b"get=1\n\n").unwrap();
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"errno=0\n\n");
    }
}

#[test]
fn lines_may_end_in_a_carriage_return_within_a_set() {
    let daemon = Daemon::start();
    let answers = daemon.ask("set=1\nlisten_port=7\r\n\r\nset=1\nlisten_port=8\r\r\n\n");
    assert_eq!(answers, "errno=0\n\nerrno=-22\n\n");
    assert_eq!(daemon.ask("set=1\r\nlisten_port=7\r\n\r\n"), "");
    assert_eq!(daemon.applied().len(), 1);
}

#[test]
fn many_peers_are_set_and_listed() {
    let daemon = Daemon::start();
    let mut request = String::from("set=1\n");
    for peer in 0..2000 {
        request += &format!("public_key={peer:064x}\n");
        for network in 0..13 {
            request += &format!("allowed_ip=10.{}.{}.{network}/32\n", peer / 256, peer % 256);
        }
    }
    request.push('\n');
    assert_eq!(daemon.ask(&request), "errno=0\n\n");
    assert_eq!(daemon.applied()[0].peers.len(), 2000);
}

#[test]
fn the_counters_hold_no_secret() {
    let daemon = Daemon::start();
    let set = format!("set=1\nprivate_key={KEY}\n\n");
    assert_eq!(daemon.ask(&set), "errno=0\n\n");
    assert!(daemon.ask("get=1\n\n").starts_with("private_key="));
    let answer = daemon.ask(&format!("{}\n\n", convoy_report::REQUEST));
    assert!(answer.starts_with("convoy_stats={"), "{answer}");
    assert!(answer.ends_with("}\nerrno=0\n\n"), "{answer}");
    assert!(!answer.contains(&KEY[8..40]), "{answer}");
}

#[test]
fn once_the_tunnel_has_ended_requests_fail() {
    let daemon = Daemon::start();
    let ended = format!("set=1\nlisten_port={ENDING_PORT}\n\n");
    assert_eq!(daemon.ask(&ended), "errno=-19\n\n");
}

/// A server on a socket of its own, in front of a fake tunnel that records updates.
struct Daemon {
    path: PathBuf,
    control: Arc<Memory>,
    _directory: tempfile::TempDir,
    /// Dropping it ends the server.
    _stop: oneshot::Sender<Infallible>,
}

/// Records the applied updates, in order.
#[derive(Default)]
pub(super) struct Memory(Mutex<Vec<DeviceUpdate>>);

/// Reports of a few figures; what a daemon reports is tested where it is made.
pub(super) const FIGURES: Figures = Figures {
    report: |interface, snapshot| Report {
        interface: interface.to_owned(),
        listen_port: snapshot.listen_port,
        fwmark: snapshot.fwmark,
        ..Report::default()
    },
    queue_drops: |_| None,
};

pub(super) const TAKEN_PORT: u16 = 53;
pub(super) const ENDING_PORT: u16 = 54;
pub(super) const REFUSED_PORT: u16 = 55;

impl Memory {
    pub(super) fn applied(&self) -> Vec<DeviceUpdate> {
        self.0.lock().unwrap().clone()
    }
}

impl Control for Arc<Memory> {
    fn permit(&self, update: &DeviceUpdate, client: Option<Pid>) -> Result<(), Refused> {
        assert_eq!(client, Some(Pid::this()));
        match update.listen_port {
            Some(REFUSED_PORT) => Err(Refused("a test".to_owned())),
            _ => Ok(()),
        }
    }

    fn apply(&self, update: DeviceUpdate) -> Result<(), ApplyError> {
        match update.listen_port {
            Some(port @ TAKEN_PORT) => {
                let source = Errno::EADDRINUSE.into();
                return Err(ApplyError::Sockets { port, source });
            }
            Some(ENDING_PORT) => return Err(ApplyError::Closed),
            _ => self.0.lock().unwrap().push(update),
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<Snapshot, Closed> {
        let applied = self.0.lock().unwrap();
        let last = applied.last().cloned().unwrap_or_default();
        Ok(Snapshot {
            private_key: last.private_key.flatten().map(|key| PrivateKey(key.0)),
            listen_port: last.listen_port.unwrap_or(0),
            fwmark: last.fwmark.unwrap_or(0),
            ..Snapshot::default()
        })
    }
}

impl Daemon {
    fn start() -> Self {
        Self::start_with(LIMITS)
    }

    fn start_with(limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let control = Arc::new(Memory::default());
        let (stop, stopped) = oneshot::channel::<Infallible>();
        let shared = Arc::clone(&control);
        thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_all().build().unwrap().block_on(async {
                let reporter = Arc::new(Reporter::new("wg0".to_owned(), None, shared, FIGURES));
                let server = Server::with_limits(listener, reporter, limits);
                tokio::select! {
                    never = server.unwrap().serve() => match never {},
                    _ = stopped => {}
                }
            });
        });
        Self {
            path,
            control,
            _directory: directory,
            _stop: stop,
        }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
    }

    /// Sends `request`, shuts down writing and reads all answers.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        let mut reader = stream.try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let _ = stream.write_all(request.as_bytes());
                let _ = stream.shutdown(Shutdown::Write);
            });
            let mut answer = Vec::new();
            // If the daemon closes early, reading may fail.
            let _ = reader.read_to_end(&mut answer);
            String::from_utf8(answer).unwrap()
        })
    }

    fn applied(&self) -> Vec<DeviceUpdate> {
        self.control.applied()
    }
}
