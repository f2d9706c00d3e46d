//! The tables of programs that need no root, and of gateways.

use crate::comparison::Record;
use crate::table;
use crate::tunnel::Row;
use crate::tunnel::contender::{
    CONVOY, EXEC, MASQUERADE, NAT, ONETUN, PORTS, PORTS_SMOLTCP, WIREPROXY,
};
use crate::tunnel::rows::Set;

use super::tables::{everyone, names};

const LEGEND: &str = "
Figures are medians over the rounds. The far end is always Convoy in TUN mode; the near end is the contender: Convoy in
TUN mode as root (`convoy`), `convoy exec` with the traffic's programs inside (`exec`), and otherwise a program that
forwards ports of the loopback (`-L` and the other programs without a mark) or is a SOCKS5 proxy there (`socks5`, `S5`).
TCP comes from our own generator, which speaks SOCKS5. CPU time, system calls and memory are those of all processes of
the near end, without the generator; memory is their peak resident set, added up. Networks that a program makes use the
same congestion control as those of the bench: cubic, unless the host denies it to namespaces. Requests and answers have
32 bytes. UDP is not sent through SOCKS5.
";
const GATEWAYS_LEGEND: &str = "
Figures are medians over the rounds. A peer, Convoy in TUN mode, sends through the tunnel and the gateway to a server
behind it: Convoy in TUN mode as root, with the kernel's masquerading (`masquerade`); `convoy up --userspace --nat user`
(`nat`, with either engine); or `masquerade` in a namespace whose network is pasta or slirp4netns. There the flows of
peers leave as sockets of that program, but so do the datagrams of the tunnel: it moves every byte twice. TCP comes from
our own generator. CPU time, system calls and memory are those of all processes of the gateway; memory is their peak
resident set, added up. What the kernel keeps for flows is not in it. Requests and answers have 32 bytes. Idle flows
are TCP connections, opened one after another with a request and its answer each, for at most six seconds. If the busy
stream finds no room beside them, a tenth of them makes it.
";
const MUSTS_LEGEND: &str = "
Ratios are taken within each round. Brackets hold the 95 % interval (between two order statistics), or for fewer than
six rounds the lowest and highest value. A target is met by the whole interval (`yes`) or only by the median (`median`).
";

/// A ratio to the best of others in a row that must be reached.
struct Must {
    row: &'static str,
    one: &'static str,
    others: &'static [&'static str],
    at_least: f64,
}

const MUSTS: [Must; 6] = [
    must(EXEC, &[CONVOY], 0.97),
    must(PORTS, &[CONVOY], 0.85),
    must(PORTS, &[WIREPROXY, ONETUN], 3.0),
    must(PORTS_SMOLTCP, &[WIREPROXY, ONETUN], 1.5),
    must(NAT, &[MASQUERADE], 0.8),
    Must {
        row: "tcp-down",
        ..must(NAT, &[MASQUERADE], 0.8)
    },
];

const fn must(one: &'static str, others: &'static [&'static str], at_least: f64) -> Must {
    Must {
        row: "tcp-up",
        one,
        others,
        at_least,
    }
}

/// Both tables and their legends.
pub(super) fn text(record: &Record) -> String {
    let all = names(record, |_| true);
    let everyone = everyone(record, &all, |_| true);
    let rows = MUSTS.iter().filter_map(|must| must.cells(record));
    let musts = table::markdown("must | ratio (95 %) | target | met", rows);
    let legend = match record.set {
        Set::Gateways => GATEWAYS_LEGEND,
        Set::Programs | Set::Rootless => LEGEND,
    };
    format!("\n{everyone}{legend}\n{musts}{MUSTS_LEGEND}")
}

impl Must {
    /// `None` if a contender was not measured.
    fn cells(&self, record: &Record) -> Option<Vec<String>> {
        let row = Row::named(self.row)?;
        let best = record.best(self.others, row)?;
        let ratio = record.ratio(self.one, best, row)?;
        let at_least = self.at_least;
        Some(vec![
            format!("{}: {} : {best}", row.title, self.one),
            ratio.text(),
            format!("≥ {at_least} ×"),
            ratio.judge(|ratio| ratio >= at_least).text().to_owned(),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::record;

    #[test]
    fn forwarding_is_compared_with_the_tun_mode_and_with_the_better_of_the_others() {
        let figures = [(CONVOY, 4.0), (PORTS, 3.6), (WIREPROXY, 1.0), (ONETUN, 2.0)];
        let figures = figures.map(|(name, rate)| (name, [rate; 6]));
        let figures: Vec<_> = figures
            .iter()
            .map(|(name, all)| (*name, &all[..]))
            .collect();
        let text = text(&record("tcp-up", &figures));
        let musts = text.lines().filter(|line| line.contains("≥"));
        let musts: Vec<Vec<_>> = musts
            .map(|line| line.split('|').map(str::trim).collect())
            .collect();
        assert_eq!(
            musts.len(),
            2,
            "those of absent contenders are left out: {text}"
        );
        assert_eq!(
            musts[0][1..5],
            [
                "TCP up, Gbit/s: ports : convoy",
                "0.90 (0.90–0.90)",
                "≥ 0.85 ×",
                "yes"
            ]
        );
        assert_eq!(
            musts[1][1..5],
            [
                "TCP up, Gbit/s: ports : onetun",
                "1.80 (1.80–1.80)",
                "≥ 3 ×",
                "**no**"
            ]
        );
    }
}
