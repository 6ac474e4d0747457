//! Whose a process is, and what it may become (credentials(7)): real, effective and saved id, of
//! the user and of the group alike, and the groups beside them.
//!
//! Who has the capability may become anybody, and root that does so for good cannot return, unless
//! it keeps its capabilities. What else ids allow is not judged here.

use contracts::process::{
    Capabilities, Credentials, GROUPS_MAX, IdChange, Identity, Ids, ProcessError, ProcessId, capability,
};

use alloc::vec::Vec;

/// What to do with the ids of one kind.
fn changed(ids: Ids, change: IdChange, may_any: bool) -> Result<Ids, ProcessError> {
    let may_be = |id: u32, own: &[u32]| may_any || own.contains(&id);
    let any = [ids.real, ids.effective, ids.saved];
    let wanted = match change {
        IdChange::One(id) if may_any => [Some(id); 3],
        IdChange::One(id) => [None, Some(id), None],
        IdChange::Two([real, effective]) => [real, effective, None],
        IdChange::All(all) => all,
    };
    let [real, effective, saved] = wanted;
    // setreuid takes the saved one for the effective one only; setuid the effective one for none.
    let for_real = if let IdChange::Two(_) = change { &any[..2] } else { &any[..] };
    let others = if let IdChange::One(_) = change { &[ids.real, ids.saved][..] } else { &any[..] };
    let may_others = [effective, saved].iter().flatten().all(|id| may_be(*id, others));
    if !may_others || !real.is_none_or(|id| may_be(id, for_real)) {
        return Err(ProcessError::Denied);
    }
    let effective = effective.unwrap_or(ids.effective);
    // Whoever sets the real id, or an effective one that is not it, saves the effective one.
    let saved = match change {
        IdChange::Two([sets, acts]) if sets.is_some() || acts.is_some_and(|id| id != ids.real) => effective,
        _ => saved.unwrap_or(ids.saved),
    };
    Ok(Ids { real: real.unwrap_or(ids.real), effective, saved })
}

/// Changes the ids of the user or of the group; gives what they are now. `Denied`, and then none is
/// changed.
pub fn set_ids(own: &mut Identity, of_user: bool, change: IdChange) -> Result<Ids, ProcessError> {
    let (ids, number) = match of_user {
        true => (&mut own.users, capability::SETUID),
        false => (&mut own.groups, capability::SETGID),
    };
    let before = *ids;
    *ids = changed(before, change, own.capabilities.has(number))?;
    if of_user {
        follow(&mut own.capabilities, before, own.users);
    }
    Ok(if of_user { own.users } else { own.groups })
}

/// Root's go with the last id of root's, unless they are kept; in force are they for who acts as
/// root.
fn follow(own: &mut Capabilities, before: Ids, now: Ids) {
    let has_root = |ids: Ids| [ids.real, ids.effective, ids.saved].contains(&0);
    if has_root(before) && !has_root(now) && !own.keeps {
        own.permitted = 0;
    }
    match (before.effective, now.effective) {
        (0, 0) => {}
        (_, 0) => own.effective = own.permitted,
        (0, _) => own.effective = 0,
        _ => own.effective &= own.permitted,
    }
}

/// Changes what it may (capset(2)). `Denied` for more than is permitted.
pub fn set_capabilities(own: &mut Identity, wanted: Capabilities) -> Result<(), ProcessError> {
    let have = own.capabilities;
    let inheritable = if have.has(capability::SETPCAP) { Capabilities::ALL } else { have.inheritable | have.permitted };
    let is_within = |some: u64, all: u64| some & !all == 0;
    let may = is_within(wanted.permitted, have.permitted)
        && is_within(wanted.effective, wanted.permitted)
        && is_within(wanted.inheritable, inheritable);
    if !may {
        return Err(ProcessError::Denied);
    }
    own.capabilities = wanted;
    Ok(())
}

/// Names the groups beside the process's own. `Denied` for who has not SETGID, `Invalid` for more
/// than [`GROUPS_MAX`].
pub fn set_groups(own: &mut Identity, groups: Vec<u32>) -> Result<(), ProcessError> {
    if !own.capabilities.has(capability::SETGID) {
        return Err(ProcessError::Denied);
    }
    if groups.len() > GROUPS_MAX {
        return Err(ProcessError::Invalid);
    }
    own.others = groups;
    Ok(())
}

/// Another program runs: it can go back to what the last one acted as, and no further.
pub fn run_program(own: &mut Identity) {
    own.users.saved = own.users.effective;
    own.groups.saved = own.groups.effective;
    own.capabilities = own.capabilities.of_next(own.users);
}

/// As whom it acts.
pub fn acting(process: ProcessId, own: &Identity) -> Credentials {
    Credentials { process, user: own.users.effective, group: own.groups.effective }
}

/// Who it really is.
pub fn real(process: ProcessId, own: &Identity) -> Credentials {
    Credentials { process, user: own.users.real, group: own.groups.real }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(real: u32, effective: u32, saved: u32) -> Ids {
        Ids { real, effective, saved }
    }

    fn user(own: &mut Identity, change: IdChange) -> Result<Ids, ProcessError> {
        set_ids(own, true, change)
    }

    #[test]
    fn root_gives_itself_up_for_good() {
        let mut own = Identity::default();
        set_groups(&mut own, vec![4, 5]).unwrap();
        assert_eq!(set_ids(&mut own, false, IdChange::One(34)), Ok(ids(34, 34, 34)));
        assert_eq!(user(&mut own, IdChange::One(33)), Ok(ids(33, 33, 33)));
        let forged = [
            IdChange::One(0),
            IdChange::Two([Some(0), None]),
            IdChange::Two([None, Some(34)]),
            IdChange::All([None, None, Some(0)]),
            IdChange::All([Some(33), Some(0), Some(33)]),
        ];
        for change in forged {
            assert_eq!(user(&mut own, change), Err(ProcessError::Denied));
        }
        assert_eq!(set_ids(&mut own, false, IdChange::One(0)), Err(ProcessError::Denied));
        assert_eq!(set_groups(&mut own, Vec::new()), Err(ProcessError::Denied));
        assert_eq!(user(&mut own, IdChange::Two([Some(33), None])), Ok(ids(33, 33, 33)));
        let capabilities = Capabilities { effective: 0, permitted: 0, ..Capabilities::default() };
        let kept = Identity { users: ids(33, 33, 33), groups: ids(34, 34, 34), others: vec![4, 5], capabilities };
        assert_eq!(own, kept);
    }

    #[test]
    fn a_saved_id_can_be_taken_again_until_another_program_runs() {
        let mut own = Identity::default();
        assert_eq!(user(&mut own, IdChange::All([None, Some(33), None])), Ok(ids(0, 33, 0)));
        assert_eq!((acting(7, &own).user, real(7, &own).user), (33, 0));
        assert_eq!(user(&mut own, IdChange::One(0)), Ok(ids(0, 0, 0)));
        assert_eq!(user(&mut own, IdChange::Two([Some(5), Some(6)])), Ok(ids(5, 6, 6)));
        assert_eq!(user(&mut own, IdChange::Two([None, Some(5)])), Ok(ids(5, 5, 6)), "it is the real one");
        run_program(&mut own);
        assert_eq!(user(&mut own, IdChange::One(6)), Err(ProcessError::Denied));
    }

    #[test]
    fn who_it_really_is_is_told_beside_as_whom_it_acts() {
        let own = Identity { users: ids(5, 6, 7), groups: ids(15, 16, 17), ..Identity::default() };
        assert_eq!(real(9, &own), Credentials { process: 9, user: 5, group: 15 });
        assert_eq!(acting(9, &own), Credentials { process: 9, user: 6, group: 16 });
    }

    fn of_user(users: Ids) -> Identity {
        let capabilities = Capabilities { effective: 0, permitted: 0, ..Capabilities::default() };
        Identity { users, capabilities, ..Identity::default() }
    }

    #[test]
    fn capabilities_that_are_kept_let_a_user_change_its_group() {
        let all = Capabilities::ALL;
        let mut own = Identity::default();
        let kept = Capabilities { keeps: true, ..own.capabilities };
        set_capabilities(&mut own, kept).unwrap();
        assert_eq!(user(&mut own, IdChange::All([Some(33); 3])), Ok(ids(33, 33, 33)));
        assert_eq!((own.capabilities.effective, own.capabilities.permitted), (0, all));
        assert_eq!(set_ids(&mut own, false, IdChange::One(34)), Err(ProcessError::Denied), "not in force");
        set_capabilities(&mut own, Capabilities { effective: 1 << capability::SETGID, ..kept }).unwrap();
        assert_eq!(set_ids(&mut own, false, IdChange::All([Some(34); 3])), Ok(ids(34, 34, 34)));
        assert_eq!(set_groups(&mut own, vec![4]), Ok(()));
        assert_eq!(user(&mut own, IdChange::One(0)), Err(ProcessError::Denied), "another one");
        // What is given up does not come back, and nothing of it outlasts another program.
        let few = Capabilities { permitted: 1 << capability::SETUID, effective: 0, ..kept };
        set_capabilities(&mut own, few).unwrap();
        let forged = [
            Capabilities { permitted: all, ..few },
            Capabilities { effective: 1 << capability::SETGID, ..few },
            Capabilities { inheritable: 1 << capability::SETGID, ..few },
        ];
        for wanted in forged {
            assert_eq!(set_capabilities(&mut own, wanted), Err(ProcessError::Denied));
        }
        run_program(&mut own);
        assert_eq!(own.capabilities, Capabilities { permitted: 0, keeps: false, ..few });
    }

    #[test]
    fn root_has_its_capabilities_in_force_while_it_acts_as_root() {
        let mut own = Identity::default();
        let none = Capabilities { effective: 0, ..own.capabilities };
        set_capabilities(&mut own, none).unwrap();
        assert_eq!(user(&mut own, IdChange::One(33)), Err(ProcessError::Denied), "root has given it up");
        user(&mut own, IdChange::One(0)).unwrap();
        assert_eq!(own.capabilities, none, "and gets it back by no change from root to root");
        run_program(&mut own);
        assert_eq!(own.capabilities, Capabilities::default(), "root's next program has all");
        user(&mut own, IdChange::All([None, Some(33), None])).unwrap();
        assert_eq!((own.capabilities.effective, own.capabilities.permitted), (0, Capabilities::ALL));
        user(&mut own, IdChange::One(0)).unwrap();
        assert_eq!(own.capabilities, Capabilities::default());
    }

    #[test]
    fn what_is_permitted_no_more_is_in_force_no_more() {
        let mut own = Identity::default();
        user(&mut own, IdChange::All([Some(33), Some(33), None])).unwrap();
        let some = Capabilities { effective: 1 << capability::SETUID, ..own.capabilities };
        set_capabilities(&mut own, some).unwrap();
        user(&mut own, IdChange::All([None, None, Some(33)])).unwrap();
        assert_eq!((own.capabilities.effective, own.capabilities.permitted), (0, 0), "root's last id is gone");
    }

    #[test]
    fn what_is_permitted_or_was_inheritable_may_be_inheritable() {
        let (both, kept) = (1 << capability::SETUID, 1 << capability::SETGID);
        let mut own = of_user(ids(5, 5, 5));
        own.capabilities = Capabilities { permitted: both, inheritable: both | kept, ..own.capabilities };
        let have = own.capabilities;
        for inheritable in [both | kept, both, kept, both | kept] {
            let wanted = Capabilities { inheritable, ..have };
            own.capabilities = have;
            assert_eq!(set_capabilities(&mut own, wanted), Ok(()));
        }
        own.capabilities = Capabilities { inheritable: kept, ..have };
        assert_eq!(set_capabilities(&mut own, have), Ok(()), "one of each");
        let more = Capabilities { inheritable: 1 << capability::SETPCAP, ..have };
        assert_eq!(set_capabilities(&mut own, more), Err(ProcessError::Denied));
    }

    #[test]
    fn a_saved_id_becomes_the_effective_one_alone() {
        let mut own = of_user(ids(5, 6, 7));
        assert_eq!(user(&mut own, IdChange::Two([Some(7), None])), Err(ProcessError::Denied));
        assert_eq!(user(&mut own, IdChange::Two([Some(7), Some(5)])), Err(ProcessError::Denied));
        assert_eq!(own.users, ids(5, 6, 7));
        assert_eq!(user(&mut own, IdChange::Two([None, Some(7)])), Ok(ids(5, 7, 7)));
        let mut own = of_user(ids(5, 6, 7));
        assert_eq!(user(&mut own, IdChange::Two([Some(6), Some(5)])), Ok(ids(6, 5, 5)));
        let mut own = of_user(ids(5, 6, 7));
        assert_eq!(user(&mut own, IdChange::All([Some(7), None, None])), Ok(ids(7, 6, 7)));
    }

    #[test]
    fn who_names_no_id_changes_none() {
        let mut own = of_user(ids(5, 6, 7));
        assert_eq!(user(&mut own, IdChange::Two([None; 2])), Ok(ids(5, 6, 7)));
        assert_eq!(user(&mut own, IdChange::All([None; 3])), Ok(ids(5, 6, 7)));
        // As on Linux, setuid(2) takes the real and the saved one.
        assert_eq!(user(&mut own, IdChange::One(6)), Err(ProcessError::Denied));
        assert_eq!(user(&mut own, IdChange::One(7)), Ok(ids(5, 7, 7)));
    }

    #[test]
    fn groups_have_an_end() {
        let mut own = Identity::default();
        assert_eq!(set_groups(&mut own, vec![1; GROUPS_MAX + 1]), Err(ProcessError::Invalid));
        assert_eq!(set_groups(&mut own, vec![1; GROUPS_MAX]), Ok(()));
        assert_eq!(own.others.len(), GROUPS_MAX);
    }
}
