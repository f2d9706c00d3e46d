//! SOCKS5 (RFC 1928) on top of fast-socks5: a client names a target and is connected with it, or exchanges datagrams.

mod association;
mod datagram;
mod names;
mod networks;
mod refusal;
mod targets;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use convoy_network::{
    Network, Stream,
    counters::Refusal,
    dial::{Target, dial},
};
use fast_socks5::{
    Socks5Command,
    server::{Socks5ServerProtocol, SocksServerError},
    util::target_addr::TargetAddr,
};
use tokio::time::timeout;

use crate::{lingering, login::Login};
pub(crate) use networks::{Flows, Networks, Rule};
use refusal::{Request, reason, refuse};
pub(crate) use targets::TargetCount;

/// Time limit for a client to complete its request.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// Serves a client: connects it, or passes its datagrams on until it leaves, and then returns `None`.
pub(crate) async fn serve(
    mut client: Stream,
    address: IpAddr,
    login: Option<&Login>,
    networks: Networks<'_>,
    rule: Rule<'_>,
) -> Result<Option<(Stream, Stream)>, Refusal> {
    match converse(&mut client, address, login, networks, rule).await {
        Ok(target) => Ok(target.map(|target| (client, target))),
        Err(refusal) => {
            lingering::close(client).await;
            Err(refusal)
        }
    }
}

/// Serves a client's request; returns the target with which it is connected.
async fn converse(
    client: &mut Stream,
    address: IpAddr,
    login: Option<&Login>,
    networks: Networks<'_>,
    rule: Rule<'_>,
) -> Result<Option<Stream>, Refusal> {
    let near = client.local_address().ok_or(Refusal::Malformed)?.ip();
    let request = timeout(REQUEST_LIMIT, read(client, login));
    let (request, command, target) = match request.await {
        Ok(request) => request.map_err(|error| reason(&error))?,
        Err(_) => return Err(Refusal::Silent),
    };
    match command {
        Socks5Command::TCPConnect => connect(request, target, networks.far).await.map(Some),
        Socks5Command::UDPAssociate => {
            association::serve(request, &target, near, address, networks, rule).await?;
            Ok(None)
        }
        Socks5Command::TCPBind => Err(refuse(request, Refusal::Unsupported).await),
    }
}

async fn read<'a>(
    client: &'a mut Stream,
    login: Option<&Login>,
) -> Result<(Request<'a>, Socks5Command, TargetAddr), SocksServerError> {
    let authenticated = match login {
        None => Socks5ServerProtocol::accept_no_auth(client).await?,
        Some(login) => {
            let check = |user: String, password: String| {
                login.matches(user.as_bytes(), password.as_bytes())
            };
            Socks5ServerProtocol::accept_password_auth(client, check)
                .await?
                .0
        }
    };
    authenticated.read_command().await
}

async fn connect(
    request: Request<'_>,
    target: TargetAddr,
    far: &dyn Network,
) -> Result<Stream, Refusal> {
    let (host, port) = target.into_string_and_port();
    match dial(far, &Target { host, port }).await {
        Ok(target) => {
            let address = target.local_address().unwrap_or(NOWHERE);
            request
                .reply_success(address)
                .await
                .map_err(|error| reason(&error))?;
            Ok(target)
        }
        Err(refusal) => Err(refuse(request, refusal).await),
    }
}

/// The address to report for a connection that has none.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
