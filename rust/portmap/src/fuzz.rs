//! Fuzzes a router's datagrams: only an answer to the request grants a port.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use convoy_fuzz::{Result, Unstructured};

use crate::{
    mapping::Transport,
    nat_pmp,
    pcp::{self, Request},
};

#[test]
fn fuzz_portmap_answers() {
    convoy_fuzz::run("portmap_answers", 4_000, 400, |input| {
        by_pcp(input)?;
        by_nat_pmp(input)
    });
}

fn by_pcp(input: &mut Unstructured<'_>) -> Result<()> {
    let request = Request {
        client: Ipv4Addr::from(input.arbitrary::<u32>()?),
        port: input.arbitrary()?,
        nonce: input.arbitrary()?,
        suggested: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, input.arbitrary()?),
        lifetime: Duration::from_secs(input.arbitrary()?),
    };
    let mut answer = request.bytes().to_vec();
    answer[1] |= 0x80;
    answer[44..60].copy_from_slice(&Ipv4Addr::new(198, 51, 100, 7).to_ipv6_mapped().octets());
    alter(input, &mut answer)?;
    let _ = pcp::announced(&answer);
    if let Some(Ok(grant)) = request.answer(&answer) {
        assert_eq!(answer[..2], [2, 0x81]);
        assert_eq!(answer[24..36], request.nonce);
        assert_eq!(answer[40..42], request.port.to_be_bytes());
        assert_eq!(answer[42..44], grant.external.port().to_be_bytes());
        assert!(grant.lifetime <= Duration::from_secs(u32::MAX.into()));
    }
    Ok(())
}

fn by_nat_pmp(input: &mut Unstructured<'_>) -> Result<()> {
    let request = nat_pmp::Request {
        transport: *input.choose(&[Transport::Udp, Transport::Tcp])?,
        port: input.int_in_range(1..=u16::MAX)?,
        suggested: input.arbitrary()?,
        lifetime: Duration::from_secs(input.arbitrary()?),
    };
    let asked = request.bytes();
    let mut answer = vec![0, asked[1] | 0x80, 0, 0, 0, 0, 0, 9];
    answer.extend(&asked[4..]);
    alter(input, &mut answer)?;
    let is_port = request.answer(&answer).is_some_and(|it| it.is_ok());
    if is_port {
        assert_eq!(answer[..4], [0, asked[1] | 0x80, 0, 0]);
        let is_any = request.port == nat_pmp::ANY_PORT && answer[8..10] == [0, 0];
        assert!(is_any || answer[8..10] == asked[4..6]);
    }
    let is_address = nat_pmp::address(&answer).is_some_and(|it| it.is_ok());
    assert!(!(is_port && is_address), "an answer to both");
    Ok(())
}

/// Alters some bytes, and cuts the end off or adds to it.
fn alter(input: &mut Unstructured<'_>, bytes: &mut Vec<u8>) -> Result<()> {
    for _ in 0..input.int_in_range(0..=4)? {
        let at = input.choose_index(bytes.len())?;
        bytes[at] = input.arbitrary()?;
    }
    let whole = bytes.len();
    match input.int_in_range(0..=9)? {
        0 => bytes.truncate(input.int_in_range(0..=whole)?),
        1 => bytes.extend(input.arbitrary::<[u8; 8]>()?),
        _ => {}
    }
    Ok(())
}
