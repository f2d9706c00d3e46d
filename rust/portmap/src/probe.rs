//! Whether the router forwards ports, and by which protocol: asks for no port.

use std::net::Ipv4Addr;

use crate::{
    exchange::{WAITS, exchange, socket},
    gateway::{Gateway, find},
    igd,
    mapping::Protocol,
    nat_pmp, pcp,
    problem::{Problem, Refusal},
};

/// A router that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// Its address.
    pub router: Ipv4Addr,
    /// The protocol that would be used; `None` if it answers none.
    pub protocol: Option<Protocol>,
}

/// Asks the default gateway, by requests with this mark.
///
/// # Errors
/// If there is no gateway, or it cannot be asked.
pub async fn probe(mark: Option<u32>) -> Result<Probed, Problem> {
    let gateway = find().await?;
    let protocol = protocol(&gateway, mark).await?;
    Ok(Probed {
        router: gateway.address,
        protocol,
    })
}

async fn protocol(gateway: &Gateway, mark: Option<u32>) -> Result<Option<Protocol>, Problem> {
    let system = |error: std::io::Error| Problem::System(error.to_string());
    let socket = socket(&gateway.interface, gateway.address, mark).await;
    let socket = socket.map_err(system)?;
    let own = socket.local_addr().map_err(system)?;
    let announce = pcp::announce(own.ip());
    let waits = &WAITS[..3];
    let answer = exchange(&socket, &announce, waits, pcp::announced).await;
    if let Some(Ok(())) = answer.map_err(system)? {
        return Ok(Some(Protocol::Pcp));
    }
    let request = nat_pmp::ADDRESS_REQUEST;
    let answer = exchange(&socket, &request, waits, nat_pmp::address).await;
    match answer.map_err(system)? {
        // A router that is not connected yet speaks it, too.
        Some(Ok(_) | Err(Refusal::Reason(_))) => return Ok(Some(Protocol::NatPmp)),
        Some(Err(Refusal::OtherProtocol)) | None => {}
    }
    Ok(igd::is_there(gateway, mark).await.then_some(Protocol::Upnp))
}

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;
    use crate::exchange::PORT;

    #[tokio::test]
    async fn the_protocol_is_told_and_no_port_asked_for() {
        for (number, version, expected) in
            [(1, 2, Some(Protocol::Pcp)), (2, 0, Some(Protocol::NatPmp))]
        {
            let gateway = gateway(number);
            let router = UdpSocket::bind((gateway.address, PORT)).await.unwrap();
            let answers = async {
                let mut request = [0; 64];
                loop {
                    let (length, from) = router.recv_from(&mut request).await.unwrap();
                    let asks_only = match request[..length] {
                        [2, 0, ..] => version == 2 || length == 24,
                        [0, 0] => length == 2,
                        _ => false,
                    };
                    assert!(asks_only, "{:?}", &request[..length]);
                    let mut answer = vec![0; 24];
                    answer[..2].copy_from_slice(&[version, 0x80]);
                    if request[0] != version {
                        // It knows no other version.
                        answer[3] = 1;
                    }
                    router.send_to(&answer, from).await.unwrap();
                }
            };
            tokio::select! {
                told = protocol(&gateway, None) => assert_eq!(told, Ok(expected)),
                () = answers => unreachable!(),
            }
        }
        assert_eq!(protocol(&gateway(3), None).await, Ok(None));
    }

    fn gateway(number: u8) -> Gateway {
        Gateway {
            address: [127, 53, 54, number].into(),
            interface: String::new(),
        }
    }
}
