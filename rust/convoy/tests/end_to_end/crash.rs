//! Unplanned ends: panics, faults and logs that nobody reads. The next start works.

mod kill;

use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io::{Read, Write, pipe},
    os::unix::{
        fs::{FileExt as _, MetadataExt as _},
        net::UnixStream,
        process::{CommandExt as _, ExitStatusExt},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use convoy_lab::{Namespace, eventually, wireguard::Daemon};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::{
    scene::{DEADLINE, convoy, convoy_program, lab, output_of, wait_for_socket},
    twins::ask_at,
};

const THREADS: [&str; 4] = ["main", "tokio-rt-worker", "uapi", "tunnel"];

#[test]
fn a_panic_in_any_thread_logs_one_line_and_leaves_nothing_behind() {
    let Some((_turn, lab)) = lab(&["cc", "wg"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    let liar = Liar::new();
    for thread in THREADS {
        for (format, background) in [("text", false), ("json", false), ("text", true)] {
            let mut command = liar.daemon(&namespace, thread);
            command.args(["--log-format", format]).arg("wg0");
            command.env("WG_PROCESS_FOREGROUND", if background { "0" } else { "1" });
            let mut child = piped(&mut command);
            if background {
                assert!(child.wait().unwrap().success());
            }
            liar.begin(&namespace);
            let said = read_all(&mut child);
            let code = child.wait().unwrap().code();
            assert_eq!(code, Some(i32::from(!background)), "{said}");
            let panics: Vec<_> = said.lines().filter(|l| l.contains("panicked")).collect();
            assert_eq!(panics.len(), 1, "{thread}: {said}");
            assert!(
                panics[0].contains(&format!("thread {thread} panicked at ")),
                "{said}"
            );
            // A client whose request the panic cut off may log a refusal after it.
            let mut behind = said.lines().skip_while(|line| *line != panics[0]).skip(1);
            assert!(
                behind.all(|line| line.contains("UAPI: request refused: ")),
                "{said}"
            );
            assert!(format == "text" || panics[0].starts_with('{'), "{said}");
            leaves_nothing(&namespace);
        }
    }
    starts(&namespace);
}

#[test]
fn a_panic_ends_the_daemon_even_if_its_log_is_closed_or_full() {
    let Some((_turn, lab)) = lab(&["cc", "wg"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    let liar = Liar::new();
    for level in ["silent", "error"] {
        for is_read in [false, true] {
            let mut command = liar.daemon(&namespace, "uapi");
            let (reader, writer) = pipe().unwrap();
            let log = || writer.try_clone().unwrap();
            command.args(["-f", "wg0"]).env("LOG_LEVEL", level);
            let mut child = command.stdout(log()).stderr(log()).spawn().unwrap();
            drop(command);
            wait_for_socket(&namespace);
            let reader = match is_read {
                false => None,
                true => {
                    fill(&writer);
                    Some(reader)
                }
            };
            liar.begin(&namespace);
            let status = eventually(DEADLINE, || child.try_wait().unwrap());
            let _ = child.kill();
            drop(reader);
            let code = status.map(|status| status.code());
            assert_eq!(code, Some(Some(1)), "{level}, read: {is_read}");
            leaves_nothing(&namespace);
        }
    }
}

#[test]
fn a_daemon_whose_log_nobody_reads_keeps_running() {
    let Some((_turn, lab)) = lab(&["wg"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    for (format, is_closed) in [
        ("text", true),
        ("json", true),
        ("text", false),
        ("json", false),
    ] {
        let mut command = namespace.command(convoy_program());
        command
            .args(["-f", "--log-format", format, "wg0"])
            .env("LOG_LEVEL", "debug");
        let (reader, writer) = pipe().unwrap();
        let log = || writer.try_clone().unwrap();
        let mut child = command.stdout(log()).stderr(log()).spawn().unwrap();
        let socket = wait_for_socket(&namespace);
        let reader = (!is_closed).then_some(reader);
        if !is_closed {
            fill(&writer);
        }
        for _ in 0..10 {
            assert_eq!(ask_at(&socket, b"set=1\nnonsense\n\n"), b"errno=-71\n\n");
        }
        output_of(&namespace, "wg", &["set", "wg0", "listen-port", "7"]);
        namespace.link().remove("wg0").unwrap();
        let status = eventually(DEADLINE, || child.try_wait().unwrap());
        let _ = child.kill();
        assert_eq!(
            status.and_then(|s| s.code()),
            Some(0),
            "{format} {is_closed}"
        );
        leaves_nothing(&namespace);
        drop(reader);
    }
}

#[test]
fn after_a_fault_nothing_is_dumped_and_the_next_start_works() {
    let Some((_turn, lab)) = lab(&["wg", "sh", "prlimit"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    // In a directory where a dump could be written, to see that there is none.
    let directory = tempfile::tempdir().unwrap();
    let unlimited = "ulimit -c unlimited; exec \"$0\" -f wg0";
    for fault in [
        Fault::Signal(Signal::SIGABRT),
        Fault::Signal(Signal::SIGSEGV),
        Fault::Memory,
    ] {
        let mut command = namespace.command("sh");
        command.args(["-c", unlimited]).arg(convoy_program());
        let mut child = piped(command.current_dir(directory.path()));
        let socket = wait_for_socket(&namespace);
        let status = eventually(DEADLINE, || {
            fault.strike(&child, &socket);
            child.try_wait().unwrap()
        });
        if status.is_none() {
            child.kill().unwrap();
        }
        let said = read_all(&mut child);
        let status = status.unwrap_or_else(|| panic!("{fault:?}: {said}"));
        assert!(status.signal().is_some(), "{fault:?}: {status}: {said}");
        assert!(!status.core_dumped(), "{fault:?}");
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            0,
            "{fault:?}"
        );
        starts(&namespace);
    }
}

/// Ends a process at once.
#[derive(Debug)]
enum Fault {
    Signal(Signal),
    /// No more memory can be allocated.
    Memory,
}

impl Fault {
    fn strike(&self, child: &Child, socket: &PathBuf) {
        let pid = child.id().cast_signed();
        match self {
            // Rust's own handler passes on a SIGSEGV that is not a stack overflow only the second
            // time.
            Self::Signal(signal) => {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), *signal);
            }
            Self::Memory => {
                // All threads must exist already: one that starts without memory panics.
                let Ok(mut client) = UnixStream::connect(socket) else {
                    return;
                };
                let _ = client.write_all(b"get=1\n\n");
                let _ = client.read(&mut [0; 64]);
                if !all_threads_sleep(child) {
                    return;
                }
                // As the daemon's user, who may limit it without any capability.
                let user = fs::metadata(format!("/proc/{pid}")).unwrap().uid();
                let mut limit = Command::new("prlimit");
                limit.args(["--as=0", "--pid", &pid.to_string()]);
                assert!(limit.uid(user).gid(user).status().unwrap().success());
                let allowed_ips = "allowed_ip=10.0.0.0/32\n".repeat(2_600_000);
                let key = "ab".repeat(32);
                let request = format!("set=1\npublic_key={key}\n{allowed_ips}\n");
                let _ = client.write_all(request.as_bytes());
            }
        }
    }
}

fn all_threads_sleep(child: &Child) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    threads.into_iter().all(|thread| {
        let status = fs::read_to_string(thread.unwrap().path().join("status"));
        status.is_ok_and(|status| status.contains("State:\tS"))
    })
}

/// A preloaded library that fakes one wrong answer of the kernel.
struct Liar {
    directory: TempDir,
}

impl Liar {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/crash/lies.c");
        let library = directory.path().join("lies.so");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-Wall", "-Werror", source, "-o"]);
        assert!(command.arg(library).status().unwrap().success());
        fs::write(directory.path().join("now"), [0]).unwrap();
        Self { directory }
    }

    /// The daemon, without an interface argument yet, which will get the wrong answer in `thread`.
    fn daemon(&self, namespace: &Namespace, thread: &str) -> Command {
        let mut command = namespace.command(convoy_program());
        command.env("LD_PRELOAD", self.directory.path().join("lies.so"));
        // To the kernel the main thread has the program's name.
        let program = convoy_program().file_name().unwrap().to_owned();
        let name = if thread == "main" {
            &program
        } else {
            OsStr::new(thread)
        };
        command.env("LIE_THREAD", name).env("LIE_WHEN", self.when());
        command.env("LOG_LEVEL", "info");
        command
    }

    fn when(&self) -> PathBuf {
        self.directory.path().join("now")
    }

    /// Gives every thread work and makes the daemon get the wrong answer meanwhile.
    fn begin(&self, namespace: &Namespace) {
        let socket = wait_for_socket(namespace);
        // Not truncated meanwhile: the daemon has it in its memory.
        let when = OpenOptions::new().read(true).write(true).open(self.when());
        let when = when.unwrap();
        when.write_all_at(&[1], 0).unwrap();
        let heard = eventually(DEADLINE, || {
            // Any of this may fail, since the daemon ends.
            let _ = namespace.link().set_up("wg0");
            let _ = namespace.link().set_down("wg0");
            if let Ok(mut client) = UnixStream::connect(&socket) {
                client.set_read_timeout(Some(DEADLINE)).unwrap();
                let _ = client.write_all(b"get=1\n\n");
                let _ = client.read(&mut [0]);
            }
            let mut byte = [1];
            when.read_exact_at(&mut byte, 0).unwrap();
            (byte == [0]).then_some(())
        });
        assert!(heard.is_some(), "the thread never made the call");
    }
}

/// Starts the command with pipes for stdout and stderr.
fn piped(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads stdout and then stderr until both are closed.
fn read_all(child: &mut Child) -> String {
    let mut said = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    said
}

fn fill(writer: &std::io::PipeWriter) {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while nix::unistd::write(writer, &[b'x'; 4096]).is_ok() {}
    // The daemon shares this open file description.
    fcntl(writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
}

fn socket_of(namespace: &Namespace) -> PathBuf {
    namespace.run_directory().join("wireguard/wg0.sock")
}

fn leaves_nothing(namespace: &Namespace) {
    assert!(!socket_of(namespace).exists(), "the socket is still there");
    // The interface disappears with the last thread of the process.
    let is_gone = || (!namespace.link().exists("wg0")).then_some(());
    assert!(eventually(DEADLINE, is_gone).is_some());
}

/// Requires that a daemon for the same interface starts at once, works and ends.
fn starts(namespace: &Namespace) {
    let mut daemon = Daemon::start(namespace, &convoy(), "wg0").unwrap();
    // A killed daemon that is not dead yet may have answered instead.
    let is_ready = || daemon.log().contains("\"ready\"").then_some(());
    assert!(eventually(DEADLINE, is_ready).is_some(), "{}", daemon.log());
    output_of(namespace, "wg", &["set", "wg0", "listen-port", "7"]);
    daemon.signal(Signal::SIGTERM).unwrap();
    assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", daemon.log());
    leaves_nothing(namespace);
}
