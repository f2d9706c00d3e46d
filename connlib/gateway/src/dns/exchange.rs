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
    let mut query = Query::new(question, question.has_edns());
    let mut response = query.ask(server).await?;
    if query.with_edns && is_puzzled(&response) {
        query = Query::new(question, false);
        response = query.ask(server).await?;
    }
    match response.code() {
        _ if response.is_referral() => Err(DnsError::ResponseCode(ResponseCode::Refused).into()),
        ResponseCode::NoError | ResponseCode::NXDomain | ResponseCode::YXDomain => Ok(response),
        code => Err(DnsError::ResponseCode(code).into()),
    }
}

/// Returns whether a server seems not to know EDNS (RFC 6891, section 7); those older than that have other words for
/// it.
fn is_puzzled(response: &Response) -> bool {
    let is_error = matches!(
        response.code(),
        ResponseCode::FormErr | ResponseCode::NotImp | ResponseCode::ServFail
    );
    is_error && !response.has_edns()
}

struct Query<'a> {
    question: &'a Question,
    with_edns: bool,
    id: u16,
    /// The number of the query with EDNS, if it went unanswered until one without was sent: the answer may be late.
    before: Option<u16>,
}

impl<'a> Query<'a> {
    fn new(question: &'a Question, with_edns: bool) -> Self {
        Self {
            question,
            with_edns,
            id: rand::random(),
            before: None,
        }
    }

    /// Asks by UDP, and by TCP where the answer is truncated and the client can take all of it.
    async fn ask(&mut self, server: SocketAddr) -> Result<Response, NetError> {
        let response = self.ask_by_udp(server).await?;
        match response.is_truncated() && self.question.over == Over::Tcp {
            true => self.ask_by_tcp(server).await,
            false => Ok(response),
        }
    }

    /// Each query has a port of its own, which nobody else can guess.
    async fn ask_by_udp(&mut self, server: SocketAddr) -> Result<Response, NetError> {
        let socket = UdpSocket::bind(any_of(&server)).await?;
        socket.connect(server).await?;
        loop {
            socket.send(&self.bytes()?).await?;
            if let Ok(received) = timeout(RESEND, self.receive(&socket)).await {
                return received;
            }
            if self.with_edns && !self.question.wants_signatures() {
                let before = Some(self.id);
                *self = Self {
                    before,
                    ..Self::new(self.question, false)
                };
            }
        }
    }

    async fn receive(&self, socket: &UdpSocket) -> Result<Response, NetError> {
        let mut buffer = vec![0; LONGEST];
        loop {
            let length = socket.recv(&mut buffer).await?;
            // Anything else may be forged; the answer may still come.
            if let Some(response) = self.read(&buffer[..length]) {
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
        let response = self.read(&bytes).filter(|it| !it.is_truncated());
        response.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData).into())
    }

    fn bytes(&self) -> Result<Vec<u8>, NetError> {
        let bytes = self.question.forwarded(self.id, self.with_edns);
        bytes.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput).into())
    }

    fn read(&self, bytes: &[u8]) -> Option<Response> {
        let read = |id, with_edns| Response::read(bytes.to_vec(), self.question, id, with_edns);
        // A server that was puzzled by EDNS may still answer the query without.
        let late = |id| read(id, true).filter(|it| !is_puzzled(it));
        read(self.id, self.with_edns).or_else(|| self.before.and_then(late))
    }
}

#[cfg(test)]
mod tests;
