//! Judges what the probes have shown, and the implementation that seals packets.

use convoy_aead::{Aead, WhyRing};

use super::{
    finding::Finding,
    probes::{Probed, Tun, TunFailure, Udp},
};

/// Judges the outcome of all trials.
pub(super) fn judge(probed: &anyhow::Result<Probed>) -> Vec<Finding> {
    match probed {
        Ok(Probed { tun, udp }) => [judge_tun(tun), judge_udp(udp)].concat(),
        Err(error) => {
            let what = format!("TUN offload, GSO and GRO could not be tried: {error:#}.");
            vec![Finding::note(
                "probes",
                what,
                "Run `convoy doctor` as root.",
            )]
        }
    }
}

fn judge_tun(tun: &Result<Tun, TunFailure>) -> Vec<Finding> {
    const ID: &str = "tun-device";
    match tun {
        Ok(tun) => {
            let opened = Finding::ok(ID, "A TUN device can be created.");
            vec![opened, judge_offload(tun), judge_writes(tun)]
        }
        Err(TunFailure {
            reason,
            fix,
            is_permission: true,
        }) => {
            let fix = fix.as_deref().map(|fix| format!(": {fix}"));
            let fix = fix.unwrap_or_default();
            let what = format!("TUN devices were not tried: {reason}{fix}.");
            vec![Finding::note(ID, what, "Run `convoy doctor` as root.")]
        }
        Err(TunFailure { reason, fix, .. }) => vec![Finding::error(
            ID,
            format!("No TUN device can be created: {reason}."),
            fix.as_deref().unwrap_or("See its error."),
        )],
    }
}

fn judge_offload(tun: &Tun) -> Finding {
    const ID: &str = "tun-offload";
    match (tun.tcp, tun.udp) {
        (true, true) => Finding::ok(ID, "The TUN has offload for TCP and UDP (TSO, USO)."),
        (true, false) => Finding::note(
            ID,
            "The TUN has offload for TCP only, so that each packet of UDP is read and written by itself.",
            "Linux 6.2 and newer have offload for UDP (USO), too.",
        ),
        (false, _) => Finding::warning(
            ID,
            "The TUN has no offload: each packet is read and written by itself, which halves the throughput.",
            "Use a kernel of kernel.org or of a distribution; those of some sandboxes lack TUNSETOFFLOAD.",
        ),
    }
}

fn judge_writes(tun: &Tun) -> Finding {
    const ID: &str = "tun-super-packets";
    match tun.refusal {
        Some(errno) => {
            let error = std::io::Error::from_raw_os_error(errno);
            Finding::warning(
                ID,
                format!(
                    "The TUN refuses super-packets, so that packets are written one by one: {error}."
                ),
                "Update the kernel; `convoy doctor` names the releases that are known for this.",
            )
        }
        None if tun.is_tried => Finding::ok(ID, "The TUN takes super-packets."),
        None if tun.tcp => Finding::note(
            ID,
            "Super-packets were not tried, as that needs a network namespace.",
            "Run `convoy doctor` as root, outside of containers.",
        ),
        None => Finding::remark(
            ID,
            "Super-packets were not tried, as the TUN has no offload.",
        ),
    }
}

fn judge_udp(udp: &Result<Udp, String>) -> Vec<Finding> {
    let (gso, gro) = ("udp-gso", "udp-gro");
    let udp = match udp {
        Ok(udp) => udp,
        Err(error) => {
            let what = format!("Datagrams over loopback: {error}.");
            let fix = "Bring it up, `ip link set lo up`, and see whether a firewall drops them.";
            return vec![Finding::error("udp-loopback", what, fix)];
        }
    };
    let sent = match udp.gso {
        true => Finding::ok(gso, "The kernel cuts batches into datagrams (UDP_SEGMENT)."),
        false => Finding::warning(
            gso,
            "The kernel does not cut batches into datagrams, so that each one costs a call.",
            "Linux 4.18 and newer do so (UDP_SEGMENT); those of some sandboxes do not.",
        ),
    };
    let received = match udp.gro {
        true => Finding::ok(
            gro,
            "The kernel returns several datagrams at once (UDP_GRO).",
        ),
        false => Finding::warning(
            gro,
            "The kernel returns each datagram by itself.",
            "Linux 5.0 and newer return several at once (UDP_GRO); those of some sandboxes do not.",
        ),
    };
    vec![sent, received]
}

/// Judges the implementation that this CPU gets.
pub(super) fn judge_aead(aead: Aead) -> Finding {
    const ID: &str = "aead";
    let by_ring = format!(
        "Packets are sealed one by one, with {}",
        aead.implementation()
    );
    match aead.why_ring() {
        None => {
            let name = aead.implementation();
            Finding::ok(
                ID,
                format!("Packets are sealed sixteen at a time: {name} passed its self-test."),
            )
        }
        Some(WhyRing::SelfTestFailed) => Finding::warning(
            ID,
            format!("{by_ring}: AVX-512 computed a wrong result in the self-test."),
            "Report it with the model of the CPU, and test the memory: it should not happen.",
        ),
        Some(why) => Finding::ok(ID, format!("{by_ring}, as {why}.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    const WHOLE: Tun = Tun {
        tcp: true,
        udp: true,
        is_tried: true,
        refusal: None,
    };

    fn severities(tun: Result<Tun, TunFailure>, udp: Udp) -> Vec<(String, Severity)> {
        let findings = judge(&Ok(Probed { tun, udp: Ok(udp) }));
        let unwell = findings
            .into_iter()
            .filter(|it| it.severity != Severity::Ok);
        unwell.map(|it| (it.id, it.severity)).collect()
    }

    fn all() -> Udp {
        Udp {
            gso: true,
            gro: true,
        }
    }

    #[test]
    fn a_kernel_with_everything_is_well() {
        assert_eq!(severities(Ok(WHOLE), all()), []);
    }

    #[test]
    fn what_a_kernel_lacks_is_named() {
        let found = |id: &str, severity| vec![(id.to_owned(), severity)];
        let without_uso = Tun {
            udp: false,
            ..WHOLE
        };
        assert_eq!(
            severities(Ok(without_uso), all()),
            found("tun-offload", Severity::Note)
        );
        let refusal = Some(libc::EINVAL);
        let refuses = severities(Ok(Tun { refusal, ..WHOLE }), all());
        assert_eq!(refuses, found("tun-super-packets", Severity::Warning));
        let not_tried = severities(
            Ok(Tun {
                is_tried: false,
                ..WHOLE
            }),
            all(),
        );
        assert_eq!(not_tried, found("tun-super-packets", Severity::Note));
        let without_gso = severities(
            Ok(WHOLE),
            Udp {
                gso: false,
                ..all()
            },
        );
        assert_eq!(without_gso, found("udp-gso", Severity::Warning));
        let without_gro = severities(
            Ok(WHOLE),
            Udp {
                gro: false,
                ..all()
            },
        );
        assert_eq!(without_gro, found("udp-gro", Severity::Warning));
        let plain = severities(Ok(Tun::default()), all());
        assert_eq!(plain[0], ("tun-offload".to_owned(), Severity::Warning));
    }

    #[test]
    fn a_missing_device_is_an_error_but_a_missing_right_is_not() {
        for (is_permission, severity) in [(true, Severity::Note), (false, Severity::Error)] {
            let failure = TunFailure {
                reason: "/dev/net/tun does not exist".to_owned(),
                fix: Some("run `modprobe tun`".to_owned()),
                is_permission,
            };
            let findings = judge(&Ok(Probed {
                tun: Err(failure),
                udp: Ok(all()),
            }));
            let Finding {
                severity: found,
                what,
                fix,
                ..
            } = &findings[0];
            assert_eq!(*found, severity);
            let is_told = [Some(what), fix.as_ref()].into_iter().flatten();
            let mut is_told = is_told.filter(|it| it.contains("modprobe tun"));
            assert!(is_told.next().is_some(), "{what} {fix:?}");
        }
    }

    #[test]
    fn probes_that_did_not_run_and_loopback_that_is_down_are_told() {
        let findings = judge(&Err(anyhow::anyhow!("no memory")));
        assert_eq!(findings[0].severity, Severity::Note);
        let udp = Err("Network is unreachable".to_owned());
        let findings = judge(&Ok(Probed {
            tun: Ok(WHOLE),
            udp,
        }));
        assert_eq!(findings.last().unwrap().severity, Severity::Error);
    }

    #[test]
    fn ring_is_as_good_as_a_batch_unless_the_self_test_failed() {
        assert_eq!(judge_aead(Aead::ring()).severity, Severity::Ok);
        assert_eq!(judge_aead(Aead::auto()).severity, Severity::Ok);
    }
}
