use std::{future::pending, path::PathBuf};

use clap::Parser;
use convoy_report::Report;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    task::JoinHandle,
};

use super::*;
use crate::args::Cli;

const TOKEN: &str = "0123456789abcdef";

const SHORT: Limits = Limits {
    request: Duration::from_millis(50),
    observation: Duration::from_millis(50),
    connection: Duration::from_secs(20),
};

#[tokio::test]
async fn metrics_and_health_are_answered() {
    let server = Server::new(false, Fake::Well);
    let metrics = server.get("/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains(OPEN_METRICS), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    let health = server.get("/healthz").await;
    assert!(health.starts_with("HTTP/1.1 200 OK\r\n"), "{health}");
    assert!(health.ends_with("\r\n\r\nok\n"), "{health}");
}

#[tokio::test]
async fn an_ill_tunnel_answers_503_with_the_reason_in_one_line() {
    let server = Server::new(false, Fake::Ill);
    let health = server.get("/healthz").await;
    assert!(health.starts_with("HTTP/1.1 503 "), "{health}");
    assert!(
        health.ends_with("\r\n\r\nthe tunnel does not answer: two lines\n"),
        "{health}"
    );
    let metrics = server.get("/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
}

#[tokio::test]
async fn without_the_token_nothing_is_answered() {
    let server = Server::new(true, Fake::Well);
    for path in ["/metrics", "/healthz", "/nothing"] {
        let refused = server.get(path).await;
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
        assert!(
            refused.to_lowercase().contains("www-authenticate: bearer"),
            "{refused}"
        );
        assert!(!refused.contains("convoy_"), "{refused}");
    }
    let request = |token: &str| {
        format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n")
    };
    let wrong = server.ask(&request("0123456789abcdeF")).await;
    assert!(wrong.starts_with("HTTP/1.1 401 "), "{wrong}");
    let right = server.ask(&request(TOKEN)).await;
    assert!(right.starts_with("HTTP/1.1 200 OK\r\n"), "{right}");
}

#[tokio::test]
async fn other_requests_are_refused() {
    let server = Server::new(false, Fake::Well);
    let missing = server.get("/").await;
    assert!(missing.starts_with("HTTP/1.1 404 "), "{missing}");
    let posted = server
        .ask("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
        .await;
    assert!(
        posted.starts_with("HTTP/1.1 405 ") && posted.contains("GET, HEAD"),
        "{posted}"
    );
    let head = server
        .ask("HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    for malformed in ["nonsense\r\n\r\n".to_owned(), many_headers(), long_header()] {
        let refused = server.ask(&malformed).await;
        assert!(
            refused.is_empty() || refused.starts_with("HTTP/1.1 4"),
            "{refused}"
        );
    }
    assert!(
        server
            .get("/healthz")
            .await
            .starts_with("HTTP/1.1 200 OK\r\n")
    );
}

#[tokio::test]
async fn a_client_that_has_said_all_and_closed_its_half_is_answered() {
    let server = Server::new(false, Fake::Slow);
    for version in ["1.0", "1.1"] {
        let mut stream = server.connect().await;
        let request = format!("GET /healthz HTTP/{version}\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("\r\n\r\nok\n"), "{version}: {answer}");
    }
}

#[tokio::test]
async fn who_says_nothing_and_a_tunnel_that_hangs_are_given_up() {
    let server = Server::within(SHORT, false, Fake::Hangs);
    let mut silent = server.connect().await;
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
    let answer = server.get("/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(
        answer.ends_with("the tunnel does not answer within 50ms\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn one_connection_too_many_waits_for_its_turn() {
    let server = Server::within(SHORT, false, Fake::Well);
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        silent.push(server.connect().await);
    }
    let started = tokio::time::Instant::now();
    assert!(
        server
            .get("/healthz")
            .await
            .starts_with("HTTP/1.1 200 OK\r\n")
    );
    assert!(
        started.elapsed() >= SHORT.request,
        "until the silent ones are given up"
    );
}

fn many_headers() -> String {
    let headers = "X: y\r\n".repeat(MAX_HEADERS + 1);
    format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{headers}\r\n")
}

fn long_header() -> String {
    format!(
        "GET /metrics HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "y".repeat(2 * MAX_REQUEST)
    )
}

/// A tunnel that is well or not.
#[derive(Debug)]
enum Fake {
    Well,
    /// Well, but busy.
    Slow,
    Ill,
    Hangs,
}

impl Source for Fake {
    async fn observe(&self) -> Observation {
        if matches!(self, Self::Slow) {
            sleep(Duration::from_millis(20)).await;
        }
        let report = match self {
            Self::Well | Self::Slow => {
                let mut report = Report::default();
                report
                    .counters
                    .state
                    .insert("link".to_owned(), "up".to_owned());
                Ok(report)
            }
            Self::Ill => Err("two\nlines".to_owned()),
            Self::Hangs => pending().await,
        };
        Observation {
            interface: "wg0".to_owned(),
            report,
            client: None,
        }
    }
}

#[tokio::test]
async fn a_paused_server_finishes_what_it_has_begun_and_then_goes_on() {
    let server = Server::new(false, Fake::Well);
    let mut begun = server.connect().await;
    begun.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    // It is accepted before the pause.
    assert!(server.get("/healthz").await.ends_with("ok\n"));
    let (idle, mut is_idle) = oneshot::channel();
    let (until, over) = oneshot::channel();
    server.pauses.send(Pause { idle, over }).await.unwrap();
    tokio::task::yield_now().await;
    is_idle.try_recv().unwrap_err();
    let mut answer = String::new();
    begun.write_all(b"Host: x\r\n\r\n").await.unwrap();
    begun.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("ok\n"), "{answer}");
    is_idle.await.unwrap();
    // It waits in the kernel.
    let mut next = server.connect().await;
    let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    next.write_all(request).await.unwrap();
    let mut byte = [0];
    let waiting = timeout(Duration::from_millis(50), next.read(&mut byte));
    waiting.await.unwrap_err();
    drop(until);
    answer.clear();
    next.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("ok\n"), "{answer}");
}

/// Serves on a Unix socket until it is dropped.
struct Server {
    path: PathBuf,
    serving: JoinHandle<io::Result<Infallible>>,
    pauses: mpsc::Sender<Pause>,
    _directory: TempDir,
}

impl Server {
    fn new(has_token: bool, source: Fake) -> Self {
        Self::within(LIMITS, has_token, source)
    }

    fn within(limits: Limits, has_token: bool, source: Fake) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.metrics");
        let token = directory.path().join("token");
        std::fs::write(&token, TOKEN).unwrap();
        let mut line = vec![
            "convoy".to_owned(),
            format!("--metrics=unix:{}", path.display()),
        ];
        if has_token {
            line.push(format!("--metrics-token-file={}", token.display()));
        }
        line.push("wg0".to_owned());
        let args = Cli::try_parse_from(line).unwrap().daemon.metrics;
        let listening = Listening::open(&args).unwrap().unwrap();
        let (pauses, paused) = mpsc::channel(1);
        Self {
            path,
            serving: tokio::spawn(serve_within(listening, source, paused, limits)),
            pauses,
            _directory: directory,
        }
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.path).await.unwrap()
    }

    async fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
            .await
    }

    /// The whole answer; what could still be read if the server has closed the connection early.
    async fn ask(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
