use std::net::IpAddr;

use convoy_types::Prefix;

use super::*;
use crate::base64::encode_key;
use crate::config::{Endpoint, Host};

#[test]
fn numbers_are_accepted_as_by_wg() {
    assert_eq!(ok(fwmark, "0xca6c"), 0xca6c);
    assert_eq!(ok(fwmark, "OFF"), 0);
    assert_eq!(ok(fwmark, "4294967295"), u32::MAX);
    for wrong in [
        "0x",
        "0Xca6c",
        "4294967296",
        "-1",
        "+1",
        "0x100000000",
        "0x+1",
        "",
    ] {
        bad(fwmark, wrong);
    }
    for number in [252, 256] {
        assert_eq!(ok(fwmark, &number.to_string()), number);
    }
    for table in ["253", "254", "255", "0xfd", "0xFE", "0x000000ff", "0254"] {
        bad(fwmark, table);
    }
    assert_eq!(ok(keepalive, "Off"), 0);
    assert_eq!(ok(keepalive, "025"), 25);
    bad(keepalive, "65536");
    assert_eq!(ok(listen_port, "0"), 0);
    bad(listen_port, "domain");
    assert_eq!(ok(mtu, "1420"), 1420);
    bad(mtu, "67");
}

#[test]
fn tables_have_numbers_and_names() {
    let names = RouteTables::parse("# x\n100 office # y\n0x1F hex\n");
    let table = |text| table(Text { start: 0, text }, &names).ok();
    assert_eq!(table("Off"), Some(Table::Off));
    assert_eq!(table("auto"), Some(Table::Auto));
    assert_eq!(table("0x10"), Some(Table::Number(16)));
    assert_eq!(table("office"), Some(Table::Number(100)));
    assert_eq!(table("hex"), Some(Table::Number(31)));
    assert_eq!(table("main"), Some(Table::Number(254)));
    assert_eq!(table("home"), None);
}

#[test]
fn keys_are_canonical_base64() {
    let text = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
    let decoded = ok(key, text);
    assert_eq!(*encode_key(&decoded), text);
    for wrong in [
        "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk",
        "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBml=",
        "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBg==",
        "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmkA",
        "",
    ] {
        bad(key, wrong);
    }
}

#[test]
fn prefixes_lose_their_host_bits() {
    let network =
        |address: &str, prefix| Prefix::network_of(address.parse().unwrap(), prefix).unwrap();
    assert_eq!(ok(allowed_ip, "10.1.2.3/8"), (network("10.0.0.0", 8), true));
    assert_eq!(ok(allowed_ip, "10.1.2.3"), (network("10.1.2.3", 32), false));
    assert_eq!(
        ok(allowed_ip, "fd00 :: / 064"),
        (network("fd00::", 64), false)
    );
    assert_eq!(ok(allowed_ip, "::1"), (network("::1", 128), false));
    for wrong in [
        "10.0.0.0/33",
        "::/129",
        "10.0.0.0/",
        "10.0.0.0/-1",
        "10.1/16",
        "a/8",
        "+::/0",
    ] {
        bad(allowed_ip, wrong);
    }
    let mask = bad(allowed_ip, "10.0.0.0/255.255.252.0");
    assert!(mask.help.unwrap().contains("write /22"));
    assert!(
        bad(allowed_ip, "::/0 10.0.0.0/8")
            .help
            .unwrap()
            .contains("comma")
    );
    assert_eq!(bad(allowed_ip, "10.0.0.0/33").range, 9..11);
}

#[test]
fn endpoints_are_addresses_or_names() {
    let v6 = |text: &str| Host::Ip(text.parse::<IpAddr>().unwrap());
    for (text, host, port) in [
        ("192.0.2.1:51820", v6("192.0.2.1"), 51820),
        ("[2001:db8::1]:1", v6("2001:db8::1"), 1),
        ("[::ffff:192.0.2.1]:1", v6("192.0.2.1"), 1),
        (
            "vpn.example.org:080",
            Host::Name("vpn.example.org".into()),
            80,
        ),
        ("a_b-c.:9", Host::Name("a_b-c.".into()), 9),
        (
            "[fe80::1%eth0]:5",
            Host::Zoned("fe80::1".parse().unwrap(), "eth0".into()),
            5,
        ),
    ] {
        assert_eq!(ok(endpoint, text), (Endpoint { host, port }, false));
    }
    let bare = ok(endpoint, "2001:db8::1:51820");
    assert_eq!(bare.0.to_string(), "[2001:db8::1]:51820");
    assert!(bare.1);
    for wrong in [
        "",
        ":1",
        "a:0",
        "a:65536",
        "a:http",
        "a",
        "[::1]",
        "[::1]1",
        "[::1",
        "[a]:1",
        "10.1:1",
        "1.2.3.4.5:1",
        "a..b:1",
        "ä.de:1",
        "a b!:1",
        "[fe80::1%]:1",
        "0x7f:1",
        "a:",
    ] {
        bad(endpoint, wrong);
    }
    assert!(
        bad(endpoint, "2001:db8::1")
            .help
            .is_none_or(|help| help.contains("[2001:db8::1]:51820"))
    );
    assert_eq!(bad(endpoint, "vpn.example.org:99999").range, 16..21);
}

#[test]
fn domains_may_be_for_routing_only() {
    assert_eq!(ok(domain, "corp.example.").to_string(), "corp.example");
    assert_eq!(ok(domain, "~corp").to_string(), "~corp");
    assert_eq!(ok(domain, "~.").to_string(), "~.");
    bad(domain, "~");
    bad(domain, "a/b");
}

fn ok<T>(parse: fn(Text<'_>) -> Parsed<T>, text: &str) -> T {
    parse(Text { start: 0, text }).unwrap_or_else(|bad| panic!("{text}: {bad:?}"))
}

fn bad<T>(parse: fn(Text<'_>) -> Parsed<T>, text: &str) -> Bad {
    let Err(bad) = parse(Text { start: 0, text }) else {
        panic!("{text} is accepted")
    };
    bad
}
