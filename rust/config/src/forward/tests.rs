use std::fs;

use super::*;

#[test]
fn each_kind_of_line_is_read() {
    let (forwarding, warnings) = read(
        "Buffer = 128k\nDeny = 10.9.0.0/16\n\
         Forward = 8080:example.com:80 # a comment\n\
         forwardudp = 127.0.0.1:53:[2001:db8::1]:53\n\
         Forward = *:443:192.0.2.1:443\nAllow = 10.0.0.0/8, fd00::/8\n\
         Socks5 = [::1]:1080\nHttpConnect = localhost:3128\n",
    )
    .unwrap();
    assert!(warnings.is_empty());
    assert_eq!(forwarding.buffer, Some(128 << 10));
    assert_eq!(forwarding.access.deny.len(), 1);
    let listeners: Vec<_> = forwarding.listeners.iter().map(described).collect();
    assert_eq!(
        listeners,
        [
            (
                "127.0.0.1:8080 [::1]:8080".to_owned(),
                Offer::Tcp("example.com".to_owned(), 80),
                0
            ),
            (
                "127.0.0.1:53".to_owned(),
                Offer::Udp("2001:db8::1".to_owned(), 53),
                0
            ),
            (
                "0.0.0.0:443 [::]:443".to_owned(),
                Offer::Tcp("192.0.2.1".to_owned(), 443),
                2
            ),
            ("[::1]:1080".to_owned(), Offer::Socks5, 0),
            (
                "127.0.0.1:3128 [::1]:3128".to_owned(),
                Offer::HttpConnect,
                0
            ),
        ]
    );
}

fn described(listener: &Listener) -> (String, Offer, usize) {
    let addresses = listener.addresses.iter().map(ToString::to_string);
    let addresses = addresses.collect::<Vec<_>>().join(" ");
    (
        addresses,
        listener.offer.clone(),
        listener.access.allow.len(),
    )
}

#[test]
fn targets_are_of_the_proxy_above_or_else_of_every_proxy() {
    let (forwarding, _) = read(
        "TargetDeny = 10.1.0.0/16\nSocks5 = 1080\nTargetAllow = 10.2.0.0/16, 10.3.0.0/16\n\
         HttpConnect = 3128\nTargetDeny = 10.4.0.0/16\n",
    )
    .unwrap();
    let counts = |lists: &AccessLists| (lists.allow.len(), lists.deny.len());
    assert_eq!(counts(&forwarding.targets), (0, 1));
    let proxies = forwarding.listeners.iter().map(|it| counts(&it.targets));
    assert_eq!(proxies.collect::<Vec<_>>(), [(2, 0), (0, 1)]);
}

#[test]
fn an_error_shows_its_line_and_what_is_expected() {
    for (text, title, expected) in [
        (
            "Forward = 8080",
            "invalid value for `Forward`",
            "`port:host:port`",
        ),
        (
            "Forward = 8080:host:0",
            "invalid value for `Forward`",
            "a port from 1 to 65535",
        ),
        (
            "Forward = ::1:80:host:80",
            "invalid value for `Forward`",
            "brackets",
        ),
        (
            "Forward = 99999:host:80",
            "invalid value for `Forward`",
            "a port",
        ),
        (
            "Socks5 = name:1080",
            "invalid value for `Socks5`",
            "an IP address of this host",
        ),
        (
            "Buffer = 1M",
            "invalid value for `Buffer`",
            "`8K` to `256K`",
        ),
        ("Forwad = 1:a:1", "unknown key", "did you mean `Forward`?"),
        ("[Interface]", "not a key with a value", "`Key = value`"),
        (
            "Socks5 = 0.0.0.0:1080",
            "other hosts could use this listener",
            "`Allow = …`",
        ),
        (
            "Forward = 1:a:1\nLoginFile = /x",
            "invalid value for `LoginFile`",
            "a proxy above it",
        ),
        (
            "Forward = 1:a:1\nTargetAllow = 10.0.0.0/8",
            "invalid value for `TargetAllow`",
            "a proxy above it",
        ),
        (
            "TargetDeny = 10.0.0.0/33\nSocks5 = 1080",
            "invalid value for `TargetDeny`",
            "10.0.0.0/33",
        ),
        ("# nothing", "nothing is forwarded", "`Forward = "),
    ] {
        let report = read(text).unwrap_err().to_string();
        assert!(
            report.contains(title) && report.contains(expected),
            "{report}"
        );
    }
    let report = read("\nBuffer = 64K\nForward = 8080\n")
        .unwrap_err()
        .to_string();
    assert!(
        report.contains("forward.conf:3:11") && report.contains("Forward = 8080"),
        "{report}"
    );
}

#[test]
fn a_tunnels_file_is_refused_without_its_keys() {
    let key = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
    let text = format!("[Interface]\nPrivateKey = {key}\nSecret = hunter2\n");
    let report = read(&text).unwrap_err().to_string();
    assert!(
        !report.contains(&key[..8]) && !report.contains("hunter2"),
        "{report}"
    );
}

#[test]
fn a_password_guards_a_proxy_and_is_shown_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("login");
    fs::write(&file, "alice:open:sesame\n").unwrap();
    let text = format!("Socks5 = 0.0.0.0:1080\nLoginFile = {}\n", file.display());
    let (forwarding, _) = read(&text).unwrap();
    let login = forwarding.listeners[0].login.clone().unwrap();
    assert_eq!(
        (login.user.as_str(), login.password.as_str()),
        ("alice", "open:sesame")
    );
    assert!(!format!("{forwarding:?}").contains("sesame"));
}

#[test]
fn rinetds_lines_become_a_forwarders() {
    let (imported, warnings) = import(
        "# mail\nallow 192.168.2.*\n0.0.0.0 25 mail.example 25\n\
         127.0.0.1 53/udp 9.9.9.9 53/udp\n:: 80 2001:db8::1 8080 [timeout=9]\ndeny 10.1.2.3\nlogfile /var/log/rinetd\n",
    )
    .unwrap();
    let (_, text) = imported.0.split_once('\n').unwrap();
    assert_eq!(
        text,
        "# mail\nAllow = 192.168.2.0/24\nForward = 0.0.0.0:25:mail.example:25\n\
         ForwardUDP = 127.0.0.1:53:9.9.9.9:53\nForward = [::]:80:[2001:db8::1]:8080\n\
         # left out: [timeout=9]\nDeny = 10.1.2.3\n# left out: logfile /var/log/rinetd\n"
    );
    let shown = warnings.to_string();
    assert!(
        shown.contains("rinetd.conf:7") && shown.contains("logfile /var/log/rinetd"),
        "{shown}"
    );
    assert!(read(text).is_ok());
}

#[test]
fn a_listener_of_rinetd_without_a_list_says_that_everyone_may_use_it() {
    let (imported, _) = import(
        "0.0.0.0 80 192.0.2.1 80\n127.0.0.1 81 192.0.2.1 81\n:: 82 192.0.2.1 82\nallow 10.*\n",
    )
    .unwrap();
    let (_, text) = imported.0.split_once('\n').unwrap();
    assert_eq!(
        text,
        "Forward = 0.0.0.0:80:192.0.2.1:80\nAllow = 0.0.0.0/0\nForward = 127.0.0.1:81:192.0.2.1:81\n\
         Forward = [::]:82:192.0.2.1:82\nAllow = 10.0.0.0/8\n"
    );
}

#[test]
fn what_rinetd_means_otherwise_is_an_error_with_its_line() {
    for line in [
        "0.0.0.0 http host 80",
        "0.0.0.0 80/udp host 80/tcp",
        "name 80 host 80",
        "allow 10.0.0.1?",
        "allow *.0.0.1",
        "0.0.0.0 80",
    ] {
        let report = import(&format!("\n{line}\n")).unwrap_err().to_string();
        assert!(
            report.contains("rinetd.conf:2") && report.contains(line),
            "{report}"
        );
    }
}

#[test]
fn a_control_character_in_rinetds_file_moves_no_label() {
    for (line, shown) in [
        // Two bytes in UTF-8.
        ("\u{85}éx", "1 | ??éx\n  |   ^^ expected"),
        ("a \u{9b}€", "1 | a ??€\n  | ^^^^^ expected"),
        ("a\u{1b}[2J", "1 | a?[2J\n  | ^^^^^ expected"),
    ] {
        let report = import(line).unwrap_err().to_string();
        assert!(report.contains(shown), "{report}");
    }
}

#[test]
fn the_name_of_rinetds_file_adds_no_line_to_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a\nAllow = 0.0.0.0\u{1b}");
    fs::write(&path, "127.0.0.1 81 192.0.2.1 81\n").unwrap();
    let (Imported(text), _) = import_rinetd(&path).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    assert!(first.ends_with("/a?Allow = 0.0.0.0?"), "{first}");
    assert_eq!(rest, "Forward = 127.0.0.1:81:192.0.2.1:81\n");
}

#[test]
fn the_file_of_a_password_is_found_beside_the_one_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("forward.conf");
    fs::write(&path, "Socks5 = 1080\nLoginFile = login\n").unwrap();
    fs::write(directory.path().join("login"), "alice:sesame\n").unwrap();
    let (forwarding, warnings) = read_forwarding(&path).unwrap();
    assert!(forwarding.listeners[0].login.is_some());
    let shown = warnings.to_string();
    assert!(
        shown.contains("others can read this file with the password"),
        "{shown}"
    );
}

#[test]
fn a_file_that_is_no_password_is_refused_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("forward.conf");
    let fifo = directory.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    fs::write(directory.path().join("large"), "alice:".repeat(1_000)).unwrap();
    for (file, reason) in [
        ("fifo", "it is a FIFO"),
        ("large", "more than"),
        ("/dev/zero", "it is a device"),
        ("missing", "it does not exist"),
    ] {
        fs::write(&path, format!("Socks5 = 1080\nLoginFile = {file}\n")).unwrap();
        let report = read_forwarding(&path).unwrap_err().to_string();
        assert!(
            report.contains("forward.conf:2:13") && report.contains(reason),
            "{report}"
        );
    }
}

fn read(text: &str) -> Result<(Forwarding, Report), Report> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("forward.conf");
    fs::write(&path, text).unwrap();
    read_forwarding(&path)
}

fn import(text: &str) -> Result<(Imported, Report), Report> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rinetd.conf");
    fs::write(&path, text).unwrap();
    import_rinetd(&path)
}
