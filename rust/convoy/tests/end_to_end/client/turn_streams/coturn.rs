//! The same with coturn.

use std::{
    fs::{self, File},
    process::{Child, Stdio},
};

use convoy_lab::{eventually, require_programs};

use super::{CA, HOST, TCP, TLS, blocked, carries_all, configure, identity};
use crate::{
    client::world::World,
    scene::{DEADLINE, output_of},
    turn_server::{PASSWORD, USER},
};

#[test]
#[ignore = "make interop"]
fn a_stock_server_is_reached_by_tcp_to_coturn() {
    let test = "a_stock_server_is_reached_by_tcp_to_coturn";
    if !require_programs(test, &["turnserver"]) {
        return;
    }
    let Some(world) = blocked() else {
        return;
    };
    let _coturn = Coturn::start(&world, &["--listening-port=443", "--no-tls"]);
    configure(&world, TCP, "");
    carries_all(&world, "tcp");
}

#[test]
#[ignore = "make interop"]
fn a_stock_server_is_reached_by_tls_to_coturn() {
    let test = "a_stock_server_is_reached_by_tls_to_coturn";
    if !require_programs(test, &["turnserver"]) {
        return;
    }
    let Some(world) = blocked() else {
        return;
    };
    let identity = identity(&world, HOST);
    let directory = world.net.run_directory();
    fs::write(directory.join("certificate.pem"), &identity.certificate).unwrap();
    fs::write(directory.join("key.pem"), &identity.key).unwrap();
    let options = [
        "--tls-listening-port=443",
        "--cert=/run/certificate.pem",
        "--pkey=/run/key.pem",
    ];
    let _coturn = Coturn::start(&world, &options);
    configure(&world, TLS, CA);
    carries_all(&world, "tls");
}

/// Ends when dropped.
struct Coturn(Child);

impl Coturn {
    fn start(world: &World, options: &[&str]) -> Self {
        let place = &world.net;
        let mut command = place.command("turnserver");
        command.args(options);
        command.args(["--no-cli", "--no-dtls", "--log-file=stdout"]);
        command.args(["--lt-cred-mech", "--realm=example.org"]);
        command.arg(format!("--user={USER}:{PASSWORD}"));
        command.arg(format!("--listening-ip={HOST}"));
        command.arg("--pidfile=/run/turnserver.pid");
        let log = File::create(place.run_directory().join("log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(log).spawn().unwrap();
        let coturn = Self(child);
        let listens = || {
            output_of(place, "ss", &["-Hltn"])
                .contains(":443")
                .then_some(())
        };
        assert!(eventually(DEADLINE, listens).is_some());
        coturn
    }
}

impl Drop for Coturn {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
