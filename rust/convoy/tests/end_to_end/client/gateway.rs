//! `convoy up --userspace --nat user` as a user without any right, in the client's place.

mod attacks;
mod luck;
mod mapping;
pub(super) mod place;
mod way;

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use convoy_lab::{eventually, measure::process::is_alive};

use super::{
    capture::Capture,
    names::NameServer,
    process::crash,
    user::{convoy, daemon, error, no_process_is_left, nothing_is_left},
    userspace::ports::{ECHO, connect, echo, echo_datagrams, echoes, status, up_with},
};
use crate::scene::DEADLINE;
use place::{
    OUTSIDE, Place, SILENT, UNREACHABLE, answers, ask, begins_to_connect, holder_of_user, pings,
    socket,
};

const NAT: &[&str] = &["--nat=user", "--engine=namespace"];
const ENGINES: [&str; 2] = ["--engine=namespace", "--engine=smoltcp"];
/// Connections of one peer at once whose targets have not answered.
const PENDING_OF_PEER: u64 = 256;
/// A port at which nobody listens.
const CLOSED: u16 = 9;

#[test]
fn peers_of_two_kinds_reach_tcp_udp_and_ping_outside_over_both_families() {
    let Some(place) = Place::without_gateway("") else {
        return;
    };
    for outside in OUTSIDE {
        echo(&place.world.net, (outside, ECHO));
        echo_datagrams(&place.world.net, (outside, ECHO));
    }
    for engine in ENGINES {
        place.up(&["--nat=user", engine]);
        tcp_udp_and_ping_pass(&place);
        place.down();
    }
}

fn tcp_udp_and_ping_pass(place: &Place) {
    let capture = Capture::new(&place.world);
    for outside in OUTSIDE {
        for peer in place.peers() {
            for _ in 0..3 {
                echoes(connect(peer, (outside, ECHO)).unwrap());
            }
            answers(peer, outside, 1_000);
            // In fragments.
            answers(peer, outside, 4_000);
            assert!(pings(peer, &[outside]), "{outside}");
            assert!(pings(peer, &["-s3000", outside]), "{outside}");
        }
    }
    let shown = status(&place.world);
    let nat = &shown["nat"];
    assert_eq!(nat["tcp"]["opened"], 12, "{shown}");
    assert_eq!(nat["udp"]["opened"], 8, "{shown}");
    assert_eq!(nat["icmp"]["opened"], 8, "{shown}");
    let leaks = capture.seen();
    assert!(leaks.iter().any(|packet| packet.is_datagram()), "{leaks:?}");
    let leaks: Vec<_> = leaks.iter().filter(|packet| packet.is_inner()).collect();
    assert!(leaks.is_empty(), "{leaks:?}");
}

#[test]
fn a_peer_hears_what_its_target_answers_and_waits_for_nobody_else() {
    let Some(place) = Place::without_gateway("") else {
        return;
    };
    echo(&place.world.net, (OUTSIDE[0], ECHO));
    for engine in ENGINES {
        place.up(&["--nat=user", engine]);
        answers_of_targets_are_heard(&place);
        // Ten seconds of waiting, which is the same with either engine.
        if engine == ENGINES[0] {
            nobody_waits_for_a_silent_target(&place);
        }
        place.down();
    }
}

fn answers_of_targets_are_heard(place: &Place) {
    let peer = place.peers()[0];
    for outside in OUTSIDE {
        let refused = connect(peer, (outside, CLOSED)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{outside}");
        let refused = ask(peer, outside, CLOSED).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{outside}");
    }
    let no_way = connect(peer, (UNREACHABLE, ECHO)).unwrap_err();
    assert_eq!(no_way.kind(), ErrorKind::HostUnreachable, "{no_way}");
    let shown = status(&place.world);
    let refused = &shown["nat"]["tcp"]["refused"];
    // A peer in a hurry asks twice.
    for (reason, least) in [("target_refused", 2), ("unreachable", 1)] {
        assert!(refused[reason].as_u64() >= Some(least), "{reason}: {shown}");
    }
}

fn nobody_waits_for_a_silent_target(place: &Place) {
    let peer = place.peers()[0];
    let silent: SocketAddr = (SILENT.parse::<IpAddr>().unwrap(), ECHO).into();
    let mut busy = connect(peer, (OUTSIDE[0], ECHO)).unwrap();
    thread::scope(|scope| {
        let blocked = scope.spawn(|| connect(peer, silent));
        for _ in 0..50 {
            busy.write_all(b"beside").unwrap();
            busy.read_exact(&mut [0; 6]).unwrap();
            echoes(connect(peer, (OUTSIDE[0], ECHO)).unwrap());
        }
        assert!(!blocked.is_finished());
        // The gateway has given up before this peer would.
        let no_answer = blocked.join().unwrap().unwrap_err();
        assert_eq!(no_answer.kind(), ErrorKind::HostUnreachable);
    });
    let shown = status(&place.world);
    let timed_out = &shown["nat"]["tcp"]["refused"]["timed_out"];
    assert!(timed_out.as_u64() >= Some(1), "{shown}");
}

#[test]
fn nobody_reaches_the_gateways_host_its_links_or_its_cloud() {
    let Some(place) = Place::without_gateway("") else {
        return;
    };
    for own in ["127.0.0.2", "192.168.1.3", "2001:db8:2::3"] {
        echo(&place.world.client, (own, ECHO));
        echo_datagrams(&place.world.client, (own, ECHO));
    }
    echo(&place.world.net, (OUTSIDE[1], ECHO));
    for engine in ENGINES {
        place.up(&["--nat=user", "--nat-deny=198.18.0.0/24", engine]);
        forbidden_targets_are_not_reached(&place);
        place.down();
    }
}

fn forbidden_targets_are_not_reached(place: &Place) {
    let forbidden = [
        "192.168.1.3",
        "169.254.169.254",
        "169.254.7.7",
        "fd00:ec2::254",
        "2001:db8:2::3",
        // On the list, and another peer.
        OUTSIDE[0],
        "10.8.0.3",
    ];
    let peer = place.peers()[0];
    // Nobody says no: it is unanswered until all that was sent after it has been answered.
    let loopback = begins_to_connect(peer, "127.0.0.2");
    for target in forbidden {
        let refused = connect(peer, (target, ECHO)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{target}");
        let refused = ask(peer, target, ECHO).unwrap_err();
        assert!(
            refused.kind() != ErrorKind::WouldBlock,
            "{target}: {refused}"
        );
    }
    thread::scope(|scope| {
        for target in forbidden {
            scope.spawn(move || assert!(!pings(peer, &[target]), "{target}"));
        }
    });
    let shown = status(&place.world);
    let refused = &shown["nat"]["tcp"]["refused"];
    for (reason, least) in [("forbidden", 5), ("target_denied", 2)] {
        assert!(refused[reason].as_u64() >= Some(least), "{reason}: {shown}");
    }
    // An address that is new is as forbidden as the others.
    echoes(connect(peer, (OUTSIDE[1], ECHO)).unwrap());
    let own = |what: &str| format!("ip addr {what} {} dev lo", OUTSIDE[1]);
    place.world.shell(&format!("{} nodad", own("add")));
    let is_refused = || connect(peer, (OUTSIDE[1], ECHO)).is_err().then_some(());
    assert!(eventually(DEADLINE, is_refused).is_some());
    place.world.shell(&own("del"));
    assert!(loopback.peer_addr().is_err(), "127.0.0.2 has answered");
}

/// The hosts outside answer in the place of a translator, whose prefix the resolver names later.
#[test]
fn a_translator_of_the_gateways_network_leads_to_no_forbidden_address() {
    let Some(place) = Place::without_gateway("") else {
        return;
    };
    let net = &place.world.net;
    let behind = ["127.0.0.2", OUTSIDE[0]].map(|it| format!("2001:db8:18:64::{it}"));
    net.link().bring_up("lo", 65_536, &behind).unwrap();
    for address in &behind {
        echo(net, (address.as_str(), ECHO));
        echo_datagrams(net, (address.as_str(), ECHO));
    }
    let [forbidden, public] = behind.each_ref().map(String::as_str);
    let names = NameServer::start(net, "192.168.1.1", "");
    for engine in ENGINES {
        place.up(&["--nat=user", engine]);
        names.change("");
        echoes(connect(place.peers()[0], (forbidden, ECHO)).unwrap());
        names.change("2001:db8:18:64::192.0.0.170 ipv4only.arpa\n");
        place.world.shell("ip addr add 192.168.1.9/24 dev eth0");
        only_public_addresses_are_behind_it(&place, [forbidden, public]);
        place.world.shell("ip addr del 192.168.1.9/24 dev eth0");
        place.down();
    }
}

fn only_public_addresses_are_behind_it(place: &Place, [forbidden, public]: [&str; 2]) {
    let [peer, other] = place.peers();
    let is_refused = || connect(peer, (forbidden, ECHO)).is_err().then_some(());
    assert!(eventually(DEADLINE, is_refused).is_some());
    let refused = connect(other, (forbidden, ECHO)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let refused = ask(peer, forbidden, ECHO).unwrap_err();
    assert!(refused.kind() != ErrorKind::WouldBlock, "{refused}");
    assert!(!pings(peer, &[forbidden]));
    echoes(connect(peer, (public, ECHO)).unwrap());
    answers(peer, public, 1_000);
    assert!(pings(peer, &[public]));
    let shown = status(&place.world);
    for protocol in ["tcp", "udp", "icmp"] {
        let forbidden = &shown["nat"][protocol]["refused"]["forbidden"];
        assert!(forbidden.as_u64() >= Some(1), "{protocol}: {shown}");
    }
}

#[test]
fn peers_look_names_up_by_the_resolver_of_the_gateways_host() {
    let Some(place) = Place::without_gateway("") else {
        return;
    };
    let names = format!("{} outside.example\n", OUTSIDE[0]);
    let _names = NameServer::start(&place.world.net, "192.168.1.1", &names);
    for engine in ENGINES {
        place.up(&["--nat=user", "--nat-dns", engine]);
        names_are_looked_up(&place);
        place.down();
    }
}

fn names_are_looked_up(place: &Place) {
    let query = b"\x07\x07\x01\0\0\x01\0\0\0\0\0\0\x07outside\x07example\0\0\x01\0\x01";
    let address = OUTSIDE[0].parse::<Ipv4Addr>().unwrap().octets();
    let is_answer = |answer: &[u8]| answer.starts_with(&query[..2]) && answer.ends_with(&address);
    for peer in place.peers() {
        for gateway in ["10.8.0.2", "fd08::2"] {
            let socket = socket(peer, gateway, 53);
            socket.send(query).unwrap();
            let mut answer = [0; 512];
            let length = socket.recv(&mut answer).unwrap();
            assert!(is_answer(&answer[..length]), "{answer:?}");
            let mut stream = connect(peer, (gateway, 53)).unwrap();
            let length = u16::try_from(query.len()).unwrap().to_be_bytes();
            stream.write_all(&[&length[..], query].concat()).unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut answer = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut answer).unwrap();
            assert!(is_answer(&answer), "{answer:?}");
        }
    }
    let shown = status(&place.world);
    assert_eq!(shown["nat"]["dns"]["opened"], 8, "{shown}");
}

#[test]
fn keys_of_the_file_do_the_same_and_what_cannot_be_is_said() {
    let Some(place) =
        Place::without_gateway("#convoy: Nat = user\n#convoy: NatDeny = 198.18.0.0/24")
    else {
        return;
    };
    let world = &place.world;
    echo(&world.net, (OUTSIDE[0], ECHO));
    echo(&world.net, (OUTSIDE[1], ECHO));
    let follows_the_file = |engine: &str| {
        let peer = place.peers()[1];
        echoes(connect(peer, (OUTSIDE[1], ECHO)).unwrap());
        connect(peer, (OUTSIDE[0], ECHO)).unwrap_err();
        assert_eq!(status(world)["engine"], engine);
        place.down();
    };
    world.shell("mount --bind /dev/null /usr/sbin/nft");
    for (args, words) in [
        (&["--engine=namespace"][..], "nft is not installed"),
        (&["--nat=root"], "possible values"),
    ] {
        let outcome = up_with(world, args);
        assert!(!outcome.status.success(), "{args:?}: {outcome:?}");
        assert!(error(&outcome).contains(words), "{args:?}: {outcome:?}");
        nothing_is_left(world);
    }
    let warned = place.up(&[]);
    assert!(warned.contains("`smoltcp` is used"), "{warned}");
    assert!(warned.contains("nft is not installed"), "{warned}");
    follows_the_file("smoltcp");
    world.shell("umount /usr/sbin/nft");
    place.up(&[]);
    follows_the_file("namespace");
    place.up(&["--nat=off"]);
    assert!(status(world)["nat"].is_null());
    place.down();
}

#[test]
fn a_peer_that_asks_for_too_much_takes_nothing_from_the_others() {
    let Some(place) = Place::new("", NAT) else {
        return;
    };
    echo(&place.world.net, (OUTSIDE[0], ECHO));
    let [greedy, other] = place.peers();
    let silent: SocketAddr = (SILENT.parse::<IpAddr>().unwrap(), ECHO).into();
    let ask = || {
        for _ in 0..2 * PENDING_OF_PEER {
            TcpStream::connect_timeout(&silent, Duration::from_millis(1)).unwrap_err();
        }
    };
    greedy.run(ask).unwrap();
    let refused = || {
        let shown = status(&place.world);
        let refused = shown["nat"]["tcp"]["refused"]["too_many_of_peer"].as_u64();
        refused.filter(|count| *count >= PENDING_OF_PEER)
    };
    assert!(eventually(DEADLINE, refused).is_some());
    for _ in 0..10 {
        echoes(connect(other, (OUTSIDE[0], ECHO)).unwrap());
    }
    // The oldest of its own to a silent target gives way.
    let has_room = || connect(greedy, (OUTSIDE[0], ECHO)).ok();
    echoes(eventually(DEADLINE, has_room).unwrap());
    place.down();
}

#[test]
fn a_kill_of_any_process_leaves_nothing_in_the_way() {
    let Some(place) = Place::without_gateway("") else {
        return;
    };
    echo(&place.world.net, (OUTSIDE[0], ECHO));
    let [peer, _] = place.peers();
    for victim in ["the supervisor", "the holder"] {
        place.up(NAT);
        let mut open = connect(peer, (OUTSIDE[0], ECHO)).unwrap();
        open.write_all(b"x").unwrap();
        open.read_exact(&mut [0]).unwrap();
        let supervisor = convoy(&place.world, "up").unwrap();
        crash(match victim {
            "the holder" => holder_of_user(),
            _ => supervisor,
        });
        let ended = || (!is_alive(supervisor)).then_some(());
        assert!(eventually(DEADLINE, ended).is_some(), "{victim}");
        no_process_is_left();
    }
    place.up(NAT);
    let mut open = connect(peer, (OUTSIDE[0], ECHO)).unwrap();
    crash(daemon(&place.world));
    // The flow outlasts the process that carries its packets.
    open.write_all(b"x").unwrap();
    open.read_exact(&mut [0]).unwrap();
    echoes(connect(peer, (OUTSIDE[0], ECHO)).unwrap());
    let rules = place
        .world
        .shell("nft list ruleset; ip rule; cat /proc/sys/net/ipv4/ip_forward");
    assert!(
        !rules.contains("convoy") && rules.ends_with("0\n"),
        "{rules}"
    );
    place.down();
}
