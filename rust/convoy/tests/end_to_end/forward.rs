//! `convoy forward` as a user runs it, and `convoy import`. On loopback, without root.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::fs::chown,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use convoy_lab::{Namespace, eventually};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

use crate::scene::{DEADLINE, convoy_program};

mod blocked;

#[test]
fn connections_and_datagrams_are_forwarded_and_sigterm_ends_it_with_the_counters() {
    let (tcp, udp) = (echo(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let at = udp.local_addr().unwrap();
    let mut forward = Forward::start(&format!(
        "Forward = 127.0.0.1:0:{tcp}\nForwardUDP = 127.0.0.1:0:{at}\nSocks5 = 127.0.0.1:0\n"
    ));
    let mut client = forward.connect(0);
    client.write_all(b"hello").unwrap();
    let mut bytes = [0; 5];
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.set_read_timeout(Some(DEADLINE)).unwrap();
    datagrams
        .send_to(b"question", forward.listeners[1])
        .unwrap();
    udp.set_read_timeout(Some(DEADLINE)).unwrap();
    let (_, from) = udp.recv_from(&mut [0; 8]).unwrap();
    udp.send_to(b"answer", from).unwrap();
    assert_eq!(datagrams.recv(&mut [0; 9]).unwrap(), 6);
    forward.signal(Signal::SIGUSR1);
    forward.wait_for("in all");
    forward.signal(Signal::SIGTERM);
    assert!(forward.child.wait().unwrap().success());
    forward.wait_for("SIGTERM");
    let log = forward.log();
    let sum = log.lines().rfind(|line| line.contains("in all")).unwrap();
    assert!(
        sum.contains("\"opened\":2") && sum.contains("\"bytes_out\":13"),
        "{sum}"
    );
    // Nothing is left of the connection.
    assert_eq!(
        client
            .read(&mut bytes)
            .map_err(|error| error.kind())
            .unwrap_or_default(),
        0
    );
}

#[test]
fn answers_leave_from_the_address_that_was_asked() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(DEADLINE)).unwrap();
    let target = server.local_addr().unwrap();
    let forward = Forward::start(&format!(
        "Allow = 127.0.0.0/8\nForwardUDP = 0.0.0.0:0:{target}\n"
    ));
    let port = forward.listeners[0].port();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    // One socket asks at several addresses, and again: each is a flow of its own.
    for asked in ["127.0.0.77", "127.0.0.1", "127.0.0.78", "127.0.0.77"] {
        let asked: SocketAddr = format!("{asked}:{port}").parse().unwrap();
        client.send_to(b"question", asked).unwrap();
        let (_, flow) = server.recv_from(&mut [0; 8]).unwrap();
        // Some of them travel together.
        for _ in 0..8 {
            server.send_to(b"answer", flow).unwrap();
        }
        for _ in 0..8 {
            let mut answer = [0; 9];
            assert_eq!(client.recv_from(&mut answer).unwrap(), (6, asked));
        }
    }
}

#[test]
fn a_client_that_is_not_allowed_is_reset() {
    let forward = Forward::start(&format!(
        "Deny = 127.0.0.0/8\nForward = 127.0.0.1:0:{}\n",
        echo()
    ));
    let outcome = forward
        .try_connect(0)
        .and_then(|mut client| client.read(&mut [0]));
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::ConnectionReset);
    forward.counts("denied 1");
}

#[test]
fn a_proxy_for_other_hosts_does_not_lead_to_this_one_unless_that_is_allowed() {
    let target = echo();
    for (lists, status) in [
        ("Allow = 127.0.0.0/8", "403"),
        ("Allow = 127.0.0.0/8\nTargetAllow = 127.0.0.1", "200"),
        (
            "Allow = 127.0.0.0/8\nTargetAllow = 127.0.0.1\nTargetDeny = 127.0.0.0/8",
            "403",
        ),
    ] {
        // 0.0.0.0 is this host, too.
        let forward = Forward::start(&format!("HttpConnect = 0.0.0.0:0\n{lists}\n"));
        let port = forward.listeners[0].port();
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        let request = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer[9..], status.as_bytes(), "{lists}");
    }
    // Those who are on this host reach it by themselves.
    let forward = Forward::start("HttpConnect = 127.0.0.1:0\n");
    let mut client = forward.connect(0);
    let request = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[9..], b"200");
}

#[test]
fn a_flood_of_connections_that_say_nothing_uses_up_no_descriptors() {
    // 512 descriptors: room for 64 connections.
    let mut forward = Forward::start_with("Socks5 = 127.0.0.1:0\n", &["prlimit", "--nofile=512"]);
    // Some are reset before they know that they are connected.
    let flood: Vec<_> = (0..400).map(|_| forward.try_connect(0)).collect();
    forward.counts("too_many");
    assert!(forward.child.try_wait().unwrap().is_none());
    drop(flood);
    is_served_in_the_end(&forward);
}

#[test]
fn without_descriptors_it_waits_says_so_once_and_goes_on_later() {
    // Fewer than the 64 connections that it would accept.
    let forward = Forward::start_with("Socks5 = 127.0.0.1:0\n", &["prlimit", "--nofile=40"]);
    let flood: Vec<_> = (0..60).map(|_| forward.try_connect(0)).collect();
    forward.wait_for("cannot accept connections");
    drop(flood);
    is_served_in_the_end(&forward);
    assert_eq!(
        forward.log().matches("cannot accept connections").count(),
        1
    );
}

#[test]
fn an_error_in_the_file_is_shown_with_its_line() {
    let output = run("forward", "Forward = 8080:a.example:80\nForward = 80\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("file:2:11") && said.contains("Forward = 80"),
        "{said}"
    );
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let output = run("forward", &format!("Forward = {at}:a.example:80\n"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains(&at.to_string()), "{said}");
}

#[test]
fn a_file_of_rinetd_becomes_one_that_forwards() {
    let output = run(
        "import",
        &format!("127.0.0.1 1 {} 80\nallow 127.*\nlogfile /x\n", echo().ip()),
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(
        printed.contains("Forward = 127.0.0.1:1:127.0.0.1:80\nAllow = 127.0.0.0/8\n"),
        "{printed}"
    );
    assert!(
        said.contains("file:3") && said.contains("logfile /x"),
        "{said}"
    );
}

/// Waits until a client that speaks SOCKS5 is answered.
fn is_served_in_the_end(forward: &Forward) {
    let served = eventually(DEADLINE, || {
        let mut client = forward.try_connect(0).ok()?;
        client.write_all(&[5, 1, 0]).ok()?;
        client.read_exact(&mut [0; 2]).ok()
    });
    served.expect("no client was served after the flood");
}

/// The program, while it forwards.
struct Forward {
    child: Child,
    log: Arc<Mutex<String>>,
    listeners: Vec<SocketAddr>,
    _directory: TempDir,
}

impl Forward {
    fn start(text: &str) -> Self {
        Self::start_with(text, &[])
    }

    /// Starts the program by another one.
    fn start_with(text: &str, prefix: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, text).unwrap();
        let program = convoy_program().into_os_string();
        let mut words = prefix.iter().map(Into::into).chain([program]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg("forward").arg(&file);
        Self::run(command, directory)
    }

    /// Starts the program as another user, in a namespace.
    fn of_user(text: &str, namespace: &Namespace, user: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (file, program) = (
            directory.path().join("file"),
            directory.path().join("convoy"),
        );
        fs::write(&file, text).unwrap();
        // Its own directory may be open to root alone. Another process copies it: a file that this one has open for
        // writing while another thread forks could not be executed.
        let copied = Command::new("cp")
            .arg(convoy_program())
            .arg(&program)
            .status();
        assert!(copied.unwrap().success());
        for path in [directory.path(), &file, &program] {
            chown(path, Some(user), Some(user)).unwrap();
        }
        let mut command = namespace.command("setpriv");
        command
            .args(as_user(user))
            .arg(program)
            .arg("forward")
            .arg(&file);
        Self::run(command, directory)
    }

    fn run(mut command: Command, directory: TempDir) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, kept) = (
            BufReader::new(child.stdout.take().unwrap()),
            Arc::clone(&log),
        );
        thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                *kept.lock().unwrap() += &format!("{line}\n");
            }
        });
        let mut forward = Self {
            child,
            log,
            listeners: Vec::new(),
            _directory: directory,
        };
        forward.wait_for("ready");
        let log = forward.log();
        let listeners = log.lines().filter_map(|line| {
            line.split_once("forwarding ")?
                .1
                .split(' ')
                .next()?
                .parse()
                .ok()
        });
        forward.listeners = listeners.collect();
        forward
    }

    fn connect(&self, listener: usize) -> TcpStream {
        self.try_connect(listener).unwrap()
    }

    fn try_connect(&self, listener: usize) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.listeners[listener])?;
        stream.set_read_timeout(Some(DEADLINE))?;
        Ok(stream)
    }

    /// Waits until its counters have these words.
    fn counts(&self, words: &str) {
        let found = eventually(DEADLINE, || {
            self.signal(Signal::SIGUSR1);
            self.log().contains(words).then_some(())
        });
        found.unwrap_or_else(|| panic!("no {words:?} in:\n{}", self.log()));
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    fn wait_for(&self, words: &str) {
        let found = eventually(DEADLINE, || self.log().contains(words).then_some(()));
        found.unwrap_or_else(|| panic!("no {words:?} in:\n{}", self.log()));
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Arguments of setpriv(1): another user, without root's groups.
fn as_user(user: u32) -> [String; 3] {
    let ids = ["reuid", "regid"].map(|id| format!("--{id}={user}"));
    let [user, group] = ids;
    [user, group, "--clear-groups".to_owned()]
}

/// Runs a command of the program on a file with this text.
fn run(command: &str, text: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, text).unwrap();
    Command::new(convoy_program())
        .arg(command)
        .arg(file)
        .output()
        .unwrap()
}

/// A server that sends back what it receives.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    at
}
