use super::*;
use convoy_types::MAX_UDP_PAYLOAD;

mod refusals;

const NOW: Duration = Duration::from_secs(1000);

#[test]
fn a_batch_is_one_send() {
    let mut rig = Rig::new(&[]);
    rig.append(10, None);
    assert_eq!(rig.flush(NOW), Flushed::Done);
    assert_eq!(rig.socket.sends, [10]);
    assert_eq!(rig.flusher.counters().segments[10], 1);
}

#[test]
fn a_blocked_socket_keeps_the_batch() {
    let mut rig = Rig::new(&[(0, libc::EAGAIN)]);
    rig.append(10, None);
    assert_eq!(rig.flush(NOW), Flushed::Blocked(to()));
    assert_eq!(rig.flush(NOW), Flushed::Done);
    assert_eq!(rig.socket.sends, [10]);
}

#[test]
fn a_refused_batch_goes_one_by_one_and_nothing_is_lost() {
    for (errno, pause) in [
        (libc::EIO, RETRY_AFTER_REFUSAL),
        (libc::EINVAL, RETRY_AFTER_REFUSAL),
        (libc::EMSGSIZE, RETRY_AFTER_TOO_BIG),
    ] {
        let mut rig = Rig::new(&[(0, errno)]);
        rig.append(5, None);
        assert_eq!(rig.flush(NOW), Flushed::Done);
        assert_eq!(rig.socket.sends, [1; 5], "errno {errno}");

        rig.append(5, None);
        rig.flush(NOW + pause / 2);
        assert_eq!(rig.socket.sends, [1; 10], "segmentation is still off");

        rig.append(5, None);
        rig.flush(NOW + pause);
        assert_eq!(rig.socket.sends.last(), Some(&5), "segmentation is back");
        assert_eq!(rig.socket.recovered, errno != libc::EMSGSIZE);
    }
}

#[test]
fn a_refusal_in_the_middle_of_the_segments_does_not_repeat_any() {
    let mut rig = Rig::new(&[(0, libc::EIO), (3, libc::EAGAIN)]);
    rig.append(5, None);
    assert_eq!(rig.flush(NOW), Flushed::Blocked(to()));
    assert_eq!(rig.socket.sends, [1, 1]);
    rig.flush(NOW);
    assert_eq!(rig.socket.sends, [1; 5]);
    assert_eq!(rig.socket.first_bytes, [0, 1, 2, 3, 4]);
}

#[test]
fn a_lost_source_address_is_forgotten_and_the_same_batch_sent() {
    for errno in [libc::EINVAL, libc::ENETUNREACH, libc::EADDRNOTAVAIL] {
        let mut rig = Rig::new(&[(0, errno)]);
        rig.append(5, Some([192, 0, 2, 1].into()));
        assert_eq!(rig.flush(NOW), Flushed::Done);
        assert_eq!(rig.socket.sends, [5], "segmentation was not suspected");
        assert_eq!(rig.flusher.lost_sources().collect::<Vec<_>>(), [to()]);
    }
}

#[test]
fn no_buffers_is_tried_three_times_a_millisecond_apart_then_dropped() {
    let mut rig = Rig::new(&[0, 1, 2, 3].map(|n| (n, libc::ENOBUFS)));
    rig.append(5, None);
    for n in 0..3 {
        let now = NOW + NO_BUFFERS_PAUSE * n;
        assert_eq!(rig.flush(now), Flushed::RetryAt(now + NO_BUFFERS_PAUSE));
    }
    assert_eq!(rig.flush(NOW), Flushed::Done);
    assert_eq!(rig.flusher.counters().no_buffers, 5);
    rig.append(5, None);
    assert_eq!(rig.flush(NOW), Flushed::Done);
    assert_eq!(rig.socket.sends, [5]);
}

#[test]
fn each_batch_has_three_retries_whatever_happened_to_the_one_before() {
    let no_buffers = [(0, libc::ENOBUFS), (1, libc::ENOBUFS), (3, libc::ENOBUFS)];
    // Before it comes a batch that is refused for good, or a datagram that is sent ahead.
    for is_refused in [true, false] {
        let mut errors = no_buffers.to_vec();
        if is_refused {
            errors.push((2, libc::EPERM));
        }
        errors.extend([4, 5].map(|n| (n, libc::ENOBUFS)));
        let mut rig = Rig::new(&errors);
        if is_refused {
            rig.append(5, None);
            (0..2).for_each(|_| assert_ne!(rig.flush(NOW), Flushed::Done));
            rig.append_elsewhere(5);
        } else {
            let to = Destination {
                to: to(),
                source: None,
                ecn: 0,
            };
            let mut send = || rig.flusher.send_now(&to, &[9; 148], &mut rig.socket, NOW);
            (0..2).for_each(|_| assert_ne!(send(), Flushed::Done));
            assert_eq!(send(), Flushed::Done);
            rig.append_elsewhere(5);
        }
        for _ in 0..3 {
            assert_eq!(rig.flush(NOW), Flushed::RetryAt(NOW + NO_BUFFERS_PAUSE));
        }
        assert_eq!(rig.flush(NOW), Flushed::Done);
        assert_eq!(rig.flusher.counters().no_buffers, 0, "refused {is_refused}");
        assert_eq!(rig.socket.sends.last(), Some(&5));
    }
}

#[test]
fn a_datagram_behind_a_batch_that_waits_for_buffers_has_three_retries_of_its_own() {
    let mut rig = Rig::new(&[0, 1, 2, 3, 4, 5, 6].map(|n| (n, libc::ENOBUFS)));
    rig.append(5, None);
    (0..3).for_each(|_| assert_ne!(rig.flush(NOW), Flushed::Done));
    rig.append(5, None);
    // The first of these flushes gives up the first five; then the others begin to wait.
    (0..3).for_each(|_| assert_ne!(rig.flush(NOW), Flushed::Done));
    assert_eq!(rig.flusher.counters().no_buffers, 5);
    assert_eq!(rig.flush(NOW), Flushed::Done);
    assert_eq!(rig.socket.sends, [5]);
}

#[test]
fn one_datagram_that_is_too_long_is_counted_and_the_rest_is_sent() {
    let mut rig = Rig::new(&[(0, libc::EMSGSIZE), (1, libc::EMSGSIZE)]);
    rig.append(3, None);
    assert_eq!(rig.flush(NOW), Flushed::Done);
    assert_eq!(rig.socket.sends, [1, 1]);
    assert_eq!(rig.flusher.counters().too_big, 1);
    assert_eq!(rig.flusher.too_big().collect::<Vec<_>>(), [(to(), 100)]);
}

#[test]
fn a_path_that_stays_too_narrow_is_tried_less_and_less_often() {
    let mut rig = Rig::new(&[]);
    let mut now = NOW;
    for pause in [5, 10, 20, 40, 80, 160, 300, 300, 300] {
        // The batch is refused; until the pause ends, datagrams go one by one.
        rig.socket.errors = vec![(rig.socket.calls, libc::EMSGSIZE)];
        rig.append(2, None);
        rig.flush(now);
        now += Duration::from_secs(pause);
        rig.append(2, None);
        rig.flush(now - Duration::from_nanos(1));
        assert_eq!(rig.socket.sends, [1; 4], "{pause} s");
        rig.socket.sends.clear();
    }
    assert_eq!(rig.socket.forgotten, [to(); 8], "before each retry");
    rig.append(2, None);
    rig.flush(now);
    assert_eq!(
        (&rig.socket.sends[..], rig.flusher.refusing()),
        (&[2][..], 0)
    );
    // After ten minutes without a refusal, the pause starts at five seconds again.
    now += REMEMBERED;
    rig.socket.errors = vec![(rig.socket.calls, libc::EMSGSIZE)];
    rig.append(2, None);
    rig.flush(now);
    rig.append(2, None);
    rig.flush(now + RETRY_AFTER_TOO_BIG);
    assert_eq!(rig.socket.sends, [2, 1, 1, 2]);
}

#[test]
fn an_unreachable_destination_is_a_counted_drop_and_others_are_untouched() {
    let mut rig = Rig::new(&[(0, libc::EHOSTUNREACH)]);
    rig.append(3, None);
    rig.append_elsewhere(1);
    assert_eq!(rig.flush(NOW), Flushed::Done);
    assert_eq!(rig.flusher.counters().failed, 3);
    assert_eq!(rig.socket.sends, [1]);
}

#[test]
fn without_segmentation_each_datagram_is_a_send() {
    let mut rig = Rig::new(&[]);
    rig.flusher = Flusher::new(false);
    rig.append(4, None);
    rig.flush(NOW);
    assert_eq!(rig.socket.sends, [1; 4]);
}

#[test]
fn a_datagram_sent_ahead_is_kept_while_the_kernel_has_no_room_for_it() {
    let mut rig = Rig::new(&[(0, libc::EAGAIN), (1, libc::ENOBUFS)]);
    let to = Destination {
        to: to(),
        source: None,
        ecn: 0,
    };
    let mut send = || rig.flusher.send_now(&to, &[9; 148], &mut rig.socket, NOW);
    assert_eq!(send(), Flushed::Blocked(to.to));
    assert_eq!(send(), Flushed::RetryAt(NOW + NO_BUFFERS_PAUSE));
    assert_eq!(send(), Flushed::Done);
    assert_eq!(rig.socket.sends, [1]);
}

#[test]
fn the_memory_of_refusing_addresses_is_bounded() {
    let mut rig = Rig::new(&[]);
    for n in 0..u16::MAX {
        let refusal = Refusal {
            until: NOW + RETRY_AFTER_TOO_BIG,
            too_big: RETRY_AFTER_TOO_BIG,
            is_over: false,
        };
        let address = (to().ip(), n).into();
        rig.flusher.refusing.insert(address, refusal);
        if rig.flusher.refusing.len() == MAX_REFUSING {
            break;
        }
    }
    rig.socket.errors = vec![(0, libc::EIO)];
    rig.append(2, None);
    rig.flush(NOW);
    assert_eq!(rig.flusher.refusing(), 1);
}

struct Rig {
    queue: GsoQueue,
    flusher: Flusher,
    socket: FailingSocket,
}

impl Rig {
    /// `errors`: pairs of a call and the errno that it fails with.
    fn new(errors: &[(usize, i32)]) -> Self {
        Self {
            queue: GsoQueue::default(),
            flusher: Flusher::new(true),
            socket: FailingSocket {
                errors: errors.to_vec(),
                ..FailingSocket::default()
            },
        }
    }

    fn append(&mut self, segments: usize, source: Option<std::net::IpAddr>) {
        let destination = Destination {
            to: to(),
            source,
            ecn: 0,
        };
        for n in 0..segments {
            self.queue.append(&destination, &[n as u8; 100]).unwrap();
        }
    }

    fn append_elsewhere(&mut self, segments: usize) {
        let other = Destination {
            to: elsewhere(),
            source: None,
            ecn: 0,
        };
        for _ in 0..segments {
            self.queue.append(&other, &[0; 100]).unwrap();
        }
    }

    fn flush(&mut self, now: Duration) -> Flushed {
        self.flusher.flush(&mut self.queue, &mut self.socket, now)
    }
}

#[derive(Default)]
struct FailingSocket {
    errors: Vec<(usize, i32)>,
    calls: usize,
    /// Segments of each successful send.
    sends: Vec<usize>,
    first_bytes: Vec<u8>,
    /// The destination of each successful send.
    to: Vec<SocketAddr>,
    recovered: bool,
    /// The destinations whose learnt path MTU was forgotten.
    forgotten: Vec<SocketAddr>,
}

impl SendDatagrams for FailingSocket {
    fn send(&mut self, to: &Destination, bytes: &[u8], segment: Option<usize>) -> io::Result<()> {
        let call = self.calls;
        self.calls += 1;
        if let Some((_, errno)) = self.errors.iter().find(|(n, _)| *n == call) {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        assert!(bytes.len() <= MAX_UDP_PAYLOAD);
        self.sends
            .push(segment.map_or(1, |s| bytes.len().div_ceil(s)));
        self.first_bytes.push(bytes[0]);
        self.to.push(to.to);
        Ok(())
    }

    fn forget_learnt_mtu(&mut self, to: SocketAddr) {
        self.forgotten.push(to);
    }

    fn recover(&mut self) {
        self.recovered = true;
    }
}

fn to() -> SocketAddr {
    ([192, 0, 2, 2], 51820).into()
}

fn elsewhere() -> SocketAddr {
    ([192, 0, 2, 77], 1).into()
}
