//! The keys of ports that are forwarded.

use super::*;
use crate::forward::Side;

#[test]
fn ports_to_forward_are_read_in_their_order() {
    let draft = valid(
        "[Interface]\nAddress = 10.0.0.2/24\n\
         #convoy: Deny = 10.9.0.0/16\n\
         #convoy: Forward = 8080:web.example:80\n\
         #convoy: forwardudp = *:53:[2001:db8::1]:53\n\
         #convoy: Allow = 192.0.2.0/24\n\
         #convoy: Reverse = 22:127.0.0.1:22\n\
         #convoy: Socks5 = 192.0.2.7:1080\n\
         #convoy: LoginFile = login\n\
         #convoy: HttpConnect = 3128\n\
         #convoy: Buffer = 16K\n",
    );
    let forwarding = &draft.interface.forwarding;
    assert_eq!(forwarding.access.deny.len(), 1);
    assert_eq!(forwarding.buffer, Some(16 << 10));
    let listeners: Vec<_> = forwarding
        .listeners
        .iter()
        .map(|it| (it.side, it.addresses[0].to_string(), it.access.allow.len()))
        .collect();
    assert_eq!(
        listeners,
        [
            (Side::Host, "127.0.0.1:8080".to_owned(), 0),
            (Side::Host, "0.0.0.0:53".to_owned(), 1),
            (Side::Inside, "0.0.0.0:22".to_owned(), 0),
            (Side::Host, "192.0.2.7:1080".to_owned(), 0),
            (Side::Host, "127.0.0.1:3128".to_owned(), 0),
        ]
    );
    let own = ["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
    let inside = forwarding.listeners[2].inside(&own).unwrap();
    let expected = ["10.0.0.2:22", "[fd00::2]:22"].map(|it| it.parse().unwrap());
    assert_eq!(inside, expected);
    assert!(forwarding.listeners[3].inside(&own).is_none());
}

#[test]
fn a_port_that_cannot_be_forwarded_is_refused_at_its_place() {
    for (line, title, label) in [
        (
            "Forward = 80",
            "invalid value for `Forward`",
            "`port:host:port`",
        ),
        (
            "Reverse = 80:host:0",
            "invalid value for `Reverse`",
            "a port from 1",
        ),
        (
            "Forward = *:80:host:80",
            "other hosts could use this listener",
            "not a loopback",
        ),
        ("LoginFile = x", "", ""),
        (
            "Reverse = 192.0.2.1:80:host:80",
            "does not have",
            "one of `Address`",
        ),
        (
            "Buffer = 1K",
            "invalid value for `Buffer`",
            "`8K` to `256K`",
        ),
    ] {
        let (mut draft, mut report) = (Draft::default(), Report::default());
        let text = format!("[Interface]\nAddress = 10.0.0.2/24\n#convoy: {line}\n");
        parse(0, &text, &RouteTables::parse(""), &mut draft, &mut report);
        check(&mut draft, &mut report);
        report.files = Arc::new(Files(vec![Shown {
            path: "wg0.conf".into(),
            text: masked(&text),
        }]));
        let rendered = report.render(false);
        assert_eq!(report.has_errors(), !title.is_empty(), "{line}: {rendered}");
        assert!(
            rendered.contains(title) && rendered.contains(label),
            "{line}: {rendered}"
        );
        assert!(
            title.is_empty() || rendered.contains("wg0.conf:3:"),
            "{line}: {rendered}"
        );
    }
}
