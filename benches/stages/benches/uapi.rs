//! Parses a `set` request as `wg setconf` sends it: one peer with few or many allowed IPs.

use std::fmt::Write as _;

use divan::{Bencher, counter::BytesCount};

use crate::each;

#[divan::bench(args = [1, 1_000, 130_000])]
fn parse(bencher: Bencher<'_, '_>, allowed_ips: u32) {
    let request = request(allowed_ips);
    let parse = || convoy_uapi::parse_set(request.as_bytes());
    each(bencher, BytesCount::of_str(&request), parse);
}

fn request(allowed_ips: u32) -> String {
    let key = "b85996fecc9c7f1fc6d2572a76eda11d59bcd20be8e543b15ce4bd85a8e75a33";
    let mut request = format!(
        "private_key={key}\nlisten_port=51820\nreplace_peers=true\npublic_key={key}\n\
         endpoint=192.0.2.1:51820\npersistent_keepalive_interval=25\nreplace_allowed_ips=true"
    );
    for n in 0..allowed_ips {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + n);
        // INVARIANT: writing to a String does not fail.
        write!(request, "\nallowed_ip={address}/32").expect("a String takes it");
    }
    request
}
