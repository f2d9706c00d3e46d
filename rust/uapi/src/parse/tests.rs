use super::*;

const A: &str = "b85996fecc9c7f1fc6d2572a76eda11d59bcd20be8e543b15ce4bd85a8e75a33";
const SECRET: &str = "e84b5a6d2717c1003a13b431570353dbaca9146cf150c5f8575680feba52027a";
const ZERO: &str = "0000000000000000000000000000000000000000000000000000000000000000";

#[test]
fn the_specifications_example_is_parsed() {
    let update = parse(&format!(
        "private_key={SECRET}\nfwmark=0\nlisten_port=12912\nreplace_peers=true\n\
         public_key={A}\npreshared_key={SECRET}\nreplace_allowed_ips=true\n\
         allowed_ip=192.168.4.4/32\nendpoint=[abcd:23::33%1]:51820\n\
         public_key=58402e695ba1772b1cc9309755f043251ea77fdcf10fbe63989ceb7e19321376\n\
         replace_allowed_ips=true\nallowed_ip=192.168.4.6/32\n\
         persistent_keepalive_interval=111\nendpoint=182.122.22.19:3233\n\
         public_key=662e14fd594556f522604703340351258903b64f35553763f19426ab2a515c58\n\
         remove=true\n",
    ))
    .unwrap();
    assert_eq!(update.listen_port, Some(12912));
    assert_eq!(update.fwmark, Some(0));
    assert!(update.replace_peers);
    assert!(update.private_key.unwrap().is_some());

    let [first, second, third] = &update.peers[..] else {
        panic!("{:?}", update.peers)
    };
    assert_eq!(hex::encode(first.public_key.0), A);
    assert!(first.preshared_key.as_ref().unwrap().is_some());
    assert!(first.replace_allowed_ips);
    assert_eq!(first.endpoint.unwrap().to_string(), "[abcd:23::33%1]:51820");
    assert_eq!(first.allowed_ips, [added("192.168.4.4", 32)]);
    assert_eq!(second.persistent_keepalive, Some(111));
    assert_eq!(second.endpoint.unwrap().to_string(), "182.122.22.19:3233");
    assert!(second.preshared_key.is_none());
    assert!(third.remove);
}

#[test]
fn an_empty_request_changes_nothing() {
    let update = parse("").unwrap();
    assert!(update.private_key.is_none() && update.listen_port.is_none());
    assert!(update.peers.is_empty() && !update.replace_peers);
}

#[test]
fn all_zero_keys_clear_keys() {
    let text = format!("private_key={ZERO}\npublic_key={A}\npreshared_key={ZERO}\n");
    let update = parse(&text).unwrap();
    assert_eq!(update.private_key, Some(None));
    assert_eq!(update.peers[0].preshared_key, Some(None));
}

#[test]
fn a_private_key_is_clamped() {
    let update = parse(&format!("private_key={}\n", "ff".repeat(32))).unwrap();
    let key = update.private_key.unwrap().unwrap();
    assert_eq!((key.0[0], key.0[31]), (0xf8, 0x7f));
}

#[test]
fn update_only_and_the_protocol_version_are_accepted() {
    let update = peer("update_only=true\nprotocol_version=1\n").unwrap();
    assert!(update.update_only);
}

#[test]
fn an_allowed_ip_with_a_hyphen_is_removed() {
    let update = peer("allowed_ip=-10.0.0.0/8\nallowed_ip=-fd00::/8\n").unwrap();
    let removed = |address, prefix| AllowedIpUpdate {
        remove: true,
        ..added(address, prefix)
    };
    let expected = [removed("10.0.0.0", 8), removed("fd00::", 8)];
    assert_eq!(update.allowed_ips, expected);
}

#[test]
fn the_host_bits_of_an_allowed_ip_are_masked() {
    let update = peer(
        "allowed_ip=10.1.2.3/8\nallowed_ip=1.2.3.4/0\nallowed_ip=fd00:1::1/16\n\
         allowed_ip=::1/0\nallowed_ip=::1/128\n",
    )
    .unwrap();
    let expected = [
        added("10.0.0.0", 8),
        added("0.0.0.0", 0),
        added("fd00::", 16),
        added("::", 0),
        added("::1", 128),
    ];
    assert_eq!(update.allowed_ips, expected);
}

#[test]
fn replacing_the_allowed_ips_revokes_those_added_before() {
    let replace = "replace_allowed_ips=true\n".repeat(50);
    let text = format!("allowed_ip=10.0.0.1/32\n{replace}allowed_ip=10.0.0.2/32\n{replace}");
    let update = peer(&text).unwrap();
    assert!(update.replace_allowed_ips);
    let removed = |address| AllowedIpUpdate {
        remove: true,
        ..added(address, 32)
    };
    let [first, second] = ["10.0.0.1", "10.0.0.2"];
    let expected = [
        added(first, 32),
        removed(first),
        added(second, 32),
        removed(second),
    ];
    assert_eq!(update.allowed_ips, expected);
}

#[test]
fn an_ipv4_mapped_endpoint_is_an_ipv4_endpoint() {
    let update = peer("endpoint=[::ffff:192.0.2.1]:7\n").unwrap();
    assert_eq!(update.endpoint, Some("192.0.2.1:7".parse().unwrap()));
}

#[test]
fn a_zone_may_be_given_by_name() {
    let index = nix::net::if_::if_nametoindex("lo").unwrap();
    let update = peer("endpoint=[fe80::1%lo]:7\n").unwrap();
    let expected = std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0, index);
    assert_eq!(update.endpoint, Some(expected.into()));
}

#[test]
fn every_invalid_device_line_is_refused_by_name() {
    let short = &SECRET[1..];
    let long = format!("{SECRET}00");
    let cases = [
        (format!("private_key={short}"), "private_key"),
        (format!("private_key={long}"), "private_key"),
        (format!("private_key=x{short}"), "private_key"),
        ("private_key=".to_owned(), "private_key"),
        ("listen_port=65536".to_owned(), "listen_port"),
        ("listen_port=-1".to_owned(), "listen_port"),
        ("listen_port=+1".to_owned(), "listen_port"),
        ("listen_port=".to_owned(), "listen_port"),
        ("fwmark=4294967296".to_owned(), "fwmark"),
        ("fwmark=0x1".to_owned(), "fwmark"),
        ("replace_peers=false".to_owned(), "replace_peers"),
        ("public_key=00".to_owned(), "public_key"),
        ("remove=true".to_owned(), "not a device key"),
        ("Fwmark=1".to_owned(), "not a device key"),
        ("=".to_owned(), "not a device key"),
    ];
    for (line, expected) in cases {
        let error = parse(&format!("{line}\n")).unwrap_err();
        assert_eq!(error.errno(), Errno::EINVAL, "{line}");
        let shown = error.to_string();
        assert!(shown.starts_with("line 2: "), "{shown}");
        assert!(shown.contains(expected), "{shown}");
    }
}

#[test]
fn every_invalid_peer_line_is_refused_by_name() {
    let cases = [
        ("preshared_key=00", "preshared_key"),
        ("endpoint=192.0.2.1", "endpoint"),
        ("endpoint=fd00::1:51820", "endpoint"),
        ("endpoint=[fd00::1]", "endpoint"),
        ("endpoint=example.org:51820", "endpoint"),
        ("endpoint=192.0.2.1:65536", "endpoint"),
        ("endpoint=[fe80::1%no such link]:7", "endpoint"),
        (
            "persistent_keepalive_interval=65536",
            "persistent_keepalive",
        ),
        ("persistent_keepalive_interval=off", "persistent_keepalive"),
        ("replace_allowed_ips=1", "replace_allowed_ips"),
        ("allowed_ip=10.0.0.1", "allowed_ip"),
        ("allowed_ip=10.0.0.1/33", "allowed_ip"),
        ("allowed_ip=10.0.0.1/", "allowed_ip"),
        ("allowed_ip=10.0.0.1/+8", "allowed_ip"),
        ("allowed_ip=10.0.0.1/08", "allowed_ip"),
        ("allowed_ip=fd00::/129", "allowed_ip"),
        ("allowed_ip=--10.0.0.0/8", "allowed_ip"),
        ("update_only=yes", "update_only"),
        ("remove=false", "remove"),
        ("protocol_version=2", "protocol_version"),
        ("listen_port=1", "not a peer key"),
        ("last_handshake_time_sec=1", "not a peer key"),
    ];
    for (line, expected) in cases {
        let error = peer(&format!("{line}\n")).unwrap_err();
        assert_eq!(error.errno(), Errno::EINVAL, "{line}");
        let shown = error.to_string();
        assert!(shown.starts_with("line 3: "), "{shown}");
        assert!(shown.contains(expected), "{shown}");
    }
}

#[test]
fn a_line_without_an_equals_sign_is_a_protocol_error() {
    let mut parser = SetParser::new();
    for (line, errno) in [
        (&b"private_key"[..], Errno::EPROTO),
        (b"\xff", Errno::EPROTO),
        (b"\xff=1", Errno::EINVAL),
        (b"fwmark=\xff", Errno::EINVAL),
    ] {
        assert_eq!(parser.line(line).unwrap_err().errno(), errno);
    }
}

#[test]
fn no_error_shows_a_value() {
    let digits = &SECRET[..40];
    let lines = [
        format!("private_key={digits}"),
        format!("preshared_key={digits}"),
        format!("public_key={A}\npreshared_key={digits}"),
        digits.to_owned(),
        format!("endpoint={digits}"),
        format!("{digits}="),
        format!("public_key={A}\n{digits}="),
        "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=".to_owned(),
    ];
    for line in lines {
        let shown = parse(&format!("{line}\n")).unwrap_err().to_string();
        for secret in [&digits[..8], "yAnz5TF"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

#[test]
fn ten_thousand_peers_are_one_update() {
    let mut text = String::from("replace_peers=true\n");
    for peer in 0..10_000 {
        text += &format!("public_key={peer:064x}\nreplace_allowed_ips=true\n");
        for network in 0..13 {
            let (high, low) = (peer / 256, peer % 256);
            text += &format!("allowed_ip=10.{high}.{low}.{network}/32\n");
        }
    }
    let update = parse(&text).unwrap();
    assert_eq!(update.peers.len(), 10_000);
    let allowed_ips: usize = update.peers.iter().map(|p| p.allowed_ips.len()).sum();
    assert_eq!(allowed_ips, 130_000);
}

/// Parses a whole request without its framing lines.
fn parse(text: &str) -> Result<DeviceUpdate, ParseError> {
    let mut parser = SetParser::new();
    for line in text.lines() {
        parser.line(line.as_bytes())?;
    }
    Ok(parser.finish())
}

/// Parses a request with one peer and returns the peer.
fn peer(text: &str) -> Result<PeerUpdate, ParseError> {
    let mut update = parse(&format!("public_key={A}\n{text}"))?;
    assert_eq!(update.peers.len(), 1);
    Ok(update.peers.remove(0))
}

fn added(address: &str, prefix: u8) -> AllowedIpUpdate {
    AllowedIpUpdate {
        network: Prefix::network_of(address.parse().unwrap(), prefix).unwrap(),
        remove: false,
    }
}
