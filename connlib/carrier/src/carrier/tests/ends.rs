//! Ends that nobody asked for.

use std::sync::mpsc;

use nix::{
    libc,
    sys::socket::{setsockopt, sockopt},
};

use tokio::net::TcpSocket;

use super::*;

#[tokio::test]
async fn what_arrived_before_a_half_closed_stream_is_delivered() {
    let (server, stream) = serve(|mut stream| {
        stream.write_all(&frame(1, 5)).unwrap();
        stream.write_all(&frame(2, 5)[..6]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // Open until the client has gone.
        stream.read(&mut [0; 10])
    });
    let mut carrier = Carrier::open(server, None, None);
    assert_eq!(closed(&mut carrier).await, Closed::ByServer);
    assert_eq!(carrier.frames().count(), 1);
    carrier.advance();
    assert!(!carrier.has_frame() && !carrier.receive());
    drop(carrier);
    assert_eq!(stream.join().unwrap().unwrap(), 0);
}

#[tokio::test]
async fn frames_that_a_stream_leaves_are_told_by_direction() {
    let (done, is_done) = mpsc::channel::<()>();
    let (server, stream) = serve(move |mut stream| {
        stream.write_all(&frame(1, 5)).unwrap();
        stream.write_all(&frame(2, 5)).unwrap();
        // Until the client has gone; it reads nothing.
        is_done.recv()
    });
    let mut carrier = Carrier::open(server, None, None);
    while carrier.frames().count() < 2 {
        step(&mut carrier).await;
    }
    // Until neither the kernel nor the buffer has room.
    for n in 0.. {
        if carrier.append(&frame(n, 1_400)).is_err() {
            break;
        }
        carrier.flush();
    }
    let waiting = carrier.outbound.waiting().len();
    let left = carrier.end();
    assert_eq!(left.inbound, 2);
    // The socket may have taken a little more, the first frame in part.
    let most = waiting.div_ceil(frame(0, 1_400).len());
    assert!((1..=most).contains(&left.outbound), "{left:?}");
    drop(done);
    stream.join().unwrap().unwrap_err();
}

#[tokio::test]
async fn a_reset_ends_the_stream() {
    let (server, _) = serve(|stream| {
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        setsockopt(&stream, sockopt::Linger, &linger).unwrap();
    });
    let mut carrier = Carrier::open(server, None, None);
    let why = closed(&mut carrier).await;
    let reset = "Connection reset by peer".to_owned();
    // It may arrive before this end has looked for the first time.
    let expected = [Closed::Broken(reset.clone()), Closed::Connecting(reset)];
    assert!(expected.contains(&why), "{why:?}");
}

#[tokio::test]
async fn a_closed_port_is_said() {
    // Nobody else can listen there as long as it lives.
    let reserved = TcpSocket::new_v4().unwrap();
    reserved.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let server = reserved.local_addr().unwrap();
    let why = closed(&mut Carrier::open(server, None, None)).await;
    assert_eq!(why.to_string(), "cannot connect: Connection refused");
}

#[tokio::test]
async fn bytes_that_are_no_turn_end_the_stream() {
    for nonsense in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], &[1, 3, 0, 3, 9]] {
        let (server, stream) = serve(move |mut stream| {
            stream.write_all(&frame(1, 100)).unwrap();
            stream.write_all(nonsense).unwrap();
            stream
        });
        let mut carrier = Carrier::open(server, None, None);
        while !carrier.has_frame() {
            step(&mut carrier).await;
        }
        assert_eq!(carrier.frames().next().unwrap(), frame(1, 100));
        carrier.advance();
        assert_eq!(closed(&mut carrier).await, Closed::NotTurn);
        drop(stream.join().unwrap());
    }
}

#[tokio::test]
async fn a_frame_that_never_ends_takes_no_more_than_the_buffer() {
    let (done, is_done) = mpsc::channel::<()>();
    let (server, _stream) = serve(move |mut stream| {
        stream.write_all(&[0x40, 0, 0xFF, 0xFF]).unwrap();
        stream.write_all(&[0; 60_000]).unwrap();
        is_done.recv()
    });
    let mut carrier = Carrier::open(server, None, None);
    while carrier.inbound.len() < 60_004 {
        step(&mut carrier).await;
    }
    assert!(!carrier.has_frame());
    assert_eq!(carrier.frames().count(), 0);
    assert_eq!(carrier.phase(), Phase::Open);
    drop(done);
}

#[tokio::test]
async fn a_server_without_tls_is_named() {
    let authority = Authority::new();
    let (server, _) = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1_000]);
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        stream.read(&mut [0; 1_000])
    });
    let why = closed(&mut Carrier::open(server, Some(&authority.tls(NAME)), None)).await;
    assert_eq!(
        why.to_string(),
        "no TLS with relay.test: the server answers with something else"
    );
    let (server, _) = serve(|mut stream| stream.read(&mut [0; 1_000]));
    let why = closed(&mut Carrier::open(server, Some(&authority.tls(NAME)), None)).await;
    assert!(
        matches!(why, Closed::Tls(..) | Closed::Broken(_)),
        "{why:?}"
    );
}

#[tokio::test]
async fn an_altered_record_ends_the_stream() {
    let authority = Authority::new();
    let (server, _) = serve_tls(&authority, NAME, |mut stream| {
        stream.read_exact(&mut [0; 4]).unwrap();
        // A record of data that nobody has sealed.
        let mut record = vec![23, 3, 3, 0, 64];
        record.resize(5 + 64, 7);
        stream.sock.write_all(&record).unwrap();
        stream.sock.read(&mut [0; 100])
    });
    let mut carrier = Carrier::open(server, Some(&authority.tls(NAME)), None);
    opened(&mut carrier).await;
    carrier.append(&frame(0, 4)).unwrap();
    let why = closed(&mut carrier).await;
    assert!(matches!(why, Closed::Tls(..)), "{why:?}");
}

#[tokio::test]
async fn a_socket_that_cannot_be_prepared_does_not_connect() {
    let (server, _) = serve(|stream| panic!("connected: {stream:?}"));
    let refuse = Prepare::new(|_| Err(std::io::Error::from_raw_os_error(libc::EPERM)));
    let why = closed(&mut Carrier::open(server, None, Some(refuse))).await;
    assert!(matches!(why, Closed::Socket(_)), "{why:?}");
}

#[tokio::test]
async fn preparing_a_socket_does_not_hold_the_loop_up() {
    let (server, _) = serve(echo);
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let wait = Prepare::new(move |_| {
        may_go_on.lock().unwrap().recv().unwrap();
        Ok(())
    });
    let mut carrier = Carrier::open(server, None, Some(wait));
    assert!(!carrier.receive());
    assert_eq!(carrier.phase(), Phase::Opening);
    go_on.send(()).unwrap();
    opened(&mut carrier).await;
}
