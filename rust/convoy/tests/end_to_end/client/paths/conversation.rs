//! A TCP connection between the friends that never rests.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use convoy_lab::eventually;

use super::friend::Friend;
use crate::scene::DEADLINE;

const PORT: u16 = 7_100;
/// Between two numbers.
const PAUSE: Duration = Duration::from_millis(5);

/// Numbers that one friend sends to the other, each of them echoed.
pub(crate) struct Conversation {
    is_over: Arc<AtomicBool>,
    /// The numbers that have come back, in order.
    echoed: Arc<AtomicU32>,
    threads: Vec<JoinHandle<()>>,
}

impl Conversation {
    pub(crate) fn start(from: &Friend, to: &Friend) -> Self {
        let at = SocketAddr::new(to.inside.parse().unwrap(), PORT);
        let listener = to.place.run(|| TcpListener::bind(at)).unwrap().unwrap();
        let stream = from.place.run(|| TcpStream::connect(at)).unwrap().unwrap();
        let (echo, _) = listener.accept().unwrap();
        let reader = stream.try_clone().unwrap();
        let (is_over, echoed) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let (flag, count) = (Arc::clone(&is_over), Arc::clone(&echoed));
        Self {
            is_over,
            echoed,
            threads: vec![
                thread::spawn(move || speak(stream, &flag)),
                thread::spawn(move || echo_all(echo)),
                thread::spawn(move || listen(reader, &count)),
            ],
        }
    }

    /// Waits until a number has come back that was sent from now on.
    pub(crate) fn goes_on(&self) {
        let before = self.echoed.load(Ordering::Relaxed);
        let later = || (self.echoed.load(Ordering::Relaxed) > before + 100).then_some(());
        assert!(
            eventually(3 * DEADLINE, later).is_some(),
            "the connection hangs"
        );
    }

    /// Ends it; each number has come back, in order.
    pub(crate) fn ends_well(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

fn speak(mut stream: TcpStream, is_over: &AtomicBool) {
    let mut number = 0u32;
    while !is_over.load(Ordering::Relaxed) {
        stream.write_all(&number.to_be_bytes()).unwrap();
        number += 1;
        thread::sleep(PAUSE);
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
}

fn echo_all(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => return,
            length => stream.write_all(&buffer[..length]).unwrap(),
        }
    }
}

fn listen(mut stream: TcpStream, echoed: &AtomicU32) {
    let mut number = [0; 4];
    while stream.read_exact(&mut number).is_ok() {
        let expected = echoed.fetch_add(1, Ordering::Relaxed);
        assert_eq!(u32::from_be_bytes(number), expected);
    }
}
