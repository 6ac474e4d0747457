//! User semaphores of this program: the count in its own memory, the kernel only to sleep and to
//! wake.

use core::sync::atomic::AtomicI64;

use ::semaphore::KernelSemaphore;
use abi::{Error, Handle};

/// A semaphore of the kernel's that goes with this.
#[derive(Debug)]
pub struct Gate(Handle);

impl Gate {
    /// Takes over a capability: one made here, or one that was given (of another domain's
    /// semaphore).
    pub const fn over(handle: Handle) -> Gate {
        Gate(handle)
    }

    /// Its capability.
    pub fn handle(&self) -> Handle {
        self.0
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = sys::cap_drop(self.0);
    }
}

impl KernelSemaphore for Gate {
    fn up(&self, count: u64) -> Result<(), Error> {
        sys::semaphore_up(self.0, count)
    }

    fn down(&self, deadline_ns: u64) -> Result<(), Error> {
        sys::semaphore_down(self.0, deadline_ns)
    }
}

/// A semaphore for the contexts of this program: neither `down` nor `up` enters the kernel unless
/// somebody sleeps.
pub type Semaphore = ::semaphore::Semaphore<AtomicI64, Gate>;

/// A semaphore with this count. `NoMemory`, `NoSlot`: the program's account or share is full.
pub fn semaphore(count: u32) -> Result<Semaphore, Error> {
    let gate = Gate(sys::semaphore_alloc(Handle::SELF_RAM, 0)?);
    Ok(Semaphore::new(AtomicI64::new(i64::from(count)), gate))
}

#[cfg(all(test, not(target_os = "none")))]
mod tests {
    use super::*;

    #[test]
    fn a_gate_says_what_the_kernel_says() {
        let gate = Gate::over(Handle(7));
        assert_eq!((gate.up(1), gate.down(0)), (Err(Error::BadCall), Err(Error::BadCall)), "a host has none");
        assert!(semaphore(0).is_err());
    }
}
