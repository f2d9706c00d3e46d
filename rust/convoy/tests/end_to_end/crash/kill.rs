//! `kill -9` at random moments never prevents the next start.

use std::{
    env,
    io::Write,
    os::unix::net::UnixStream,
    process::Stdio,
    sync::mpsc::{self, TryRecvError},
    thread,
    time::Duration,
};

use convoy_lab::{Namespace, eventually, wireguard::Daemon};
use nix::sys::signal::{Signal, kill};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{socket_of, starts};
use crate::{
    scene::{DEADLINE, Pairing, Scene, convoy, convoy_program, lab, output_of, processes},
    traffic::answers,
};

/// Kills at each moment, unless `CONVOY_TEST_KILLS` says otherwise.
const ROUNDS: u64 = 4;
const SEED: u64 = 0x6b11;

/// The daemon's activity when it is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Start,
    StartInBackground,
    Configuration,
    End,
    Deletion,
}

#[test]
fn after_kill_9_at_any_moment_the_next_start_works() {
    use Moment::{Configuration, Deletion, End, Start, StartInBackground};
    let Some((_turn, lab)) = lab(&["wg", "ip"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    let before = tables(&namespace);
    let mut random = StdRng::seed_from_u64(SEED);
    for round in 0..rounds() {
        for moment in [Start, StartInBackground, Configuration, End, Deletion] {
            // Starting takes a few milliseconds, and so does ending.
            let delay = Duration::from_micros(random.random_range(0..12_000));
            moment.kill_after(&namespace, delay);
            // At once: the killed daemon may not be dead yet.
            let case = format!("round {round}, {moment:?}, {delay:?}");
            eprintln!("{case}");
            starts(&namespace);
            assert_eq!(tables(&namespace), before, "{case}");
            assert!(!socket_of(&namespace).exists(), "{case}");
        }
    }
}

#[test]
fn after_kill_9_under_traffic_the_next_daemon_takes_over() {
    let Some(mut scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let mut random = StdRng::seed_from_u64(SEED);
    let bind = || std::net::UdpSocket::bind("0.0.0.0:0");
    let socket = scene.left.namespace.run(bind).unwrap().unwrap();
    let address = (scene.right.inner_v4(), 7_000);
    // Dropped with the scope, even when a panic ends it.
    let (end, is_over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let _end = end;
        scope.spawn(move || {
            while is_over.try_recv() == Err(TryRecvError::Empty) {
                // Without a daemon there is no route.
                let _ = socket.send_to(&[0; 1_200], address);
                thread::sleep(Duration::from_micros(100));
            }
        });
        for _ in 0..rounds() {
            carries(&scene);
            thread::sleep(Duration::from_micros(random.random_range(0..20_000)));
            scene.left.replace_daemon(&convoy()).unwrap();
        }
        carries(&scene);
    });
}

fn carries(scene: &Scene) {
    let (from, to) = (&scene.left, scene.right.inner_v4());
    let answered = eventually(DEADLINE, || answers(from, to).then_some(()));
    assert!(answered.is_some());
}

fn rounds() -> u64 {
    env::var("CONVOY_TEST_KILLS").map_or(ROUNDS, |rounds| rounds.parse().unwrap())
}

impl Moment {
    fn kill_after(self, namespace: &Namespace, delay: Duration) {
        match self {
            Self::Start | Self::StartInBackground => {
                let mut command = namespace.command(convoy_program());
                let foreground = matches!(self, Self::Start);
                command.env("WG_PROCESS_FOREGROUND", if foreground { "1" } else { "0" });
                let mut child = command.arg("wg0").stdout(Stdio::null()).spawn().unwrap();
                thread::sleep(delay);
                kill_all(namespace);
                // It may have just started the daemon.
                child.wait().unwrap();
                kill_all(namespace);
            }
            Self::Configuration => {
                let daemon = Daemon::start(namespace, &convoy(), "wg0").unwrap();
                let mut stream = UnixStream::connect(daemon.socket()).unwrap();
                let key = hex::encode([7; 32]);
                let peers = (0..2_000).map(|n| format!("public_key={n:064x}\n"));
                let peers: String = peers.collect();
                let request = format!("set=1\nprivate_key={key}\nlisten_port=7777\n{peers}\n");
                stream.write_all(request.as_bytes()).unwrap();
                thread::sleep(delay);
                kill_all(namespace);
            }
            Self::End | Self::Deletion => {
                let daemon = Daemon::start(namespace, &convoy(), "wg0").unwrap();
                match self {
                    Self::End => daemon.signal(Signal::SIGTERM).unwrap(),
                    _ => namespace.link().remove("wg0").unwrap(),
                }
                thread::sleep(delay / 4);
                kill_all(namespace);
            }
        }
    }
}

fn kill_all(namespace: &Namespace) {
    for pid in processes(namespace) {
        // It may have ended in the meantime.
        let _ = kill(pid, Signal::SIGKILL);
    }
}

/// Interfaces, addresses, rules and routes.
fn tables(namespace: &Namespace) -> String {
    let all = "ip -brief address; ip -4 rule; ip -6 rule; ip route show table all; \
               ip -6 route show table all";
    output_of(namespace, "sh", &["-c", all])
}
