//! Routers on the loopback interface, each at an address of its own: honest ones, broken ones and hostile ones.

mod doubts;

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinHandle,
};

use super::*;

const TARGET: Target = Target {
    port: 51820,
    mark: None,
};
const REQUEST: Request = Request {
    target: TARGET,
    own: Ipv4Addr::LOCALHOST,
    suggested: TARGET.port,
    nonce: [7; 12],
};
const OUTSIDE: &str = "198.51.100.7";
/// The end of a mapping of [`TARGET`].
const OWN_ENTRY: &str = "<NewInternalPort>51820</NewInternalPort>\
    <NewInternalClient>127.0.0.1</NewInternalClient><NewEnabled>1</NewEnabled>";

#[tokio::test]
async fn a_router_forwards_the_port_and_withdraws_it() {
    let router = Router::start(1, honest("WANIPConnection:1", &[])).await;
    let (grant, control) = router.ask().await.unwrap().unwrap();
    assert_eq!(grant.external.to_string(), "198.51.100.7:51820");
    assert_eq!(control.service, Service::Ip1);
    router.withdraw(grant, control).await;
    let heard = router.heard();
    let [description, address, add, entry, delete] = &heard[..] else {
        panic!("{heard:?}")
    };
    assert!(description.starts_with("GET /root.xml HTTP/1.1\r\n"));
    assert!(address.contains("#GetExternalIPAddress\""), "{address}");
    for part in [
        "<NewExternalPort>51820<",
        "<NewInternalPort>51820<",
        "<NewInternalClient>127.0.0.1<",
        "<NewLeaseDuration>600<",
        "<NewProtocol>UDP<",
    ] {
        assert!(add.contains(part), "{add}");
    }
    for (request, action) in [
        (entry, "#GetSpecificPortMappingEntry\""),
        (delete, "#DeletePortMapping\""),
    ] {
        assert!(request.contains(action), "{request}");
        assert!(request.contains("<NewExternalPort>51820<"), "{request}");
        assert!(request.contains("<NewProtocol>UDP<"), "{request}");
    }
}

#[tokio::test]
async fn the_second_version_chooses_the_port() {
    let router = Router::start(2, honest("WANIPConnection:2", &[])).await;
    let (grant, control) = router.ask().await.unwrap().unwrap();
    assert_eq!(grant.external.port(), 4000);
    assert_eq!(control.service, Service::Ip2);
    // Some say that they are of that version, but are not.
    let router = Router::start(3, honest("WANIPConnection:2", &[("AddAny", 401)])).await;
    let (grant, _) = router.ask().await.unwrap().unwrap();
    assert_eq!(grant.external.port(), 51820);
}

#[tokio::test]
async fn a_port_of_somebody_else_is_left_to_them() {
    let router = Router::start(
        4,
        honest("WANIPConnection:1", &[("ExternalPort>51820<", 718)]),
    )
    .await;
    let (grant, _) = router.ask().await.unwrap().unwrap();
    assert_eq!(grant.external.port(), 51821);
    let router = Router::start(5, honest("WANIPConnection:1", &[("AddPort", 718)])).await;
    let refusal = Refusal::Reason("it has no free port");
    assert_eq!(router.ask().await, Some(Err(refusal)));
    let adds = router
        .heard()
        .iter()
        .filter(|it| it.contains("#AddPort"))
        .count();
    assert_eq!(adds, usize::from(MOST_PORTS));
}

#[tokio::test]
async fn a_router_without_leases_forwards_for_good() {
    let router = Router::start(6, honest("WANIPConnection:1", &[("Duration>600", 725)])).await;
    let (grant, _) = router.ask().await.unwrap().unwrap();
    assert_eq!(grant.external.port(), 51820);
    let last = router.heard().pop().unwrap();
    assert!(last.contains("<NewLeaseDuration>0<"), "{last}");
}

#[tokio::test]
async fn a_refusal_says_why() {
    for (number, code, reason) in [
        (7, 606, "it is not allowed"),
        (8, 402, "it does not understand the request"),
        (9, 799, "it has another reason"),
    ] {
        let router = Router::start(number, honest("WANPPPConnection:1", &[("AddPort", code)]));
        let refusal = Refusal::Reason(reason);
        assert_eq!(router.await.ask().await, Some(Err(refusal)));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = TcpListener::bind("127.53.53.66:0").await.unwrap();
    let location = format!("Location: http://{}/\r\n", elsewhere.local_addr().unwrap());
    let answer = reply("302 Found", &location, "");
    let router = Router::start(10, move |_| Answer::Once(answer.clone()));
    let router = router.await;
    tokio::select! {
        answer = router.ask() => assert_eq!(answer, None),
        _ = elsewhere.accept() => panic!("followed"),
    }
}

#[tokio::test]
async fn a_body_without_end_is_not_read() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("1000\r\n{}\r\n", "a".repeat(0x1000));
    let headers = "HTTP/1.1 200 OK\r\n";
    let header = format!("A: {}\r\n", "a".repeat(1000));
    for (number, head, more) in [
        (11, head, "a".repeat(0x1000)),
        (12, chunked, chunk),
        (13, headers, header),
    ] {
        let answer = (head.to_owned(), more);
        let router = Router::start(number, move |_| Answer::Endless(answer.clone())).await;
        assert_eq!(router.ask().await, None);
        let sent = *router.sent.lock().unwrap();
        // What is on its way is in the sockets' buffers.
        assert!(sent < 16 << 20, "{number}: {sent} bytes");
    }
}

#[tokio::test]
async fn a_router_that_says_nothing_is_given_up() {
    let router = Router::start(14, |_| Answer::Never).await;
    assert_eq!(router.ask().await, None);
}

#[tokio::test]
async fn an_entity_bomb_is_no_description() {
    let bomb = "<!DOCTYPE root [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;\">]><root>&b;</root>";
    let router = Router::start(15, move |_| Answer::Once(reply("200 OK", "", bomb))).await;
    assert_eq!(router.ask().await, None);
}

#[tokio::test]
async fn a_machine_that_is_not_the_gateway_is_not_heard() {
    let gateway = gateway(16);
    let search = UdpSocket::bind((gateway.address, search::PORT))
        .await
        .unwrap();
    let other = UdpSocket::bind(("127.53.53.67", search::PORT))
        .await
        .unwrap();
    let service = TcpListener::bind("127.53.53.67:0").await.unwrap();
    let location = format!("http://{}/root.xml", service.local_addr().unwrap());
    let lies = async {
        let mut request = [0; 512];
        loop {
            let (_, from) = search.recv_from(&mut request).await.unwrap();
            // From another machine, then of another machine.
            other
                .send_to(found(&location).as_bytes(), from)
                .await
                .unwrap();
            search
                .send_to(found(&location).as_bytes(), from)
                .await
                .unwrap();
        }
    };
    let (ledger, _) = Ledger::new(None);
    tokio::select! {
        answer = ask(&gateway, REQUEST, &ledger) => assert_eq!(answer, None),
        () = lies => unreachable!(),
        _ = service.accept() => panic!("asked another machine"),
    }
}

/// An answer to a request of HTTP.
enum Answer {
    Once(String),
    /// A head, and then the same again and again.
    Endless((String, String)),
    Never,
    /// The connection ends.
    Nothing,
}

fn reply(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}

/// A router that works; requests that contain these words get these errors.
fn honest(
    service: &'static str,
    errors: &[(&'static str, u16)],
) -> impl Fn(&str) -> Answer + Send + use<> {
    let errors = errors.to_vec();
    move |request| {
        let error = errors.iter().find(|(words, _)| request.contains(words));
        let answer = |action: &str, argument: &str| {
            let urn = format!("urn:schemas-upnp-org:service:{service}");
            format!(
                "<s:Envelope xmlns:s='s'><s:Body><u:{action}Response xmlns:u='{urn}'>{argument}\
                 </u:{action}Response></s:Body></s:Envelope>"
            )
        };
        let actions = [
            "AddAnyPortMapping",
            "AddPortMapping",
            "GetSpecificPortMappingEntry",
            "DeletePortMapping",
        ];
        let action = actions
            .iter()
            .find(|it| request.contains(&format!("#{it}\"")));
        Answer::Once(match (error, action) {
            (Some((_, code)), _) => {
                let fault = format!(
                    "<Envelope><Body><Fault><detail><UPnPError><errorCode>{code}</errorCode>\
                     </UPnPError></detail></Fault></Body></Envelope>"
                );
                reply("500 Internal Server Error", "", &fault)
            }
            _ if request.starts_with("GET") => reply("200 OK", "", &described(service)),
            (None, None) => {
                let address = format!("<NewExternalIPAddress>{OUTSIDE}</NewExternalIPAddress>");
                reply("200 OK", "", &answer("GetExternalIPAddress", &address))
            }
            (None, Some(action)) => {
                let arguments = match *action {
                    "AddAnyPortMapping" => "<NewReservedPort>4000</NewReservedPort>",
                    "GetSpecificPortMappingEntry" => OWN_ENTRY,
                    _ => "",
                };
                reply("200 OK", "", &answer(action, arguments))
            }
        })
    }
}

fn described(service: &str) -> String {
    format!(
        "<?xml version='1.0'?><root><device><serviceList><service>\
         <serviceType>urn:schemas-upnp-org:service:{service}</serviceType>\
         <controlURL>/ctl</controlURL></service></serviceList></device></root>"
    )
}

fn found(location: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nLOCATION: {location}\r\n\r\n")
}

/// A router that is found, and answers each request.
struct Router {
    gateway: Gateway,
    heard: Arc<Mutex<Vec<String>>>,
    sent: Arc<Mutex<usize>>,
    tasks: [JoinHandle<()>; 2],
}

impl Router {
    async fn start(number: u8, answer: impl Fn(&str) -> Answer + Send + 'static) -> Self {
        let gateway = gateway(number);
        let search = UdpSocket::bind((gateway.address, search::PORT))
            .await
            .unwrap();
        let service = TcpListener::bind((gateway.address, 0)).await.unwrap();
        let location = format!("http://{}/root.xml", service.local_addr().unwrap());
        let searched = async move {
            let mut request = [0; 512];
            loop {
                let (_, from) = search.recv_from(&mut request).await.unwrap();
                search
                    .send_to(found(&location).as_bytes(), from)
                    .await
                    .unwrap();
            }
        };
        let (heard, sent) = (Arc::<Mutex<Vec<_>>>::default(), Arc::default());
        let (all, counted) = (Arc::clone(&heard), Arc::clone(&sent));
        let asked = async move {
            loop {
                let (mut stream, _) = service.accept().await.unwrap();
                let request = read(&mut stream).await;
                all.lock().unwrap().push(request.clone());
                send(&mut stream, answer(&request), &counted).await;
            }
        };
        Self {
            gateway,
            heard,
            sent,
            tasks: [tokio::spawn(searched), tokio::spawn(asked)],
        }
    }

    async fn ask(&self) -> Option<Result<(Grant, Control), Refusal>> {
        self.ask_with(&Ledger::new(None).0).await
    }

    async fn ask_with(&self, ledger: &Ledger) -> Option<Result<(Grant, Control), Refusal>> {
        ask(&self.gateway, REQUEST, ledger).await
    }

    async fn withdraw(&self, grant: Grant, control: Control) {
        let mapping = Mapping {
            protocol: Protocol::Upnp,
            router: self.gateway.address,
            interface: String::new(),
            mark: None,
            port: TARGET.port,
            external: grant.external,
            nonce: [0; 12],
            control: Some(control),
        };
        crate::withdraw(&mapping).await;
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Reads a request with its body.
async fn read(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let length = stream.read(&mut buffer).await.unwrap();
        text += str::from_utf8(&buffer[..length]).unwrap();
        let is_whole = text.starts_with("GET") && text.ends_with("\r\n\r\n");
        if length == 0 || is_whole || text.contains("</s:Envelope>") {
            return text;
        }
    }
}

async fn send(stream: &mut TcpStream, answer: Answer, sent: &Mutex<usize>) {
    match answer {
        Answer::Once(text) => stream.write_all(text.as_bytes()).await.unwrap(),
        Answer::Endless((head, more)) => {
            stream.write_all(head.as_bytes()).await.unwrap();
            while stream.write_all(more.as_bytes()).await.is_ok() {
                *sent.lock().unwrap() += more.len();
            }
        }
        Answer::Never => std::future::pending().await,
        Answer::Nothing => {}
    }
}

fn gateway(number: u8) -> Gateway {
    Gateway {
        address: [127, 53, 53, number].into(),
        interface: String::new(),
    }
}
