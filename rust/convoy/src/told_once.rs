//! Error messages without repetition.

/// Joins the chain of causes into one message, without causes that it already names.
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
    fn a_cause_that_is_already_named_is_not_repeated() {
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
