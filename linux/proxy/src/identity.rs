//! Whose a process is: real, effective and saved id, of the user and of the group alike
//! (credentials(7)).
//!
//! Nothing is refused by them here: the machine has one user. A program that gives root up sees
//! that it did, and cannot take it back.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::errno::Errno;

/// Leaves an id as it is: -1, of which the C library may give 32 bits.
const AS_IT_IS: u32 = u32::MAX;

/// The ids of one kind. A fresh process is root's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Ids {
    /// Who started it.
    pub real: u32,
    /// As whom it acts.
    pub effective: u32,
    /// Whom it may become again.
    pub saved: u32,
}

impl Ids {
    fn may_be(&self, id: u64, is_root: bool) -> bool {
        is_root || [self.real, self.effective, self.saved].contains(&(id as u32))
    }

    /// setuid and setgid: root gives itself up for good. `EPERM`.
    pub fn set(&mut self, id: u64, is_root: bool) -> Result<(), Errno> {
        if !self.may_be(id, is_root) {
            return Err(Errno::EPERM);
        }
        self.effective = id as u32;
        if is_root {
            (self.real, self.saved) = (id as u32, id as u32);
        }
        Ok(())
    }

    /// setresuid and setresgid; -1 leaves an id. `EPERM`, and then none is changed.
    pub fn set_all(&mut self, wanted: [u64; 3], is_root: bool) -> Result<(), Errno> {
        let changes = wanted.map(|id| (id as u32 != AS_IT_IS).then_some(id));
        if changes.iter().flatten().any(|id| !self.may_be(*id, is_root)) {
            return Err(Errno::EPERM);
        }
        for (place, change) in [&mut self.real, &mut self.effective, &mut self.saved].into_iter().zip(changes) {
            *place = change.map_or(*place, |id| id as u32);
        }
        Ok(())
    }

    /// setreuid and setregid: whoever sets the real id, or an effective one that is not it, saves
    /// the effective one. `EPERM`.
    pub fn set_two(&mut self, real: u64, effective: u64, is_root: bool) -> Result<(), Errno> {
        let before = self.real;
        self.set_all([real, effective, AS_IT_IS.into()], is_root)?;
        if real as u32 != AS_IT_IS || effective as u32 != AS_IT_IS && effective as u32 != before {
            self.saved = self.effective;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_gives_itself_up_for_good() {
        let mut ids = Ids::default();
        ids.set(33, true).unwrap();
        assert_eq!(ids, Ids { real: 33, effective: 33, saved: 33 });
        assert_eq!(ids.set(0, false), Err(Errno::EPERM));
        assert_eq!(ids.set_all([0, 33, 33], false), Err(Errno::EPERM));
        assert_eq!(ids.set_two(33, u64::MAX, false), Ok(()));
    }

    #[test]
    fn a_saved_id_can_be_taken_again() {
        let mut ids = Ids::default();
        ids.set_all([u64::MAX, 33, u32::MAX.into()], true).unwrap();
        assert_eq!(ids, Ids { real: 0, effective: 33, saved: 0 });
        ids.set(0, false).unwrap();
        assert_eq!(ids.effective, 0);
        ids.set_two(5, 6, true).unwrap();
        assert_eq!(ids, Ids { real: 5, effective: 6, saved: 6 });
    }
}
