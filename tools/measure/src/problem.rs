//! Why a row has no figure.

/// Kept apart, because a system without a call is honest and a failure is not expected.
#[derive(Debug, PartialEq, Eq)]
pub enum Problem {
    /// The system does not offer it; names the call and the error.
    Absent(String),
    /// Anything else.
    Failed(String),
}

/// What a measurement gives.
pub type Result<T> = std::result::Result<T, Problem>;

/// Errors by which a system says that it has no such call, option, family or kind of memory.
const ABSENT: [i32; 7] = [
    libc::ENOSYS,
    libc::EOPNOTSUPP,
    libc::EAFNOSUPPORT,
    libc::EPROTONOSUPPORT,
    libc::ESOCKTNOSUPPORT,
    libc::ENOPROTOOPT,
    libc::ENODEV,
];

impl Problem {
    /// From an error of the call `what`.
    pub fn of(what: &str, error: &std::io::Error) -> Problem {
        let text = format!("{what}: {error}");
        match error.raw_os_error() {
            Some(number) if ABSENT.contains(&number) => Problem::Absent(text),
            _ => Problem::Failed(text),
        }
    }
}

/// The last call's error.
pub fn last(what: &str) -> Problem {
    Problem::of(what, &std::io::Error::last_os_error())
}

/// Adds the name of the call to an error of the standard library.
pub trait During<T> {
    /// See [`Problem::of`].
    fn during(self, what: &str) -> Result<T>;
}

impl<T> During<T> for std::io::Result<T> {
    fn during(self, what: &str) -> Result<T> {
        self.map_err(|error| Problem::of(what, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_call_is_told_from_a_failed_one() {
        let problem = |number| Problem::of("clone", &std::io::Error::from_raw_os_error(number));
        assert!(matches!(problem(libc::ENOSYS), Problem::Absent(text) if text.starts_with("clone: ")));
        assert!(matches!(problem(libc::EAGAIN), Problem::Failed(_)));
    }
}
