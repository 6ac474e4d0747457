//! Suites as tables of named functions, and what a failed test says.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use core::future::Future;
use core::panic::Location;
use core::pin::Pin;

use abi::{Error, Handle};

use crate::{Fixture, Partner};

/// Why a test failed, with the line that noticed.
#[derive(Debug)]
pub struct Failure {
    /// In words.
    pub why: String,
    /// Line of the suite's file.
    pub line: u32,
    /// The test does not apply to this core: neither passed nor failed.
    pub is_absence: bool,
}

/// What a test gives.
pub type Outcome = Result<(), Failure>;
/// A test that waits for another core.
pub type Waiting = Pin<Box<dyn Future<Output = Outcome>>>;
/// Words of a function on the next core: what it is given, and what it gives.
pub type Words = [u64; 4];

/// A test by name.
pub struct Test {
    /// The function's name.
    pub name: &'static str,
    /// The function.
    pub body: Body,
}

/// The two kinds of test.
pub enum Body {
    /// Of one core.
    Alone(fn(&Fixture) -> Outcome),
    /// With the next core; left out on a machine of one core.
    Paired(fn(Rc<Fixture>, Rc<Partner>) -> Waiting),
}

/// A function that a [`Partner`] runs on the next core.
pub struct Far {
    /// Its name.
    pub name: &'static str,
    /// The function.
    pub body: fn(&Fixture, Words) -> Result<Words, Failure>,
}

/// All tests of an object.
pub struct Suite {
    /// The object, as scenarios call it.
    pub name: &'static str,
    /// In the order they run.
    pub tests: &'static [Test],
    /// What tests have done on the next core.
    pub far: &'static [Far],
}

/// Makes `SUITE`: `suite!("name"; alone: f, g; paired: h; far: k)`. Functions of `alone` are
/// `fn(&Fixture) -> Outcome`, of `paired` `async fn(Rc<Fixture>, Rc<Partner>) -> Outcome`, of `far`
/// `fn(&Fixture, Words) -> Result<Words, Failure>`.
#[macro_export]
macro_rules! suite {
    ($name:literal; alone: $($alone:ident),* $(; paired: $($paired:ident),*)? $(; far: $($far:ident),*)?) => {
        /// The suite's table.
        pub const SUITE: $crate::Suite = $crate::Suite {
            name: $name,
            tests: &[
                $($crate::table::Test { name: stringify!($alone), body: $crate::table::Body::Alone($alone) },)*
                $($($crate::table::Test {
                    name: stringify!($paired),
                    body: $crate::table::Body::Paired(|fixture, partner| alloc::boxed::Box::pin($paired(fixture, partner))),
                },)*)?
            ],
            far: &[$($($crate::table::Far { name: stringify!($far), body: $far },)*)?],
        };
    };
}

/// Fails the test with words unless the condition holds.
#[macro_export]
macro_rules! require {
    ($condition:expr, $($words:tt)*) => {
        if !$condition {
            return Err($crate::Failure::new(alloc::format!($($words)*)));
        }
    };
}

impl Failure {
    /// With the caller's line.
    #[track_caller]
    pub fn new(why: impl Into<String>) -> Failure {
        Failure { why: why.into(), line: Location::caller().line(), is_absence: false }
    }

    /// Says why the test has nothing to do on this core, so that nobody takes it for passed.
    #[track_caller]
    pub fn absent(why: impl Into<String>) -> Failure {
        Failure { is_absence: true, ..Failure::new(why) }
    }
}

impl From<Error> for Failure {
    #[track_caller]
    fn from(error: Error) -> Failure {
        Failure::new(alloc::format!("refused with {}", error.name()))
    }
}

/// The end of a test that leaves no capability behind.
pub fn drop_all(handles: &[Handle]) -> Outcome {
    handles.iter().try_for_each(|handle| sys::cap_drop(*handle))?;
    Ok(())
}

/// A call that is to be refused with `error`.
#[track_caller]
pub fn refused<T>(result: Result<T, Error>, error: Error) -> Outcome {
    match result {
        Err(given) if given == error => Ok(()),
        Err(given) => Err(Failure::new(alloc::format!("refused with {}, not {}", given.name(), error.name()))),
        Ok(_) => Err(Failure::new(alloc::format!("not refused with {}", error.name()))),
    }
}
