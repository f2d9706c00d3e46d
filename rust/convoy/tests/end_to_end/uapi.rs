//! The UAPI at the socket: Convoy and the reference give the same answers to the same requests.

mod cases;

use std::{fmt::Write, sync::LazyLock};

use base64::{Engine, prelude::BASE64_STANDARD};
use convoy_lab::wireguard::Daemon;

use crate::{
    scene::{convoy, lab},
    twins::{Twin, Twins, ask, public_key},
};
use cases::{DIFFERENT, SAME, SAME_RAW};

#[test]
fn every_set_is_answered_as_by_the_reference() {
    let Some(twins) = Twins::new() else { return };
    let mut differences = String::new();
    for lines in SAME {
        let request = filled_in(&format!("set=1\n{lines}\n\n").replace("\n\n\n", "\n\n"));
        let [before, ours, theirs] = [
            listing_of_baseline(&twins),
            answer(&twins.convoy, &request),
            answer(&twins.reference, &request),
        ];
        if ours != theirs {
            writeln!(differences, "{lines:?}: {ours:?}; reference: {theirs:?}").unwrap();
        }
        let [ours_after, theirs_after] = [&twins.convoy, &twins.reference].map(listing);
        if ours == "errno=0\n\n" && ours_after != theirs_after {
            writeln!(
                differences,
                "{lines:?}:\n{ours_after}reference:\n{theirs_after}"
            )
            .unwrap();
        }
        if ours != "errno=0\n\n" && ours_after != before {
            writeln!(
                differences,
                "{lines:?} was refused but changed the device:\n{ours_after}"
            )
            .unwrap();
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn malformed_requests_are_answered_as_by_the_reference() {
    let Some(twins) = Twins::new() else { return };
    for request in SAME_RAW {
        listing_of_baseline(&twins);
        let [ours, theirs] = [&twins.convoy, &twins.reference]
            .map(|twin| String::from_utf8(ask(&twin.daemons[0], request)).unwrap());
        assert_eq!(ours, theirs, "{}", request.escape_ascii());
    }
}

#[test]
fn deliberate_differences_from_the_reference_hold() {
    let Some(twins) = Twins::new() else { return };
    for (request, errno, listed, why) in DIFFERENT {
        let before = listing_of_baseline(&twins);
        let answered = answer(&twins.convoy, &filled_in(request));
        assert_eq!(answered, format!("errno={errno}\n\n"), "{why}: {request}");
        let after = listing(&twins.convoy);
        match listed.is_empty() {
            true => assert_eq!(after, before, "{why}: {request}"),
            false => assert!(after.contains(listed), "{why}: {request}{after}"),
        }
        let same = answer(&twins.reference, &filled_in(request)) == answered
            && listing(&twins.reference) == after;
        assert!(!same, "the reference no longer differs: {request}");
    }
}

#[test]
fn a_single_allowed_ip_is_removed_from_its_owner_only() {
    let Some((_turn, lab)) = lab(&["wg"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    let daemon = Daemon::start(&namespace, &convoy(), "wg0").unwrap();
    set(&daemon, &filled_in(&baseline()));
    let before = sorted_peers(&daemon.request("get=1\n\n").unwrap());
    let lines = "public_key={A}\nallowed_ip=-10.1.0.0/16\nallowed_ip=-10.3.0.0/16\n\
                 public_key={B}\nallowed_ip=-10.99.0.0/16";
    set(&daemon, &filled_in(&format!("set=1\n{lines}\n\n")));
    let after = sorted_peers(&daemon.request("get=1\n\n").unwrap());
    assert_eq!(after, before.replace("allowed_ip=10.1.0.0/16\n", ""));
    assert_ne!(after, before);
}

#[test]
fn the_log_names_the_refused_key_but_no_value() {
    let Some((_turn, lab)) = lab(&["wg"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    let daemon = Daemon::start(&namespace, &convoy(), "wg0").unwrap();
    let secret = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U=";
    for (line, logged) in [
        (
            "private_key=",
            "line 2: private_key must be 64 hexadecimal digits",
        ),
        (
            "fwmark=",
            "line 2: fwmark must be a number from 0 to 4294967295",
        ),
        (
            "public_key={A}\npreshared_key=",
            "line 3: preshared_key must be",
        ),
        (
            "public_key={A}\nendpoint=",
            "line 3: endpoint must be IPv4:port",
        ),
        (
            "public_key={A}\nallowed_ip=",
            "line 3: allowed_ip must be address/prefix",
        ),
        (
            "public_key={A}\nfwmark=",
            "line 3: not a peer key: \"fwmark\"",
        ),
        ("", "line 2: not a device key: 43 bytes, not shown"),
    ] {
        let request = filled_in(&format!("set=1\n{line}{secret}\n\n"));
        assert_eq!(daemon.request(&request).unwrap(), "errno=-22\n\n");
        let log = daemon.log();
        // As JSON.
        let logged = logged.replace('"', "\\\"");
        assert!(log.contains(&logged), "{logged} is missing from:\n{log}");
    }
    assert!(!daemon.log().contains("c2Vj"), "{}", daemon.log());
}

/// Sent to both before each request, whatever the last one did.
fn baseline() -> String {
    "set=1\nprivate_key={KEY}\nlisten_port=51820\nfwmark=0\nreplace_peers=true\n\
     public_key={A}\nallowed_ip=10.1.0.0/16\nallowed_ip=10.2.0.0/16\n\
     public_key={B}\nallowed_ip=10.3.0.0/16\npreshared_key={KEY}\n\
     persistent_keepalive_interval=25\n\n"
        .to_owned()
}

fn listing_of_baseline(twins: &Twins) -> String {
    let baseline = filled_in(&baseline());
    for twin in [&twins.convoy, &twins.reference] {
        set(&twin.daemons[0], &baseline);
    }
    let [ours, theirs] = [&twins.convoy, &twins.reference].map(listing);
    assert_eq!(ours, theirs);
    ours
}

fn set(daemon: &Daemon, request: &str) {
    assert_eq!(daemon.request(request).unwrap(), "errno=0\n\n", "{request}");
}

fn answer(twin: &Twin, request: &str) -> String {
    twin.daemons[0].request(request).unwrap()
}

fn listing(twin: &Twin) -> String {
    sorted_peers(&answer(twin, "get=1\n\n"))
}

/// The reference lists peers in the random order of a Go map.
fn sorted_peers(listing: &str) -> String {
    let listing = listing.strip_suffix("errno=0\n\n").unwrap();
    let mut parts: Vec<_> = listing.split("public_key=").collect();
    parts[1..].sort_unstable();
    parts.join("public_key=")
}

/// Replaces names of keys in `request` by keys.
fn filled_in(request: &str) -> String {
    static KEYS: LazyLock<[(&str, String); 7]> = LazyLock::new(|| {
        [
            ("{KEY}", hex::encode([1; 32])),
            ("{OWN}", public_key_in_hex(1)),
            ("{A}", public_key_in_hex(2)),
            ("{KEY_OF_A}", hex::encode([2; 32])),
            ("{B}", public_key_in_hex(3)),
            ("{C}", public_key_in_hex(4)),
            ("{ZERO}", hex::encode([0; 32])),
        ]
    });
    let fill_in = |text: String, (name, key): &(&str, String)| text.replace(name, key);
    KEYS.iter().fold(request.to_owned(), fill_in)
}

fn public_key_in_hex(number: u8) -> String {
    hex::encode(BASE64_STANDARD.decode(public_key(number)).unwrap())
}
