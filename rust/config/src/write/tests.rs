use proptest::{collection::vec, prelude::*};

use crate::{Reader, Report, encode_key, fuzz};

use super::*;

const FILE: &str = "\
[Interface]
Address = 10.0.0.1/24
Address = fd00::1/64
DNS = 10.0.0.53
DNS = ~corp.example
MTU = 1400
Table = 51
SaveConfig = true
PreUp = a
PostUp = b
PostUp = c %i
PreDown = d
PostDown = e
ListenPort = 51820
FwMark = 0xca6c
PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=
#convoy: KillSwitch = persistent
#convoy: AllowLAN = yes
#convoy: ExcludedIPs = local
#convoy: ExcludedIPs = 192.0.2.0/24
#convoy: Nat = user
#convoy: NatAllow = 169.254.0.0/16
#convoy: NatDeny = 10.0.0.0/8
#convoy: NatDNS = yes
#convoy: Stun = stun.example.org:3478
#convoy: Stun = [2001:db8::9]:3479
#convoy: PortMap = yes

[Peer]
# friendly_name = Ann
PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
PresharedKey = /UwcSPg38hW/D9Y3tcS1FOV0K1wuURMbS0sesJEP5ak=
AllowedIPs = 10.192.122.3/32, fd00:1::/64
Endpoint = [fe80::1%eth0]:51820
#convoy: Endpoints = vpn.example.org:443
#convoy: Endpoints = 192.0.2.1:51820
PersistentKeepalive = 25
#convoy: Direct = gN65BkIKy1eCE9pP1wdc8ROUtkHLF2PfAqYdyYBz6EI= 10.192.122.3/32, fd00:1::3/128 PresharedKeyFile = psk
#convoy: Direct = gN65BkIKy1eCE9pP1wdc8ROUtkHLF2PfAqYdyYBz6EE= fd00:1::4/128

[Peer]
PublicKey = TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=
#convoy: PresharedKeyFile = psk
";

#[test]
fn a_configuration_is_written_as_it_was_read_but_without_drop_ins() -> Result<(), Report> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.conf");
    std::fs::write(&path, FILE).unwrap();
    let key = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
    std::fs::write(directory.path().join("psk"), key).unwrap();
    std::fs::create_dir(directory.path().join("wg0.d")).unwrap();
    let peer = "[Peer]\nPublicKey = gN65BkIKy1eCE9pP1wdc8ROUtkHLF2PfAqYdyYBz6EA=\n";
    std::fs::write(directory.path().join("wg0.d/a.conf"), peer).unwrap();
    let config = Reader::from_environment().read(&path)?.config;
    assert_eq!(config.peers.len(), 3);
    assert_eq!(*to_wg_quick(&config), FILE);
    Ok(())
}

/// The words of a `Direct` line, apart from its key.
fn direct() -> impl Strategy<Value = String> {
    let prefix = prop_oneof![
        (any::<[u8; 4]>(), 0..=32_u8).prop_map(|(it, length)| (it.into(), length)),
        (any::<[u8; 16]>(), 0..=128_u8).prop_map(|(it, length)| (it.into(), length)),
    ];
    let prefix = prefix.prop_map(|(address, length): (std::net::IpAddr, u8)| {
        let network = convoy_types::Prefix::network_of(address, length);
        network.expect("a valid length").to_string()
    });
    let address = any::<[u8; 16]>().prop_map(|it| std::net::Ipv6Addr::from(it).to_string());
    let space = || prop::sample::select(vec![" ", "  ", "\t"]);
    let file = prop::option::of("[a-zA-Z/._=, -]{0,9}[a-z]");
    let word = prop::sample::select(vec!["PresharedKeyFile", "presharedkeyfile"]);
    let parts = (
        space(),
        address,
        vec((space(), prefix), 0..4),
        space(),
        word,
        file,
    );
    parts.prop_map(|(before, address, prefixes, behind, word, file)| {
        let more: String = prefixes
            .iter()
            .map(|(space, it)| format!(",{space}{it}"))
            .collect();
        let file = file.map(|file| format!("{behind}{word} = {file}"));
        format!("{before}{address}{more}{}", file.unwrap_or_default())
    })
}

proptest! {
    #[test]
    fn direct_peers_are_the_same_when_they_are_written_and_read_again(lines in vec(direct(), 1..5)) {
        let mut text = String::from(
            "[Interface]\nAddress = 10.0.0.1, fd00::1\n[Peer]\n\
             PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nAllowedIPs = 0.0.0.0/0, ::/0\n",
        );
        for (index, line) in lines.iter().enumerate() {
            let key = encode_key(&[index as u8 + 1; 32]);
            text += &format!("#convoy: Direct = {}{line}\n", *key);
        }
        let (config, report) = fuzz::read(&[&text]);
        // Only by chance are two prefixes the same.
        prop_assume!(!report.to_string().contains("same prefix"));
        let config = config.unwrap_or_else(|| panic!("{report}\n{text}"));
        prop_assert_eq!(config.peers[0].directs.len(), lines.len());
        let written = to_wg_quick(&config);
        let (again, report) = fuzz::read(&[&written]);
        let again = again.unwrap_or_else(|| panic!("{report}"));
        prop_assert_eq!(&again.peers, &config.peers, "{}", *written);
        prop_assert_eq!(&*to_wg_quick(&again), &*written);
    }
}
