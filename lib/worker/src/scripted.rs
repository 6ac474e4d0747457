//! A worker that does what it is asked for, one thing at a time.

use abi::{Error, Handle};

use crate::{BEGUN, CODE, CRASH, JUMP, Job, LOAD, NOTHING, SCAN, SHARED, STORE, Worker, wild};

/// A worker that does what it is asked for, and the portal to ask it by. It ends when this is
/// dropped.
pub struct ScriptedDomain {
    /// The worker.
    pub worker: Worker,
    pub(crate) portal: Handle,
}

impl ScriptedDomain {
    /// Made and started, paid by `payer`. `number` as for [`Worker::new`].
    pub fn paid_by(payer: Handle, number: u64) -> Result<ScriptedDomain, Error> {
        ScriptedDomain::with_flags(payer, number, abi::layout::context::FPU)
    }

    /// With other flags of its context, `abi::layout::context`.
    pub fn with_flags(payer: Handle, number: u64, flags: u64) -> Result<ScriptedDomain, Error> {
        let worker = Worker::made(payer, number, Job::Obey, flags)?;
        let portal = worker.portal(0)?;
        let scripted = ScriptedDomain { worker, portal };
        scripted.worker.start([SHARED, 0])?;
        Ok(scripted)
    }

    /// Has it make a kernel call, by its number; three results. A call that is refused is
    /// `Ok(Err(..))`, a scripted domain that does not come back until the deadline or died of it is
    /// `Err`.
    pub fn call(&self, number: u64, arguments: [u64; 6], deadline_ns: u64) -> Result<Result<[u64; 3], Error>, Error> {
        self.worker.set_word(BEGUN, 0);
        self.worker.set_word(0, number);
        (1..).zip(arguments).for_each(|(word, argument)| self.worker.set_word(word, argument));
        sys::portal_call(self.portal, [0; 4], deadline_ns)?;
        Ok(self.result())
    }

    /// Has it make a kernel call that waits for something, and goes on when it does; what the call
    /// gave shows in [`ScriptedDomain::result`] when [`ScriptedDomain::is_back`]. `soon_ns` gives
    /// deadlines that are enough to get into the call.
    ///
    /// # Errors
    /// `Busy`: the call did not wait. Otherwise as for a portal call.
    pub fn begin(&self, number: u64, arguments: [u64; 6], soon_ns: impl Fn() -> u64) -> Result<(), Error> {
        // Its turn may not have come before the deadline: then it was not asked at all.
        loop {
            match self.call(number, arguments, soon_ns()) {
                Err(Error::Timeout) if self.has_begun() => return Ok(()),
                Err(Error::Timeout) => {}
                Ok(_) => return Err(Error::Busy),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the call that was begun has ended. Native call numbers are no results.
    pub fn is_back(&self) -> bool {
        !abi::call::is_native(self.worker.word(0))
    }

    /// What its last call gave, when it is known to have ended.
    pub fn result(&self) -> Result<[u64; 3], Error> {
        match self.worker.word(0) {
            0 => Ok([1, 2, 3].map(|word| self.worker.word(word))),
            code => Err(Error::from_code(code.wrapping_neg()).unwrap_or(Error::BadCall)),
        }
    }

    /// Has it load a word from an address of its own.
    pub fn load(&self, address: u64, deadline_ns: u64) -> Result<u64, Error> {
        self.worker.set_word(0, address);
        sys::portal_call(self.portal, [LOAD, 0, 0, 0], deadline_ns)?;
        Ok(self.worker.word(1))
    }

    /// Has it store a word at an address of its own.
    pub fn store(&self, address: u64, value: u64, deadline_ns: u64) -> Result<(), Error> {
        self.worker.set_word(0, address);
        self.worker.set_word(1, value);
        sys::portal_call(self.portal, [STORE, 0, 0, 0], deadline_ns).map(drop)
    }

    /// All bits that are set in so many words of its own from an address on, and how many of these
    /// begin with 24 bits, which `inverted` has inverted (so that nobody holds what is looked for).
    ///
    /// # Errors
    /// `Busy`: it answered from within a call that it was asked for before, and did not look.
    /// Otherwise as for a portal call.
    pub fn scan(&self, address: u64, words: u64, inverted: u64, deadline_ns: u64) -> Result<[u64; 2], Error> {
        [address, words.max(1), inverted]
            .into_iter()
            .zip(0..)
            .for_each(|(value, word)| self.worker.set_word(word, value));
        sys::portal_call(self.portal, [SCAN, 0, 0, 0], deadline_ns)?;
        let [set, found] = [1, 2].map(|word| self.worker.word(word));
        // What was asked for still stands there if nobody looked; nobody finds more than there is.
        if found == inverted && found > words { Err(Error::Busy) } else { Ok([set, found]) }
    }

    /// Has it try one of [`crate::WILD`], by its number.
    pub fn go_wild(&self, number: usize, deadline_ns: u64) -> Result<(), Error> {
        self.jump(CODE + wild::OFFSET + number as u64 * wild::BYTES, deadline_ns)
    }

    /// Where it does what it is asked for; what comes there with [`SHARED`] in RDI does so, too.
    pub fn entry() -> u64 {
        CODE
    }

    /// Lets it answer again without asking it for anything: it had answered from within a call that
    /// it was asked for.
    pub fn again(&self, deadline_ns: u64) -> Result<(), Error> {
        sys::portal_call(self.portal, [NOTHING, 0, 0, 0], deadline_ns).map(drop)
    }

    /// Whether the call that it was asked for last was begun.
    pub fn has_begun(&self) -> bool {
        self.worker.word(BEGUN) != 0
    }

    /// What its last call left in R10, R8, R9, RCX and R11.
    pub fn other_registers(&self) -> [u64; 5] {
        [4, 5, 6, 8, 9].map(|word| self.worker.word(word))
    }

    /// Has it go to an address of its own; it does not come back.
    pub fn jump(&self, address: u64, deadline_ns: u64) -> Result<(), Error> {
        self.worker.set_word(0, address);
        sys::portal_call(self.portal, [JUMP, 0, 0, 0], deadline_ns).map(drop)
    }

    /// Has it fault with `registers` in all general registers, and `frame` in RBP.
    pub fn crash(&self, registers: u64, frame: u64, deadline_ns: u64) -> Result<(), Error> {
        self.worker.set_word(0, registers);
        self.worker.set_word(1, frame);
        sys::portal_call(self.portal, [CRASH, 0, 0, 0], deadline_ns).map(drop)
    }
}

impl Drop for ScriptedDomain {
    fn drop(&mut self) {
        let _ = sys::cap_drop(self.portal);
    }
}
