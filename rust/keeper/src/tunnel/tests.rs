use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use convoy_proto::Outcome;

use super::*;

const PEER: PublicKey = PublicKey([7; 32]);

#[tokio::test]
async fn what_the_tunnel_says_becomes_events() {
    let (mut tunnel, mut other) = pair(reading());
    let (id, fwmark, listen_port) = (3, Some(7), None);
    let endpoint = SocketAddr::from(([192, 0, 2, 9], 4_500));
    let (peer, reason) = (Key(PEER), "SIGTERM".to_owned());
    for message in [
        ToSupervisor::Unknown,
        ToSupervisor::Asks {
            id,
            fwmark,
            listen_port,
        },
        ToSupervisor::Moved { peer, endpoint },
        ToSupervisor::Handshake {
            peer,
            answered: true,
            given_up: false,
        },
        ToSupervisor::Ended {
            reason: reason.clone(),
        },
    ] {
        other.queue(&message).unwrap();
    }
    other.flush().await.unwrap();
    for expected in [
        TunnelEvent::Asks {
            id,
            fwmark,
            listen_port,
        },
        TunnelEvent::Moved {
            peer: PEER,
            endpoint,
        },
        TunnelEvent::Handshake {
            peer: PEER,
            outcome: Outcome::Answered,
        },
        TunnelEvent::Ended { reason },
    ] {
        assert_eq!(tunnel.next().await, expected);
    }
}

#[tokio::test]
async fn what_the_supervisor_wants_arrives() {
    let (mut tunnel, mut other) = pair(reading());
    let refused = Some("it is pinned".to_owned());
    tunnel.answer(3, None, refused.clone()).await.unwrap();
    tunnel.follow(&[PEER]).await.unwrap();
    tunnel.handshake(&[PEER]).await.unwrap();
    let directs = DirectPaths {
        own: vec!["10.8.0.2".parse().unwrap()],
        ..DirectPaths::default()
    };
    tunnel.tell_directs(&directs).await.unwrap();
    let peers = || vec![Key(PEER)];
    for expected in [
        ToTunnel::Answers { id: 3, refused },
        ToTunnel::Follow { peers: peers() },
        ToTunnel::Handshake { peers: peers() },
        ToTunnel::Directs(directs),
    ] {
        assert_eq!(other.next::<ToTunnel>().await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_tunnel_without_a_last_word_has_died() {
    let child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
    let (mut tunnel, other) = pair(child);
    drop(other);
    assert_eq!(tunnel.next().await, TunnelEvent::Died);
    assert!(tunnel.process.has_ended());
    assert_eq!(tunnel.next().await, TunnelEvent::Died, "each time");
    tunnel.answer(3, None, None).await.unwrap_err();
    tunnel.stop().await.unwrap();
}

#[tokio::test]
async fn a_tunnel_that_has_lost_its_connection_does_not_outlive_it() {
    let (mut tunnel, other) = pair(reading());
    // Two processes must not read the same TUN.
    drop(other);
    assert_eq!(tunnel.next().await, TunnelEvent::Died);
    assert!(tunnel.process.has_ended());
}

#[tokio::test]
async fn a_tunnel_that_stops_is_not_killed() {
    let mut child = reading();
    let stdin = child.stdin.take();
    let (tunnel, mut other) = pair(child);
    let end = async {
        assert_eq!(other.next::<ToTunnel>().await.unwrap(), ToTunnel::Stop);
        // Ends it in order.
        drop(stdin);
    };
    let (stopped, ()) = tokio::join!(tunnel.stop(), end);
    stopped.unwrap();
}

#[tokio::test]
async fn a_tunnel_introduces_itself_first() {
    let (mut ours, theirs) = connections();
    ours.queue(&ToSupervisor::Unknown).unwrap();
    ours.flush().await.unwrap();
    greeted(theirs).await.unwrap_err();
    let (ours, theirs) = connections();
    drop(ours);
    greeted(theirs).await.unwrap_err();
}

/// A tunnel whose process is `child`, and its end of the connection.
fn pair(child: Child) -> (TunnelProcess, Connection) {
    let (ours, theirs) = connections();
    let greeted = Greeted {
        connection: ours,
        version: "0".to_owned(),
        has_outer: false,
        tun: None,
        line: None,
    };
    let process = Process::of_child(child).unwrap();
    let nowhere = PathBuf::new();
    (TunnelProcess::new(nowhere, greeted, process), theirs)
}

fn connections() -> (Connection, Connection) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Connection::new(ours), Connection::new(theirs))
}

/// A process that ends when its standard input does.
fn reading() -> Child {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).spawn().unwrap()
}
