//! Parses the answer to `get=1` of the UAPI.

use std::{
    net::SocketAddr,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, ensure};
use convoy_proto::config::{Prefix, PresharedKey, PrivateKey, PublicKey};

use crate::values::{self, endpoint, non_zero};

/// A tunnel's settings and traffic at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningDevice {
    /// `None` if it has none yet.
    pub private_key: Option<PrivateKey>,
    /// 0 if it has none yet.
    pub listen_port: u16,
    /// 0 for none.
    pub fwmark: u32,
    /// In the order in which they were added.
    pub peers: Vec<RunningPeer>,
}

/// One peer of a [`RunningDevice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningPeer {
    /// Its public key.
    pub public_key: PublicKey,
    /// `None` if it has none.
    pub preshared_key: Option<PresharedKey>,
    /// Its present endpoint; `None` if that is unknown.
    pub endpoint: Option<SocketAddr>,
    /// `None` if there was none.
    pub last_handshake: Option<SystemTime>,
    /// Bytes of datagrams from it.
    pub rx_bytes: u64,
    /// Bytes of datagrams to it.
    pub tx_bytes: u64,
    /// In seconds; 0 if it is off.
    pub persistent_keepalive: u16,
    /// In the order in which they were added.
    pub allowed_ips: Vec<Prefix>,
}

/// Parses the lines of a listing. Keys that another version adds are ignored.
///
/// # Errors
/// If a known key has an invalid value; the error does not contain it.
pub fn parse(lines: &str) -> anyhow::Result<RunningDevice> {
    let mut device = RunningDevice::default();
    for line in lines.lines() {
        let (key, value) = line.split_once('=').context("a line has no key")?;
        if key == "public_key" {
            let public_key = PublicKey(*values::key(value).context("a public key is invalid")?);
            device.peers.push(RunningPeer::new(public_key));
            continue;
        }
        let taken = match device.peers.last_mut() {
            None => device.take(key, value),
            Some(peer) => peer.take(key, value),
        };
        ensure!(taken.is_some(), "the value of a key is invalid");
    }
    Ok(device)
}

impl RunningDevice {
    /// `None` if the value is invalid.
    fn take(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "private_key" => self.private_key = Some(PrivateKey(*values::key(value)?)),
            "listen_port" => self.listen_port = parsed(value)?,
            "fwmark" => self.fwmark = parsed(value)?,
            _ => {}
        }
        Some(())
    }
}

impl RunningPeer {
    /// A peer with nothing but its key.
    pub fn new(public_key: PublicKey) -> Self {
        Self {
            public_key,
            preshared_key: None,
            endpoint: None,
            last_handshake: None,
            rx_bytes: 0,
            tx_bytes: 0,
            persistent_keepalive: 0,
            allowed_ips: Vec::new(),
        }
    }

    /// `None` if the value is invalid.
    fn take(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "preshared_key" => {
                self.preshared_key = non_zero(&values::key(value)?).map(|key| PresharedKey(**key));
            }
            "endpoint" => self.endpoint = Some(endpoint(value)?),
            "last_handshake_time_sec" => self.add_to_handshake(parsed(value)?, 0)?,
            "last_handshake_time_nsec" => self.add_to_handshake(0, parsed(value)?)?,
            "tx_bytes" => self.tx_bytes = parsed(value)?,
            "rx_bytes" => self.rx_bytes = parsed(value)?,
            "persistent_keepalive_interval" => self.persistent_keepalive = parsed(value)?,
            "allowed_ip" => {
                let (address, prefix) = value.split_once('/')?;
                let network = Prefix::network_of(parsed(address)?, parsed(prefix)?)?;
                self.allowed_ips.push(network);
            }
            _ => {}
        }
        Some(())
    }

    /// Both parts of a time that never was are 0.
    fn add_to_handshake(&mut self, seconds: u64, nanoseconds: u32) -> Option<()> {
        let part = Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds.into());
        let so_far = self.last_handshake.unwrap_or(UNIX_EPOCH);
        let time = so_far.checked_add(part)?;
        self.last_handshake = (time != UNIX_EPOCH).then_some(time);
        Some(())
    }
}

fn parsed<T: FromStr>(value: &str) -> Option<T> {
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tunnel_lists_is_read() {
        let digits = |byte: &str| byte.repeat(32);
        let listing = [
            format!("private_key={}\n", digits("e8")),
            "listen_port=12912\nfwmark=51820\n".to_owned(),
            format!("public_key={}\n", digits("b8")),
            format!("preshared_key={}\nprotocol_version=1\n", digits("18")),
            "endpoint=[fe80::1%lo]:51820\n\
             last_handshake_time_sec=1700000000\nlast_handshake_time_nsec=5\n\
             tx_bytes=38333\nrx_bytes=2224\npersistent_keepalive_interval=111\n\
             allowed_ip=192.168.4.4/32\nallowed_ip=fd00::/64\n"
                .to_owned(),
            format!("public_key={}\n", digits("58")),
            format!("preshared_key={}\nprotocol_version=1\n", digits("00")),
            "last_handshake_time_sec=0\nlast_handshake_time_nsec=0\nof_a_later_version=?\n"
                .to_owned(),
        ]
        .concat();
        let zone = nix::net::if_::if_nametoindex("lo").unwrap();
        let network =
            |text: &str, prefix| Prefix::network_of(text.parse().unwrap(), prefix).unwrap();
        let first = RunningPeer {
            preshared_key: Some(PresharedKey([0x18; 32])),
            endpoint: Some(format!("[fe80::1%{zone}]:51820").parse().unwrap()),
            last_handshake: Some(UNIX_EPOCH + Duration::new(1_700_000_000, 5)),
            rx_bytes: 2224,
            tx_bytes: 38333,
            persistent_keepalive: 111,
            allowed_ips: vec![network("192.168.4.4", 32), network("fd00::", 64)],
            ..RunningPeer::new(PublicKey([0xb8; 32]))
        };
        let expected = RunningDevice {
            private_key: Some(PrivateKey([0xe8; 32])),
            listen_port: 12912,
            fwmark: 51820,
            peers: vec![first, RunningPeer::new(PublicKey([0x58; 32]))],
        };
        assert_eq!(parse(&listing).unwrap(), expected);
        assert_eq!(parse("").unwrap(), RunningDevice::default());
    }

    #[test]
    fn an_invalid_value_is_refused_and_not_shown() {
        let peer = format!("public_key={}\n", "b8".repeat(32));
        for line in [
            "private_key=5ec2e7",
            "listen_port=65536",
            "fwmark=5ec2e7",
            "5ec2e7",
            "public_key=5ec2e7",
        ] {
            let error = parse(line).unwrap_err();
            assert!(!format!("{error:#}").contains("5ec2e7"), "{error:#}");
        }
        for line in [
            "preshared_key=5ec2e7",
            "endpoint=example.org:1",
            "allowed_ip=10.0.0.0",
            "allowed_ip=10.0.0.0/33",
            "last_handshake_time_sec=18446744073709551615",
            "rx_bytes=-1",
        ] {
            parse(&format!("{peer}{line}")).unwrap_err();
        }
    }
}
