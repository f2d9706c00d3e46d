use super::*;

#[tokio::test(start_paused = true)]
async fn what_this_host_lacks_is_told_and_nothing_stays_taken() {
    let scene = Scene::new(Target::Fails(libc::EMFILE));
    // The answer is at the wrap of sequence numbers.
    let syn = syn(outward(0, 1), u32::MAX);
    scene.send(&syn).await;
    let reset = scene.receive().await;
    let packet = parsed(&reset);
    let segment = Segment::parse(packet.payload()).unwrap();
    assert_eq!((packet.protocol, segment.acknowledged), (TCP, 0));
    assert!(segment.has(RST) && packet.has_right_checksum());
    scene.until_idle().await;
    scene.outside.set(Target::Fails(libc::EADDRNOTAVAIL));
    scene.send(&syn).await;
    let error = scene.receive().await;
    let packet = parsed(&error);
    assert_eq!((packet.protocol, packet.payload()[0]), (ICMPV4, 3));
    assert_eq!(packet.destination, IpAddr::V4(PEER));
    scene.until_idle().await;
    assert_eq!(scene.asked(), 2);
    for refusal in [Refusal::NoDescriptors, Refusal::NoSource] {
        assert_eq!(scene.tcp().refused(refusal), 1, "{refusal:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_out_is_told_so_that_no_peer_sends_the_syn_again() {
    let scene = Scene::new(Target::Silent);
    let causes = [
        // After code 1, Linux sends it again if it has waited.
        (Target::Silent, Refusal::TimedOut, 12),
        (Target::Fails(libc::EHOSTUNREACH), Refusal::Unreachable, 1),
        (Target::Fails(libc::ENETUNREACH), Refusal::NoRoute, 0),
        (Target::Fails(libc::EACCES), Refusal::Prohibited, 13),
        (Target::Fails(libc::EADDRNOTAVAIL), Refusal::NoSource, 1),
    ];
    for (round, (target, reason, code)) in (1..).zip(causes) {
        scene.outside.set(target);
        let syn = syn(outward(0, round), 7);
        scene.send(&syn).await;
        // Sent again while the target is waited for, it asks for nothing.
        if reason == Refusal::TimedOut {
            scene.until(|scene| scene.asked() == 1).await;
            scene.send(&syn).await;
        }
        let error = scene.receive().await;
        let packet = parsed(&error);
        assert_eq!(packet.payload()[..2], [3, code], "{reason:?}");
        assert_eq!(packet.payload()[8..], syn[..]);
        scene.until_idle().await;
        assert_eq!(scene.asked(), usize::from(round));
        assert!(scene.tcp().refused(reason) >= 1);
    }
    // Nothing of it is in the way of another connection from the same port.
    scene.send(&syn(outward(0, 1), 8)).await;
    let error = scene.receive().await;
    assert_eq!(parsed(&error).payload()[..2], [3, 1]);
    assert_eq!(scene.asked(), causes.len() + 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_gives_way_is_not_told_and_gives_all_back() {
    let scene = Scene::new(Target::Silent);
    for port in 1..=PENDING as u16 {
        scene.send(&syn(outward(0, port), 7)).await;
    }
    scene.until(|scene| scene.taken()[1] == PENDING).await;
    sleep(Duration::from_millis(600)).await;
    // Another one, to a host that refuses: that is the only answer.
    scene.outside.set(Target::Fails(libc::ECONNREFUSED));
    let other = outward(0, 5_000);
    scene.send(&syn(other, 7)).await;
    let reset = scene.receive().await;
    let segment = Segment::parse(parsed(&reset).payload()).unwrap();
    assert_eq!(segment.destination_port, other.peer.port());
    assert!(segment.has(RST));
    scene.until(|scene| scene.taken() == [PENDING - 1; 2]).await;
    assert_eq!(scene.tcp().refused(Refusal::TooManyOfPeer), 1);
    // Sent again, the one that gave way is served as any.
    let asked = scene.asked();
    scene.send(&syn(outward(0, 1), 7)).await;
    scene.receive().await;
    assert_eq!(scene.asked(), asked + 1);
    // The others are over after their time.
    scene.outside.set(Target::Silent);
    scene.until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_flow_of_datagrams_that_cannot_be_made_is_tried_again_after_a_second() {
    let scene = Scene::new(Target::Fails(libc::EADDRINUSE));
    for round in 1..=2 {
        for _ in 0..3 {
            scene.send(&datagram(outward(0, 1))).await;
        }
        let error = scene.receive().await;
        assert_eq!(parsed(&error).payload()[..2], [3, 1]);
        scene.until_idle().await;
        assert_eq!(scene.asked(), round);
    }
    let udp = scene.gateway.carried().udp;
    assert_eq!(udp.refused(Refusal::NoSource), 2);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_leaves_before_it_is_connected_costs_its_target_a_reset() {
    let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let scene = Scene::new(Target::Is(target.local_addr().unwrap()));
    let syn = syn(outward(0, 1), 7);
    for _ in 0..3 {
        scene.send(&syn).await;
        // Sent again, the namespace gets it again.
        assert_eq!(scene.receive().await, syn);
    }
    let (far, _) = within(target.accept()).await.unwrap();
    is_reset(far).await;
    scene.until_idle().await;
    assert_eq!(scene.asked(), 1);
    let tcp = scene.tcp();
    assert_eq!((tcp.refused(Refusal::Silent), tcp.opened), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_peer_with_all_its_connections_to_silent_hosts_can_still_open_others() {
    let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let scene = Scene::new(Target::Silent);
    for port in 1..=PENDING as u16 {
        scene.send(&syn(outward(0, port), 7)).await;
    }
    scene.until(|scene| scene.taken()[1] == PENDING).await;
    // None of them is old enough yet.
    scene.send(&syn(outward(0, 5_000), 7)).await;
    let refused = scene.receive().await;
    assert!(Segment::parse(parsed(&refused).payload()).unwrap().has(RST));
    sleep(Duration::from_millis(600)).await;
    scene.outside.set(Target::Is(target.local_addr().unwrap()));
    let syn = syn(outward(0, 5_001), 7);
    scene.send(&syn).await;
    within(target.accept()).await.unwrap();
    assert_eq!(scene.receive().await, syn);
    assert!(scene.taken()[1] <= PENDING);
}

#[tokio::test(start_paused = true)]
async fn who_was_not_admitted_is_reset() {
    let scene = Scene::new(Target::Silent);
    let stranger = within(TcpStream::connect(scene.accepting)).await.unwrap();
    is_reset(stranger).await;
    assert_eq!(scene.asked(), 0);
}

#[tokio::test]
async fn a_segment_that_came_in_fragments_is_passed_on_to_its_connection_alone() {
    let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let scene = Scene::new(Target::Is(target.local_addr().unwrap()));
    let (near, _far) = scene.open(&target).await;
    let asked = scene.asked();
    let open = Ends {
        peer: near.local_addr().unwrap(),
        target: scene.accepting,
    };
    for ends in [outward(0, 1), open] {
        for fragment in fragments(&segment(ends, ACK, 7), 1) {
            scene.send(&fragment).await;
        }
    }
    let whole = scene.receive().await;
    assert_eq!(whole[20..], segment(open, ACK, 7)[20..]);
    let packets = scene.gateway.carried().packets;
    assert_eq!(packets.dropped(Dropped::NobodyListens), 1);
    assert_eq!(scene.asked(), asked);
}

#[tokio::test]
async fn a_connection_ends_at_one_side_as_it_ended_at_the_other() {
    let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let scene = Scene::new(Target::Is(target.local_addr().unwrap()));
    for is_peers in [true, false] {
        let open = async || match scene.open(&target).await {
            (near, far) if is_peers => (near, far),
            (near, far) => (far, near),
        };
        let (mut ending, mut other) = open().await;
        ending.write_all(b"the last").await.unwrap();
        ending.shutdown().await.unwrap();
        let mut heard = Vec::new();
        within(other.read_to_end(&mut heard)).await.unwrap();
        assert_eq!(heard, b"the last");
        assert_eq!(scene.taken(), [1, 0]);
        // The other direction goes on.
        other.write_all(b"an answer").await.unwrap();
        other.shutdown().await.unwrap();
        heard.clear();
        within(ending.read_to_end(&mut heard)).await.unwrap();
        assert_eq!(heard, b"an answer");
        scene.until_idle().await;
        let (ending, other) = open().await;
        ending.set_zero_linger().unwrap();
        drop(ending);
        is_reset(other).await;
        scene.until_idle().await;
        // One side has closed, the other resets.
        let (mut closed, other) = open().await;
        closed.shutdown().await.unwrap();
        other.set_zero_linger().unwrap();
        drop(other);
        is_reset(closed).await;
        scene.until_idle().await;
    }
    let tcp = scene.tcp();
    assert_eq!((tcp.opened, tcp.closed), (6, 6));
}

#[tokio::test]
async fn nothing_is_left_of_a_gateway_that_is_dropped() {
    let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let scene = Scene::new(Target::Is(target.local_addr().unwrap()));
    let (mut near, mut far) = scene.open(&target).await;
    scene.outside.set(Target::Silent);
    scene.send(&syn(outward(0, 1), 7)).await;
    scene.send(&datagram(outward(1, 1))).await;
    scene.until(|scene| scene.taken() == [3, 2]).await;
    let shared = Arc::clone(&scene.gateway.shared);
    drop(scene);
    let waiting = async {
        while taken(&shared.admission) != [0, 0] || Arc::strong_count(&shared) > 1 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    within(waiting).await;
    for stream in [&mut near, &mut far] {
        // The end, or a reset.
        assert!(!matches!(within(stream.read(&mut [0])).await, Ok(1..)));
    }
}

async fn is_reset(mut stream: TcpStream) {
    let error = within(stream.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
