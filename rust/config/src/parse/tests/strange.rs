//! Characters that nobody sees, and keys of other programs.

use super::*;

const PRIVATE: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";

#[test]
fn an_invisible_character_is_one_error_with_its_name_and_place() {
    let file = |interface: &str, header: &str, key: &str| {
        format!("[Interface]\nPrivateKey = {PRIVATE}\n{interface}\n{header}\nPublicKey = {key}\n")
    };
    let key = KEYS[0];
    let (head, tail) = key.split_at(20);
    for (text, place, name) in [
        (
            file("MTU = 1400\u{a0}", "[Peer]", key),
            "3:11",
            "U+00A0 is not allowed here: a no-break space",
        ),
        (file("\u{3000}MTU = 1400", "[Peer]", key), "3:1", "U+3000"),
        (file("MTU\u{202f}= 1400", "[Peer]", key), "3:4", "U+202F"),
        (file("MTU = 14\u{2060}00", "[Peer]", key), "3:9", "U+2060"),
        (
            file("DNS = 10.0.0.1,\u{a0}10.0.0.2", "[Peer]", key),
            "3:16",
            "U+00A0",
        ),
        (
            file("#convoy: KillSwitch =\u{a0}on", "[Peer]", key),
            "3:22",
            "U+00A0",
        ),
        (
            file("", "\u{feff}[Peer]", key),
            "4:1",
            "U+FEFF is not allowed here: a byte order mark",
        ),
        (file("", "[Peer\u{200b}]", key), "4:6", "U+200B"),
        (
            file("", "[Peer]", &format!("{key}\u{200b}")),
            "5:57",
            "U+200B is not allowed here: a zero-width space",
        ),
        (
            file("", "[Peer]", &format!("{head}\u{ad}{tail}")),
            "5:33",
            "U+00AD",
        ),
    ] {
        let report = invalid(&text);
        assert_eq!(report.matches("error:").count(), 1, "{report}");
        assert!(report.contains(name), "{name}: {report}");
        assert!(
            report.contains(&format!("wg0.conf:{place}")),
            "{place}: {report}"
        );
    }
    // Where they do no harm.
    valid(&file(
        "# a\u{a0}comment\nPostUp = echo 'a\u{a0}b'",
        "[Peer] # \u{200b}",
        key,
    ));
}

#[test]
fn keys_of_another_program_are_one_error_with_the_reason() {
    let file = |lines: &str| {
        format!(
            "[Interface]\nPrivateKey = {PRIVATE}\n{lines}\n[Peer]\nPublicKey = {}\n",
            KEYS[0]
        )
    };
    let amnezia = "Jc = 4\nJmin = 40\nJmax = 70\nS1 = 57\nS2 = 84\nh1 = 1148530187\nH2 = 2\nH3 = 3\nH4 = 4\nI1 = <b 0x00>";
    let off = "Jc = 4\nJmin = 40\nJmax = 70\nS1 = 0\nS2 = 0\nH1 = 1\nH2 = 2\nH3 = 3\nH4 = 4\nI1 =";
    let android =
        "ExcludedApplications = com.example.bank, com.example.tv\nincludedapplications = a";
    for (lines, names, reason) in [
        (
            amnezia,
            "keys of AmneziaWG: `Jc`, `Jmin`, `Jmax`, `S1`, `S2`, `H1`, `H2`",
            "answers none of Convoy's",
        ),
        (off, "AmneziaWG", "remove these lines, and the tunnel works"),
        (
            android,
            "WireGuard for Android: `ExcludedApplications`, `IncludedApplications`",
            "for all programs",
        ),
    ] {
        let report = invalid(&file(lines));
        assert_eq!(report.matches("error:").count(), 1, "{report}");
        assert!(
            report.contains(names) && report.contains(reason),
            "{report}"
        );
        assert!(report.contains("wg0.conf:3:1"), "{report}");
    }
    let both = invalid(&file(&format!("{amnezia}\n{android}\nMTU = x")));
    assert_eq!(both.matches("error:").count(), 3, "{both}");
}
