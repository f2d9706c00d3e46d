//! systemd-resolved's D-Bus interface, played by the test on a bus of its own.

use std::{
    fs::{read_to_string, write},
    sync::{Arc, Mutex},
};

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

    #[zbus(name = "SetLinkDNSOverTLS")]
    fn set_link_dns_over_tls(&self, index: i32, mode: String) {
        self.note(format!("tls {index} {mode}"));
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
    let Some((scene, bus)) = scene("resolved_gets_the_servers_again_after_a_restart") else {
        return;
    };
    write(scene.resolv_conf(), "nameserver 127.0.0.53\n").unwrap();
    let before = scene.dump();
    let resolved = Resolved::default();
    scene.run(async || {
        let service = resolved.serve(bus.address()).await;
        let mut host = open(&scene, &bus).await;
        host.apply(&with_domains(&["example.org"])).await.unwrap();
        let index = index(&scene);
        let set = [
            format!("tls {index} no"),
            format!("dns {index} [(2, [10, 9, 0, 1])]"),
            format!("domains {index} [(\"example.org\", false), (\".\", true)]"),
            format!("default {index} true"),
        ];
        assert_eq!(resolved.calls(), set);
        assert!(scene.dump().contains("nameserver 127.0.0.53"));

        service.close().await.unwrap();
        let _service = resolved.serve(bus.address()).await;
        // More than once, if the machine is so busy that a look is given up.
        let has_all_again = || resolved.calls()[4..].ends_with(&set);
        watch_until(&mut host, has_all_again).await;
        host.undo().await.unwrap();
        let last = resolved.calls().pop();
        assert_eq!(last, Some(format!("revert {index}")));
    });
    assert_eq!(scene.dump(), before);
}

#[test]
fn resolved_that_nobody_asks_gets_no_servers() {
    let Some((scene, bus)) = scene("resolved_that_nobody_asks_gets_no_servers") else {
        return;
    };
    let before = scene.dump();
    let resolved = Resolved::default();
    scene.run(async || {
        let _service = resolved.serve(bus.address()).await;
        let mut host = open(&scene, &bus).await;
        host.apply(&with_domains(&[])).await.unwrap();
        assert!(
            read_to_string(scene.resolv_conf())
                .unwrap()
                .contains("nameserver 10.9.0.1")
        );
        assert_eq!(resolved.calls(), Vec::<String>::new());
        // The C library's own way to it.
        write(scene.options().name_services, "hosts: files resolve dns\n").unwrap();
        host.apply(&with_domains(&[])).await.unwrap();
        assert!(
            read_to_string(scene.resolv_conf())
                .unwrap()
                .contains("nameserver 192.168.1.1")
        );
        assert_eq!(resolved.calls().len(), 4);
        host.undo().await.unwrap();
    });
    std::fs::remove_file(scene.options().name_services).unwrap();
    assert_eq!(scene.dump(), before);
}

#[test]
fn a_domain_with_a_tilde_is_routed_alone() {
    let Some((scene, bus)) = scene("a_domain_with_a_tilde_is_routed_alone") else {
        return;
    };
    write(scene.resolv_conf(), "nameserver 127.0.0.53\n").unwrap();
    let resolved = Resolved::default();
    scene.run(async || {
        let _service = resolved.serve(bus.address()).await;
        let mut host = open(&scene, &bus).await;
        for (domains, expected, is_default) in [
            (&["~corp.example"][..], "[(\"corp.example\", true)]", false),
            (
                &["corp.example", "~b.example"],
                "[(\"corp.example\", false), (\"b.example\", true)]",
                false,
            ),
            (
                &["~corp.example", "~."],
                "[(\"corp.example\", true), (\".\", true)]",
                true,
            ),
        ] {
            host.apply(&with_domains(domains)).await.unwrap();
            let calls = resolved.calls();
            let [.., domains, default] = &calls[..] else {
                panic!("{calls:?}")
            };
            assert!(domains.ends_with(expected), "{domains}");
            assert!(default.ends_with(&is_default.to_string()), "{default}");
        }
        host.undo().await.unwrap();
    });
}

#[test]
fn without_resolved_a_domain_with_a_tilde_is_warned_of() {
    let Some((scene, bus)) = scene("without_resolved_a_domain_with_a_tilde_is_warned_of") else {
        return;
    };
    scene.run(async || {
        let mut host = open(&scene, &bus).await;
        let applied = host.apply(&with_domains(&["~corp.example"])).await.unwrap();
        let warnings = applied.warnings.concat();
        assert!(warnings.contains("asked for all names"), "{warnings}");
        let applied = host.apply(&with_domains(&["corp.example"])).await.unwrap();
        assert_eq!(applied.warnings, Vec::<String>::new());
        host.undo().await.unwrap();
    });
}

fn scene(test: &str) -> Option<(Scene, Bus)> {
    let scene = Scene::new(test)?;
    if !require_programs(test, &["dbus-daemon"]) {
        return None;
    }
    let bus = Bus::start(&scene.resolv_conf().with_file_name("bus")).unwrap();
    Some((scene, bus))
}

async fn open(scene: &Scene, bus: &Bus) -> Host {
    let options = Options {
        system_bus: Some(bus.address().to_owned()),
        ..scene.options()
    };
    Host::open("wg0", options).await.unwrap()
}

fn with_domains(domains: &[&str]) -> Desired {
    Desired {
        addresses: prefixes(&["10.9.0.2/24"]),
        dns: Dns {
            servers: vec!["10.9.0.1".parse().unwrap()],
            search: domains.iter().map(|it| (*it).to_owned()).collect(),
        },
        ..Desired::default()
    }
}

fn index(scene: &Scene) -> String {
    let link = scene.shell("ip -o link show wg0");
    link.split(':').next().unwrap().to_owned()
}
