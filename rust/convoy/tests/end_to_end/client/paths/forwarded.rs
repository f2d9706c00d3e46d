//! A home whose router forwards ports, as miniupnpd does.

use std::{
    fs::{self, File},
    net::Ipv4Addr,
};

use convoy_lab::eventually;
use serde_json::Value;

use super::{friend::Friend, friends::Friends};
use crate::scene::{DEADLINE, output_of};

/// Protocols by which a router is asked to forward ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// PCP and NAT-PMP.
    Pcp,
    /// UPnP alone.
    Upnp,
}

impl Friends {
    /// The address at which the router of the first friend forwards ports: miniupnpd takes none of the lab's own, which
    /// are reserved.
    pub(crate) const FORWARDED: Ipv4Addr = Ipv4Addr::new(11, 0, 0, 7);

    /// Starts miniupnpd at the first friend's router.
    pub(crate) fn forward_ports(&mut self, speaks: Speaks) {
        let (open, natpmp, upnp, listener) = match speaks {
            Speaks::Pcp => ("udp dport 5351", "yes", "no", "lun"),
            Speaks::Upnp => ("th dport { 1900, 5000 }", "no", "yes", "ltn"),
        };
        let (home, address) = (&self.homes[0], Self::FORWARDED);
        let outside = home.outside.unwrap().v4;
        let route = format!("ip route add {address} via {outside}");
        output_of(&self.internet.namespace, "sh", &["-ec", &route]);
        let place = &home.namespace;
        let line = format!(
            "ip addr add {address}/32 dev wan
             nft -f - <<'END'
             add chain inet convoy_router forwarded
             insert rule inet convoy_router forward jump forwarded
             insert rule inet convoy_router input iifname \"lan*\" {open} accept
             table inet ports {{
                 chain arrives {{ type nat hook prerouting priority -110; jump forwarded; }}
                 chain leaves {{ type nat hook postrouting priority 90; jump leaving; }}
                 chain forwarded {{ }}
                 chain leaving {{ }}
             }}
END
             cat > /run/miniupnpd.conf <<'END'
ext_ifname=wan
ext_ip={address}
listening_ip=lan0
enable_natpmp={natpmp}
enable_upnp={upnp}
http_port=5000
secure_mode=yes
upnp_table_name=convoy_router
upnp_forward_chain=forwarded
upnp_nat_table_name=ports
upnp_nat_chain=forwarded
upnp_nat_postrouting_chain=leaving
END
"
        );
        output_of(place, "sh", &["-ec", &line]);
        let mut command = place.command("miniupnpd");
        command.args([
            "-d",
            "-f",
            "/run/miniupnpd.conf",
            "-P",
            "/run/miniupnpd.pid",
        ]);
        let log = File::create(place.run_directory().join("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.servers.push(command.spawn().unwrap());
        let listens = || {
            let sockets = output_of(place, "ss", &[&format!("-H{listener}")]);
            let is_there = sockets.contains(":5351") || sockets.contains(":5000");
            is_there.then_some(())
        };
        assert!(eventually(DEADLINE, listens).is_some());
    }

    /// Ports that the router of the first friend forwards.
    pub(crate) fn forwarded(&self) -> usize {
        let chain = ["list", "chain", "inet", "ports", "forwarded"];
        let rules = output_of(&self.homes[0].namespace, "nft", &chain);
        rules.matches("dnat").count()
    }
}

impl Friend {
    /// Kills its supervisor; the tunnel goes on.
    pub(crate) fn kill_supervisor(&self) {
        let outcome = self.convoy(&["status", "--json", "wg0"]).succeeds();
        let status: Value = serde_json::from_str(&outcome.stdout).unwrap();
        let pid = &status["interfaces"][0]["supervisor_pid"];
        let line = format!("kill -9 {pid}; while kill -0 {pid} 2>/dev/null; do sleep 0.05; done");
        output_of(&self.place, "sh", &["-ec", &line]);
    }

    /// The secret of the mapping that is noted for the time after its supervisor.
    pub(crate) fn noted_nonce(&self) -> Option<Value> {
        let state = self.place.run_directory().join("convoy/wg0.state");
        let state = fs::read_to_string(state).ok()?;
        let state: Value = serde_json::from_str(&state).ok()?;
        let mapping = ["/port_mapping/nonce", "/upnp_mapping/nonce"];
        mapping.iter().find_map(|it| state.pointer(it).cloned())
    }
}
