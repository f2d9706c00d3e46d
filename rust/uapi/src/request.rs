//! Writes a `set` request of the UAPI.

use std::fmt::{self, Write};

use convoy_proto::config::{DeviceUpdate, PeerUpdate};
use zeroize::Zeroizing;

use crate::values::key_line;

/// The request for `update`, its blank line included.
///
/// The text holds keys: it is wiped when dropped, and never moves to a larger buffer.
pub fn of(update: &DeviceUpdate) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(length_bound(update)));
    // INVARIANT: writing to a String does not fail.
    device(&mut text, update).expect("a String accepts any write");
    text
}

/// Upper bound of the request's length in bytes.
fn length_bound(update: &DeviceUpdate) -> usize {
    const DEVICE: usize = 192;
    const PEER: usize = 384;
    const ALLOWED_IP: usize = 64;
    let allowed_ips: usize = update.peers.iter().map(|p| p.allowed_ips.len()).sum();
    DEVICE + PEER * update.peers.len() + ALLOWED_IP * allowed_ips
}

fn device(text: &mut String, update: &DeviceUpdate) -> fmt::Result {
    text.push_str("set=1\n");
    if let Some(key) = &update.private_key {
        key_line(text, "private_key", key.as_ref().map(|key| &key.0))?;
    }
    if let Some(port) = update.listen_port {
        writeln!(text, "listen_port={port}")?;
    }
    if let Some(mark) = update.fwmark {
        writeln!(text, "fwmark={mark}")?;
    }
    if update.replace_peers {
        text.push_str("replace_peers=true\n");
    }
    for update in &update.peers {
        peer(text, update)?;
    }
    text.push('\n');
    Ok(())
}

fn peer(text: &mut String, update: &PeerUpdate) -> fmt::Result {
    key_line(text, "public_key", Some(&update.public_key.0))?;
    if update.remove {
        text.push_str("remove=true\n");
        return Ok(());
    }
    if update.update_only {
        text.push_str("update_only=true\n");
    }
    if let Some(key) = &update.preshared_key {
        key_line(text, "preshared_key", key.as_ref().map(|key| &key.0))?;
    }
    if let Some(endpoint) = update.endpoint {
        writeln!(text, "endpoint={endpoint}")?;
    }
    if let Some(seconds) = update.persistent_keepalive {
        writeln!(text, "persistent_keepalive_interval={seconds}")?;
    }
    if update.replace_allowed_ips {
        text.push_str("replace_allowed_ips=true\n");
    }
    for change in &update.allowed_ips {
        let sign = if change.remove { "-" } else { "" };
        writeln!(text, "allowed_ip={sign}{}", change.network)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddrV6};

    use convoy_proto::config::{AllowedIpUpdate, Prefix, PresharedKey, PrivateKey, PublicKey};

    use super::*;

    #[test]
    fn an_empty_update_requests_nothing() {
        assert_eq!(*of(&DeviceUpdate::default()), "set=1\n\n");
    }

    #[test]
    fn a_request_says_what_the_update_does_in_order() {
        let digits = |byte: &str| byte.repeat(32);
        let expected = [
            "set=1\n".to_owned(),
            format!("private_key={}\n", digits("68")),
            "listen_port=65535\nfwmark=4294967295\nreplace_peers=true\n".to_owned(),
            format!("public_key={}\nupdate_only=true\n", digits("b8")),
            format!("preshared_key={}\n", digits("18")),
            "endpoint=[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535\n\
             persistent_keepalive_interval=65535\nreplace_allowed_ips=true\n\
             allowed_ip=10.0.0.0/8\n\
             allowed_ip=-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128\n"
                .to_owned(),
            format!("public_key={}\nremove=true\n", digits("58")),
            format!("public_key={}\n", digits("59")),
            format!("preshared_key={}\n\n", digits("00")),
        ]
        .concat();
        let request = of(&full());
        assert_eq!(*request, expected);
        assert!(request.len() <= length_bound(&full()));
    }

    #[test]
    fn the_tunnel_understands_every_line() {
        let request = of(&full());
        let lines = request.strip_prefix("set=1\n").unwrap();
        let lines = lines.strip_suffix("\n\n").unwrap();
        let understood = crate::parse_set(lines.as_bytes()).unwrap();
        assert_eq!(*of(&understood), *request);
    }

    #[test]
    fn no_request_outgrows_its_buffer() {
        let mut update = full();
        let peer = update.peers[0].clone();
        update.peers = vec![peer; 50];
        let request = of(&update);
        assert!(request.len() <= length_bound(&update));
    }

    fn full() -> DeviceUpdate {
        let widest = Ipv6Addr::from([0xff; 16]);
        let change = |address, prefix, remove| AllowedIpUpdate {
            network: Prefix::network_of(address, prefix).unwrap(),
            remove,
        };
        let changed = PeerUpdate {
            update_only: true,
            preshared_key: Some(Some(PresharedKey([0x18; 32]))),
            endpoint: Some(SocketAddrV6::new(widest, u16::MAX, 0, u32::MAX).into()),
            persistent_keepalive: Some(u16::MAX),
            replace_allowed_ips: true,
            allowed_ips: vec![
                change([10, 0, 0, 0].into(), 8, false),
                change(widest.into(), 128, true),
            ],
            ..PeerUpdate::new(PublicKey([0xb8; 32]))
        };
        let removed = PeerUpdate {
            remove: true,
            ..PeerUpdate::new(PublicKey([0x58; 32]))
        };
        let opened = PeerUpdate {
            preshared_key: Some(None),
            ..PeerUpdate::new(PublicKey([0x59; 32]))
        };
        DeviceUpdate {
            // A canonical scalar.
            private_key: Some(Some(PrivateKey([0x68; 32]))),
            listen_port: Some(u16::MAX),
            fwmark: Some(u32::MAX),
            replace_peers: true,
            peers: vec![changed, removed, opened],
        }
    }
}
