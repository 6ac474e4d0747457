//! How many calls ended how.

use abi::{Call, Error};

/// Native numbers; a call's is its place.
const NUMBERS: usize = 256;
/// Errors are numbered from 1.
const ERRORS: usize = 32;

/// Counts of calls by number, and of errors.
pub struct Tally {
    made: [u64; NUMBERS],
    succeeded: [u64; NUMBERS],
    errors: [u64; ERRORS],
    all: u64,
}

const fn place(call: Call) -> usize {
    assert!((call as usize) < NUMBERS);
    call as usize
}

impl Tally {
    /// Nothing yet.
    pub const fn new() -> Tally {
        Tally { made: [0; NUMBERS], succeeded: [0; NUMBERS], errors: [0; ERRORS], all: 0 }
    }

    /// Counts a call by its number; `None`: how it ended is not known.
    pub fn count(&mut self, number: u64, ended: Option<Result<(), Error>>) {
        self.all += 1;
        if let Some(Err(error)) = ended {
            self.errors[error as usize % ERRORS] += 1;
        }
        if let Some(call) = Call::decode(number) {
            self.made[place(call)] += 1;
            self.succeeded[place(call)] += u64::from(ended == Some(Ok(())));
        }
    }

    /// All calls, those of no number included.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// Calls that were not refused.
    pub fn succeeded(&self) -> u64 {
        self.succeeded.iter().sum()
    }

    /// How often each call was made and was not refused, by name.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        Call::ALL.iter().map(|(call, name)| (*name, self.made[place(*call)], self.succeeded[place(*call)]))
    }

    /// How often each error came, by name.
    pub fn errors(&self) -> impl Iterator<Item = (&'static str, u64)> {
        (0..).zip(self.errors).filter_map(|(code, count)| Some((Error::from_code(code)?.name(), count)))
    }
}

impl Default for Tally {
    fn default() -> Self {
        Tally::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_errors_are_counted() {
        let mut tally = Tally::new();
        tally.count(Call::Null.number(), Some(Ok(())));
        tally.count(Call::Null.number(), Some(Err(Error::TooDeep)));
        tally.count(Call::Null.number(), None);
        tally.count(7, Some(Err(Error::BadCall)));
        assert_eq!((tally.all(), tally.succeeded()), (4, 1));
        assert_eq!(tally.calls().find(|(name, ..)| *name == "Null"), Some(("Null", 3, 1)));
        assert_eq!(tally.errors().filter(|(_, count)| *count > 0).count(), 2);
        assert_eq!(tally.errors().count(), 14);
    }
}
