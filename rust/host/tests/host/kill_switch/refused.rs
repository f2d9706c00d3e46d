//! Rules that nft(8) refuses once.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
};

use convoy_host::{Event, Host, KillSwitch, Options};
use tempfile::TempDir;
use tokio::time::Duration;

use super::locked;
use crate::scene::{Scene, until};

/// An nft(8) that loads nothing while it refuses.
struct Nft {
    directory: TempDir,
}

impl Nft {
    fn new() -> Self {
        let nft = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let program = nft.directory.path().join("nft");
        let text = format!(
            "#!/bin/sh\nif [ \"$1\" = -f ] && [ -e {} ]; then exit 1; fi\n\
             PATH=/usr/sbin:/sbin:/usr/bin:/bin\nexec nft \"$@\"\n",
            nft.refusal().display()
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        nft
    }

    fn refusal(&self) -> PathBuf {
        self.directory.path().join("refuses")
    }

    fn refuse(&self) {
        fs::write(self.refusal(), "").unwrap();
    }

    fn relent(&self) {
        fs::remove_file(self.refusal()).unwrap();
    }

    async fn open(&self, scene: &Scene) -> Host {
        let options = Options {
            programs: self.directory.path().into(),
            ..scene.options()
        };
        scene.open_with(options).await
    }
}

#[test]
fn after_rules_that_could_not_be_loaded_the_next_ones_count() {
    let Some(scene) = Scene::new("after_rules_that_could_not_be_loaded_the_next_ones_count") else {
        return;
    };
    let before = scene.dump();
    let nft = Nft::new();
    let lan = KillSwitch {
        allow_lan: true,
        ..KillSwitch::default()
    };
    scene.run(async || {
        let mut host = nft.open(&scene).await;
        host.apply(&locked(KillSwitch::default())).await.unwrap();
        assert!(host.is_kill_switch_closed().await);
        nft.refuse();
        host.apply(&locked(lan)).await.unwrap_err();
        assert!(host.is_kill_switch_closed().await);
        nft.relent();
        for switch in [lan, KillSwitch::default()] {
            host.apply(&locked(switch)).await.unwrap();
            assert!(host.is_kill_switch_closed().await, "{switch:?}");
        }
        // The process is killed meanwhile.
        nft.refuse();
        host.apply(&locked(lan)).await.unwrap_err();
        drop(host);
        nft.relent();
        let mut host = nft.open(&scene).await;
        host.apply(&locked(lan)).await.unwrap();
        assert!(host.is_kill_switch_closed().await);
        host.undo().await.unwrap();
    });
    assert_eq!(scene.dump(), before);
}

#[test]
fn a_pause_whose_end_is_refused_ends_as_soon_as_it_can() {
    let Some(scene) = Scene::new("a_pause_whose_end_is_refused_ends_as_soon_as_it_can") else {
        return;
    };
    let hour = Duration::from_secs(3600);
    let nft = Nft::new();
    scene.run(async || {
        let mut host = nft.open(&scene).await;
        host.apply(&locked(KillSwitch::default())).await.unwrap();
        host.pause(hour).await.unwrap();
        nft.refuse();
        host.resume().await.unwrap_err();
        nft.relent();
        until(&mut host, |event| *event == Event::Resumed).await;
        assert!(host.is_kill_switch_closed().await);
        // One that cannot be made longer, either.
        host.pause(hour).await.unwrap();
        nft.refuse();
        host.pause(2 * hour).await.unwrap_err();
        nft.relent();
        until(&mut host, |event| *event == Event::Resumed).await;
        assert!(host.is_kill_switch_closed().await);
        host.undo().await.unwrap();
    });
}
