//! Hostile TLS records, sealed by a server in memory.

use std::{collections::VecDeque, sync::Arc};

use rcgen::CertificateParams;
use rustls::{
    ConnectionTrafficSecrets, ContentType, ProtocolVersion, ServerConfig, ServerConnection,
    SupportedCipherSuite,
    crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage},
};

use super::*;
use crate::{MAX_INBOUND, carrier::tests::Authority};

const NAME: &str = "relay.test";
/// Most records that TLS opens at once: the shortest of one byte.
const RECORDS_AT_ONCE: usize = 4_096 / 22;

#[test]
fn a_flood_of_records_of_one_byte_ends_with_the_share_of_a_call() {
    let (mut session, mut server) = connected();
    // The longest frame, byte by byte: sixty reads do not make it whole.
    let mut bytes = [0x40, 0, 0xFF, 0xFF]
        .into_iter()
        .chain(std::iter::repeat(0));
    server.flood = Some(Box::new(move || {
        (ContentType::ApplicationData, vec![bytes.next().unwrap()])
    }));
    let mut inbound = Inbound::default();
    for call in 1..=30 {
        session.receive(&mut server, &mut inbound).unwrap();
        let most = call * (MOST_RECORDS + RECORDS_AT_ONCE);
        assert!((1..=most).contains(&inbound.len()), "{}", inbound.len());
        assert!(server.reads <= call * MOST_READS);
    }
    assert!(!inbound.has_frame());
    inbound.check().unwrap();
}

#[test]
fn frames_in_records_of_one_byte_arrive() {
    let (mut session, mut server) = connected();
    let frames = [&[0x40, 1, 0, 4, 1, 2, 3, 4][..], &[0x40, 2, 0, 0]];
    for byte in frames.concat() {
        server.seal(ContentType::ApplicationData, &[byte]);
    }
    let mut inbound = Inbound::default();
    session.receive(&mut server, &mut inbound).unwrap();
    assert_eq!(inbound.frames().collect::<Vec<_>>(), frames);
}

#[test]
fn a_flood_of_frames_ends_when_the_room_for_them_does() {
    let (mut session, mut server) = connected();
    server.flood = Some(Box::new(|| {
        (ContentType::ApplicationData, [0x40, 1, 0, 0].repeat(4_000))
    }));
    let mut inbound = Inbound::default();
    while !inbound.is_full() {
        session.receive(&mut server, &mut inbound).unwrap();
    }
    let before = server.reads;
    session.receive(&mut server, &mut inbound).unwrap();
    assert_eq!((server.reads, inbound.len()), (before, MAX_INBOUND));
}

#[test]
fn empty_records_without_end_end_the_stream() {
    let (mut session, mut server) = connected();
    server.flood = Some(Box::new(|| (ContentType::ApplicationData, Vec::new())));
    let why = session.receive(&mut server, &mut Inbound::default());
    let why = why.unwrap_err().to_string();
    assert!(why.contains("TooManyEmptyFragments"), "{why}");
}

#[test]
fn changes_of_keys_without_end_end_the_stream() {
    let (mut session, mut server) = shaken();
    let mut bytes = Vec::new();
    for _ in 0..100 {
        server.refresh_traffic_keys().unwrap();
        server.write_tls(&mut bytes).unwrap();
    }
    let mut stream = Scripted {
        bytes: bytes.into(),
        written: 0,
    };
    let why = session.receive(&mut stream, &mut Inbound::default());
    let why = why.unwrap_err().to_string();
    assert!(why.contains("TooManyKeyUpdateRequests"), "{why}");
    assert!(stream.written < 4 << 10, "{} bytes", stream.written);
}

#[test]
fn changes_of_keys_between_bytes_are_shared_out_over_several_calls() {
    let (mut session, mut server) = shaken();
    let mut bytes = Vec::new();
    // The longest frame, byte by byte.
    let content = [0x40, 0, 0xFF, 0xFF].into_iter().chain([0; 2_996]);
    for byte in content {
        server.refresh_traffic_keys().unwrap();
        server.writer().write_all(&[byte]).unwrap();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
    }
    let mut stream = Scripted {
        bytes: bytes.into(),
        written: 0,
    };
    let mut inbound = Inbound::default();
    let mut calls = 0;
    while inbound.len() < 3_000 {
        let before = inbound.len();
        session.receive(&mut stream, &mut inbound).unwrap();
        let most = MOST_RECORDS + RECORDS_AT_ONCE;
        let taken = inbound.len() - before;
        assert!((1..=most / 2).contains(&taken), "{taken}");
        // The rest waits for no news of the socket.
        assert!(session.has_unread() || calls > 0);
        calls += 1;
    }
    assert!(calls >= 3_000 / (MOST_RECORDS + RECORDS_AT_ONCE) * 2);
}

#[test]
fn a_flight_without_end_in_place_of_a_handshake_ends_the_stream() {
    // A certificate of 16 MB (RFC 8446 §4.4.2), in records that may come before there are keys.
    let mut record = vec![22, 3, 3, 0x40, 0];
    record.resize(5 + 0x4000, 0);
    let mut bytes = record.repeat(64);
    bytes[5..9].copy_from_slice(&[11, 0xFF, 0xFF, 0xFF]);
    let mut session = Session::begin(Authority::new().tls(NAME)).unwrap();
    let mut stream = Scripted {
        bytes: bytes.into(),
        written: 0,
    };
    let why = session.receive(&mut stream, &mut Inbound::default());
    assert!(matches!(why, Err(Closed::Tls(..))), "{why:?}");
}

/// A server that sends what it has, and counts what it gets.
struct Scripted {
    bytes: VecDeque<u8>,
    written: usize,
}

impl Read for Scripted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.bytes.read(buffer)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Write for Scripted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Kind and content of the next record.
type Flood = Box<dyn FnMut() -> (ContentType, Vec<u8>)>;

/// A server whose handshake is over.
struct Server {
    sealer: Box<dyn MessageEncrypter>,
    sealed: u64,
    stream: Scripted,
    /// Records that follow without end.
    flood: Option<Flood>,
    /// Number of the client's reads.
    reads: usize,
}

impl Server {
    fn seal(&mut self, kind: ContentType, content: &[u8]) {
        let message = OutboundPlainMessage {
            typ: kind,
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(content),
        };
        let record = self.sealer.encrypt(message, self.sealed).unwrap();
        self.stream.bytes.extend(record.encode());
        self.sealed += 1;
    }
}

impl Read for Server {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        assert!(self.reads < 1_000, "reads without end");
        while self.stream.bytes.len() < buffer.len()
            && let Some(mut flood) = self.flood.take()
        {
            let (kind, content) = flood();
            self.seal(kind, &content);
            self.flood = Some(flood);
        }
        self.stream.read(buffer)
    }
}

impl Write for Server {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Shakes hands, and takes the server's keys.
fn connected() -> (Session, Server) {
    let (client, server) = shaken();
    let Some(SupportedCipherSuite::Tls13(suite)) = server.negotiated_cipher_suite() else {
        panic!("no TLS 1.3");
    };
    let (sealed, secrets) = server.dangerous_extract_secrets().unwrap().tx;
    let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
    | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
    | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets
    else {
        panic!("another cipher");
    };
    let server = Server {
        sealer: suite.aead_alg.encrypter(key, iv),
        sealed,
        stream: Scripted {
            bytes: VecDeque::new(),
            written: 0,
        },
        flood: None,
        reads: 0,
    };
    (client, server)
}

/// Shakes hands.
fn shaken() -> (Session, ServerConnection) {
    let authority = Authority::new();
    let certificate = CertificateParams::new([NAME.to_owned()]).unwrap();
    let mut config = ServerConfig::clone(&authority.server(certificate));
    config.enable_secret_extraction = true;
    config.send_tls13_tickets = 0;
    let mut server = ServerConnection::new(Arc::new(config)).unwrap();
    let mut client = Session::begin(authority.tls(NAME)).unwrap();
    let mut bytes = Vec::new();
    while client.connection.is_handshaking() || server.is_handshaking() {
        client.send(&mut bytes).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        client.read[..bytes.len()].copy_from_slice(&bytes);
        (client.start, client.end) = (0, bytes.len());
        while client.start < client.end {
            client.open_records().unwrap();
        }
        bytes.clear();
    }
    (client, server)
}
