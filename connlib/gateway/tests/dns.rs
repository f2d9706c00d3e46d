//! The gateway's name server in front of a dnsmasq that answers from its own records and has no upstream.
//!
//! ```text
//!  a client ── Dns ── dnsmasq 127.0.0.1:53      all of it in one namespace
//!                └─── dnsmasq 127.0.0.3:53      (once its file says so)
//! ```

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use convoy_gateway::{Dns, Over, Upstream};
use convoy_lab::{Lab, Namespace, eventually, require_programs, require_root_lab};
use convoy_network::{
    Host, Kernel, Network,
    shares::{Limits, Shares},
};
use hickory_resolver::proto::{
    op::{Edns, Message, Query, ResponseCode},
    rr::{Name, RecordType},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    time::{Instant, sleep, timeout},
};

const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn records_of_any_type_are_passed_on_and_so_is_their_absence() {
    let Some(scene) = Scene::new("records_of_any_type_are_passed_on") else {
        return;
    };
    let first = [
        "--host-record=host.example,192.0.2.7,2001:db8::7",
        "--cname=alias.example,host.example",
        "--txt-record=text.example,one,two",
        "--mx-host=mail.example,host.example,7",
        "--srv-host=_web._tcp.example,host.example,443,1,2",
        "--caa-record=host.example,0,issue,authority.example",
        "--dns-rr=raw.example,65280,c0ffee",
    ];
    let _server = NameServer::start(&scene, "127.0.0.1", &first);
    scene.run(async |dns| {
        for (name, kind, expected) in [
            ("host.example.", RecordType::A, "192.0.2.7"),
            ("host.example.", RecordType::AAAA, "2001:db8::7"),
            ("alias.example.", RecordType::A, "192.0.2.7"),
            ("alias.example.", RecordType::CNAME, "host.example."),
            ("text.example.", RecordType::TXT, "one"),
            ("mail.example.", RecordType::MX, "7 host.example."),
            (
                "_web._tcp.example.",
                RecordType::SRV,
                "1 2 443 host.example.",
            ),
            ("host.example.", RecordType::CAA, "authority.example"),
            ("7.2.0.192.in-addr.arpa.", RecordType::PTR, "host.example."),
            ("raw.example.", RecordType::Unknown(65_280), ""),
        ] {
            let answer = ask(dns, name, kind).await;
            assert_eq!(
                answer.metadata.response_code,
                ResponseCode::NoError,
                "{name}"
            );
            let found = answer.answers.iter().find(|it| it.record_type() == kind);
            let found = found.unwrap_or_else(|| panic!("{name} {kind}: {answer}"));
            assert!(found.data.to_string().contains(expected), "{found}");
        }
        let alias = ask(dns, "alias.example.", RecordType::A).await;
        let first = alias.answers.first().unwrap();
        assert_eq!(first.record_type(), RecordType::CNAME, "{alias}");
        let none = ask(dns, "host.example.", RecordType::TXT).await;
        assert_eq!(none.metadata.response_code, ResponseCode::NoError);
        assert!(none.answers.is_empty());
        let gone = ask(dns, "gone.example.", RecordType::A).await;
        assert_eq!(gone.metadata.response_code, ResponseCode::NXDomain);
    });
}

#[test]
fn an_answer_too_long_for_a_datagram_is_truncated_and_whole_over_tcp() {
    let Some(scene) = Scene::new("an_answer_too_long_for_a_datagram") else {
        return;
    };
    let texts: Vec<_> = (0..40)
        .map(|number| format!("--txt-record=long.example,{}{number}", "x".repeat(200)))
        .collect();
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    let _server = NameServer::start(&scene, "127.0.0.1", &texts);
    scene.run(async |dns| {
        let loopback = "127.0.0.2:53".parse().unwrap();
        let network = Kernel(Host);
        let datagrams = network.datagrams(loopback).await.unwrap();
        let listener = network.listen(loopback).await.unwrap();
        let serving = async {
            tokio::join!(
                dns.clone().serve_udp(datagrams, |_| Some(1)),
                dns.clone().serve_tcp(listener, |_| Some(1)),
            )
        };
        let client = async {
            let query = query("long.example.", RecordType::TXT).to_vec().unwrap();
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            socket.send_to(&query, loopback).await.unwrap();
            let mut buffer = vec![0; 65_535];
            let (length, _) = socket.recv_from(&mut buffer).await.unwrap();
            let answer = Message::from_vec(&buffer[..length]).unwrap();
            assert!(answer.metadata.truncation && answer.answers.is_empty());
            let mut stream = TcpStream::connect(loopback).await.unwrap();
            let length = (query.len() as u16).to_be_bytes();
            stream
                .write_all(&[&length, &query[..]].concat())
                .await
                .unwrap();
            let length: usize = stream.read_u16().await.unwrap().into();
            stream.read_exact(&mut buffer[..length]).await.unwrap();
            let answer = Message::from_vec(&buffer[..length]).unwrap();
            assert!(!answer.metadata.truncation);
            assert_eq!(answer.answers.len(), 40);
        };
        tokio::select! {
            _ = serving => unreachable!(),
            done = timeout(DEADLINE, client) => done.unwrap(),
        }
    });
}

#[test]
fn another_server_is_asked_as_soon_as_the_file_names_it() {
    let Some(scene) = Scene::new("another_server_is_asked") else {
        return;
    };
    let _first = NameServer::start(
        &scene,
        "127.0.0.1",
        &["--host-record=host.example,192.0.2.1"],
    );
    let _second = NameServer::start(
        &scene,
        "127.0.0.3",
        &["--host-record=host.example,192.0.2.3"],
    );
    scene.run(async |dns| {
        let answers = async |expected: &str| {
            let answer = ask(dns, "host.example.", RecordType::A).await;
            answer
                .answers
                .first()
                .is_some_and(|it| it.data.to_string() == expected)
        };
        assert!(answers("192.0.2.1").await);
        fs::write(scene.file(), "nameserver 127.0.0.3\n").unwrap();
        let end = Instant::now() + DEADLINE;
        while !answers("192.0.2.3").await {
            assert!(Instant::now() < end);
            sleep(Duration::from_millis(10)).await;
        }
    });
}

/// A namespace with a file like `/etc/resolv.conf`, which names the server at 127.0.0.1.
struct Scene {
    host: Namespace,
    _lab: Lab,
}

impl Scene {
    fn new(test: &str) -> Option<Self> {
        if !require_root_lab(test) || !require_programs(test, &["dnsmasq"]) {
            return None;
        }
        let lab = Lab::new().unwrap();
        let host = lab.namespace("host").unwrap();
        let scene = Self { host, _lab: lab };
        fs::write(scene.file(), "nameserver 127.0.0.1\n").unwrap();
        Some(scene)
    }

    fn file(&self) -> PathBuf {
        self.host.run_directory().join("resolv.conf")
    }

    /// Runs a test inside, against a name server that reads the file.
    fn run(&self, body: impl AsyncFnOnce(&Dns) + Send) {
        let inside = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let limits = Limits {
                    total: 64,
                    peer: 64,
                    peers: 1,
                };
                let [queries, connections] = [limits; 2].map(Shares::new);
                let upstream = Upstream::File(self.file());
                body(&Dns::new(upstream, queries, connections).unwrap()).await;
            });
        };
        self.host.run(inside).unwrap();
    }
}

/// dnsmasq; ends when dropped.
struct NameServer(Child);

impl NameServer {
    fn start(scene: &Scene, address: &str, records: &[&str]) -> Self {
        let mut command = scene.host.command("dnsmasq");
        command.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--user=root",
        ]);
        command.args(["--no-resolv", "--no-hosts", "--local=/example/"]);
        command.args(["--bind-interfaces", "--log-facility=-"]);
        command.arg(format!("--pid-file=/run/dnsmasq.{address}"));
        command.args(["--listen-address", address]).args(records);
        let server = Self(command.stderr(Stdio::null()).spawn().unwrap());
        let listens = || {
            let connect = || std::net::TcpStream::connect((address, 53)).ok();
            scene.host.run(connect).unwrap()
        };
        assert!(eventually(DEADLINE, listens).is_some());
        server
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn ask(dns: &Dns, name: &str, kind: RecordType) -> Message {
    let mut query = query(name, kind);
    query.set_edns(Edns::new());
    let query = query.to_vec().unwrap();
    let answer = timeout(DEADLINE, dns.answer(&query, 1, Over::Udp)).await;
    Message::from_vec(&answer.unwrap().unwrap()).unwrap()
}

fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}
