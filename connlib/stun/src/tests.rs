//! A client and servers in memory, under simulated time.

use proptest::prelude::*;
use stun_types::{
    attribute::{ErrorCode, Software},
    message::MessageWriteExt as _,
};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const T0: Duration = Duration::from_secs(1000);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A client that asks these servers.
fn client(servers: &[&str]) -> Client {
    let servers: Vec<_> = servers.iter().map(|it| address(it)).collect();
    let mut client = Client::default();
    client.set_servers(&servers, T0);
    client.set_wanted(true, T0);
    client
}

/// The requests that are due; numbers are made from `seed`.
fn requests(client: &mut Client, seed: u8, now: Duration) -> Vec<Transmit> {
    std::iter::from_fn(|| client.poll_transmit(|| Some([seed; 12]), now)).collect()
}

/// The answer of a server that sees `mapped`.
fn answer(request: &[u8], mapped: &str) -> Vec<u8> {
    let request = Message::from_bytes(request).unwrap();
    let mut response = Message::builder_success(&request, MessageWriteVec::new());
    let mapped = XorMappedAddress::new(address(mapped), request.transaction_id());
    response.add_attribute(&mapped).unwrap();
    response
        .add_attribute(&Software::new("server").unwrap())
        .unwrap();
    response.finish()
}

#[test]
fn a_server_tells_the_address_and_is_asked_again_to_keep_the_mapping() {
    let server = address("192.0.2.1:3478");
    let mut client = client(&["192.0.2.1:3478"]);
    let sent = requests(&mut client, 7, T0);
    assert_eq!(
        (sent.len(), sent[0].to, sent[0].bytes.len()),
        (1, server, REQUEST_LEN)
    );
    assert!(is_message(&sent[0].bytes));
    let response = answer(&sent[0].bytes, "198.51.100.7:4000");
    assert!(is_message(&response));
    assert!(client.handle_datagram(server, &response, T0));
    assert!(client.take_changed());
    assert_eq!(client.addresses(), [address("198.51.100.7:4000")]);
    assert_eq!(client.poll_timeout(), Some(T0 + REFRESH));
    let sent = requests(&mut client, 8, T0 + REFRESH);
    let response = answer(&sent[0].bytes, "198.51.100.7:4000");
    assert!(client.handle_datagram(server, &response, T0 + REFRESH));
    assert!(!client.take_changed());
    assert!(
        !client.handle_datagram(server, &response, T0 + REFRESH),
        "a copy"
    );
}

#[test]
fn a_silent_server_is_asked_seven_times_and_left_alone_for_a_minute() {
    let mut client = client(&["192.0.2.1:3478"]);
    let (mut times, mut now) = (Vec::new(), T0);
    while now < T0 + 90 * SECOND {
        let sent = requests(&mut client, 1, now);
        times.extend(sent.iter().map(|_| (now - T0).as_millis()));
        now = client.poll_timeout().unwrap().max(now);
    }
    let once = [0, 500, 1500, 3500, 7500, 15_500, 31_500];
    assert_eq!(
        times, once,
        "39.5 s in all, then a pause (RFC 8489 section 6.2.1)"
    );
    assert_eq!(
        client.poll_timeout(),
        Some(T0 + Duration::from_millis(39_500) + PAUSE)
    );
}

#[test]
fn only_the_server_that_was_asked_answers_and_only_this_request() {
    let server = address("192.0.2.1:3478");
    let mut client = client(&["192.0.2.1:3478", "192.0.2.2:3478"]);
    let sent = requests(&mut client, 7, T0);
    let right = answer(&sent[0].bytes, "198.51.100.7:4000");
    assert!(!client.handle_datagram(address("192.0.2.1:3479"), &right, T0));
    assert!(!client.handle_datagram(address("203.0.113.1:3478"), &right, T0));
    let mut forged = right.clone();
    forged[8] ^= 1;
    assert!(!client.handle_datagram(server, &forged, T0));
    assert!(
        !client.handle_datagram(server, &sent[0].bytes, T0),
        "a request"
    );
    assert!(client.addresses().is_empty() && !client.take_changed());
    assert!(client.handle_datagram(server, &right, T0));
}

#[test]
fn answers_without_a_usable_address_tell_nothing() {
    let server = address("192.0.2.1:3478");
    for mapped in [
        "0.0.0.0:1",
        "224.0.0.1:1",
        "198.51.100.7:0",
        "[2001:db8::1]:1",
    ] {
        let mut client = client(&["192.0.2.1:3478"]);
        let sent = requests(&mut client, 7, T0);
        assert!(client.handle_datagram(server, &answer(&sent[0].bytes, mapped), T0));
        assert!(client.addresses().is_empty(), "{mapped}");
        assert_eq!(client.poll_timeout(), Some(T0 + PAUSE));
    }
    let mut client = client(&["192.0.2.1:3478"]);
    let sent = requests(&mut client, 7, T0);
    let request = Message::from_bytes(&sent[0].bytes).unwrap();
    let mut refusal = Message::builder_error(&request, MessageWriteVec::new());
    let error = ErrorCode::builder(420).build().unwrap();
    refusal.add_attribute(&error).unwrap();
    assert!(client.handle_datagram(server, &refusal.finish(), T0));
    assert!(client.addresses().is_empty());
}

#[test]
fn two_servers_that_see_the_same_address_count_once_and_different_ones_twice() {
    let servers = ["192.0.2.1:3478", "[2001:db8::1]:3478", "192.0.2.2:3478"];
    for (seen, expected) in [
        (
            [
                "198.51.100.7:4000",
                "[2001:db8:7::1]:5000",
                "198.51.100.7:4000",
            ],
            2,
        ),
        (
            [
                "198.51.100.7:4000",
                "[2001:db8:7::1]:5000",
                "198.51.100.7:4001",
            ],
            3,
        ),
    ] {
        let mut client = client(&servers);
        for (sent, mapped) in requests(&mut client, 7, T0).iter().zip(seen) {
            assert!(client.handle_datagram(sent.to, &answer(&sent.bytes, mapped), T0));
        }
        assert_eq!(client.addresses().len(), expected);
    }
}

#[test]
fn nothing_is_sent_while_nobody_wants_the_addresses() {
    let mut client = Client::default();
    client.set_servers(&[address("192.0.2.1:3478")], T0);
    assert_eq!(
        (client.poll_timeout(), requests(&mut client, 1, T0)),
        (None, Vec::new())
    );
    client.set_wanted(true, T0);
    assert_eq!(requests(&mut client, 1, T0).len(), 1);
    client.set_wanted(false, T0);
    assert_eq!(client.poll_timeout(), None);
    client.network_changed(T0);
    assert_eq!(requests(&mut client, 1, T0 + 900 * SECOND), []);
}

#[test]
fn a_changed_network_and_a_removed_server_take_the_address_away() {
    let server = address("192.0.2.1:3478");
    let told = || {
        let mut client = client(&["192.0.2.1:3478"]);
        let sent = requests(&mut client, 7, T0);
        let response = answer(&sent[0].bytes, "198.51.100.7:4000");
        assert!(client.handle_datagram(server, &response, T0) && client.take_changed());
        client
    };
    let mut client = told();
    client.network_changed(T0);
    assert!(client.take_changed() && client.addresses().is_empty());
    assert_eq!(requests(&mut client, 8, T0).len(), 1);
    let mut client = told();
    client.set_servers(&[server], T0);
    assert!(!client.take_changed(), "it stays");
    client.set_servers(&[], T0);
    assert!(client.take_changed() && client.addresses().is_empty());
    let many: Vec<_> = (1..100)
        .map(|port| SocketAddr::from(([192, 0, 2, 1], port)))
        .collect();
    client.set_servers(&many, T0);
    assert_eq!(requests(&mut client, 8, T0).len(), MAX_SERVERS);
}

#[test]
fn a_server_that_falls_silent_loses_what_it_told() {
    let server = address("192.0.2.1:3478");
    let mut client = client(&["192.0.2.1:3478"]);
    let sent = requests(&mut client, 7, T0);
    assert!(client.handle_datagram(server, &answer(&sent[0].bytes, "198.51.100.7:4000"), T0));
    let mut now = T0;
    while !client.addresses().is_empty() {
        requests(&mut client, 8, now);
        now = client.poll_timeout().unwrap().max(now);
    }
    assert!(now - T0 <= REFRESH + 40 * SECOND + PAUSE, "{:?}", now - T0);
}

#[test]
fn messages_of_wireguard_are_told_apart() {
    for kind in 1..=4_u8 {
        for length in [32, 64, 92, 148, 1500] {
            let mut message = vec![0; length];
            message[0] = kind;
            assert!(!is_message(&message));
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        is_framed in any::<bool>(),
    ) {
        let mut client = client(&["192.0.2.1:3478"]);
        let sent = requests(&mut client, 7, T0);
        let mut bytes = bytes;
        if is_framed {
            let mut framed = answer(&sent[0].bytes, "198.51.100.7:4000")[..20].to_vec();
            framed[2..4].copy_from_slice(&(bytes.len() as u16).to_be_bytes());
            framed.extend(&bytes);
            bytes = framed;
        }
        let _ = is_message(&bytes);
        let _ = client.handle_datagram(address("192.0.2.1:3478"), &bytes, T0);
    }
}
