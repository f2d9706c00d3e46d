//! The router's description of itself (UPnP Device Architecture §2.3). Pure.

use std::net::Ipv4Addr;

use super::{Place, action::Service, xml};
use crate::mapping::Control;

/// Finds the best service that forwards ports, with its address at the router.
pub(super) fn control(document: &[u8], at: &Place, router: Ipv4Addr) -> Option<Control> {
    let mut base = at.clone();
    let mut best: Option<Control> = None;
    let (mut service, mut url) = (None, None);
    for element in xml::elements(document)? {
        match &*element.name {
            "URLBase" if !element.text.trim().is_empty() => {
                base = Place::of(&element.text, router)?;
            }
            "serviceType" => service = Service::of(element.text.trim()),
            "controlURL" => url = Some(element.text),
            "service" => {
                let (service, url) = (service.take(), url.take());
                let (Some(service), Some(url)) = (service, url) else {
                    continue;
                };
                let is_better = best.as_ref().is_none_or(|best| service > best.service);
                if let Some(place) = base.join(&url, router)
                    && is_better
                {
                    best = Some(Control {
                        service,
                        place,
                        client: None,
                    });
                }
            }
            _ => {}
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);

    fn read(services: &str) -> Option<Control> {
        let document = format!("<root xmlns='x'>{services}</root>");
        let at = Place::of("http://192.168.0.1:5000/igd/root.xml", ROUTER).unwrap();
        control(document.as_bytes(), &at, ROUTER)
    }

    fn service(kind: &str, url: &str) -> String {
        let kind = format!("urn:schemas-upnp-org:service:{kind}");
        format!(
            "<service><serviceType>{kind}</serviceType><controlURL>{url}</controlURL></service>"
        )
    }

    #[test]
    fn the_best_service_is_found_wherever_it_is() {
        let inner = [
            service("WANCommonInterfaceConfig:1", "/common"),
            service("WANPPPConnection:1", "/ppp"),
            service("WANIPConnection:2", "ctl/ip"),
            service("WANIPConnection:1", "/ip1"),
        ];
        let found = read(&format!(
            "<device><deviceList><device><serviceList>{}</serviceList></device></deviceList></device>",
            inner.concat()
        ));
        let found = found.unwrap();
        assert_eq!(found.service, Service::Ip2);
        assert_eq!(
            (found.place.port, &*found.place.path),
            (5000, "/igd/ctl/ip")
        );
    }

    #[test]
    fn a_service_elsewhere_is_none() {
        for services in [
            service("WANIPConnection:1", "http://192.168.0.66/ctl"),
            service("WANIPConnection:9", "/ctl"),
            service("WANCommonInterfaceConfig:1", "/ctl"),
            format!(
                "<URLBase>http://192.168.0.66/</URLBase>{}",
                service("WANIPConnection:1", "/ctl")
            ),
            "<service><controlURL>/ctl</controlURL></service>".to_owned(),
            String::new(),
        ] {
            assert_eq!(read(&services), None, "{services}");
        }
    }

    #[test]
    fn addresses_may_have_a_base_of_their_own() {
        let base = "<URLBase>http://192.168.0.1:80/</URLBase>";
        let found = read(&(base.to_owned() + &service("WANIPConnection:1", "ctl")));
        assert_eq!(found.unwrap().place.port, 80);
    }
}
