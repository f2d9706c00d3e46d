//! Errors of the network, as clients of proxies hear them.

use std::io;

use super::{proxies::answer, *};

/// A network whose targets fail in one way.
#[derive(Debug)]
struct Fails(i32);

impl Network for Fails {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Answer<'a, Vec<SocketAddr>> {
        Box::pin(std::future::pending())
    }

    fn connect(&self, _: SocketAddr) -> Answer<'_, Stream> {
        Box::pin(async { Err(io::Error::from_raw_os_error(self.0)) })
    }

    fn listen(&self, at: SocketAddr) -> Answer<'_, Listener> {
        Box::pin(async move { Kernel(Host).listen(at).await })
    }

    fn datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        Box::pin(async move { Kernel(Host).datagrams(at).await })
    }
}

async fn failing(service: Service, code: i32) -> Scene {
    let far = Arc::new(Fails(code));
    Scene::with(service, Vec::new(), Limits::default(), far).await
}

#[tokio::test]
async fn clients_of_proxies_hear_what_the_network_has_said() {
    for (code, reply, status) in [
        (libc::EACCES, 2, "403"),
        (libc::EPERM, 2, "403"),
        (libc::ENETUNREACH, 3, "502"),
        (libc::EHOSTUNREACH, 4, "502"),
        (libc::ECONNREFUSED, 5, "502"),
    ] {
        let scene = failing(Service::Socks5(None), code).await;
        let mut client = scene.connect().await;
        let request = [5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 0, 80];
        client.write_all(&request).await.unwrap();
        let mut replies = [0; 4];
        within(client.read_exact(&mut replies)).await.unwrap();
        assert_eq!(replies, [5, 0, 5, reply], "{code}");
        let scene = failing(Service::HttpConnect(None), code).await;
        let mut client = scene.connect().await;
        let request = b"CONNECT 192.0.2.1:80 HTTP/1.1\r\n\r\n";
        client.write_all(request).await.unwrap();
        let answer = answer(&mut client).await;
        assert_eq!(answer.split(' ').nth(1), Some(status), "{code}");
    }
}
