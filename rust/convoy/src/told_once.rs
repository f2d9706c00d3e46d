//! An error as a person wants to read it.

/// The chain of reasons in one message: many messages name their cause already.
pub(crate) fn told_once(error: &anyhow::Error) -> anyhow::Error {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !message.contains(&cause) {
            let separator = if message.is_empty() { "" } else { ": " };
            message = message + separator + &cause;
        }
    }
    anyhow::Error::msg(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_a_message_names_is_not_repeated() {
        let error = anyhow::Error::msg("No such file")
            .context("open the TUN: No such file (fix: modprobe)")
            .context("build the bed");
        let told = told_once(&error).to_string();
        assert_eq!(
            told,
            "build the bed: open the TUN: No such file (fix: modprobe)"
        );
    }
}
