//! What is done to the hub and to the cables while the load runs.

use std::{fmt::Write as _, io::Write as _, process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use convoy_lab::{
    Namespace,
    wireguard::{End, Peer},
};

use crate::bed::{Bed, CABLE};

/// How long a cable is out.
pub(crate) const OUTAGE: Duration = Duration::from_secs(2);
/// How long a peer is away.
pub(crate) const ABSENCE: Duration = Duration::from_secs(1);

/// Lets the hub listen on another port; the spokes hear from it there, and follow.
pub(crate) fn change_port(bed: &Bed, port: u16) -> anyhow::Result<()> {
    let interface = bed.hub.daemon.interface();
    let port_text = port.to_string();
    wg(
        &bed.hub.namespace,
        &["set", interface, "listen-port", &port_text],
        "",
    )?;
    Ok(bed.hub.daemon.wait_until_listening(port)?)
}

/// Takes the cable of a spoke out and puts it back.
pub(crate) fn flap(spoke: &End) -> anyhow::Result<()> {
    spoke.namespace.link().set_down(CABLE)?;
    std::thread::sleep(OUTAGE);
    Ok(spoke.namespace.link().set_up(CABLE)?)
}

/// Takes a peer from the hub by `wg syncconf`, and gives it back by another; the keepalive
/// interval of all peers changes with it.
pub(crate) fn syncconf(bed: &Bed, port: u16, spoke: usize, keepalive: u16) -> anyhow::Result<()> {
    let without = configuration(&bed.hub, port, keepalive, Some(spoke));
    let with = configuration(&bed.hub, port, keepalive, None);
    let interface = bed.hub.daemon.interface();
    let sync = |text: &str| {
        wg(
            &bed.hub.namespace,
            &["syncconf", interface, "/dev/stdin"],
            text,
        )
    };
    sync(&without)?;
    std::thread::sleep(ABSENCE);
    sync(&with).map(drop)
}

/// What `wg show IFACE latest-handshakes` prints for the hub.
pub(crate) fn latest_handshakes(hub: &End) -> anyhow::Result<String> {
    let interface = hub.daemon.interface();
    wg(
        &hub.namespace,
        &["show", interface, "latest-handshakes"],
        "",
    )
}

/// A configuration as of wg(8).
fn configuration(hub: &End, port: u16, keepalive: u16, without: Option<usize>) -> String {
    let mut text = format!(
        "[Interface]\nPrivateKey = {}\nListenPort = {port}\n",
        BASE64_STANDARD.encode(hub.config.private_key)
    );
    for (number, peer) in hub.config.peers.iter().enumerate() {
        if Some(number) != without {
            // Writing into a string does not fail.
            let _ = write_peer(&mut text, peer, keepalive);
        }
    }
    text
}

fn write_peer(text: &mut String, peer: &Peer, keepalive: u16) -> std::fmt::Result {
    let key = BASE64_STANDARD.encode(peer.public_key);
    writeln!(text, "[Peer]\nPublicKey = {key}")?;
    writeln!(text, "AllowedIPs = {}", peer.allowed_ips.join(", "))?;
    writeln!(text, "PersistentKeepalive = {keepalive}")?;
    peer.endpoint
        .map_or(Ok(()), |endpoint| writeln!(text, "Endpoint = {endpoint}"))
}

/// Runs `wg` inside and gives back what it printed.
fn wg(namespace: &Namespace, arguments: &[&str], input: &str) -> anyhow::Result<String> {
    let mut child = namespace
        .command("wg")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start wg (fix: apt-get install wireguard-tools)")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).context("write to wg")?;
    }
    let output = child.wait_with_output().context("wait for wg")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "wg {}: {errors}",
        arguments.join(" ")
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
