//! The actions of a router's service (WANIPConnection:1 and :2 §2.5), as SOAP.

use std::{fmt::Write as _, net::Ipv4Addr, time::Duration};

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::{
    http::Router,
    xml::{self, Element},
};
use crate::{LIFETIME, mapping::Control};

/// A service that forwards ports, in the order of preference; the last is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Service {
    /// Connections by PPP.
    #[serde(rename = "WANPPPConnection:1")]
    Ppp1,
    /// The first version of IP connections.
    #[serde(rename = "WANIPConnection:1")]
    Ip1,
    /// The second, which may choose the port.
    #[serde(rename = "WANIPConnection:2")]
    Ip2,
}

/// A reason why an action did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The error code of the router.
    Code(u16),
    /// There is no answer, or none of use.
    Silent,
}

impl Service {
    /// Reads a type; `None` for services of other kinds.
    pub(super) fn of(urn: &str) -> Option<Self> {
        let all = [Self::Ppp1, Self::Ip1, Self::Ip2];
        all.into_iter().find(|service| service.urn() == urn)
    }

    fn urn(self) -> &'static str {
        match self {
            Self::Ppp1 => "urn:schemas-upnp-org:service:WANPPPConnection:1",
            Self::Ip1 => "urn:schemas-upnp-org:service:WANIPConnection:1",
            Self::Ip2 => "urn:schemas-upnp-org:service:WANIPConnection:2",
        }
    }
}

/// Asks for the address outside; unspecified if the router has none.
pub(super) async fn external_address(router: &Router, at: &Control) -> Result<Ipv4Addr, Fault> {
    let answer = perform(router, at, "GetExternalIPAddress", &[]).await?;
    let address = argument(&answer, "NewExternalIPAddress").unwrap_or_default();
    Ok(address.parse().unwrap_or(Ipv4Addr::UNSPECIFIED))
}

/// Adds a mapping of this very port outside, for this time; zero stands for ever.
pub(super) async fn add(
    router: &Router,
    at: &Control,
    inside: (Ipv4Addr, u16),
    port: u16,
    lease: Duration,
) -> Result<(), Fault> {
    let arguments = mapping(inside, port, lease);
    let added = perform(router, at, "AddPortMapping", &arguments).await;
    added.map(drop)
}

/// Adds a mapping of this port outside or, if somebody else has it, of any; returns it.
pub(super) async fn add_any(
    router: &Router,
    at: &Control,
    inside: (Ipv4Addr, u16),
    port: u16,
) -> Result<u16, Fault> {
    let arguments = mapping(inside, port, LIFETIME);
    let answer = perform(router, at, "AddAnyPortMapping", &arguments).await?;
    let reserved = argument(&answer, "NewReservedPort").and_then(|it| it.parse().ok());
    reserved.ok_or(Fault::Silent)
}

/// Asks for the machine, unless it has a name, and its port to which a port outside is forwarded.
pub(super) async fn entry(
    router: &Router,
    at: &Control,
    port: u16,
) -> Result<(Option<Ipv4Addr>, u16), Fault> {
    let answer = perform(router, at, "GetSpecificPortMappingEntry", &outside(port)).await?;
    let client = argument(&answer, "NewInternalClient").and_then(|it| it.parse().ok());
    let inside = argument(&answer, "NewInternalPort").and_then(|it| it.parse().ok());
    Ok((client, inside.ok_or(Fault::Silent)?))
}

/// Deletes the mapping of a port outside.
pub(super) async fn delete(router: &Router, at: &Control, port: u16) -> Result<(), Fault> {
    let deleted = perform(router, at, "DeletePortMapping", &outside(port)).await;
    deleted.map(drop)
}

type Arguments<'a> = &'a [(&'static str, String)];

/// The arguments that name a mapping.
fn outside(port: u16) -> [(&'static str, String); 3] {
    [
        ("NewRemoteHost", String::new()),
        ("NewExternalPort", port.to_string()),
        ("NewProtocol", "UDP".to_owned()),
    ]
}

fn mapping(
    (own, own_port): (Ipv4Addr, u16),
    port: u16,
    lease: Duration,
) -> [(&'static str, String); 8] {
    [
        ("NewRemoteHost", String::new()),
        ("NewExternalPort", port.to_string()),
        ("NewProtocol", "UDP".to_owned()),
        ("NewInternalPort", own_port.to_string()),
        ("NewInternalClient", own.to_string()),
        ("NewEnabled", "1".to_owned()),
        ("NewPortMappingDescription", "convoy".to_owned()),
        ("NewLeaseDuration", lease.as_secs().to_string()),
    ]
}

async fn perform(
    router: &Router,
    at: &Control,
    action: &str,
    arguments: Arguments<'_>,
) -> Result<Vec<Element>, Fault> {
    let urn = at.service.urn();
    let body = body(urn, action, arguments);
    let name = format!("{urn}#{action}");
    match router.post(&at.place, &name, body).await {
        Ok((status, body)) => read(status, &body, action),
        Err(error) => {
            debug!("no answer to {action}: {error}");
            Err(Fault::Silent)
        }
    }
}

/// Writes a request; no argument has anything that XML escapes.
fn body(urn: &str, action: &str, arguments: Arguments<'_>) -> String {
    let mut body = format!(
        "<?xml version=\"1.0\"?>\r\n\
         <s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         s:encodingStyle=\"http://schemas.xmlsoap.org/soap/encoding/\"><s:Body>\
         <u:{action} xmlns:u=\"{urn}\">"
    );
    for (name, value) in arguments {
        // INVARIANT: writing to a string succeeds.
        let _ = write!(body, "<{name}>{value}</{name}>");
    }
    body + &format!("</u:{action}></s:Body></s:Envelope>\r\n")
}

/// Reads an answer.
pub(super) fn read(status: StatusCode, body: &[u8], action: &str) -> Result<Vec<Element>, Fault> {
    let elements = xml::elements(body).ok_or(Fault::Silent)?;
    let has = |name: &str| elements.iter().any(|it| it.name == name);
    if status.is_success() && has(&format!("{action}Response")) {
        return Ok(elements);
    }
    let code = argument(&elements, "errorCode").and_then(|code| code.parse().ok());
    Err(code.map_or(Fault::Silent, Fault::Code))
}

fn argument<'a>(elements: &'a [Element], name: &str) -> Option<&'a str> {
    let found = elements.iter().find(|it| it.name == name)?;
    Some(found.text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_the_action_and_its_arguments_in_order() {
        let arguments = mapping(([192, 168, 0, 2].into(), 51820), 51821, LIFETIME);
        let body = body(Service::Ip1.urn(), "AddPortMapping", &arguments);
        let expected = "<u:AddPortMapping xmlns:u=\"urn:schemas-upnp-org:service:WANIPConnection:1\">\
             <NewRemoteHost></NewRemoteHost><NewExternalPort>51821</NewExternalPort>\
             <NewProtocol>UDP</NewProtocol><NewInternalPort>51820</NewInternalPort>\
             <NewInternalClient>192.168.0.2</NewInternalClient><NewEnabled>1</NewEnabled>\
             <NewPortMappingDescription>convoy</NewPortMappingDescription>\
             <NewLeaseDuration>600</NewLeaseDuration></u:AddPortMapping>";
        assert!(body.contains(expected), "{body}");
        assert!(xml::elements(body.as_bytes()).is_some());
    }

    #[test]
    fn an_answer_is_a_response_or_an_error_code_or_of_no_use() {
        let response = b"<e><b><u:DoResponse xmlns:u='x'><A>1</A></u:DoResponse></b></e>";
        let read =
            |status: u16, body: &[u8]| read(StatusCode::from_u16(status).unwrap(), body, "Do");
        let elements = read(200, response).unwrap();
        assert_eq!(argument(&elements, "A"), Some("1"));
        let fault =
            b"<Fault><detail><UPnPError><errorCode> 725 </errorCode></UPnPError></detail></Fault>";
        assert_eq!(read(500, fault), Err(Fault::Code(725)));
        for (status, body) in [
            (500, &response[..]),
            (200, b"<a/>"),
            (200, b""),
            (500, b"<errorCode>70000</errorCode>"),
            (404, b"<html>"),
        ] {
            assert_eq!(read(status, body), Err(Fault::Silent), "{status}");
        }
    }

    #[test]
    fn only_services_that_forward_ports_are_known() {
        for service in [Service::Ppp1, Service::Ip1, Service::Ip2] {
            assert_eq!(Service::of(service.urn()), Some(service));
        }
        assert_eq!(
            Service::of("urn:schemas-upnp-org:service:Layer3Forwarding:1"),
            None
        );
        assert!(Service::Ip2 > Service::Ip1 && Service::Ip1 > Service::Ppp1);
    }
}
