//! A minimal HTTP client.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use convoy_lab::Namespace;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Asks for `target`. HTTP 1.0 has neither chunks nor connections that stay open.
pub(super) fn get(mut stream: impl Read + Write, target: &str, token: Option<&str>) -> Answer {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let token = token.unwrap_or_default();
    write!(stream, "GET {target} HTTP/1.0\r\nHost: x\r\n{token}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap();
    Answer {
        status: status.parse().unwrap(),
        body: body.to_owned(),
    }
}

/// Asks a port of the namespace.
pub(super) fn get_tcp(
    namespace: &Namespace,
    address: &str,
    target: &str,
    token: Option<&str>,
) -> Answer {
    let ask = || get(TcpStream::connect(address).unwrap(), target, token);
    namespace.run(ask).unwrap()
}
