/// The methods of a network whose sockets are the host's.
macro_rules! sockets_of_the_host {
    () => {
        fn connect(&self, to: SocketAddr) -> Answer<'_, Stream> {
            Box::pin(async move { Kernel(Host).connect(to).await })
        }

        fn listen(&self, at: SocketAddr) -> Answer<'_, Listener> {
            Box::pin(async move { Kernel(Host).listen(at).await })
        }

        fn datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
            Box::pin(async move { Kernel(Host).datagrams(at).await })
        }
    };
}

mod errors;
mod names;
mod policy;
mod proxies;
mod tcp;
mod udp;

use std::{io::ErrorKind, time::Duration};

use convoy_network::{
    Answer, Datagrams, Host, Kernel, Listener, Stream,
    counters::Refusal,
    dial::Target,
    relay::{DEFAULT_BUFFER, Method},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream, UdpSocket},
    time::timeout,
};

use super::*;
use crate::login::Login;

/// Every wait of a test ends after this time.
const DEADLINE: Duration = Duration::from_secs(60);

/// A forwarder with one rule.
struct Scene {
    forwarder: Forwarder,
    at: SocketAddr,
}

impl Scene {
    async fn new(service: Service) -> Self {
        Self::with(service, Vec::new(), Limits::default(), host()).await
    }

    async fn with(
        service: Service,
        access: Vec<Access>,
        limits: Limits,
        far: Arc<dyn Network>,
    ) -> Self {
        let mut forwarder = Forwarder::new(Relay::new(DEFAULT_BUFFER, Method::Splice), limits);
        let listen = vec![loopback()];
        let rule = Rule {
            listen,
            service,
            access,
            peers: Arc::default(),
        };
        let running = forwarder.add(rule, &host(), &far).await.unwrap();
        let at = running.addresses()[0];
        Self { forwarder, at }
    }

    async fn connect(&self) -> TcpStream {
        within(TcpStream::connect(self.at)).await.unwrap()
    }

    /// Waits until something was refused so often, for this reason.
    async fn until_refused(&self, reason: Refusal, count: u64) {
        self.until(|totals| totals.refused(reason) == count).await;
    }

    async fn until(&self, is_so: impl Fn(&Totals) -> bool) {
        let waiting = async {
            while !is_so(&self.forwarder.totals()) {
                tokio::task::yield_now().await;
            }
        };
        within(waiting).await;
    }
}

fn host() -> Arc<dyn Network> {
    Arc::new(Kernel(Host))
}

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn target(at: SocketAddr) -> Target {
    at.to_string().parse().unwrap()
}

fn only(prefix: &str) -> Vec<Access> {
    let allow = vec![prefix.parse().unwrap()];
    vec![Access {
        allow,
        deny: Vec::new(),
    }]
}

/// A server that sends back what each connection sends.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
    at
}

/// A port that nobody listens on, nor can as long as the socket lives.
fn closed_port() -> (SocketAddr, TcpSocket) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(loopback()).unwrap();
    (socket.local_addr().unwrap(), socket)
}

async fn is_echoed(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    let mut received = vec![0; bytes.len()];
    within(stream.read_exact(&mut received)).await.unwrap();
    assert_eq!(received, bytes);
}

async fn is_reset(mut stream: TcpStream) {
    let error = within(stream.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("not in time")
}

/// The host, with these addresses for every name; without any, its name servers do not answer.
#[derive(Debug)]
struct Named(Option<Vec<SocketAddr>>);

const SILENT: Named = Named(None);

fn named(addresses: impl Into<Vec<SocketAddr>>) -> Named {
    Named(Some(addresses.into()))
}

impl Network for Named {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Answer<'a, Vec<SocketAddr>> {
        match self.0.clone() {
            Some(addresses) => Box::pin(async { Ok(addresses) }),
            None => Box::pin(std::future::pending()),
        }
    }

    sockets_of_the_host!();
}
