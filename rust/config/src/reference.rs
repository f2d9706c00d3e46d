//! An example of a file.

/// A file with keys of both dialects, and with documentation addresses in place of real ones.
pub const EXAMPLE: &str = "\
[Interface]
PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=
Address = 10.0.0.2/24, fd00::2/64
DNS = 10.0.0.1
#convoy: KillSwitch = on
#convoy: AllowLAN = yes

[Peer]
# friendly_name = office
PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
AllowedIPs = 0.0.0.0/0, ::/0
Endpoint = vpn.example.org:51820
#convoy: Endpoints = 192.0.2.7:51820, [2001:db8::7]:51820
PersistentKeepalive = 25
";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::keys::of_tunnel as keys;

    #[test]
    fn every_key_is_described_in_its_section() {
        let all: Vec<_> = keys().collect();
        assert!(all.is_sorted_by_key(|key| key.section_name()));
        for key in all {
            assert!(key.meaning.ends_with('.'), "{}", key.name);
            let texts = [key.values, key.default, key.meaning];
            assert!(texts.iter().all(|text| !text.is_empty()), "{}", key.name);
        }
    }

    #[test]
    fn a_default_that_is_a_value_is_one() {
        // The others are described: no file can contain them.
        let written = ["0", "auto", "off", "false", "no"];
        for key in keys().filter(|key| written.contains(&key.default)) {
            let line = format!("{} = {}\n", key.head(), key.default);
            let text = match key.section_name() {
                "[Peer]" => EXAMPLE.replace("PersistentKeepalive = 25\n", &line),
                section => {
                    // It has no effect without one.
                    let switch = match key.name {
                        "AllowLAN" => "#convoy: KillSwitch = on\n",
                        _ => "",
                    };
                    let private_key = "A".repeat(42) + "E=";
                    format!("{section}\nPrivateKey = {private_key}\n{switch}{line}")
                }
            };
            read(&text);
        }
    }

    #[test]
    fn the_example_is_valid() {
        read(EXAMPLE);
    }

    fn read(text: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wg0.conf");
        fs::write(&path, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&path, mode).unwrap();
        let loaded = crate::read(&path).unwrap_or_else(|report| panic!("{}", report.render(false)));
        assert!(
            loaded.warnings.is_empty(),
            "{}",
            loaded.warnings.render(false)
        );
    }
}
