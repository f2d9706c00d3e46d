//! Fuzzes what a router says by UPnP: answers to searches, descriptions and SOAP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use convoy_fuzz::{Result, Unstructured};
use hyper::StatusCode;

use super::{Place, action, description, search};

const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
/// Fragments of routers' answers.
const PIECES: [&str; 31] = [
    "HTTP/1.1 200 OK\r\n",
    "LOCATION: ",
    "http://192.168.0.1:5000/root.xml",
    "http://192.168.0.66/",
    "\r\n",
    "\r\n\r\n",
    "<?xml version='1.0'?>",
    "<root>",
    "</root>",
    "<s:Body>",
    "</s:Body>",
    "<URLBase>",
    "</URLBase>",
    "<service>",
    "</service>",
    "<serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType>",
    "<serviceType>urn:schemas-upnp-org:service:WANIPConnection:2</serviceType>",
    "<controlURL>/ctl</controlURL>",
    "<controlURL>",
    "</controlURL>",
    "<u:DoResponse>",
    "</u:DoResponse>",
    "<errorCode>718</errorCode>",
    "<!DOCTYPE a [<!ENTITY b 'c'>]>",
    "<![CDATA[",
    "]]>",
    "&amp;&#65;",
    "<!--",
    "-->",
    "//192.168.0.66/x",
    "../?a#b",
];

#[test]
fn fuzz_upnp_answers() {
    convoy_fuzz::run("upnp_answers", 4_000, 1_500, answers);
}

fn answers(input: &mut Unstructured<'_>) -> Result<()> {
    let from = SocketAddr::new(IpAddr::V4(ROUTER), 1900);
    let at = Place {
        port: 5000,
        path: "/dir/root.xml".to_owned(),
    };
    let text = text(input)?;
    let found = search::read(&text, from, ROUTER);
    let control = description::control(&text, &at, ROUTER);
    for place in found.into_iter().chain(control.map(|it| it.place)) {
        is_plain(&place);
    }
    let status = *input.choose(&[StatusCode::OK, StatusCode::INTERNAL_SERVER_ERROR])?;
    let _ = action::read(status, &text, "Do");
    let url = String::from_utf8_lossy(&text);
    for place in [Place::of(&url, ROUTER), at.join(&url, ROUTER)] {
        place.iter().for_each(is_plain);
    }
    Ok(())
}

/// Requires that a request's first line can have the path.
fn is_plain(place: &Place) {
    assert_ne!(place.port, 0);
    assert!(place.path.starts_with('/'), "{place:?}");
    assert!(place.path.bytes().all(|it| it.is_ascii_graphic()));
    if let Ok(uri) = place.path.parse::<hyper::Uri>() {
        assert_eq!(uri.host(), None, "{place:?}");
    }
}

fn text(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for _ in 0..input.int_in_range(0..=24)? {
        match input.ratio(1, 8)? {
            true => text.extend(input.arbitrary::<[u8; 4]>()?),
            false => text.extend(input.choose(&PIECES)?.bytes()),
        }
    }
    Ok(text)
}
