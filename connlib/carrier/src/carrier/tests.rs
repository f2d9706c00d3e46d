//! A stream to servers on loopback, good and bad.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::time::timeout;

use super::*;
use crate::{MAX_OUTBOUND, roots::Roots};

mod certificates;
mod ends;
mod steps;

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);
const NAME: &str = "relay.test";

#[tokio::test]
async fn frames_pass_both_ways_over_tcp() {
    let (server, _) = serve(echo);
    exchange(&mut Carrier::open(server, None, None)).await;
}

#[tokio::test]
async fn frames_pass_both_ways_over_tls() {
    let authority = Authority::new();
    let (server, _) = serve_tls(&authority, NAME, echo);
    exchange(&mut Carrier::open(server, Some(&authority.tls(NAME)), None)).await;
}

#[tokio::test]
async fn many_frames_leave_in_one_record() {
    let authority = Authority::new();
    let (server, received) = serve_tls(&authority, NAME, |mut stream| {
        let mut record = vec![0; 32 << 10];
        // rustls gives the content of one record at a time.
        let len = stream.read(&mut record).unwrap();
        record.truncate(len);
        record
    });
    let mut carrier = Carrier::open(server, Some(&authority.tls(NAME)), None);
    opened(&mut carrier).await;
    let frames: Vec<_> = (0..10).map(|n| frame(n, 1_452)).collect();
    for frame in &frames {
        carrier.append(frame).unwrap();
    }
    while !received.is_finished() {
        step(&mut carrier).await;
    }
    assert_eq!(received.join().unwrap(), frames.concat());
}

#[tokio::test]
async fn a_reader_that_stops_costs_frames_but_no_memory_and_no_order() {
    let authority = Authority::new();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let (server, received) = serve_tls(&authority, NAME, move |mut stream| {
        // The handshake.
        let mut all = vec![0; 4];
        stream.read_exact(&mut all).unwrap();
        may_go_on.recv().unwrap();
        // The client closes the connection by `end`.
        stream.read_to_end(&mut all).unwrap();
        all
    });
    let mut carrier = Carrier::open(server, Some(&authority.tls(NAME)), None);
    opened(&mut carrier).await;
    let mut expected = Vec::new();
    // Until neither the kernel nor the buffer has room.
    for n in 0.. {
        let frame = frame(n, 1_400);
        match carrier.append(&frame) {
            Ok(()) => expected.extend_from_slice(&frame),
            Err(Full) => break,
        }
        carrier.flush();
        assert!(expected.len() < 64 << 20, "it never becomes full");
    }
    assert_eq!(carrier.append(&frame(0, 1_400)), Err(Full));
    assert!(carrier.outbound.waiting().len() <= MAX_OUTBOUND);
    go_on.send(()).unwrap();
    while !carrier.outbound.waiting().is_empty() {
        step(&mut carrier).await;
    }
    finish(carrier).await;
    assert!(received.join().unwrap() == expected, "altered or lost");
}

#[tokio::test]
async fn what_is_not_taken_stays_with_the_server() {
    let count = 8 * MAX_INBOUND_FRAMES;
    let (server, sent) = serve(move |mut stream| {
        for n in 0..count {
            stream.write_all(&frame(n, 1_020)).unwrap();
        }
        stream
    });
    let mut carrier = Carrier::open(server, None, None);
    while carrier.inbound.len() < crate::MAX_INBOUND {
        assert!(matches!(carrier.phase(), Phase::Opening | Phase::Open));
        step(&mut carrier).await;
    }
    assert!(!carrier.receive());
    let mut found = 0;
    while found < count {
        let frames: Vec<_> = carrier.frames().map(|it| it.to_vec()).collect();
        for it in frames {
            assert_eq!(it, frame(found, 1_020));
            found += 1;
            carrier.advance();
        }
        if found < count {
            step(&mut carrier).await;
        }
    }
    drop(sent.join().unwrap());
}

/// Frames of 1,020 bytes that fill the inbound buffer.
const MAX_INBOUND_FRAMES: usize = crate::MAX_INBOUND / 1_024;

async fn exchange(carrier: &mut Carrier) {
    assert_eq!(carrier.phase(), Phase::Opening);
    assert_eq!(carrier.append(&frame(0, 10)), Err(Full));
    opened(carrier).await;
    let frames: Vec<_> = (0..2_000).map(|n| frame(n, 7 * n % 1_500)).collect();
    let (mut sent, mut found) = (0, 0);
    while found < frames.len() {
        while sent < frames.len() && carrier.append(&frames[sent]).is_ok() {
            sent += 1;
        }
        let arrived: Vec<_> = carrier.frames().map(|it| it.to_vec()).collect();
        for it in arrived {
            assert_eq!(it, frames[found]);
            found += 1;
            carrier.advance();
        }
        step(carrier).await;
    }
    assert_eq!(carrier.phase(), Phase::Open);
}

fn echo(mut stream: impl Read + Write) {
    let mut buffer = [0; 20_000];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
}

/// One tick and, if it found nothing to do, one wait.
async fn step(carrier: &mut Carrier) {
    thread_local! {
        /// A test has a thread of its own.
        static BEGIN: Instant = Instant::now();
    }
    BEGIN.with(|begin| assert!(begin.elapsed() < LONG, "it waits forever"));
    let worked = carrier.receive();
    carrier.flush();
    if !worked && !matches!(carrier.phase(), Phase::Closed(_)) && !carrier.has_frame() {
        let waited = timeout(Duration::from_millis(20), carrier.ready(true)).await;
        // Conditions of other threads are looked at again.
        drop(waited);
    }
}

async fn opened(carrier: &mut Carrier) {
    while carrier.phase() == Phase::Opening {
        step(carrier).await;
    }
    assert_eq!(carrier.phase(), Phase::Open);
}

async fn closed(carrier: &mut Carrier) -> Closed {
    loop {
        if let Phase::Closed(why) = carrier.phase() {
            return why.clone();
        }
        step(carrier).await;
    }
}

/// Ends the stream once the socket has taken everything.
async fn finish(mut carrier: Carrier) {
    let wants_write = |carrier: &Carrier| match &carrier.state {
        State::Connected(wire) => wire.has_waiting(&carrier.outbound),
        _ => false,
    };
    while wants_write(&carrier) {
        step(&mut carrier).await;
    }
    carrier.end();
}

/// ChannelData with its padding.
fn frame(n: usize, len: usize) -> Vec<u8> {
    let mut frame = vec![0x40, n as u8, (len >> 8) as u8, len as u8];
    frame.resize(4 + len, n as u8);
    frame.resize(frame.len().next_multiple_of(4), 0);
    frame
}

/// Serves one connection on a thread of its own.
fn serve<R: Send + 'static>(
    server: impl FnOnce(TcpStream) -> R + Send + 'static,
) -> (SocketAddr, thread::JoinHandle<R>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let serving = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        server(stream)
    });
    (address, serving)
}

type TlsStream = StreamOwned<ServerConnection, TcpStream>;

/// The same over TLS, by a certificate for `name`.
fn serve_tls<R: Send + 'static>(
    authority: &Authority,
    name: &str,
    server: impl FnOnce(TlsStream) -> R + Send + 'static,
) -> (SocketAddr, thread::JoinHandle<R>) {
    let config = authority.server(CertificateParams::new([name.to_owned()]).unwrap());
    serve(move |stream| {
        server(StreamOwned::new(
            ServerConnection::new(config).unwrap(),
            stream,
        ))
    })
}

/// An authority for tests.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("authority")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// The client's side.
    pub(crate) fn tls(&self, name: &str) -> Tls {
        let roots = Roots::from_pem(self.0.pem().as_bytes()).unwrap();
        Tls::new(name, &roots).unwrap()
    }

    /// The server's side, with a certificate.
    pub(crate) fn server(&self, certificate: CertificateParams) -> Arc<ServerConfig> {
        self.server_with_chain(certificate, Vec::new())
    }

    /// The same with further certificates.
    fn server_with_chain(
        &self,
        certificate: CertificateParams,
        others: Vec<CertificateDer<'static>>,
    ) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let certificate = certificate.signed_by(&key, &self.0).unwrap();
        let chain = [vec![certificate.der().clone()], others].concat();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Arc::new(config)
    }
}
