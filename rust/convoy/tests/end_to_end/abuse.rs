//! Many misbehaving clients of the UAPI socket at once do no harm.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
};

use convoy_lab::eventually;

use crate::{
    scene::{Bed, DEADLINE, output_of},
    twins::ask,
};

/// How much the daemon's memory may have grown once the clients are gone, in KiB.
const TOLERANCE: u64 = 8 << 10;

#[test]
fn wg_works_beside_clients_that_do_nothing() {
    let Some(bed) = Bed::new() else { return };
    let mut half = bed.connect();
    half.write_all(b"set=1\nlisten_po").unwrap();
    let mut endless = bed.connect();
    endless.write_all(b"set=1\nfwmark=7\n").unwrap();
    let silent: Vec<_> = (0..40).map(|_| bed.connect()).collect();
    bed.wg_works();
    // The daemon may have disconnected them; if not, they are still served.
    let _ = half.write_all(b"rt=7\n\n");
    let _ = endless.write_all(b"\n");
    drop(silent);
    bed.wg_works();
}

#[test]
fn wg_works_beside_clients_that_do_not_read_their_answers() {
    let Some(bed) = Bed::new() else { return };
    let key = "ab".repeat(32);
    let allowed_ips: String = (0..20_000)
        .map(|n| format!("allowed_ip=10.0.{}.{}/32\n", n / 256, n % 256))
        .collect();
    let request = format!("set=1\npublic_key={key}\n{allowed_ips}\n");
    assert_eq!(ask(&bed.daemon, request.as_bytes()), b"errno=0\n\n");
    let before = bed.resident();
    let greedy: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = bed.connect();
            stream
                .write_all("get=1\n\n".repeat(100).as_bytes())
                .unwrap();
            stream
        })
        .collect();
    bed.wg_works();
    drop(greedy);
    bed.forgets(before);
    bed.wg_works();
}

#[test]
fn an_oversized_request_leaves_no_trace() {
    let Some(bed) = Bed::new() else { return };
    bed.wg_works();
    let before = bed.resident();
    let peer = |n: usize| format!("public_key={n:064x}\nallowed_ip=10.0.0.0/32\n");
    let peers: String = (0..700_000).map(peer).collect();
    assert!(peers.len() > 64 << 20);
    let one_peer = format!("public_key={}\n", "ab".repeat(32));
    let allowed_ips = "allowed_ip=10.0.0.0/32\n".repeat(70_000_000 / 23);
    let line = "x".repeat(1 << 20);
    for endless in [
        format!("set=1\n{line}\n\n"),
        line,
        format!("set=1\n{peers}\n"),
        format!("set=1\n{one_peer}{allowed_ips}\n"),
    ] {
        let answer = String::from_utf8(ask(&bed.daemon, endless.as_bytes())).unwrap();
        // Input still unread when the daemon gave up may cost the client the answer.
        assert!(answer == "errno=-5\n\n" || answer.is_empty(), "{answer}");
        bed.wg_works();
    }
    bed.forgets(before);
    assert_eq!(
        output_of(&bed.namespace, "wg", &["show", "wg0", "peers"]),
        ""
    );
}

#[test]
fn a_client_that_disconnects_midway_changes_nothing() {
    let Some(bed) = Bed::new() else { return };
    let before = ask(&bed.daemon, b"get=1\n\n");
    let request = b"set=1\nfwmark=7\nreplace_peers=true\nlisten_port=7\n\n";
    for length in 0..request.len() - 1 {
        let mut stream = bed.connect();
        stream.write_all(&request[..length]).unwrap();
        match length % 2 {
            0 => drop(stream),
            _ => stream.shutdown(Shutdown::Both).unwrap(),
        }
    }
    for _ in 0..100 {
        let mut stream = bed.connect();
        stream.write_all(b"get=1\n\n").unwrap();
        drop(stream);
    }
    bed.wg_works();
    assert_eq!(ask(&bed.daemon, b"get=1\n\n"), before);
}

#[test]
fn bytes_that_are_not_text_are_refused() {
    let Some(bed) = Bed::new() else { return };
    let all: Vec<u8> = (0..=255).collect();
    let requests: [&[u8]; 6] = [
        &[0; 5000],
        &all,
        b"\r\n",
        b"\xff\xff=\xff\n\n",
        b"\0\n",
        b"get=1\0\n\n",
    ];
    for bytes in requests {
        ask(&bed.daemon, bytes);
        ask(&bed.daemon, &[b"set=1\n", bytes, b"\n\n"].concat());
        ask(&bed.daemon, &[b"set=1\nfwmark=", bytes, b"\n\n"].concat());
    }
    bed.wg_works();
    assert_eq!(
        output_of(&bed.namespace, "wg", &["show", "wg0", "fwmark"]),
        "off\n"
    );
}

impl Bed {
    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.daemon.socket()).unwrap()
    }

    /// Requires that `wg` works without waiting for another client to time out, which takes a minute.
    fn wg_works(&self) {
        let mut stream = self.connect();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(b"get=1\n\n").unwrap();
        assert!(stream.read(&mut [0]).unwrap() > 0);
        let shown = output_of(&self.namespace, "timeout", &["20", "wg", "show", "wg0"]);
        assert!(shown.contains("interface: wg0"), "{shown}");
    }

    fn forgets(&self, before: u64) {
        let is_back = || (self.resident() <= before + TOLERANCE).then_some(());
        let now = || format!("{before} KiB before, {} KiB now", self.resident());
        assert!(eventually(DEADLINE, is_back).is_some(), "{}", now());
    }
}
