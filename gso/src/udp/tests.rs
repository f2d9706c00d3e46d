//! The sockets over loopback, with the kernel's own segmentation and receive offload.

use std::time::Duration;

use super::*;
use crate::{flush::Flusher, queue::GsoQueue};

#[test]
fn a_batch_is_cut_by_the_kernel_and_comes_back_together_with_its_mark() {
    on_runtime(async {
        for loopback in [
            SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            (Ipv6Addr::LOCALHOST, 0).into(),
        ] {
            let mut sender = sockets(true);
            let mut receiver = sockets(true);
            assert!(sender.segmentation() && receiver.receive_offload());
            let to = SocketAddr::new(loopback.ip(), receiver.port());
            let mut queue = GsoQueue::default();
            let destination = Destination {
                to,
                source: Some(loopback.ip()),
                ecn: 1,
            };
            for n in 0..30u8 {
                queue.append(&destination, &[n; 1000]).unwrap();
            }
            Flusher::new(true).flush(&mut queue, &mut sender, Duration::ZERO);

            let received = receive(&mut receiver, Family::of(to.ip()), 30).await;
            for (n, (bytes, from, local, ecn)) in received.into_iter().enumerate() {
                assert_eq!(bytes, [n as u8; 1000]);
                assert_eq!(from, SocketAddr::new(loopback.ip(), sender.port()));
                assert_eq!((local, ecn), (Some(loopback.ip()), 1));
            }
        }
    });
}

#[test]
fn both_families_share_one_port_and_a_taken_port_is_an_error() {
    on_runtime(async {
        let first = sockets(true);
        let options = SocketOptions {
            port: first.port(),
            ..SocketOptions::default()
        };
        let error = BoundSockets::open(options).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    });
}

#[test]
fn without_receive_offload_each_datagram_has_its_buffer() {
    on_runtime(async {
        let mut sender = sockets(true);
        let mut receiver = sockets(false);
        let to = (Ipv4Addr::LOCALHOST, receiver.port()).into();
        let mut queue = GsoQueue::default();
        let destination = Destination {
            to,
            source: None,
            ecn: 0,
        };
        for n in 0..5u8 {
            queue.append(&destination, &[n; 100]).unwrap();
        }
        Flusher::new(true).flush(&mut queue, &mut sender, Duration::ZERO);
        assert_eq!(receive(&mut receiver, Family::V4, 5).await.len(), 5);
        assert!(!receiver.receive_offload());
        assert_eq!(receiver.kernel_drops(), 0);
    });
}

#[test]
fn a_recovered_socket_still_marks_and_segments() {
    on_runtime(async {
        let mut sender = sockets(true);
        sender.recover();
        assert!(sender.segmentation());
    });
}

#[test]
fn losses_of_a_tiny_receive_buffer_are_counted() {
    const SENT: usize = 500;
    on_runtime(async {
        let mut sender = sockets(true);
        let mut receiver = sockets(false);
        let requested = 2 * SOCKET_BUFFER_BYTES;
        let (receive_bytes, send_bytes) = receiver.buffer_bytes().unwrap();
        assert!(receive_bytes <= requested && send_bytes <= requested);
        let v4 = receiver.v4.as_ref().unwrap();
        SockRef::from(v4).set_recv_buffer_size(20_000).unwrap();
        assert_eq!(receiver.buffer_bytes().unwrap().0, 40_000);

        let destination = Destination {
            to: (Ipv4Addr::LOCALHOST, receiver.port()).into(),
            source: None,
            ecn: 0,
        };
        // Send one by one: the kernel would receive, or drop, a batch as a whole.
        let mut flusher = Flusher::new(false);
        let mut queue = GsoQueue::default();
        for _ in 0..SENT {
            queue.append(&destination, &[7; 1000]).unwrap();
        }
        let flushed = flusher.flush(&mut queue, &mut sender, Duration::ZERO);
        assert_eq!(flushed, crate::Flushed::Done);
        let dropped = receiver.kernel_drops() as usize;
        assert!(0 < dropped && dropped < SENT, "{dropped}");
        let received = receive(&mut receiver, Family::V4, SENT - dropped).await;
        assert_eq!(received.len(), SENT - dropped);
    });
}

type Received = (Vec<u8>, SocketAddr, Option<std::net::IpAddr>, u8);

async fn receive(sockets: &mut UdpSockets, family: Family, count: usize) -> Vec<Received> {
    let mut buffers = ReceiveBuffers::default();
    let mut received = Vec::new();
    while received.len() < count {
        if sockets.receive(family, &mut buffers).is_err() {
            sockets.readable(family).await;
        }
        while let Some(d) = buffers.datagram() {
            let local = d.arrival.map(|arrival| arrival.address);
            received.push((d.bytes.to_vec(), d.from, local, d.ecn));
            buffers.advance();
        }
    }
    received
}

fn sockets(receive_offload: bool) -> UdpSockets {
    let options = SocketOptions {
        receive_offload,
        ..SocketOptions::default()
    };
    UdpSockets::register(BoundSockets::open(options).unwrap()).unwrap()
}

fn on_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            tokio::time::timeout(Duration::from_secs(10), test)
                .await
                .expect("datagrams arrive over loopback");
        });
}
