use super::{flows::MAX_WAITING, *};

#[tokio::test(start_paused = true)]
async fn a_flood_of_syns_takes_neither_room_nor_answers_from_another_peer() {
    let scene = Scene::new(Target::Silent);
    let most = PENDING as u16;
    for port in 1..=most + 5 {
        scene.send(&syn(outward(0, port), 7)).await;
    }
    let refused = |scene: &Scene| scene.tcp().refused(Refusal::TooManyOfPeer);
    scene.until(|scene| refused(scene) == 5).await;
    for _ in 0..5 {
        let reset = scene.receive().await;
        assert_eq!(parsed(&reset).protocol, TCP);
    }
    scene.send(&syn(outward(1, 1), 7)).await;
    let all = PENDING + 1;
    scene.until(|scene| scene.taken() == [all, all]).await;
    // Once the target is given up, each peer hears so, of as many connections as there may be errors.
    let [_, other] = [outward(0, 1), outward(1, 1)].map(|it| it.peer.ip());
    while parsed(&scene.receive().await).destination != other {}
    scene.until_idle().await;
    let tcp = scene.tcp();
    assert_eq!(tcp.refused(Refusal::TimedOut), u64::from(all));
    assert_eq!((refused(&scene), tcp.opened), (5, 0));
}

/// As those with data are, or those that were put together from fragments.
#[tokio::test]
async fn long_syns_that_wait_take_little_memory() {
    let scene = Scene::new(Target::Silent);
    for port in 1..=20 {
        scene.send(&long_syn(outward(0, port), 60_000)).await;
    }
    let refused = |scene: &Scene| scene.tcp().refused(Refusal::TooMuchWaiting);
    scene.until(|scene| refused(scene) == 12).await;
    scene.until(|scene| scene.taken() == [8, 8]).await;
    // Short ones of others still have room.
    scene.send(&syn(outward(1, 1), 7)).await;
    scene.until(|scene| scene.taken() == [9, 9]).await;
}

#[tokio::test]
async fn connections_to_silent_hosts_keep_no_datagram_from_its_target() {
    let scene = Scene::new(Target::Silent);
    for port in 1..=PENDING as u16 {
        scene.send(&syn(outward(0, port), 7)).await;
    }
    let all = PENDING as usize;
    scene.until(|scene| scene.asked() == all).await;
    scene.send(&datagram(outward(0, 1))).await;
    scene.send(&echo_request(outward(0, 1))).await;
    scene.until(|scene| scene.taken()[0] >= PENDING + 2).await;
    scene.until(|scene| scene.asked() == all + 1).await;
}

#[tokio::test]
async fn a_connection_takes_the_place_of_its_peers_oldest_datagrams() {
    let scene = Scene::with(Target::Silent, Limits::of(8, 2), Limits::of(100, 2));
    for port in 1..=10 {
        scene.send(&datagram(outward(0, port))).await;
    }
    let replaced = |scene: &Scene| scene.gateway.carried().udp.refused(Refusal::Replaced);
    scene.until(|scene| replaced(scene) == 6).await;
    let asked = scene.asked();
    scene.send(&syn(outward(0, 1), 7)).await;
    scene.until(|scene| scene.asked() == asked + 1).await;
    scene.until(|scene| replaced(scene) == 7).await;
    assert_eq!(scene.taken()[0], 4);
    assert_eq!(scene.tcp().refused(Refusal::TooManyOfPeer), 0);
}

#[tokio::test]
async fn connections_leave_a_peer_an_eighth_of_its_flows_for_datagrams() {
    let scene = Scene::with(Target::Silent, Limits::of(64, 2), Limits::of(100, 2));
    for port in 1..=8 {
        scene.send(&datagram(outward(0, port))).await;
    }
    scene.until(|scene| scene.taken()[0] == 8).await;
    for port in 1..=40 {
        scene.send(&syn(outward(0, port), 7)).await;
    }
    scene
        .until(|scene| scene.tcp().refused(Refusal::TooManyOfPeer) == 12)
        .await;
    let replaced = scene.gateway.carried().udp.refused(Refusal::Replaced);
    assert_eq!((replaced, scene.taken()[0]), (4, 32));
}

#[tokio::test(start_paused = true)]
async fn no_connection_is_given_up_where_that_makes_no_room() {
    let scene = Scene::with(Target::Silent, Limits::of(8, 2), Limits::of(100, 2));
    for port in 1..=4 {
        scene.send(&syn(outward(0, port), 7)).await;
    }
    scene.until(|scene| scene.asked() == 4).await;
    // By now, each could give way.
    sleep(Duration::from_millis(600)).await;
    scene.send(&syn(outward(0, 5), 7)).await;
    let reset = scene.receive().await;
    assert_eq!(parsed(&reset).protocol, TCP);
    sleep(Duration::from_millis(100)).await;
    assert_eq!((scene.asked(), scene.taken()[0]), (4, 4));
    assert_eq!(scene.tcp().refused(Refusal::TooManyOfPeer), 1);
}

#[tokio::test]
async fn a_connection_ends_datagrams_of_a_peer_only_if_that_holds_more() {
    // Each peer can count on two flows; the other four are common.
    let limits = Limits {
        total: 8,
        peer: 6,
        peers: 2,
    };
    let scene = Scene::with(Target::Silent, limits, Limits::of(100, 2));
    for port in 1..=5 {
        scene.send(&datagram(outward(0, port))).await;
    }
    for port in 1..=3 {
        scene.send(&syn(outward(1, port), 7)).await;
    }
    scene.until(|scene| scene.asked() == 8).await;
    let replaced = |scene: &Scene| scene.gateway.carried().udp.refused(Refusal::Replaced);
    scene.send(&syn(outward(1, 4), 7)).await;
    scene.until(|scene| scene.asked() == 9).await;
    scene.until(|scene| replaced(scene) == 1).await;
    assert_eq!(scene.taken()[0], 8);
    // Now each has four.
    scene.send(&syn(outward(1, 5), 7)).await;
    let reset = scene.receive().await;
    assert_eq!(parsed(&reset).protocol, TCP);
    assert_eq!((replaced(&scene), scene.taken()[0]), (1, 8));
}

#[tokio::test]
async fn datagrams_beyond_those_that_wait_for_their_flow_are_counted() {
    let scene = Scene::new(Target::Silent);
    for _ in 0..MAX_WAITING + 6 {
        scene.send(&datagram(outward(0, 1))).await;
    }
    let dropped = |scene: &Scene| scene.gateway.carried().udp.dropped;
    scene.until(|scene| dropped(scene) == 6).await;
    assert_eq!((scene.asked(), scene.taken()), (1, [1, 1]));
}

#[tokio::test]
async fn long_datagrams_of_a_peer_that_wait_for_their_flows_take_bounded_memory() {
    let scene = Scene::new(Target::Silent);
    for port in 1..=20 {
        scene.send(&datagram_of(outward(0, port), 60_000)).await;
    }
    let refused = |scene: &Scene| {
        let udp = scene.gateway.carried().udp;
        udp.refused(Refusal::TooMuchWaiting)
    };
    // Eight of them are half a MiB.
    scene.until(|scene| refused(scene) == 12).await;
    scene.send(&datagram_of(outward(1, 1), 60_000)).await;
    scene.until(|scene| scene.taken()[0] == 9).await;
    assert_eq!(refused(&scene), 12);
}

#[tokio::test]
async fn a_peer_with_all_its_flows_replaces_its_oldest_and_nobody_elses() {
    let scene = Scene::with(Target::Silent, Limits::of(8, 2), Limits::of(100, 2));
    scene.send(&datagram(outward(1, 1))).await;
    for port in 1..=10 {
        scene.send(&datagram(outward(0, port))).await;
    }
    let replaced = |scene: &Scene| scene.gateway.carried().udp.refused(Refusal::Replaced);
    scene.until(|scene| replaced(scene) == 6).await;
    assert_eq!(scene.taken()[0], 5);
    // Flows of echo requests count as well.
    scene.send(&echo_request(outward(0, 1))).await;
    scene.until(|scene| replaced(scene) == 7).await;
    assert_eq!(scene.taken()[0], 5);
}

#[tokio::test]
async fn fragments_without_end_displace_only_those_of_their_sender() {
    let scene = Scene::new(Target::Silent);
    let [first, last] = fragments(&datagram(outward(1, 1)), 0);
    scene.send(&first).await;
    for ident in 1..100 {
        let [first, _] = fragments(&datagram(outward(0, 1)), ident);
        scene.send(&first).await;
    }
    scene.send(&last).await;
    scene.until(|scene| scene.asked() == 1).await;
    let packets = scene.gateway.carried().packets;
    let dropped = packets.dropped(Dropped::Fragment);
    assert!(packets.reassembled == 1 && dropped > 80, "{packets:?}");
}
