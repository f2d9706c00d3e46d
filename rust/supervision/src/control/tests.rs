use std::{
    io::{Read, Write},
    net::Shutdown,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use convoy_process::message::Message as _;
use nix::sys::socket::{Backlog, listen};

use super::*;

#[test]
fn a_request_is_one_line_of_json() {
    for (line, expected) in [
        ("\"down\"\n", Request::Down),
        (" \"status\" \n", Request::Status),
        (
            "{\"pause\":{\"seconds\":300}}\n",
            Request::Pause { seconds: 300 },
        ),
    ] {
        assert_eq!(parse(line).unwrap(), expected, "{line}");
    }
    for line in [
        "",
        "\n",
        "\"down\"",
        "\"fly\"\n",
        "{\"pause\":{}}\n",
        "{\"pause\":{\"seconds\":-1}}\n",
        "{\"pause\":{\"seconds\":1,\"minutes\":2}}\n",
        "\"down\"\"down\"\n",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
    let nested = format!("{}\n", "[".repeat(Request::MAX_BYTES - 1));
    assert!(parse(&nested).is_err());
}

fn parse(line: &str) -> Result<Request, Lost> {
    let (mut ours, theirs) = StdUnixStream::pair().unwrap();
    ours.write_all(line.as_bytes()).unwrap();
    drop(ours);
    message::receive(&theirs).map(|(request, _)| request)
}

#[test]
fn every_request_and_reply_survives_the_way() {
    for request in [
        Request::Down,
        Request::Reload,
        Request::Status,
        Request::Pause { seconds: 1 },
        Request::Resume,
        Request::Subscribe,
    ] {
        let line = message::line_of(&request).unwrap();
        assert_eq!(parse(&String::from_utf8(line).unwrap()).unwrap(), request);
    }
}

#[test]
fn a_client_is_answered() {
    let scene = Scene::start(|request| match request {
        Request::Pause { seconds: 5 } => Some(Reply::Done {
            warnings: vec!["two\nlines".to_owned()],
        }),
        _ => None,
    });
    let reply = ask(&scene.path, &Request::Pause { seconds: 5 }).unwrap();
    let warnings = vec!["two\nlines".to_owned()];
    assert_eq!(reply, Reply::Done { warnings });
    let dropped = ask(&scene.path, &Request::Down).unwrap();
    assert!(matches!(dropped, Reply::Failed { reason } if reason.contains("going down")));
}

#[test]
fn a_request_that_is_too_long_or_cut_off_is_refused() {
    let scene = Scene::start(|_| panic!("it is no request"));
    let long = vec![b' '; Request::MAX_BYTES + 1];
    for (bytes, reason) in [(&long[..], "longer than"), (b"\"down\"", "closed")] {
        let mut stream = StdUnixStream::connect(&scene.path).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(reason), "{answer}");
    }
}

#[test]
fn silent_clients_keep_a_bounded_number_of_places() {
    let scene = Scene::start(|_| {
        Some(Reply::Done {
            warnings: Vec::new(),
        })
    });
    let silent: Vec<_> = (0..MAX_CLIENTS)
        .map(|_| StdUnixStream::connect(&scene.path).unwrap())
        .collect();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(&scene.path, &Request::Status));
        // It is served as soon as another leaves.
        drop(silent);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn nobody_listens_where_there_is_no_socket_or_a_dead_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.control");
    let no_supervisor = || matches!(ask(&path, &Request::Status), Err(AskError::NoSupervisor));
    assert!(no_supervisor());
    drop(socket::bind(&path).unwrap());
    assert!(path.exists());
    assert!(no_supervisor());
}

#[test]
fn a_supervisor_that_dies_meanwhile_is_none_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.control");
    let (listener, _file) = socket::bind(&path).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || drop(listener.accept().unwrap()));
        let outcome = ask(&path, &Request::Status);
        assert!(
            matches!(outcome, Err(AskError::NoSupervisor)),
            "{outcome:?}"
        );
    });
}

#[test]
fn a_supervisor_that_never_answers_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.control");
    let (listener, _file) = socket::bind(&path).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(listener.accept());
            }
        });
        let outcome = ask(&path, &Request::Status);
        is_over.store(true, Ordering::Relaxed);
        drop(StdUnixStream::connect(&path));
        assert!(matches!(outcome, Err(AskError::Ended)), "{outcome:?}");
    });
}

#[test]
fn a_supervisor_that_hangs_holds_nobody_up_for_long() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.control");
    let (listener, _file) = socket::bind(&path).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    // The first is the last that it has room for.
    for _ in 0..2 {
        let outcome = ask_once(&path, &Request::Status, Some(Duration::from_millis(1)));
        assert!(matches!(outcome, Err(AskError::Silent)), "{outcome:?}");
    }
}

#[test]
fn a_finished_supervisor_has_answered_and_left_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.control");
    thread::scope(|scope| {
        block_on(async {
            let mut control = Control::listen(&path).unwrap();
            let client = scope.spawn(|| ask(&path, &Request::Down));
            let other = scope.spawn(|| ask(&path, &Request::Resume));
            let last = control.next_down("wait").await;
            let done = Reply::Done {
                warnings: Vec::new(),
            };
            control.finish(vec![last], &done).await;
            assert!(!path.exists());
            let refused = other.join().unwrap();
            assert!(
                matches!(refused, Ok(Reply::Failed { .. }) | Err(_)),
                "{refused:?}"
            );
            assert_eq!(client.join().unwrap().unwrap(), done);
        });
    });
}

/// A supervisor in a thread of its own, until it is dropped.
struct Scene {
    path: std::path::PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Scene {
    fn start(answer: impl Fn(Request) -> Option<Reply> + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.control");
        let (stop, mut stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let listens_at = path.clone();
        let thread = thread::spawn(move || {
            block_on(async {
                let mut control = Control::listen(&listens_at).unwrap();
                ready.send(()).unwrap();
                loop {
                    tokio::select! {
                        asked = control.next() => {
                            if let Some(reply) = answer(asked.request) {
                                asked.reply.send(reply).unwrap();
                            }
                        }
                        _ = &mut stopped => break,
                    }
                }
            });
        });
        is_ready.recv().unwrap();
        Self {
            path,
            stop: Some(stop),
            thread: Some(thread),
            _directory: directory,
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(work)
}
