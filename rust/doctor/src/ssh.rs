//! Connections by SSH to this host, which a full tunnel cuts: the answers would go into it.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use convoy_host::Prefix;

use super::{
    finding::Finding,
    netlink::{MAIN_TABLE, Route},
    others::Routing,
};

const SSH: u16 = 22;
/// In /proc/net/tcp.
const ESTABLISHED: &str = "01";
/// Most hosts that a finding names.
const MAX_NAMED: usize = 4;

/// The hosts with a connection to this one's SSH server.
pub(super) fn gather() -> Vec<IpAddr> {
    let port = session_port().unwrap_or(SSH);
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
    let texts = tables.map(|path| fs::read_to_string(path).unwrap_or_default());
    let mut clients: Vec<_> = texts.iter().flat_map(|text| clients(text, port)).collect();
    clients.retain(|client| !client.is_loopback());
    clients.sort();
    clients.dedup();
    clients
}

/// The server's port of the session in which this runs.
fn session_port() -> Option<u16> {
    let connection = std::env::var("SSH_CONNECTION").ok()?;
    connection.split_whitespace().nth(3)?.parse().ok()
}

/// The remote addresses of established connections to a port, from a text of /proc/net/tcp or tcp6.
fn clients(text: &str, port: u16) -> Vec<IpAddr> {
    let connections = text.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, remote, state) = (fields.next()?, fields.next()?, fields.next()?);
        let (_, local_port) = local.split_once(':')?;
        let is_it = state == ESTABLISHED && u16::from_str_radix(local_port, 16) == Ok(port);
        address(remote.split_once(':')?.0).filter(|_| is_it)
    });
    connections.collect()
}

/// Words of the CPU's byte order, in hexadecimal.
fn address(text: &str) -> Option<IpAddr> {
    let words = text.as_bytes().chunks(8);
    let words = words.map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok());
    let words: Vec<u32> = words.collect::<Option<_>>()?;
    let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes)
            .ok()
            .map(|it| Ipv4Addr::from(it).into()),
        16 => {
            let bytes = <[u8; 16]>::try_from(bytes).ok()?;
            Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

/// Judges whether a tunnel that is not up yet would cut the connections.
pub(super) fn judge(
    clients: &[IpAddr],
    routes: &[Route],
    routing: Routing<'_>,
    excluded: &[Prefix],
) -> Option<Finding> {
    const ID: &str = "ssh";
    let name = routing.name.filter(|_| routing.mark.is_none())?;
    let is_near = |host: &Prefix| {
        let in_main = routes.iter().filter(|route| route.table == MAIN_TABLE);
        let mut near = in_main.map(|route| route.to).filter(|to| to.length() > 0);
        near.any(|to| to.contains(host)) || excluded.iter().any(|hole| hole.contains(host))
    };
    let cut = clients.iter().map(|client| Prefix::host(*client));
    let cut = cut.filter(|host| routing.has_default[usize::from(host.is_ipv6())] && !is_near(host));
    let cut: Vec<_> = cut
        .take(MAX_NAMED)
        .map(|host| host.address().to_string())
        .collect();
    if cut.is_empty() {
        return None;
    }
    let cut = cut.join(", ");
    let what = format!(
        "SSH connections from {cut} end once {name} is up: the answers go into the tunnel, as do those to all others \
         who reach this host from outside."
    );
    let fix = format!(
        "`#convoy: ExcludedIPs = {cut}` in the file of {name} leaves them outside the tunnel."
    );
    Some(Finding::warning(ID, what, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue
   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0201A8C0:0016 017100CB:D431 01 00000000:00000000 02:000A7214 00000000     0        0 2 4
   2: 0201A8C0:01BB 027100CB:D431 01 00000000:00000000 02:000A7214 00000000     0        0 3 4
";
    const TCP6: &str =
        "  sl  local_address                         remote_address                        st
   0: 0000000000000000FFFF00000201A8C0:0016 0000000000000000FFFF0000037100CB:C1A0 01
   1: B80D0120000002000000000002000000:0016 B80D0120000001000000000001000000:C1A0 01
   2: nonsense
";

    #[test]
    fn established_connections_to_the_port_are_found() {
        if cfg!(target_endian = "big") {
            return;
        }
        let expected: Vec<IpAddr> = vec!["203.0.113.1".parse().unwrap()];
        assert_eq!(clients(TCP, SSH), expected);
        let found = clients(TCP6, SSH);
        assert_eq!(found[0], "203.0.113.3".parse::<IpAddr>().unwrap());
        assert_eq!(found.len(), 2);
        assert_eq!(clients("", SSH), Vec::<IpAddr>::new());
    }

    #[test]
    fn only_connections_that_a_full_tunnel_would_cut_are_told() {
        let client: IpAddr = "203.0.113.1".parse().unwrap();
        let full = Routing {
            name: Some("wg0"),
            mark: None,
            has_default: [true, false],
        };
        let to = |text: &str| Route::by_device(MAIN_TABLE, text.parse().unwrap(), 2);
        let told = judge(&[client], &[to("192.168.1.0/24")], full, &[]).unwrap();
        assert!(told.fix.unwrap().contains("ExcludedIPs = 203.0.113.1"));
        let hole = ["203.0.113.0/24".parse().unwrap()];
        assert_eq!(judge(&[client], &[], full, &hole), None);
        assert_eq!(judge(&[client], &[to("203.0.113.0/24")], full, &[]), None);
        let up = Routing {
            mark: Some(1),
            ..full
        };
        assert_eq!(judge(&[client], &[], up, &[]), None);
        let split = Routing {
            has_default: [false; 2],
            ..full
        };
        assert_eq!(judge(&[client], &[], split, &[]), None);
    }
}
