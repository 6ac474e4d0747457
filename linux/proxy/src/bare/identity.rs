//! Whose the process is: told from the copy, changed at the process server, which judges.

use alloc::vec::Vec;

use contracts::process::{Capabilities, IdChange, Ids, capability};
use personality::Errno;
use personality::identity::{group_count, groups_for, one, wanted};

use super::errors::Outcome;
use super::proxy::proxy;
use super::user::{self, with_state, with_thread};

/// Bytes of an id.
const ID_BYTES: u64 = 4;

/// One of the ids of the user, or of the group.
pub fn id(of_user: bool, which: fn(&Ids) -> u32) -> Outcome {
    Ok(with_state(|state| which(&state.identity.ids(of_user))).into())
}

/// getresuid and getresgid.
pub fn tell(of_user: bool, at: [u64; 3]) -> Outcome {
    let ids = with_state(|state| state.identity.ids(of_user));
    for (at, id) in at.into_iter().zip([ids.real, ids.effective, ids.saved]) {
        user::write(at, &id)?;
    }
    Ok(0)
}

async fn change(of_user: bool, change: IdChange) -> Outcome {
    let (ids, capabilities) = proxy().process.set_ids(of_user, change).await?;
    with_state(|state| {
        state.identity.set_ids(of_user, ids);
        state.identity.set_capabilities(capabilities);
    });
    Ok(0)
}

/// setuid and setgid.
pub async fn set(of_user: bool, id: u64) -> Outcome {
    change(of_user, one(id)?).await
}

/// setreuid and setregid.
pub async fn set_two(of_user: bool, ids: [u64; 2]) -> Outcome {
    change(of_user, IdChange::Two(ids.map(wanted))).await
}

/// setresuid and setresgid.
pub async fn set_all(of_user: bool, ids: [u64; 3]) -> Outcome {
    change(of_user, IdChange::All(ids.map(wanted))).await
}

/// getgroups.
pub fn groups(room: u64, at: u64) -> Outcome {
    let (count, groups) = with_state(|state| {
        let own = &state.identity;
        groups_for(own, room).map(|groups| (own.others().len() as u64, groups))
    })?;
    for (index, group) in groups.iter().enumerate() {
        user::write(at.wrapping_add(index as u64 * ID_BYTES), group)?;
    }
    Ok(count)
}

/// setgroups.
pub async fn set_groups(count: u64, at: u64) -> Outcome {
    // Who may not at all is told that first, as on Linux.
    if !with_state(|state| state.identity.may(capability::SETGID)) {
        return Err(Errno::EPERM.into());
    }
    let count = group_count(count)?;
    let read = |index| user::read::<u32>(at.wrapping_add(index * ID_BYTES));
    let groups = (0..count).map(read).collect::<Result<Vec<_>, _>>()?;
    proxy().process.set_groups(groups.clone()).await?;
    with_state(|state| state.identity.set_others(&groups));
    Ok(0)
}

/// capget of version 3: effective, permitted and inheritable, low words first.
pub fn capabilities(header_at: u64, data_at: u64) -> Outcome {
    if header(header_at)?.is_none() {
        return if data_at == 0 { Ok(0) } else { Err(Errno::EINVAL.into()) };
    }
    let Capabilities { effective, permitted, inheritable, .. } = with_state(|state| state.identity.capabilities());
    let sets = [effective, permitted, inheritable];
    let words = [sets.map(|set| set as u32), sets.map(|set| (set >> 32) as u32)];
    user::write_if(data_at, &words)?;
    Ok(0)
}

/// The process that a header of the known version names; which one is known is told else.
fn header(at: u64) -> Result<Option<u32>, Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    let [version, process]: [u32; 2] = user::read(at)?;
    if version != VERSION_3 {
        user::write(at, &VERSION_3)?;
        return Ok(None);
    }
    Ok(Some(process))
}

/// capset, of the caller itself.
pub async fn set_capabilities(header_at: u64, data_at: u64) -> Outcome {
    let process = header(header_at)?.ok_or(Errno::EINVAL)?;
    let own = [0, with_state(|state| state.process), with_thread(|thread| thread.id as u32)];
    if !own.contains(&process) {
        return Err(Errno::EPERM.into());
    }
    let words: [[u32; 3]; 2] = user::read(data_at)?;
    let set = |which: usize| (u64::from(words[1][which]) << 32 | u64::from(words[0][which])) & Capabilities::ALL;
    let now = with_state(|state| state.identity.capabilities());
    let wanted = Capabilities { effective: set(0), permitted: set(1), inheritable: set(2), ..now };
    become_capable(wanted).await
}

/// PR_SET_KEEPCAPS.
pub async fn keep_capabilities(keeps: u64) -> Outcome {
    let now = with_state(|state| state.identity.capabilities());
    match keeps {
        0 | 1 => become_capable(Capabilities { keeps: keeps != 0, ..now }).await,
        _ => Err(Errno::EINVAL.into()),
    }
}

async fn become_capable(wanted: Capabilities) -> Outcome {
    proxy().process.set_capabilities(wanted).await?;
    with_state(|state| state.identity.set_capabilities(wanted));
    Ok(0)
}
