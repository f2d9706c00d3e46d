//! A home whose router forwards ports by UPnP alone: a device of this process that notes its mappings.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use convoy_lab::{Namespace, eventually};

use super::{HOME, friends::Friends};
use crate::scene::{DEADLINE, output_of};

#[test]
fn a_router_with_upnp_forwards_the_port_past_a_closed_kill_switch_and_forgets_it() {
    let Some(friends) = Friends::apart([Some(HOME), None]) else {
        return;
    };
    let device = Device::start(&friends.homes[0].namespace);
    let [a, _] = &friends.all;
    let configure = |key: &str| {
        let lines = format!("{key}\n#convoy: KillSwitch = on");
        friends.configure_all(a, &lines, "0.0.0.0/0, ::/0", &a.direct());
    };
    let is_mapped = || {
        let text = a.convoy(&["status", "wg0"]).succeeds().stdout;
        let said = format!("port mapping: {}:51822 by UPnP", Device::OUTSIDE);
        text.contains(&said).then_some(())
    };
    let inside = "192.168.0.2:51822";
    configure("#convoy: PortMap = yes");
    a.convoy(&["up", "wg0"]).succeeds();
    assert!(eventually(3 * DEADLINE, is_mapped).is_some());
    assert_eq!(device.mapping(51822).as_deref(), Some(inside));
    a.convoy(&["down", "wg0"]).succeeds();
    assert_eq!(device.mapping(51822), None, "withdrawn");

    a.convoy(&["up", "wg0"]).succeeds();
    assert!(eventually(3 * DEADLINE, is_mapped).is_some());
    configure("");
    a.convoy(&["reload", "wg0"]).succeeds();
    assert_eq!(device.mapping(51822), None, "withdrawn by reload");

    configure("#convoy: PortMap = yes");
    a.convoy(&["reload", "wg0"]).succeeds();
    assert!(eventually(3 * DEADLINE, is_mapped).is_some());
    // The next supervisor does not want it.
    assert!(eventually(DEADLINE, || a.noted_nonce()).is_some());
    a.kill_supervisor();
    configure("");
    a.convoy(&["up", "wg0"]).succeeds();
    assert_eq!(device.mapping(51822), None, "withdrawn after a crash");

    configure("#convoy: PortMap = yes");
    a.convoy(&["reload", "wg0"]).succeeds();
    assert!(eventually(3 * DEADLINE, is_mapped).is_some());
    assert!(eventually(DEADLINE, || a.noted_nonce()).is_some());
    a.kill_supervisor();
    a.convoy(&["down", "wg0"]).succeeds();
    assert_eq!(
        device.mapping(51822),
        None,
        "withdrawn without a supervisor"
    );
    assert_eq!(device.count(), 0, "left behind");
}

/// Mappings by their port outside.
type Mappings = BTreeMap<u16, String>;

/// An Internet Gateway Device.
struct Device {
    mappings: Arc<Mutex<Mappings>>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Device {
    const OUTSIDE: Ipv4Addr = Ipv4Addr::new(11, 0, 0, 7);
    const INSIDE: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);

    fn start(place: &Namespace) -> Self {
        let bind = || {
            let search = UdpSocket::bind("0.0.0.0:1900").unwrap();
            let group = Ipv4Addr::new(239, 255, 255, 250);
            search.join_multicast_v4(&group, &Self::INSIDE).unwrap();
            (search, TcpListener::bind((Self::INSIDE, 0)).unwrap())
        };
        let (search, service) = place.run(bind).unwrap();
        let port = service.local_addr().unwrap().port();
        let rules = format!(
            "insert rule inet convoy_router input iifname \"lan*\" udp dport 1900 accept
             insert rule inet convoy_router input iifname \"lan*\" tcp dport {port} accept"
        );
        let load = format!("nft -f - <<'END'\n{rules}\nEND\n");
        output_of(place, "sh", &["-ec", &load]);
        let (mappings, ends) = (Arc::<Mutex<Mappings>>::default(), Arc::default());
        let searched = {
            let ends = Arc::clone(&ends);
            thread::spawn(move || answer_searches(&search, port, &ends))
        };
        let asked = {
            let (mappings, ends) = (Arc::clone(&mappings), Arc::clone(&ends));
            thread::spawn(move || serve(&service, &mappings, &ends))
        };
        Self {
            mappings,
            ends,
            threads: vec![searched, asked],
        }
    }

    /// Returns where a port outside leads.
    fn mapping(&self, port: u16) -> Option<String> {
        self.mappings.lock().unwrap().get(&port).cloned()
    }

    /// Counts the mappings.
    fn count(&self) -> usize {
        self.mappings.lock().unwrap().len()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Its panic has failed the test already.
            let _ = thread.join();
        }
    }
}

fn answer_searches(search: &UdpSocket, port: u16, ends: &AtomicBool) {
    let patience = Some(Duration::from_millis(50));
    search.set_read_timeout(patience).unwrap();
    let mut request = [0; 1024];
    while !ends.load(Ordering::Relaxed) {
        let Ok((length, from)) = search.recv_from(&mut request) else {
            continue;
        };
        let request = String::from_utf8_lossy(&request[..length]);
        if request.starts_with("M-SEARCH") && request.contains("InternetGatewayDevice:1") {
            let inside = Device::INSIDE;
            let answer = format!(
                "HTTP/1.1 200 OK\r\nST: urn:schemas-upnp-org:device:InternetGatewayDevice:1\r\n\
                 LOCATION: http://{inside}:{port}/root.xml\r\n\r\n"
            );
            // The client may be gone.
            let _ = search.send_to(answer.as_bytes(), from);
        }
    }
}

fn serve(service: &TcpListener, mappings: &Mutex<Mappings>, ends: &AtomicBool) {
    service.set_nonblocking(true).unwrap();
    while !ends.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = service.accept() else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let request = read(&mut stream);
        let body = answer(&request, mappings);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        // The client may be gone.
        let _ = stream.write_all((head + &body).as_bytes());
    }
}

fn read(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let length = stream.read(&mut buffer).unwrap_or(0);
        text += &String::from_utf8_lossy(&buffer[..length]);
        let is_whole = text.starts_with("GET") && text.ends_with("\r\n\r\n");
        if length == 0 || is_whole || text.contains("</s:Envelope>") {
            return text;
        }
    }
}

fn answer(request: &str, mappings: &Mutex<Mappings>) -> String {
    const URN: &str = "urn:schemas-upnp-org:service:WANIPConnection:1";
    let argument = |name: &str| {
        let (_, value) = request.split_once(&format!("<{name}>")).unwrap();
        value.split('<').next().unwrap().to_owned()
    };
    let port = || argument("NewExternalPort").parse().unwrap();
    let answered = |action: &str, argument: &str| {
        format!(
            "<s:Envelope xmlns:s='s'><s:Body><u:{action}Response xmlns:u='{URN}'>{argument}\
             </u:{action}Response></s:Body></s:Envelope>"
        )
    };
    let mut mappings = mappings.lock().unwrap();
    if request.starts_with("GET") {
        format!(
            "<root><device><serviceList><service><serviceType>{URN}</serviceType>\
             <controlURL>/ctl</controlURL></service></serviceList></device></root>"
        )
    } else if request.contains("#AddPortMapping") {
        let (client, inside) = (argument("NewInternalClient"), argument("NewInternalPort"));
        mappings.insert(port(), format!("{client}:{inside}"));
        answered("AddPortMapping", "")
    } else if request.contains("#GetSpecificPortMappingEntry") {
        // An error would be as good for a mapping that is not there.
        let inside = mappings.get(&port()).cloned().unwrap_or_default();
        let (client, inside) = inside.split_once(':').unwrap_or_default();
        let entry = format!(
            "<NewInternalPort>{inside}</NewInternalPort>\
             <NewInternalClient>{client}</NewInternalClient>"
        );
        answered("GetSpecificPortMappingEntry", &entry)
    } else if request.contains("#DeletePortMapping") {
        mappings.remove(&port());
        answered("DeletePortMapping", "")
    } else {
        let outside = Device::OUTSIDE;
        let address = format!("<NewExternalIPAddress>{outside}</NewExternalIPAddress>");
        answered("GetExternalIPAddress", &address)
    }
}
