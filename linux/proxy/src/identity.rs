//! Whose the process is, as the process server said last: a copy, so that asking costs no message
//! and a forked child begins with it. The rules are the server's.

use alloc::vec::Vec;

use contracts::process::{Capabilities, GROUPS_MAX, IdChange, Ids};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::errno::Errno;

/// Leaves an id as it is: -1, of which the C library may give 32 bits.
const AS_IT_IS: u32 = u32::MAX;

/// A fresh process is root's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Identity {
    /// Real, effective and saved user.
    users: [u32; 3],
    /// The same of the group.
    groups: [u32; 3],
    count: u64,
    others: [u32; GROUPS_MAX],
    /// Effective, permitted and inheritable ones, and 1 if they are kept.
    capabilities: [u64; 4],
}

impl Default for Identity {
    fn default() -> Self {
        let mut own = Self::new_zeroed();
        own.set_capabilities(Capabilities::default());
        own
    }
}

impl Identity {
    /// What it may.
    pub fn capabilities(&self) -> Capabilities {
        let [effective, permitted, inheritable, keeps] = self.capabilities;
        Capabilities { effective, permitted, inheritable, keeps: keeps != 0 }
    }

    /// That is this now.
    pub fn set_capabilities(&mut self, now: Capabilities) {
        self.capabilities = [now.effective, now.permitted, now.inheritable, now.keeps.into()];
    }

    /// Of the user, or of the group.
    pub fn ids(&self, of_user: bool) -> Ids {
        let [real, effective, saved] = if of_user { self.users } else { self.groups };
        Ids { real, effective, saved }
    }

    /// They are this now.
    pub fn set_ids(&mut self, of_user: bool, ids: Ids) {
        let place = if of_user { &mut self.users } else { &mut self.groups };
        *place = [ids.real, ids.effective, ids.saved];
    }

    /// Groups beside its own.
    pub fn others(&self) -> &[u32] {
        &self.others[..(self.count as usize).min(GROUPS_MAX)]
    }

    /// They are this now, as far as there is room.
    pub fn set_others(&mut self, groups: &[u32]) {
        let count = groups.len().min(GROUPS_MAX);
        self.others[..count].copy_from_slice(&groups[..count]);
        self.count = count as u64;
    }

    /// User and group as whom it acts.
    pub fn acting(&self) -> (u32, u32) {
        (self.users[1], self.groups[1])
    }

    /// Has it a capability, by its number?
    pub fn may(&self, number: u32) -> bool {
        self.capabilities().has(number)
    }

    /// Does it act as somebody else than who started it (AT_SECURE)?
    pub fn is_secure(&self) -> bool {
        self.users[0] != self.users[1] || self.groups[0] != self.groups[1]
    }

    /// Another program runs.
    pub fn run_program(&mut self) {
        (self.users[2], self.groups[2]) = (self.users[1], self.groups[1]);
        self.set_capabilities(self.capabilities().of_next(self.ids(true)));
    }

    /// May it say that it is this user and group?
    pub fn may_claim(&self, user: u32, group: u32) -> bool {
        self.users.contains(&user) && self.groups.contains(&group)
    }
}

/// An id of a call that leaves it as it is with -1.
pub fn wanted(id: u64) -> Option<u32> {
    Some(id as u32).filter(|id| *id != AS_IT_IS)
}

/// What setuid and setgid ask for. `EINVAL` for -1.
pub fn one(id: u64) -> Result<IdChange, Errno> {
    wanted(id).map(IdChange::One).ok_or(Errno::EINVAL)
}

/// How many groups setgroups names. `EINVAL` for more than there may be.
pub fn group_count(count: u64) -> Result<u64, Errno> {
    if count as i32 as u64 <= GROUPS_MAX as u64 { Ok(count as u32 as u64) } else { Err(Errno::EINVAL) }
}

/// What getgroups stores where there is room for `room` of them; none are stored for 0. `EINVAL` if
/// there is too little.
pub fn groups_for(identity: &Identity, room: u64) -> Result<Vec<u32>, Errno> {
    match room as i32 {
        0 => Ok(Vec::new()),
        room if room >= identity.others().len() as i32 => Ok(identity.others().to_vec()),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contracts::process::capability;

    #[test]
    fn what_the_server_said_is_told() {
        let mut own = Identity::default();
        assert!(own.may(capability::LAST) && !own.is_secure() && own.others().is_empty());
        own.set_others(&[4, 5]);
        own.set_ids(false, Ids { real: 34, effective: 34, saved: 34 });
        own.set_ids(true, Ids { real: 0, effective: 33, saved: 0 });
        own.set_capabilities(Capabilities { effective: 0, ..own.capabilities() });
        assert!(!own.may(capability::SETUID) && own.is_secure());
        assert_eq!((own.ids(true).effective, own.ids(false).real), (33, 34));
        assert_eq!(own.acting(), (33, 34));
        for keeps in [true, false] {
            own.set_capabilities(Capabilities { keeps, ..own.capabilities() });
            assert_eq!(own.capabilities().keeps, keeps);
        }
        assert_eq!(groups_for(&own, 0), Ok(vec![]));
        assert_eq!(groups_for(&own, 1), Err(Errno::EINVAL));
        assert_eq!(groups_for(&own, u64::MAX), Err(Errno::EINVAL));
        assert_eq!(groups_for(&own, 9), Ok(vec![4, 5]));
        own.run_program();
        assert_eq!(
            (own.ids(true).saved, own.capabilities().permitted),
            (33, Capabilities::ALL),
            "its real one is root"
        );
    }

    #[test]
    fn numbers_of_calls_are_bounded() {
        assert_eq!((wanted(u64::MAX), wanted(u32::MAX.into()), wanted(7)), (None, None, Some(7)));
        assert_eq!((one(u32::MAX.into()), one(5)), (Err(Errno::EINVAL), Ok(IdChange::One(5))));
        assert_eq!(
            (group_count(32), group_count(33), group_count(u64::MAX)),
            (Ok(32), Err(Errno::EINVAL), Err(Errno::EINVAL))
        );
    }

    #[test]
    fn nobody_claims_to_be_another() {
        let mut own = Identity::default();
        assert!(own.may_claim(0, 0) && !own.may_claim(5, 0), "nor root, who would be told as root");
        own.set_ids(true, Ids { real: 5, effective: 6, saved: 6 });
        assert!(own.may_claim(5, 0) && own.may_claim(6, 0));
        assert!(!own.may_claim(0, 0) && !own.may_claim(5, 6));
    }
}
