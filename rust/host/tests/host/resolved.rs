//! systemd-resolved's D-Bus interface, played by the test on a bus of its own.

use std::sync::{Arc, Mutex};

use convoy_host::{Desired, Dns, Host, Options};
use convoy_lab::{Bus, require_programs};
use zbus::{Connection, connection::Builder, interface};

use crate::scene::{Scene, prefixes, watch_until};

/// The calls so far, one line each.
#[derive(Clone, Default)]
struct Resolved(Arc<Mutex<Vec<String>>>);

#[interface(name = "org.freedesktop.resolve1.Manager")]
impl Resolved {
    #[zbus(name = "SetLinkDNS")]
    fn set_link_dns(&self, index: i32, servers: Vec<(i32, Vec<u8>)>) {
        self.note(format!("dns {index} {servers:?}"));
    }

    fn set_link_domains(&self, index: i32, domains: Vec<(String, bool)>) {
        self.note(format!("domains {index} {domains:?}"));
    }

    fn set_link_default_route(&self, index: i32, on: bool) {
        self.note(format!("default {index} {on}"));
    }

    fn revert_link(&self, index: i32) {
        self.note(format!("revert {index}"));
    }
}

impl Resolved {
    fn note(&self, call: String) {
        self.0.lock().unwrap().push(call);
    }

    fn calls(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    async fn serve(&self, bus: &str) -> Connection {
        Builder::address(bus)
            .name("org.freedesktop.resolve1")
            .serve_at("/org/freedesktop/resolve1", self.clone())
            .build()
            .await
            .unwrap()
    }
}

#[test]
fn resolved_gets_the_servers_again_after_a_restart() {
    let test = "resolved_gets_the_servers_again_after_a_restart";
    let Some(scene) = Scene::new(test) else {
        return;
    };
    if !require_programs(test, &["dbus-daemon"]) {
        return;
    }
    let bus = Bus::start(&scene.resolv_conf().with_file_name("bus")).unwrap();
    let before = scene.dump();
    let resolved = Resolved::default();
    scene.run(async || {
        let service = resolved.serve(bus.address()).await;
        let options = Options {
            system_bus: Some(bus.address().to_owned()),
            ..scene.options()
        };
        let mut host = Host::open("wg0", options).await.unwrap();
        let desired = Desired {
            addresses: prefixes(&["10.9.0.2/24"]),
            dns: Dns {
                servers: vec!["10.9.0.1".parse().unwrap()],
                search: vec!["example.org".to_owned()],
            },
            ..Desired::default()
        };
        host.apply(&desired).await.unwrap();
        let index = scene.shell("ip -o link show wg0");
        let index = index.split(':').next().unwrap();
        let set = [
            format!("dns {index} [(2, [10, 9, 0, 1])]"),
            format!("domains {index} [(\"example.org\", false), (\".\", true)]"),
            format!("default {index} true"),
        ];
        assert_eq!(resolved.calls(), set);
        assert!(scene.dump().contains("nameserver 192.168.1.1"));

        service.close().await.unwrap();
        let _service = resolved.serve(bus.address()).await;
        watch_until(&mut host, || resolved.calls().len() == 6).await;
        assert_eq!(resolved.calls()[3..], set);
        host.undo().await.unwrap();
        assert_eq!(resolved.calls()[6], format!("revert {index}"));
    });
    assert_eq!(scene.dump(), before);
}
