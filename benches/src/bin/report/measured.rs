//! What a comparison with other programs says of itself.

use convoy_benches::markdown::cell;
use convoy_lab::measure::Host;
use serde::Deserialize;

/// The head of `peers.json` and `peers-wide.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct Measured {
    command: Vec<String>,
    pub(crate) commit: Option<String>,
    pub(crate) host: Host,
    pub(crate) repetitions: u32,
    /// Convoy is the first.
    pub(crate) contestants: Vec<Contestant>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Contestant {
    pub(crate) name: String,
    version: Option<String>,
}

impl Measured {
    /// Where, of what, and how, in a line.
    pub(crate) fn told(&self) -> String {
        let version = |one: &Contestant| {
            let version = one.version.as_ref()?;
            // A variant is the same program.
            one.is_default()
                .then(|| format!("{} ({version})", one.name))
        };
        let versions: Vec<_> = self.contestants.iter().filter_map(version).collect();
        format!(
            "{} · commit {}, {} repetitions; {}. Called as `{}`.\n",
            self.host,
            cell(self.commit.as_ref()),
            self.repetitions,
            versions.join(", "),
            self.command.join(" ")
        )
    }
}

impl Contestant {
    /// Whether it is a program as it comes, and not a variant.
    pub(crate) fn is_default(&self) -> bool {
        !self.name.contains('+')
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// With Convoy, a variant, and GotaTun.
    pub(crate) const HEAD: &str = r#""command": ["bench_peers", "--reps", "5"], "commit": "abc",
        "host": {"kernel": "6", "cpu": null, "cpus": 2, "memory_mib": null, "root": true},
        "repetitions": 5, "contestants": [{"name": "convoy", "version": "0.1.0"},
            {"name": "gotatun+q", "version": "1"}, {"name": "gotatun", "version": "1"}]"#;

    #[test]
    fn a_program_is_told_once_however_many_variants_of_it_there_are() {
        let measured: Measured = serde_json::from_str(&format!("{{{HEAD}}}")).unwrap();
        let told = measured.told();
        let end = "5 repetitions; convoy (0.1.0), gotatun (1). Called as `bench_peers --reps 5`.\n";
        assert!(told.ends_with(end), "{told}");
    }
}
