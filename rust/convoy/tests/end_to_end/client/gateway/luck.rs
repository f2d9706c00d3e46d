//! Bad luck: bursts, peers and targets that misbehave, and a host that is out of something.

use std::{io, net::TcpListener};

use convoy_lab::measure::process::{forget_peak_memory, peak_memory};
use socket2::SockRef;

use super::{
    super::user::{said, user},
    *,
};

/// How much memory a flow that is stuck may take in this process, in bytes: its buffers are the kernel's.
const MOST_GROWTH: u64 = 4 << 20;
/// Limit of a host that has few.
const PORTS: usize = 8;

#[test]
fn bursts_of_datagrams_keep_their_order_and_lengths() {
    let Some(place) = Place::without_gateway("") else {
        return;
    };
    for outside in OUTSIDE {
        echo_datagrams(&place.world.net, (outside, ECHO));
    }
    for engine in ENGINES {
        place.up(&["--nat=user", engine]);
        bursts_come_back(&place);
        place.down();
    }
}

fn bursts_come_back(place: &Place) {
    // Equal ones, which are moved together, shorter ones behind them, empty ones, and fragments.
    let lengths = [900, 900, 900, 300, 900, 0, 0, 1, 1, 3_000];
    for outside in OUTSIDE {
        for peer in place.peers() {
            let socket = socket(peer, outside, ECHO);
            // Only a few datagrams wait until there is a flow.
            socket.send(b"first").unwrap();
            socket.recv(&mut [0; 5]).unwrap();
            for _ in 0..5 {
                let burst = || lengths.iter().cycle().take(40).enumerate();
                for (number, length) in burst() {
                    socket.send(&vec![number as u8; *length]).unwrap();
                }
                for (number, length) in burst() {
                    let mut answer = [0; 4_000];
                    let received = socket.recv(&mut answer).unwrap();
                    assert_eq!(answer[..received], vec![number as u8; *length], "{number}");
                }
            }
        }
    }
    let shown = status(&place.world);
    assert_eq!(shown["nat"]["udp"]["dropped_datagrams"], 0, "{shown}");
}

#[test]
fn who_never_reads_or_answers_takes_bounded_memory_and_stops_nobody_else() {
    let Some(place) = Place::new("", NAT) else {
        return;
    };
    echo(&place.world.net, (OUTSIDE[0], ECHO));
    let deaf = (OUTSIDE[0], ECHO + 1);
    let listener = place.world.net.run(|| TcpListener::bind(deaf).unwrap());
    let listener = listener.unwrap();
    let [greedy, other] = place.peers();
    let is_served = || {
        for peer in [greedy, other] {
            echoes(connect(peer, (OUTSIDE[0], ECHO)).unwrap());
        }
    };
    is_served();
    let supervisor = convoy(&place.world, "up").unwrap();
    forget_peak_memory(supervisor).unwrap();
    let before = peak_memory(supervisor).unwrap();
    for is_peer_deaf in [false, true] {
        let near = connect(greedy, deaf).unwrap();
        let (far, _) = listener.accept().unwrap();
        let (mut sender, reader) = match is_peer_deaf {
            false => (near, far),
            true => (far, near),
        };
        let second = Some(Duration::from_secs(1));
        sender.set_write_timeout(second).unwrap();
        let written = io::copy(&mut io::repeat(7), &mut sender);
        assert_eq!(written.unwrap_err().kind(), ErrorKind::WouldBlock);
        is_served();
        reset(sender);
        is_reset(reader);
    }
    let grown = peak_memory(supervisor).unwrap() - before;
    assert!(grown < MOST_GROWTH, "{grown}");
    // Targets accept, and the peer leaves the gateway without an answer.
    place.world.shell_at(
        greedy,
        "nft 'table inet mute { chain input { type filter hook input priority 0;
         iifname \"wg0\" tcp flags & (syn | ack) == syn | ack drop; }; }'",
    );
    let ask = || {
        for _ in 0..PENDING_OF_PEER {
            let at = (OUTSIDE[0].parse::<IpAddr>().unwrap(), ECHO).into();
            TcpStream::connect_timeout(&at, Duration::from_millis(1)).unwrap_err();
        }
    };
    greedy.run(ask).unwrap();
    for _ in 0..10 {
        echoes(connect(other, (OUTSIDE[0], ECHO)).unwrap());
    }
    place.down();
}

#[test]
fn a_host_out_of_ports_or_descriptors_says_so_and_goes_on_later() {
    let Some(place) = Place::new("", NAT) else {
        return;
    };
    echo(&place.world.net, (OUTSIDE[0], ECHO));
    let [peer, other] = place.peers();
    let mut open = connect(peer, (OUTSIDE[0], ECHO)).unwrap();
    place.world.shell(&format!(
        "echo 40000 {} > /proc/sys/net/ipv4/ip_local_port_range",
        39_999 + PORTS
    ));
    let held = (0..PORTS).map(|_| connect(peer, (OUTSIDE[0], ECHO)).unwrap());
    let held: Vec<_> = held.collect();
    let refused = connect(other, (OUTSIDE[0], ECHO)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::HostUnreachable);
    // A reset leaves no port behind, which an end would do for a minute.
    held.into_iter().for_each(reset);
    let connects = || connect(other, (OUTSIDE[0], ECHO)).ok();
    reset(eventually(DEADLINE, connects).unwrap());
    let supervisor = convoy(&place.world, "up").unwrap().to_string();
    let prlimit = |args: &[&str]| {
        let mut command = user(&place.world, "prlimit");
        said(
            &command
                .args(["--pid", &supervisor])
                .args(args)
                .output()
                .unwrap(),
        )
    };
    let most = prlimit(&["--nofile", "--output=HARD", "--noheadings"]);
    prlimit(&["--nofile=3:"]);
    let refused = connect(other, (OUTSIDE[0], ECHO)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    open.write_all(b"beside").unwrap();
    open.read_exact(&mut [0; 6]).unwrap();
    prlimit(&[&format!("--nofile={}:", most.trim())]);
    echoes(eventually(DEADLINE, connects).unwrap());
    let shown = status(&place.world);
    let refused = &shown["nat"]["tcp"]["refused"];
    for reason in ["no_source", "no_descriptors"] {
        assert!(refused[reason].as_u64() >= Some(1), "{reason}: {shown}");
    }
    place.down();
}

/// Ends a connection by a reset.
fn reset(stream: TcpStream) {
    let socket = SockRef::from(&stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
}

fn is_reset(mut stream: TcpStream) {
    let read = io::copy(&mut stream, &mut io::sink());
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
}
