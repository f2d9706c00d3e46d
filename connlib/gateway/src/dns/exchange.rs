//! Asks one server, whose answer passes as it is.

use std::{io, net::SocketAddr, time::Duration};

use hickory_resolver::{
    net::{DnsError, NetError},
    proto::op::ResponseCode,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

use super::message::{Over, Question, Response};
use convoy_network::any_of;

/// After this time without an answer the query is sent again, as it may be lost; without EDNS, as some routers drop it,
/// unless the client asks for signatures.
const RESEND: Duration = Duration::from_secs(1);
/// The longest datagram that is read; servers are asked for at most 1,232 bytes.
const LONGEST: usize = 4_096;

/// A server's answer; its caller sets the time-out. An error means that another server may know better.
pub(super) async fn exchange(
    server: SocketAddr,
    question: &Question,
) -> Result<Response, NetError> {
    let mut response = ask(server, question, question.has_edns()).await?;
    // RFC 6891, section 7; servers older than that have other words for it.
    let is_puzzled = matches!(
        response.code(),
        ResponseCode::FormErr | ResponseCode::NotImp | ResponseCode::ServFail
    );
    if question.has_edns() && is_puzzled && !response.has_edns() {
        response = ask(server, question, false).await?;
    }
    match response.code() {
        _ if response.is_referral() => Err(DnsError::ResponseCode(ResponseCode::Refused).into()),
        ResponseCode::NoError | ResponseCode::NXDomain | ResponseCode::YXDomain => Ok(response),
        code => Err(DnsError::ResponseCode(code).into()),
    }
}

/// Asks by UDP, and by TCP where the answer is truncated and the client can take all of it.
async fn ask(
    server: SocketAddr,
    question: &Question,
    with_edns: bool,
) -> Result<Response, NetError> {
    let mut query = Query {
        question,
        with_edns,
        id: rand::random(),
    };
    let response = query.ask_by_udp(server).await?;
    match response.is_truncated() && question.over == Over::Tcp {
        true => query.ask_by_tcp(server).await,
        false => Ok(response),
    }
}

struct Query<'a> {
    question: &'a Question,
    with_edns: bool,
    id: u16,
}

impl Query<'_> {
    /// Each query has a port of its own, which nobody else can guess.
    async fn ask_by_udp(&mut self, server: SocketAddr) -> Result<Response, NetError> {
        let socket = UdpSocket::bind(any_of(&server)).await?;
        socket.connect(server).await?;
        loop {
            socket.send(&self.bytes()?).await?;
            if let Ok(received) = timeout(RESEND, self.receive(&socket)).await {
                return received;
            }
            self.with_edns &= self.question.wants_signatures();
        }
    }

    async fn receive(&self, socket: &UdpSocket) -> Result<Response, NetError> {
        let mut buffer = vec![0; LONGEST];
        loop {
            let length = socket.recv(&mut buffer).await?;
            // Anything else may be forged; the answer may still come.
            if let Some(response) = self.read(buffer[..length].to_vec()) {
                return Ok(response);
            }
        }
    }

    async fn ask_by_tcp(&self, server: SocketAddr) -> Result<Response, NetError> {
        let mut stream = TcpStream::connect(server).await?;
        let query = self.bytes()?;
        // In one segment (RFC 7766, section 8).
        let framed = [&(query.len() as u16).to_be_bytes(), &query[..]].concat();
        stream.write_all(&framed).await?;
        let length = stream.read_u16().await?;
        let mut bytes = vec![0; length.into()];
        stream.read_exact(&mut bytes).await?;
        let response = self.read(bytes).filter(|it| !it.is_truncated());
        response.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData).into())
    }

    fn bytes(&self) -> Result<Vec<u8>, NetError> {
        let bytes = self.question.forwarded(self.id, self.with_edns);
        bytes.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput).into())
    }

    fn read(&self, bytes: Vec<u8>) -> Option<Response> {
        Response::read(bytes, self.question, self.id, self.with_edns)
    }
}

#[cfg(test)]
mod tests;
