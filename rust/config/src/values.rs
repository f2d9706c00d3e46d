//! Parses single values. Each accepts what wg and ip accept, unless its comment says otherwise.

mod bad;
mod endpoint;
mod network;

pub(crate) use bad::{Bad, Parsed};
pub(crate) use endpoint::{domain, endpoint, server};
pub(crate) use network::{allowed_ip, interface_address, ip_address};

use zeroize::Zeroizing;

use crate::{
    base64::decode_key,
    config::{KillSwitch, Table},
    nearest::nearest_word,
    number::{decimal, hexadecimal},
    route_tables::{RouteTables, SYSTEM_TABLES},
    text::Text,
};

/// 32 bytes in base64.
pub(crate) fn key(value: Text<'_>) -> Parsed<Zeroizing<[u8; 32]>> {
    decode_key(&value.compact()).ok_or_else(|| {
        let bad = Bad::new(value, "32 bytes in base64: 43 characters and `=`");
        match value.text.chars().filter(|c| !c.is_whitespace()).count() {
            44 => bad,
            found => bad.help(format!("found {found} characters")),
        }
    })
}

/// A UDP port. Unlike wg, refuses service names and numbers above 65535.
pub(crate) fn listen_port(value: Text<'_>) -> Parsed<u16> {
    decimal(&value.compact()).ok_or_else(|| Bad::new(value, "a number from 0 to 65535"))
}

/// A mark; 0 is `off`.
pub(crate) fn fwmark(value: Text<'_>) -> Parsed<u32> {
    let text = value.compact();
    let number = match text.strip_prefix("0x") {
        _ if text.eq_ignore_ascii_case("off") => Some(0),
        Some(digits) => hexadecimal(digits),
        None => decimal(&text),
    };
    let number = number.ok_or_else(|| {
        let expected = "`off` or a number from 0 to 4294967295, decimal or 0x…";
        Bad::new(value, expected)
    })?;
    if SYSTEM_TABLES.contains(&number) {
        let bad = Bad::new(value, "a number other than 253, 254 and 255");
        return Err(bad.help(
            "a mark is also the number of the tunnel's table, and these are the tables default, main and local",
        ));
    }
    Ok(number)
}

/// Bytes of a packet; the range that the kernel accepts for a TUN device.
pub(crate) fn mtu(value: Text<'_>) -> Parsed<u16> {
    let mtu = decimal(value.text).filter(|mtu| *mtu >= 68);
    mtu.ok_or_else(|| Bad::new(value, "a number of bytes from 68 to 65535"))
}

/// A routing table, as ip-route(8) names them. Unlike in wg-quick, `off` and `auto` may be in any case.
pub(crate) fn table(value: Text<'_>, names: &RouteTables) -> Parsed<Table> {
    let text = value.text;
    let number = match text.strip_prefix("0x") {
        Some(digits) => hexadecimal(digits),
        None => decimal(text),
    };
    match text {
        _ if text.eq_ignore_ascii_case("off") => Ok(Table::Off),
        _ if text.eq_ignore_ascii_case("auto") => Ok(Table::Auto),
        _ => number
            .or_else(|| names.number(text))
            .map(Table::Number)
            .ok_or_else(|| {
                let expected = "`off`, `auto`, a number, or a name from rt_tables";
                Bad::new(value, expected)
            }),
    }
}

/// Seconds; 0 is `off`.
pub(crate) fn keepalive(value: Text<'_>) -> Parsed<u16> {
    let text = value.compact();
    let is_off = text.eq_ignore_ascii_case("off");
    let seconds = if is_off { Some(0) } else { decimal(&text) };
    seconds.ok_or_else(|| Bad::new(value, "`off`, or seconds from 1 to 65535"))
}

/// A truth value in one of two words.
pub(crate) fn truth(value: Text<'_>, yes: &'static str, no: &'static str) -> Parsed<bool> {
    if value.is(yes) {
        return Ok(true);
    }
    if value.is(no) {
        return Ok(false);
    }
    Err(Bad::new(value, format!("`{yes}` or `{no}`")))
}

/// The kill switch.
pub(crate) fn kill_switch(value: Text<'_>) -> Parsed<KillSwitch> {
    let words = [
        ("off", KillSwitch::Off),
        ("on", KillSwitch::On),
        ("persistent", KillSwitch::Persistent),
    ];
    let found = words.iter().find(|(word, _)| value.is(word));
    found.map(|(_, state)| *state).ok_or_else(|| {
        let bad = Bad::new(value, "`off`, `on` or `persistent`");
        match nearest_word(value.text, words.map(|(word, _)| word)) {
            Some(word) => bad.help(format!("did you mean `{word}`?")),
            None => bad,
        }
    })
}

#[cfg(test)]
mod tests;
