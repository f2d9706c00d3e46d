//! Directions whose destination takes nothing: what they hold, and what is left to others.

use super::*;
use crate::relay::{
    budget::Budget,
    pool::{Buffers, Pipes},
};

#[tokio::test]
async fn a_blocked_direction_gives_its_pipe_back_and_loses_nothing() {
    let relay = Arc::new(Relay::new(DEFAULT_BUFFER, Method::Splice));
    let mut scene = Scene::with(Arc::clone(&relay)).await;
    for round in 1..=2 {
        let sent = scene.fill().await;
        scene
            .until(|scene| scene.moved.met(Pressure::Parked) >= round)
            .await;
        assert_eq!(relay.pools.pipes.lent(), 0);
        assert!(relay.pools.parked.taken() > 0);
        let mut received = vec![0; sent.len()];
        within(scene.server.read_exact(&mut received))
            .await
            .unwrap();
        assert_eq!(hash(&received), hash(&sent));
        scene.until(|_| relay.pools.parked.taken() == 0).await;
    }
    // From there on by pipe again.
    let met = scene.moved.met(Pressure::Parked);
    scene.client.write_all(b"on").await.unwrap();
    scene.client.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut scene.server).await, b"on");
    assert_eq!(scene.moved.met(Pressure::Parked), met);
}

#[tokio::test]
async fn a_destination_that_takes_a_little_now_and_then_does_not_keep_the_pipe() {
    let relay = Arc::new(Relay::new(DEFAULT_BUFFER, Method::Splice));
    let mut scene = Scene::with(Arc::clone(&relay)).await;
    scene.fill().await;
    let mut little = vec![0; 2_000];
    let trickle = async {
        while scene.moved.met(Pressure::Parked) == 0 {
            scene.server.read_exact(&mut little).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(trickle).await;
    assert_eq!(relay.pools.pipes.lent(), 0);
}

#[tokio::test]
async fn blocked_connections_of_one_tenant_leave_half_of_the_pipes_to_others() {
    // Nothing can be parked: the pipes stay where they are.
    let relay = Arc::new(Relay {
        pools: Pools {
            pipes: Pipes::with(4),
            parked: Budget::new(0),
            ..Pools::new(DEFAULT_BUFFER, MAX_BUFFER)
        },
        ..Relay::new(DEFAULT_BUFFER, Method::Splice)
    });
    let tenant = Arc::<Tenant>::default();
    let mut scenes = Vec::new();
    for _ in 0..4 {
        let mut scene = Scene::of(Arc::clone(&relay), Arc::clone(&tenant)).await;
        let sent = scene.fill().await;
        scenes.push((scene, sent));
    }
    assert_eq!(relay.pools.pipes.lent(), 2);
    let met = |bound| {
        scenes
            .iter()
            .map(|(it, _)| it.moved.met(bound))
            .sum::<u64>()
    };
    assert!(met(Pressure::PipeShareUsedUp) > 0);
    scenes[0]
        .0
        .until(|it| it.moved.met(Pressure::ParkingFull) > 0)
        .await;
    let mut other = Scene::with(Arc::clone(&relay)).await;
    other.client.write_all(b"others go on").await.unwrap();
    other.client.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut other.server).await, b"others go on");
    assert!(Pressure::ALL.iter().all(|it| other.moved.met(*it) == 0));
    for (mut scene, sent) in scenes {
        scene.client.shutdown().await.unwrap();
        let received = read_to_end(&mut scene.server).await;
        assert_eq!((received.len(), hash(&received)), (sent.len(), hash(&sent)));
    }
    assert_eq!(relay.pools.pipes.lent(), 0);
}

#[tokio::test]
async fn blocked_connections_of_one_tenant_leave_half_of_the_buffers_to_others() {
    let relay = Arc::new(Relay {
        pools: Pools {
            buffers: Buffers::with(4),
            ..Pools::new(DEFAULT_BUFFER, MAX_BUFFER)
        },
        ..Relay::new(DEFAULT_BUFFER, Method::Copy)
    });
    let tenant = Arc::<Tenant>::default();
    let mut scenes = Vec::new();
    for _ in 0..4 {
        let mut scene = Scene::of(Arc::clone(&relay), Arc::clone(&tenant)).await;
        let sent = scene.fill().await;
        scenes.push((scene, sent));
    }
    assert_eq!(relay.pools.buffers.lent(), 2);
    let mut other = Scene::with(Arc::clone(&relay)).await;
    other.client.write_all(b"others go on").await.unwrap();
    other.client.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut other.server).await, b"others go on");
    assert!(Pressure::ALL.iter().all(|it| other.moved.met(*it) == 0));
    for (mut scene, sent) in scenes {
        scene.client.shutdown().await.unwrap();
        let received = read_to_end(&mut scene.server).await;
        assert_eq!((received.len(), hash(&received)), (sent.len(), hash(&sent)));
    }
}

impl Scene {
    /// Sends until the relay takes nothing more; what went.
    async fn fill(&mut self) -> Vec<u8> {
        let mut rng = StdRng::seed_from_u64(5);
        let mut sent = Vec::new();
        loop {
            let mut piece = vec![0; 10_000];
            rng.fill(&mut piece[..]);
            let Ok(written) = timeout(4 * STALL, self.client.write(&piece)).await else {
                return sent;
            };
            sent.extend_from_slice(&piece[..written.unwrap()]);
        }
    }

    async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !is_so(self) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within(waiting).await;
    }
}
