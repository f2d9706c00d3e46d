//! The search for the router (SSDP, UPnP Device Architecture §1.3).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use nix::sys::socket::{setsockopt, sockopt};
use tokio::{
    net::UdpSocket,
    time::{Instant, timeout_at},
};

use super::Place;
use crate::gateway::Gateway;

/// The port of SSDP, and its group.
pub(super) const PORT: u16 = 1900;
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 250);
/// The devices that are searched for: later versions answer for earlier ones, but not all do.
const TARGETS: [&str; 2] = [
    "urn:schemas-upnp-org:device:InternetGatewayDevice:1",
    "urn:schemas-upnp-org:device:InternetGatewayDevice:2",
];
/// Milliseconds that each search has for its answers, until the next one. A router may take a second.
const WAITS: [u64; 2] = [1_200, 1_800];
/// Longest answer that is read, in bytes.
const MAX_ANSWER: usize = 2_048;
/// Most headers of an answer.
const MAX_HEADERS: usize = 32;
/// Most datagrams of the gateway that are read after one search: its address may be forged.
const MAX_ANSWERS: usize = 64;

/// Returns where the gateway describes itself; `None` if it does not answer. Other machines are not heard.
pub(super) async fn search(gateway: &Gateway, mark: Option<u32>) -> io::Result<Option<Place>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    if let Some(mark) = mark {
        setsockopt(&socket, sockopt::Mark, &mark)?;
    }
    let mut groups = vec![gateway.address];
    if !gateway.interface.is_empty() {
        socket.bind_device(Some(gateway.interface.as_bytes()))?;
        socket.set_multicast_ttl_v4(2)?;
        groups.push(GROUP);
    }
    for wait in WAITS {
        for to in &groups {
            for target in TARGETS {
                // One of them may have no route.
                let _ = socket
                    .send_to(request(target).as_bytes(), (*to, PORT))
                    .await;
            }
        }
        let deadline = Instant::now() + Duration::from_millis(wait);
        if let Some(place) = answer(&socket, gateway.address, deadline).await {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// Waits for the gateway's answer, however much other machines send.
async fn answer(socket: &UdpSocket, gateway: Ipv4Addr, deadline: Instant) -> Option<Place> {
    let mut buffer = [0; MAX_ANSWER];
    let mut read_of_gateway = 0;
    while read_of_gateway < MAX_ANSWERS {
        let received = timeout_at(deadline, socket.recv_from(&mut buffer)).await;
        match received.ok()? {
            Ok((_, from)) if from.ip() != IpAddr::V4(gateway) => continue,
            Ok((length, from)) => {
                if let Some(place) = read(&buffer[..length], from, gateway) {
                    return Some(place);
                }
            }
            // An ICMP error of an earlier search.
            Err(_) => {}
        }
        read_of_gateway += 1;
    }
    None
}

fn request(target: &str) -> String {
    format!(
        "M-SEARCH * HTTP/1.1\r\nHOST: {GROUP}:{PORT}\r\nMAN: \"ssdp:discover\"\r\nMX: 1\r\nST: {target}\r\n\r\n"
    )
}

/// Reads an answer; `None` unless it is the gateway's and tells a place there.
pub(super) fn read(answer: &[u8], from: SocketAddr, gateway: Ipv4Addr) -> Option<Place> {
    if from.ip() != IpAddr::V4(gateway) {
        return None;
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let _ = response.parse(answer).ok()?;
    if response.code != Some(200) {
        return None;
    }
    let mut headers = response.headers.iter();
    let location = headers.find(|it| it.name.eq_ignore_ascii_case("LOCATION"))?;
    Place::of(str::from_utf8(location.value).ok()?, gateway)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);

    #[test]
    fn only_the_gateway_is_heard_and_only_of_itself() {
        let answer = |host: &str| {
            format!(
                "HTTP/1.1 200 OK\r\nCACHE-CONTROL: max-age=120\r\nST: {}\r\nEXT:\r\n\
                 Location: http://{host}:5000/root.xml\r\n\r\n",
                TARGETS[0]
            )
        };
        let read = |answer: &str, from: [u8; 4]| {
            read(answer.as_bytes(), SocketAddr::from((from, 4000)), GATEWAY)
        };
        let expected = Place::of("http://192.168.0.1:5000/root.xml", GATEWAY);
        let honest = answer("192.168.0.1");
        assert_eq!(read(&honest, [192, 168, 0, 1]), expected);
        assert_eq!(read(&honest, [192, 168, 0, 66]), None, "another machine");
        let elsewhere = answer("192.168.0.66");
        assert_eq!(read(&elsewhere, [192, 168, 0, 1]), None, "another place");
        let refusal = honest.replace("200 OK", "404 Not Found");
        assert_eq!(read(&refusal, [192, 168, 0, 1]), None);
        assert_eq!(
            read(&request(TARGETS[0]), [192, 168, 0, 1]),
            None,
            "an echo"
        );
    }

    #[tokio::test]
    async fn other_machines_cannot_outshout_the_gateway() {
        let gateway = Ipv4Addr::new(127, 53, 58, 1);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let to = socket.local_addr().unwrap();
        let place = format!("http://{gateway}:5000/root.xml");
        let text = format!("HTTP/1.1 200 OK\r\nLOCATION: {place}\r\n\r\n");
        for (from, count) in [([127, 53, 58, 2], 2 * MAX_ANSWERS), (gateway.octets(), 1)] {
            let sender = UdpSocket::bind((Ipv4Addr::from(from), 0)).await.unwrap();
            for _ in 0..count {
                sender.send_to(text.as_bytes(), to).await.unwrap();
            }
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        let found = answer(&socket, gateway, deadline).await;
        assert_eq!(found, Place::of(&place, gateway));
    }

    proptest! {
        #[test]
        fn no_datagram_does_harm(datagram in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&datagram, SocketAddr::from((GATEWAY, 1900)), GATEWAY);
        }
    }
}
