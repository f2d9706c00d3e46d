//! `convoy up`: what a person at the client sees, against a real wireguard-go and a real name server.
//!
//! ```text
//!  client                          net                            server
//!   eth0 192.168.1.2 ──────────── 192.168.1.1 lan
//!        2001:db8:2::2            2001:db8:2::1
//!                                 203.0.113.254 wan ──────────── eth0 203.0.113.1, 203.0.113.2
//!                                 2001:db8:1::fe                      2001:db8:1::1, 2001:db8:1::2
//!   wg0  10.8.0.2  ═════════════════════════════════════════════ wg0  10.8.0.1
//!        fd08::2                                                      fd08::1
//!                                                                lo   198.51.100.1, 2001:db8:ffff::1
//!   /etc, /run and /var/lib of its own   dnsmasq, if started          hosts behind the tunnel
//! ```

mod capture;
mod commands;
mod host;
mod liar;
mod names;
mod outcome;
mod process;
mod stream;
mod user;
mod world;

mod adoption;
mod cases;
mod classes;
mod confined;
mod crash;
mod device;
mod doctor;
mod endpoints;
mod events;
mod exec;
mod gateway;
mod hooks;
mod idle;
mod kill_switch;
mod lacking;
mod lies;
mod logs;
mod lookups;
mod metrics;
mod neighbors;
mod path_mtu;
pub(crate) mod paths;
mod pause;
mod port_forward;
mod profile;
mod recording;
mod reload;
mod secrets;
mod service;
mod settings;
mod sleep;
mod status;
mod steps;
mod tunnel;
mod turn;
mod turn_streams;
mod twice;
mod up_and_down;
mod userspace;
mod via;
mod wg_quick;
