//! Each kind of refusal, at the first, a middle and the last send of a flush whose batches alternate
//! between two destinations.

use super::*;

/// Sends of a flush of [`queued`] if none is refused: one per batch.
const SENDS: usize = 6;
/// Datagrams in a batch of [`queued`].
const LEN: usize = 5;

#[test]
fn a_refused_batch_costs_its_address_segmentation_for_a_while_and_loses_no_datagram() {
    for (errno, pause) in [
        (libc::EIO, RETRY_AFTER_REFUSAL),
        (libc::EINVAL, RETRY_AFTER_REFUSAL),
        (libc::EMSGSIZE, RETRY_AFTER_TOO_BIG),
    ] {
        for nth in [0, 1, 2, 3, SENDS - 1] {
            let mut rig = queued(&[(nth, errno)]);
            assert_eq!(rig.flush(NOW), Flushed::Done);
            let refused = if nth % 2 == 0 { to() } else { elsewhere() };
            let other = if nth % 2 == 0 { elsewhere() } else { to() };
            assert_eq!(rig.sends_to(other), [LEN; SENDS / 2], "{errno} at {nth}");
            let before = vec![LEN; nth / 2];
            let after = vec![1; (SENDS / 2 - nth / 2) * LEN];
            assert_eq!(rig.sends_to(refused), [before, after].concat());
            assert_eq!(rig.lost(), 0);
            assert_eq!(rig.flusher.counters().refused_batches, 1);
            assert_eq!(rig.flusher.refusing(), 1);

            rig.queue_again();
            rig.flush(NOW + pause);
            assert_eq!(rig.socket.sends[rig.socket.sends.len() - SENDS..], [LEN; 6]);
            assert_eq!(rig.flusher.refusing(), 0);
        }
    }
}

#[test]
fn segmentation_is_tried_again_after_a_route_change() {
    let mut rig = queued(&[(0, libc::EMSGSIZE)]);
    rig.flush(NOW);
    assert_eq!(rig.flusher.refusing(), 1);
    rig.flusher.forget_refusals();
    rig.queue_again();
    rig.flush(NOW);
    assert_eq!(rig.socket.sends[rig.socket.sends.len() - SENDS..], [LEN; 6]);
}

#[test]
fn nothing_is_lost_if_the_kernel_has_buffers_again_in_time() {
    for nth in [0, 2, SENDS - 1] {
        let mut rig = queued(&[0, 1, 2].map(|n| (nth + n, libc::ENOBUFS)));
        for n in 1..=NO_BUFFERS_RETRIES {
            let at = NOW + NO_BUFFERS_PAUSE * n;
            assert_eq!(rig.flush(at - NO_BUFFERS_PAUSE), Flushed::RetryAt(at));
        }
        assert_eq!(rig.flush(NOW), Flushed::Done);
        assert_eq!(rig.socket.sends, [LEN; SENDS]);
        let counters = rig.flusher.counters();
        assert_eq!((counters.put_off, rig.lost()), (3, 0));
        assert_eq!(rig.flusher.refusing(), 0, "segmentation was not suspected");
    }
}

#[test]
fn a_kernel_that_lacks_buffers_four_times_costs_one_batch() {
    for nth in [0, 2, SENDS - 1] {
        let mut rig = queued(&[0, 1, 2, 3].map(|n| (nth + n, libc::ENOBUFS)));
        (0..3).for_each(|_| assert_ne!(rig.flush(NOW), Flushed::Done));
        assert_eq!(rig.flush(NOW), Flushed::Done);
        assert_eq!(rig.socket.sends, [LEN; SENDS - 1]);
        assert_eq!(rig.sends_to(elsewhere()).len(), SENDS / 2 - nth % 2);
        assert_eq!(rig.flusher.counters().no_buffers, LEN as u64);
        assert_eq!(rig.lost(), LEN as u64);
    }
}

#[test]
fn a_full_socket_is_counted_and_sending_resumes_where_it_stopped() {
    for nth in [0, 2, SENDS - 1] {
        let mut rig = queued(&[(nth, libc::EAGAIN)]);
        assert!(matches!(rig.flush(NOW), Flushed::Blocked(_)));
        assert_eq!(rig.flush(NOW), Flushed::Done);
        assert_eq!(rig.socket.sends, [LEN; SENDS]);
        assert_eq!((rig.flusher.counters().blocked, rig.lost()), (1, 0));
    }
}

#[test]
fn datagrams_too_long_even_alone_are_counted_one_by_one_and_others_are_untouched() {
    // Refuse the first batch, and then two of its five datagrams.
    let mut rig = queued(&[0, 2, 5].map(|n| (n, libc::EMSGSIZE)));
    assert_eq!(rig.flush(NOW), Flushed::Done);
    assert_eq!(rig.sends_to(to()), [1; 3 * LEN - 2]);
    assert_eq!(rig.sends_to(elsewhere()), [LEN; SENDS / 2]);
    assert_eq!((rig.flusher.counters().too_big, rig.lost()), (2, 2));
    assert_eq!(rig.flusher.too_big().count(), 2);
    rig.queue_again();
    rig.flush(NOW + RETRY_AFTER_TOO_BIG);
    assert_eq!(rig.socket.sends[rig.socket.sends.len() - SENDS..], [LEN; 6]);
}

#[test]
fn an_unknown_error_drops_the_batch_that_met_it_and_no_other() {
    for nth in [0, 2, SENDS - 1] {
        let mut rig = queued(&[(nth, libc::EPERM)]);
        assert_eq!(rig.flush(NOW), Flushed::Done);
        assert_eq!(rig.socket.sends, [LEN; SENDS - 1]);
        assert_eq!(rig.flusher.counters().failed, LEN as u64);
        assert_eq!(rig.flusher.refusing(), 0);
    }
}

#[test]
fn a_lost_source_address_is_counted_and_costs_nothing() {
    let mut rig = Rig::new(&[(1, libc::EINVAL)]);
    rig.append_elsewhere(LEN);
    rig.append(LEN, Some([192, 0, 2, 1].into()));
    rig.append_elsewhere(LEN);
    assert_eq!(rig.flush(NOW), Flushed::Done);
    assert_eq!(rig.socket.sends, [2 * LEN, LEN]);
    assert_eq!((rig.flusher.counters().lost_sources, rig.lost()), (1, 0));
    assert_eq!(rig.flusher.refusing(), 0, "segmentation was not suspected");
}

#[test]
fn a_datagram_given_up_while_it_waits_passes_its_retries_to_no_other() {
    let mut rig = Rig::new(&[0, 1, 2, 3, 4].map(|n| (n, libc::ENOBUFS)));
    let ahead = Destination {
        to: to(),
        source: None,
        ecn: 0,
    };
    let mut send = |flusher: &mut Flusher| {
        flusher.send_now(&ahead, &[9; 148], &mut rig.socket, NOW) == Flushed::Done
    };
    assert!(!send(&mut rig.flusher) && !send(&mut rig.flusher));
    rig.flusher.forget_ahead();
    (0..3).for_each(|_| assert!(!send(&mut rig.flusher)));
    assert!(send(&mut rig.flusher));
    assert_eq!(rig.lost(), 0);
}

/// Batches of five datagrams, alternating between two addresses.
fn queued(errors: &[(usize, i32)]) -> Rig {
    let mut rig = Rig::new(errors);
    rig.queue_again();
    rig
}

impl Rig {
    fn queue_again(&mut self) {
        for to in [to(), elsewhere()].into_iter().cycle().take(SENDS) {
            let destination = Destination {
                to,
                source: None,
                ecn: 0,
            };
            // The last, shorter one seals the batch.
            for len in [100, 100, 100, 100, 50] {
                self.queue.append(&destination, &vec![7; len]).unwrap();
            }
        }
    }

    /// The number of datagrams of each send to `to`.
    fn sends_to(&self, to: SocketAddr) -> Vec<usize> {
        let sends = self.socket.to.iter().zip(&self.socket.sends);
        sends
            .filter(|(at, _)| **at == to)
            .map(|(_, n)| *n)
            .collect()
    }

    fn lost(&self) -> u64 {
        let counters = self.flusher.counters();
        counters.failed + counters.too_big + counters.no_buffers
    }
}
