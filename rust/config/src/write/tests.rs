use crate::{Reader, Report};

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
