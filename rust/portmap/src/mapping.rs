//! Mappings of ports.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::igd::{Place, Service};

/// The port to be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The UDP port of this machine.
    pub port: u16,
    /// The firewall mark of the tunnel's datagrams.
    pub mark: Option<u32>,
}

/// A port that a router forwards, with all that is needed to withdraw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// The protocol by which it was granted.
    pub protocol: Protocol,
    /// The router.
    pub router: Ipv4Addr,
    /// This machine's interface on the router's network.
    pub interface: String,
    /// The firewall mark of the requests.
    pub mark: Option<u32>,
    /// The UDP port of this machine.
    pub port: u16,
    /// The address that the router forwards to it.
    pub external: SocketAddrV4,
    /// The secret of PCP that tells its owner (RFC 6887 §11.1).
    pub nonce: [u8; 12],
    /// The service that granted it by UPnP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
}

/// A service of UPnP, and its address at the router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// The kind of the service.
    pub service: Service,
    /// The address.
    #[serde(flatten)]
    pub place: Place,
    /// This machine's address, to which the router forwards; older versions do not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Ipv4Addr>,
}

/// A protocol of routers that forward ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// Port Control Protocol, RFC 6887.
    #[serde(rename = "PCP")]
    Pcp,
    /// NAT Port Mapping Protocol, RFC 6886.
    #[serde(rename = "NAT-PMP")]
    NatPmp,
    /// Internet Gateway Device of UPnP.
    #[serde(rename = "UPnP")]
    Upnp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Pcp => "PCP",
            Self::NatPmp => "NAT-PMP",
            Self::Upnp => "UPnP",
        })
    }
}

/// A protocol whose port is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        })
    }
}

/// A router's grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) external: SocketAddrV4,
    pub(crate) lifetime: Duration,
}

/// Returns whether other machines can send to an address.
pub(crate) fn is_reachable(address: Ipv4Addr) -> bool {
    let is_here = address.octets()[0] == 0 || address.is_loopback();
    !is_here && !address.is_multicast() && !address.is_broadcast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_written_for_another_version_to_read() {
        let mapping = Mapping {
            protocol: Protocol::NatPmp,
            router: [192, 168, 0, 1].into(),
            interface: "eth0".to_owned(),
            mark: Some(51820),
            port: 51821,
            external: "198.51.100.7:51820".parse().unwrap(),
            nonce: [7; 12],
            control: None,
        };
        let text = r#"{"protocol":"NAT-PMP","router":"192.168.0.1","interface":"eth0","mark":51820,"port":51821,"external":"198.51.100.7:51820","nonce":[7,7,7,7,7,7,7,7,7,7,7,7]}"#;
        assert_eq!(serde_json::to_string(&mapping).unwrap(), text);
        assert_eq!(serde_json::from_str::<Mapping>(text).unwrap(), mapping);
        let former = text.replace("NAT-PMP", "UPnP").replace(
            "]}",
            r#"],"control":{"service":"WANIPConnection:1","port":5000,"path":"/ctl"}}"#,
        );
        let present = former.replace(r#"/ctl""#, r#"/ctl","client":"192.168.0.2""#);
        for (text, client) in [(former, None), (present, Some([192, 168, 0, 2].into()))] {
            let control = Control {
                service: Service::Ip1,
                place: Place::of("http://192.168.0.1:5000/ctl", mapping.router).unwrap(),
                client,
            };
            let mapping = Mapping {
                protocol: Protocol::Upnp,
                control: Some(control),
                ..mapping.clone()
            };
            assert_eq!(serde_json::to_string(&mapping).unwrap(), text);
            assert_eq!(serde_json::from_str::<Mapping>(&text).unwrap(), mapping);
        }
    }
}
