//! The client's side of SOCKS5, without a login (RFC 1928).

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use super::Target;

const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const CONNECT: u8 = 1;
const SUCCEEDED: u8 = 0;
const IPV4: u8 = 1;
const IPV6: u8 = 4;

/// Connects to a target, through its proxy if it has one. Each step takes at most `patience`.
pub(super) fn connect(target: Target, patience: Duration) -> io::Result<TcpStream> {
    let Target { to, proxy } = target;
    let stream = TcpStream::connect_timeout(&proxy.unwrap_or(to), patience)?;
    if proxy.is_some() {
        stream.set_read_timeout(Some(patience))?;
        greet(&stream, to)?;
    }
    Ok(stream)
}

fn greet(mut stream: &TcpStream, to: SocketAddr) -> io::Result<()> {
    stream.write_all(&[VERSION, 1, NO_LOGIN])?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen)?;
    if chosen != [VERSION, NO_LOGIN] {
        return Err(io::Error::other("the proxy wants a login"));
    }
    let (kind, ip) = match to.ip() {
        IpAddr::V4(ip) => (IPV4, ip.octets().to_vec()),
        IpAddr::V6(ip) => (IPV6, ip.octets().to_vec()),
    };
    let port = to.port().to_be_bytes();
    stream.write_all(&[&[VERSION, CONNECT, 0, kind], &*ip, &port].concat())?;
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let length = match head {
        [VERSION, SUCCEEDED, _, IPV4] => 4,
        [VERSION, SUCCEEDED, _, IPV6] => 16,
        [_, reply, ..] => return Err(io::Error::other(format!("the proxy replies {reply}"))),
    };
    // The address and port from which the proxy has connected.
    stream.read_exact(&mut [0; 18][..length + 2])
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Connects through a proxy that answers with `reply`, and returns its requests, too.
    fn through(to: &str, reply: u8) -> (io::Result<TcpStream>, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target {
            to: to.parse().unwrap(),
            proxy: listener.local_addr().ok(),
        };
        let proxy = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut requests = vec![0; 3];
            client.read_exact(&mut requests).unwrap();
            client.write_all(&[VERSION, NO_LOGIN]).unwrap();
            let mut request = [0; 10];
            client.read_exact(&mut request).unwrap();
            let answer = [VERSION, reply, 0, IPV4, 0, 0, 0, 0, 0, 0];
            client.write_all(&answer).unwrap();
            requests.extend(request);
            requests
        });
        let connected = connect(target, Duration::from_secs(5));
        (connected, proxy.join().unwrap())
    }

    #[test]
    fn a_proxy_is_asked_for_the_target_and_its_refusal_is_an_error() {
        let (connected, requests) = through("192.0.2.7:258", SUCCEEDED);
        connected.unwrap();
        assert_eq!(requests, [5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 7, 1, 2]);
        let (connected, _) = through("192.0.2.7:258", 4);
        assert_eq!(connected.unwrap_err().to_string(), "the proxy replies 4");
    }
}
