//! A kill switch that stays, though its tunnel has gone in a pause.

use std::{net::IpAddr, time::Duration};

use convoy_host::{Desired, Host, HostError, KillSwitch, end_pause, open_kill_switch};

use super::{leaves, locked};
use crate::scene::{Scene, SmallDisk, prefixes};

const HOUR: Duration = Duration::from_secs(3600);
const PERSISTENT: KillSwitch = KillSwitch {
    persistent: true,
    allow_lan: false,
};

#[test]
fn a_persistent_one_closes_when_its_tunnel_goes_in_a_pause() {
    closes(PERSISTENT, async |host| host.undo().await);
}

#[test]
fn a_persistent_one_closes_when_its_process_has_died_in_a_pause() {
    let Some(scene) = paused(PERSISTENT, async |host| {
        drop(host);
        Ok(())
    }) else {
        return;
    };
    assert!(passes(&scene));
    scene.recover();
    assert!(!passes(&scene));
    opens(&scene);
}

#[test]
fn one_whose_tunnel_is_to_come_up_again_closes() {
    closes(KillSwitch::default(), async |host| host.close().await);
}

#[test]
fn the_pause_of_one_that_has_lost_its_interface_can_be_ended() {
    let released = paused(KillSwitch::default(), async |host| host.release().await);
    let Some(scene) = released else { return };
    assert!(passes(&scene));
    scene.run(async || {
        end_pause("wg0").await.unwrap();
        assert!(!passes(&scene));
        // There is none any more.
        end_pause("wg0").await.unwrap();
    });
    opens(&scene);
    scene.run(async || end_pause("wg0").await.unwrap());
}

#[test]
fn recovery_opens_one_that_has_lost_its_interface() {
    let released = paused(KillSwitch::default(), async |mut host| {
        host.resume().await.unwrap();
        host.release().await
    });
    let Some(scene) = released else { return };
    assert!(!passes(&scene));
    scene.recover();
    assert!(passes(&scene));
    assert!(scene.is_clean());
    // Nothing is left of a tunnel without one.
    scene.run(async || scene.open().await.release().await.unwrap());
    assert!(scene.is_clean());
}

#[test]
fn one_closes_although_there_is_no_room_for_a_record() {
    let Some(scene) = Scene::new("one_closes_although_there_is_no_room_for_a_record") else {
        return;
    };
    let disk = SmallDisk::at(scene.options().journals);
    let desired = Desired {
        // The rules are longer than any room that is left.
        excluded: (0..100)
            .flat_map(|number| prefixes(&[&format!("172.16.{number}.0/24")]))
            .collect(),
        ..locked(KillSwitch::default())
    };
    scene.run(async || {
        let mut host = scene.open().await;
        host.apply(&desired).await.unwrap();
        host.pause(HOUR).await.unwrap();
        assert!(passes(&scene));
        disk.fill();
        // The rest may have to wait for room.
        let resumed = host.resume().await;
        assert!(!passes(&scene), "{resumed:?}");
        assert!(host.is_kill_switch_closed().await);
        // The former record undoes it.
        drop(host);
        scene.open().await.undo().await.unwrap();
    });
    assert!(passes(&scene));
}

/// Closes a kill switch, pauses it, and lets its tunnel go.
fn paused(
    switch: KillSwitch,
    goes: impl AsyncFnOnce(Host) -> Result<(), HostError> + Send,
) -> Option<Scene> {
    let scene = Scene::new("kill_switch::paused")?;
    scene.run(async || {
        let mut host = scene.open().await;
        host.apply(&locked(switch)).await.unwrap();
        assert!(!passes(&scene));
        host.pause(HOUR).await.unwrap();
        assert!(passes(&scene));
        goes(host).await.unwrap();
    });
    Some(scene)
}

fn closes(switch: KillSwitch, goes: impl AsyncFnOnce(Host) -> Result<(), HostError> + Send) {
    let Some(scene) = paused(switch, goes) else {
        return;
    };
    assert!(!passes(&scene));
    opens(&scene);
}

/// Returns whether a datagram without the mark leaves.
fn passes(scene: &Scene) -> bool {
    let router: IpAddr = [192, 168, 1, 1].into();
    leaves(scene, router, 0)
}

fn opens(scene: &Scene) {
    scene.run(async || open_kill_switch("wg0").await.unwrap());
    assert!(passes(scene));
}
