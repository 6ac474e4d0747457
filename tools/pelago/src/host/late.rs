//! The failure of a limit in time: the one failure that a busy host can be the cause of. It has a
//! type of its own, so that `./pelago test` can try again what failed so, and nothing else.
//!
//! Invariant: a scenario that has another reason to fail does not fail by this type. A machine that
//! said that something is broken did not merely run out of time, however its end was noticed.

/// What a console says of a fault that no second try may hide: a panic of the kernel or of a
/// component, and a failed test of the guest's own.
const FAULTS: [&str; 3] = ["kernel panic", "panicked at", " FAILED: "];

/// A limit in time was not kept. The words say what was waited for, and how long.
#[derive(Debug)]
pub struct Late(String);

impl std::fmt::Display for Late {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Late {}

/// Makes the error: [`Late`], unless `console`, all that was said by then, tells of a fault.
pub fn late(words: String, console: &[String]) -> anyhow::Error {
    if console.iter().any(|line| FAULTS.iter().any(|fault| line.contains(fault))) {
        return anyhow::Error::msg(words);
    }
    anyhow::Error::new(Late(words))
}

/// The same failure of a transfer: one that does not end has failed, whatever the time it took.
pub fn of_transfer(error: anyhow::Error) -> anyhow::Error {
    if error.is::<Late>() { anyhow::Error::msg(format!("{error:#}")) } else { error }
}

/// What `result` gave, if nothing else failed that went on beside it. Of several errors the first
/// that is no [`Late`]: a limit does not hide what a client saw.
pub fn all_well<T>(
    result: anyhow::Result<T>,
    beside: impl IntoIterator<Item = anyhow::Result<()>>,
) -> anyhow::Result<T> {
    let mut errors = Vec::new();
    let value = result.map_err(|error| errors.push(error)).ok();
    errors.extend(beside.into_iter().filter_map(anyhow::Result::err));
    let (late, other): (Vec<_>, Vec<_>) = errors.into_iter().partition(|error| error.is::<Late>());
    match (other.into_iter().chain(late).next(), value) {
        (Some(error), _) => Err(error),
        (None, Some(value)) => Ok(value),
        (None, None) => Err(anyhow::anyhow!("nothing came of it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn what_a_machine_said_counts_before_the_time_it_took() {
        let console = |line: &str| [line.to_owned()];
        let is_late = |line: &str| late("no reply".into(), &console(line)).is::<Late>();
        assert!(is_late("pelago: ready"));
        assert!(!is_late("pelago: kernel panic on core 1: no memory"));
        assert!(!is_late("pelago: ip: panicked at servers/ip/src/main.rs:1:2:"));
        assert!(!is_late("pelago: conform-3: core 3 ram/split FAILED: leaves 3 pages (line 4)"));
    }

    #[test]
    fn the_type_outlives_words_around_it() {
        let error = Err::<(), _>(late("no reply".into(), &[])).context("round 1").context("kill ip").unwrap_err();
        assert!(error.is::<Late>());
        assert_eq!(format!("{error:#}"), "kill ip: round 1: no reply");
    }

    #[test]
    fn a_fault_is_told_before_a_limit() {
        let no_reply = || late("no reply".into(), &[]);
        let both = all_well(Err::<u32, _>(no_reply()), [Ok(()), Err(anyhow!("a wrong byte")), Err(anyhow!("another"))]);
        assert_eq!(both.unwrap_err().to_string(), "a wrong byte");
        assert!(all_well(Ok(1), [Err(no_reply())]).unwrap_err().is::<Late>());
        assert_eq!(all_well(Ok(1), [Ok(())]).unwrap(), 1);
        assert!(!of_transfer(no_reply()).is::<Late>());
    }
}
