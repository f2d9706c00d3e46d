use std::{
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use nix::{
    setsockopt_impl, sockopt_impl,
    sys::socket::{
        setsockopt,
        sockopt::{Ipv4Tos, Ipv6TClass},
    },
};
use tokio::time::timeout;

use super::*;
use crate::network::{Host, Kernel, Network, kernel::messages::MESSAGES, with_batch};

/// Every wait of a test ends after this time.
const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn datagrams_of_one_length_leave_and_arrive_as_one_message() {
    for at in [loopback_v4(), loopback_v6()] {
        let (sender, relay, receiver) = (bound(at).await, bound(at).await, bound(at).await);
        let lengths = [700, 700, 700, 700, 10];
        send(&sender, &relay, &lengths).await;
        relay.readable().await.unwrap();
        let sent = with_batch(|batch| {
            relay.try_receive(batch).unwrap();
            let trains: Vec<_> = batch.trains().collect();
            assert_eq!(trains.len(), 1);
            assert_eq!(trains[0].from(), sender.local_addr().unwrap());
            relay.try_send_train(&trains[0], receiver.local_addr().ok())
        });
        assert_eq!((sent.bytes, sent.lost), (2810, 0));
        receiver.readable().await.unwrap();
        with_batch(|batch| {
            receiver.try_receive(batch).unwrap();
            let train = batch.trains().next().unwrap();
            assert_eq!(train.pieces().count(), 1, "the kernel has cut it");
            assert_eq!(train.from(), relay.local_addr().unwrap());
            are_numbered(train.datagrams(), &lengths);
        });
    }
}

/// Marks of congestion, and those of what can be marked, with the DSCP of calls (EF).
#[tokio::test]
async fn datagrams_keep_the_traffic_class_that_they_arrived_with() {
    for at in [loopback_v4(), loopback_v6()] {
        let (sender, relay, receiver) = (bound(at).await, bound(at).await, bound(at).await);
        let connected = bound(at).await;
        let (to, from) = (receiver.local_addr().unwrap(), Some(at.ip()));
        connected.connect(to).await.unwrap();
        for (class, count) in [(1, 1), (2, 3), (0, 1), (0xbb, 2)] {
            set_class(&sender, class);
            for (out, to, from) in [
                (&relay, Some(to), None),
                (&relay, Some(to), from),
                (&connected, None, None),
            ] {
                send(&sender, &relay, &vec![9; count]).await;
                let mut passed = 0;
                while passed < count {
                    within(relay.readable()).await.unwrap();
                    with_batch(|batch| {
                        if relay.try_receive(batch).is_ok() {
                            for train in batch.trains() {
                                let sent = out.try_send_train_from(&train, to, from);
                                assert!(sent.error.is_none(), "{:?}", sent.error);
                                passed += train.segments();
                            }
                        }
                    });
                }
                assert_eq!(classes(&receiver, count).await, vec![class; count]);
            }
        }
        connected.try_send_of_class(b"early", 3).unwrap();
        assert_eq!(classes(&receiver, 1).await, [3]);
    }
}

fn set_class(socket: &Datagrams, class: u8) {
    let class = i32::from(class);
    match socket.local_addr().unwrap().is_ipv4() {
        true => setsockopt(kernels(socket), Ipv4Tos, &class).unwrap(),
        false => setsockopt(kernels(socket), Ipv6TClass, &class).unwrap(),
    }
}

/// The traffic classes of the next datagrams.
async fn classes(socket: &Datagrams, count: usize) -> Vec<u8> {
    let mut classes = Vec::new();
    while classes.len() < count {
        within(socket.readable()).await.unwrap();
        with_batch(|batch| {
            if socket.try_receive(batch).is_ok() {
                for train in batch.trains() {
                    classes.extend(vec![train.class(); train.segments()]);
                }
            }
        });
    }
    classes
}

#[tokio::test]
async fn what_the_kernel_refuses_together_is_sent_one_by_one() {
    // Without checksums it would have to make them itself.
    sockopt_impl!(
        NoChecksums,
        SetOnly,
        libc::SOL_SOCKET,
        libc::SO_NO_CHECK,
        bool
    );
    let (relay, receiver) = (bound(loopback_v4()).await, bound(loopback_v4()).await);
    setsockopt(kernels(&relay), NoChecksums, &true).unwrap();
    let lengths = [100, 100, 100, 99];
    let sender = bound(loopback_v4()).await;
    send(&sender, &relay, &lengths).await;
    relay.readable().await.unwrap();
    with_batch(|batch| {
        relay.try_receive(batch).unwrap();
        let train = batch.trains().next().unwrap();
        let to = receiver.local_addr().ok();
        let refused = relay.try_send_whole(&train, to, None).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        let sent = relay.try_send_train(&train, to);
        assert_eq!((sent.bytes, sent.lost), (399, 0));
        // Otherwise somebody would hear that the receiver cannot be reached.
        assert!(sent.error.is_none(), "{:?}", sent.error);
    });
    receive_numbered(&receiver, &lengths).await;
}

#[tokio::test]
async fn what_an_earlier_datagram_met_is_told_and_costs_none_of_a_train() {
    let (sender, relay, out) = (
        bound(loopback_v4()).await,
        bound(loopback_v4()).await,
        bound(loopback_v4()).await,
    );
    let closed = bound(loopback_v4()).await.local_addr().unwrap();
    out.connect(closed).await.unwrap();
    out.try_send(b"nobody hears this").unwrap();
    within(kernels(&out).ready(Interest::ERROR)).await.unwrap();
    let receiver = bound(closed).await;
    let lengths = [10, 10, 10];
    send(&sender, &relay, &lengths).await;
    relay.readable().await.unwrap();
    let sent = with_batch(|batch| {
        relay.try_receive(batch).unwrap();
        out.try_send_train(&batch.trains().next().unwrap(), None)
    });
    assert_eq!((sent.bytes, sent.lost), (30, 0));
    let error = sent.error.unwrap();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    receive_numbered(&receiver, &lengths).await;
}

/// Beside everything else that the socket was asked to tell.
#[tokio::test]
async fn errors_keep_their_details() {
    for at in [loopback_v4(), loopback_v6()] {
        let closed = bound(at).await.local_addr().unwrap();
        let out = bound(at).await;
        out.ask_for_errors();
        messages::ask_for_destinations(kernels(&out), at.is_ipv6()).unwrap();
        out.connect(closed).await.unwrap();
        out.try_send_of_class(b"nobody hears this", 2).unwrap();
        let reports = within(out.ready()).await;
        let icmp = reports[0].icmp.expect("an ICMP message has said so");
        assert_eq!(icmp.from, Some(at.ip()));
        assert_eq!(reports[0].quoted, Some(*b"nobody h"));
    }
}

#[tokio::test]
async fn what_does_not_fit_a_batch_is_in_the_next_and_then_the_task_waits() {
    let (sender, receiver) = (bound(loopback_v4()).await, bound(loopback_v4()).await);
    let lengths: Vec<_> = (0..2 * MESSAGES + 10).map(|index| index % 300).collect();
    for _ in 0..2 {
        send(&sender, &receiver, &lengths).await;
        receive_numbered(&receiver, &lengths).await;
        let error = with_batch(|batch| receiver.try_receive(batch)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}

async fn bound(at: SocketAddr) -> Datagrams {
    let socket = Kernel(Host).datagrams(at).await.unwrap();
    socket.prepare_for_batches();
    socket
}

fn kernels(socket: &Datagrams) -> &UdpSocket {
    match socket {
        Datagrams::Kernel(socket) => socket,
        Datagrams::Other(_) => unreachable!("it is the host's"),
    }
}

/// Sends numbered datagrams of these lengths, each in a call of its own.
async fn send(from: &Datagrams, to: &Datagrams, lengths: &[usize]) {
    let to = to.local_addr().unwrap();
    for (number, length) in lengths.iter().enumerate() {
        let datagram = vec![number as u8; *length];
        from.send_to(&datagram, to).await.unwrap();
    }
}

async fn receive_numbered(socket: &Datagrams, lengths: &[usize]) {
    let mut received = Vec::new();
    while received.len() < lengths.len() {
        within(socket.readable()).await.unwrap();
        let _ = with_batch(|batch| {
            socket.try_receive(batch)?;
            for train in batch.trains() {
                received.extend(train.datagrams().map(<[u8]>::to_vec));
            }
            Ok::<_, io::Error>(())
        });
    }
    are_numbered(received.iter().map(|it| &it[..]), lengths);
}

fn are_numbered<'a>(datagrams: impl Iterator<Item = &'a [u8]>, lengths: &[usize]) {
    let datagrams: Vec<_> = datagrams.collect();
    assert_eq!(datagrams.len(), lengths.len());
    for (number, (datagram, length)) in datagrams.iter().zip(lengths).enumerate() {
        assert_eq!(*datagram, vec![number as u8; *length], "number {number}");
    }
}

fn loopback_v4() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn loopback_v6() -> SocketAddr {
    (Ipv6Addr::LOCALHOST, 0).into()
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("not in time")
}
