//! Keys of `[Interface]`, apart from those of forwarding and NAT.

use convoy_types::PrivateKey;

use crate::{
    assignment::Assignment,
    config::Interface,
    key::{CONVOY, Change, Form, Key, Take, WG_QUICK, Write},
    located::Located,
    text::Text,
    values::{
        Bad, Parsed, allowed_ip, domain, fwmark, interface_address, ip_address, key, kill_switch,
        listen_port, mtu, table, truth,
    },
};

pub(super) static INTERFACE: [Key; 16] = [
    Key {
        name: "PrivateKey",
        form: Form::SecretKey,
        values: "32 bytes in base64",
        default: "none (required to carry traffic)",
        meaning: "The private key of this end; `convoy genkey` makes one.",
        example: "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=",
        saved: 12,
        take: Take::Interface(|it, line| line.set(&mut it.private_key, private_key)),
        write: Write::Interface(|it, out| {
            if let (None, Some(key)) = (&it.private_key_file, &it.private_key) {
                out.key(&key.0);
            }
        }),
        change: Change::Interface(|old, new, update| {
            if old.private_key != new.private_key {
                update.private_key = Some(new.private_key.clone().map(|key| key.value));
            }
        }),
        ..WG_QUICK
    },
    Key {
        name: "ListenPort",
        values: "0 to 65535",
        default: "0",
        meaning: "The UDP port of this end. With 0, the kernel chooses one.",
        example: "51820",
        saved: 10,
        take: Take::Interface(|it, line| line.set(&mut it.listen_port, listen_port)),
        write: Write::Interface(|it, out| out.each(&it.listen_port)),
        change: Change::Interface(|old, new, update| {
            update.listen_port = changed(&old.listen_port, &new.listen_port)
        }),
        ..WG_QUICK
    },
    Key {
        name: "FwMark",
        values: "off, or 0 to 4294967295 except 253 to 255; 0x… is hexadecimal",
        default: "chosen if a route or the kill switch needs one, else off",
        meaning: "The mark of the tunnel's datagrams, by which rules tell them from other packets.",
        example: "0xca6c",
        saved: 11,
        take: Take::Interface(|it, line| line.set(&mut it.fwmark, fwmark)),
        write: Write::Interface(|it, out| {
            if let Some(mark) = &it.fwmark {
                out.line(format_args!("{:#x}", mark.value));
            }
        }),
        change: Change::Interface(|old, new, update| {
            update.fwmark = changed(&old.fwmark, &new.fwmark)
        }),
        ..WG_QUICK
    },
    Key {
        name: "Address",
        form: Form::MayBeEmpty,
        values: "addresses, each with or without /LENGTH; may be repeated",
        meaning: "The addresses of the interface.",
        example: "10.0.0.2/24",
        saved: 1,
        take: Take::Interface(|it, line| {
            line.push(&mut it.addresses, line.words(), interface_address)
        }),
        write: Write::Interface(|it, out| out.each(&it.addresses)),
        ..WG_QUICK
    },
    Key {
        name: "DNS",
        form: Form::MayBeEmpty,
        values: "addresses and domains; may be repeated",
        default: "the name servers stay as they are",
        meaning: "The name servers and search domains while the tunnel is up. With ~DOMAIN, only names below \
             such domains are looked up there, if this host uses systemd-resolved; it completes none.",
        example: "10.0.0.1",
        saved: 2,
        take: Take::Interface(|it, line| {
            for item in line.words() {
                match is_address(item) {
                    true => line.push(&mut it.dns_servers, [item], ip_address),
                    false => line.push(&mut it.dns_domains, [item], domain),
                }
            }
        }),
        write: Write::Interface(|it, out| {
            out.each(&it.dns_servers);
            out.each(&it.dns_domains);
        }),
        ..WG_QUICK
    },
    Key {
        name: "MTU",
        form: Form::MayBeEmpty,
        values: "68 to 65535",
        default: "what the routes to the endpoints carry",
        meaning: "The largest packet in bytes. It is lowered where a path turns out to carry less.",
        example: "1400",
        saved: 3,
        take: Take::Interface(|it, line| line.set_or_clear(&mut it.mtu, mtu)),
        write: Write::Interface(|it, out| out.each(&it.mtu)),
        ..WG_QUICK
    },
    Key {
        name: "Table",
        form: Form::MayBeEmpty,
        values: "auto, off, a number, or a name from rt_tables",
        default: "auto",
        meaning: "Where the routes to AllowedIPs go: auto is the main table and, for a default route, a kill switch or \
             networks that hold an endpoint, a table of its own with rules; off makes no routes.",
        example: "51",
        saved: 4,
        take: Take::Interface(|it, line| {
            let tables = line.tables;
            line.set_or_clear(&mut it.table, |value| table(value, tables));
        }),
        write: Write::Interface(|it, out| out.each(&it.table)),
        ..WG_QUICK
    },
    Key {
        name: "PreUp",
        meaning: "Runs before the interface is made. %i stands for its name, here and in the other hooks. They run \
             only if nobody but root and the caller can write to the file.",
        saved: 6,
        take: Take::Interface(|it, line| line.push_command(&mut it.pre_up)),
        write: Write::Interface(|it, out| out.each(&it.pre_up)),
        ..HOOK
    },
    Key {
        name: "PostUp",
        meaning: "Runs once the tunnel is up.",
        saved: 7,
        take: Take::Interface(|it, line| line.push_command(&mut it.post_up)),
        write: Write::Interface(|it, out| out.each(&it.post_up)),
        ..HOOK
    },
    Key {
        name: "PreDown",
        meaning: "Runs before the tunnel is taken down.",
        saved: 8,
        take: Take::Interface(|it, line| line.push_command(&mut it.pre_down)),
        write: Write::Interface(|it, out| out.each(&it.pre_down)),
        ..HOOK
    },
    Key {
        name: "PostDown",
        meaning: "Runs once the tunnel has been taken down.",
        saved: 9,
        take: Take::Interface(|it, line| line.push_command(&mut it.post_down)),
        write: Write::Interface(|it, out| out.each(&it.post_down)),
        ..HOOK
    },
    Key {
        name: "SaveConfig",
        values: "true or false",
        default: "false",
        meaning: "Whether the running state is written to the file when the tunnel is taken down; if the file was edited \
             meanwhile, to NAME.conf.saved beside it. Nothing is written to somebody else's file.",
        example: "true",
        saved: 5,
        take: Take::Interface(|it, line| {
            line.set(&mut it.save_config, |value| truth(value, "true", "false"))
        }),
        write: Write::Interface(|it, out| out.truth(it.save_config.as_ref(), "true", "false")),
        ..WG_QUICK
    },
    Key {
        name: "KillSwitch",
        values: "off, on or persistent",
        default: "off",
        meaning: "Whether packets that would leave outside the tunnel are dropped: never, while it is up, or always, \
             even at boot. Needs nft.",
        example: "persistent",
        take: Take::Interface(|it, line| line.set(&mut it.kill_switch, kill_switch)),
        write: Write::Interface(|it, out| out.each(&it.kill_switch)),
        ..CONVOY
    },
    Key {
        name: "AllowLAN",
        values: "yes or no",
        default: "no",
        meaning: "Whether the kill switch leaves the local network reachable: connected networks that are private, without \
             those of Address and AllowedIPs.",
        example: "yes",
        take: Take::Interface(|it, line| {
            line.set(&mut it.allow_lan, |value| truth(value, "yes", "no"))
        }),
        write: Write::Interface(|it, out| out.truth(it.allow_lan.as_ref(), "yes", "no")),
        ..CONVOY
    },
    Key {
        name: "ExcludedIPs",
        values: "prefixes or local, separated by commas; may be repeated",
        meaning: "What stays outside the tunnel; local is the local network, as for AllowLAN.",
        example: "192.0.2.0/24",
        take: Take::Interface(take_excluded),
        write: Write::Interface(|it, out| {
            if it.exclude_local.is_some() {
                out.line("local");
            }
            out.each(&it.excluded_ips);
        }),
        ..CONVOY
    },
    Key {
        name: "PrivateKeyFile",
        values: "a path",
        meaning: "A file with the private key, in place of PrivateKey. A relative path begins at \
             $CREDENTIALS_DIRECTORY (systemd's credentials), else at the directory of the configuration file.",
        example: "private.key",
        saved: 12,
        take: Take::Interface(|it, line| line.set_path(&mut it.private_key_file)),
        write: Write::Interface(|it, out| {
            if let Some(file) = &it.private_key_file {
                out.line(file.display());
            }
        }),
        ..CONVOY
    },
];

const HOOK: Key = Key {
    form: Form::Command,
    values: "a shell command; may be repeated",
    example: "echo %i",
    ..WG_QUICK
};

/// Returns the new number, if it is another; one that is gone is 0.
fn changed<T: Copy + Default + PartialEq>(
    old: &Option<Located<T>>,
    new: &Option<Located<T>>,
) -> Option<T> {
    let number = |it: &Option<Located<T>>| it.as_ref().map(|it| it.value).unwrap_or_default();
    (number(old) != number(new)).then(|| number(new))
}

fn private_key(value: Text<'_>) -> Parsed<PrivateKey> {
    let key = key(value)?;
    if key.iter().all(|byte| *byte == 0) {
        return Err(Bad::new(value, "a key other than zero").help("`convoy genkey` generates one"));
    }
    Ok(clamped(*key))
}

/// Returns the canonical form of a Curve25519 scalar (RFC 7748 §5), as the UAPI lists it.
pub(crate) fn clamped(mut key: [u8; 32]) -> PrivateKey {
    key[0] &= 248;
    key[31] = (key[31] & 127) | 64;
    PrivateKey(key)
}

/// Returns whether wg-quick takes this for an address: digits and dots, or anything with a colon.
fn is_address(item: Text<'_>) -> bool {
    item.text.contains(':') || item.text.bytes().all(|b| b == b'.' || b.is_ascii_digit())
}

fn take_excluded(it: &mut Interface, line: &mut Assignment<'_>) {
    for item in line.items() {
        if item.is("local") {
            let at = line.at(item);
            it.exclude_local = Some(Located { value: (), at });
            continue;
        }
        line.push(&mut it.excluded_ips, [item], |item| {
            let parsed = allowed_ip(item).map_err(|bad| match bad.help {
                None => bad.help("`local` stands for the local network"),
                Some(_) => bad,
            });
            Ok(parsed?.0)
        });
    }
}
