//! Where a tunnel's routes and those of the host lead: what leaves outside, and what goes into the tunnel.

use std::{net::IpAddr, path::Path};

use convoy_config::{Config, Routed};

use super::{finding::Finding, subject::Planned};

/// Judges what the client foresees for a configuration at `path`.
pub(super) fn judge_plan(planned: &Planned, path: &Path) -> Vec<Finding> {
    match &planned.foreseen {
        Ok(foreseen) => judge(foreseen, &path.display().to_string()),
        Err(error) => {
            let what = format!("Where packets would leave cannot be told: {error}.");
            vec![Finding::note(ID, what, "Run `convoy doctor` as root.")]
        }
    }
}

const ID: &str = "routes";

fn judge(foreseen: &[String], path: &str) -> Vec<Finding> {
    let findings = foreseen.iter().map(|what| {
        let fix =
            format!("Compare `Address`, `AllowedIPs` and `ExcludedIPs` in {path} with `ip route`.");
        Finding::warning(ID, capitalized(what), fix)
    });
    let findings: Vec<_> = findings.collect();
    match findings.is_empty() {
        true => vec![Finding::ok(
            ID,
            "The tunnel's routes and those of this host do not conflict.",
        )],
        false => findings,
    }
}

/// Judges whether a network of the tunnel holds an endpoint.
pub(super) fn judge_endpoint(config: &Config, routed: &Routed, to: IpAddr) -> Option<Finding> {
    let line = config.files.mention(routed.place_of(to)?);
    let what = format!(
        "The tunnel's networks hold the endpoint {to}{line}: its datagrams stay outside, but what programs send to it \
         goes into the tunnel."
    );
    Some(Finding::remark("endpoint-held", what))
}

/// A sentence.
fn capitalized(what: &str) -> String {
    let mut letters = what.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn what_is_foreseen_is_a_warning_each() {
        assert_eq!(judge(&[], "wg0.conf")[0].severity, Severity::Ok);
        let foreseen = ["it leaves".to_owned(), "it stays".to_owned()];
        let findings = judge(&foreseen, "wg0.conf");
        assert_eq!(findings.len(), 2);
        assert_eq!(findings[0].what, "It leaves.");
        assert_eq!(findings[1].severity, Severity::Warning);
    }
}
