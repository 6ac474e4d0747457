//! Whose the process is: told from the copy, changed at the process server, which judges.

use alloc::vec::Vec;

use contracts::process::{IdChange, Ids};
use personality::Errno;
use personality::identity::{group_count, groups_for, one, wanted};

use super::errors::Outcome;
use super::proxy::proxy;
use super::user::{self, with_state};

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
    let ids = proxy().process.set_ids(of_user, change).await?;
    with_state(|state| state.identity.set_ids(of_user, ids));
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
    if !with_state(|state| state.identity.is_root()) {
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
    const ALL: [u32; 2] = [u32::MAX, 0x1ff];
    if !is_known(header_at)? {
        return if data_at == 0 { Ok(0) } else { Err(Errno::EINVAL.into()) };
    }
    // Who gave root up has none.
    let [low, high] = if with_state(|state| state.identity.is_root()) { ALL } else { [0, 0] };
    user::write_if(data_at, &[low, low, 0, high, high, 0])?;
    Ok(0)
}

/// Is it of the version that is known, which else is told?
fn is_known(header_at: u64) -> Result<bool, Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    let [version, _]: [u32; 2] = user::read(header_at)?;
    if version != VERSION_3 {
        user::write(header_at, &VERSION_3)?;
    }
    Ok(version == VERSION_3)
}

/// capset: accepted, and nothing is given up by it.
pub fn set_capabilities(header_at: u64, data_at: u64) -> Outcome {
    if !is_known(header_at)? {
        return Err(Errno::EINVAL.into());
    }
    user::check_readable(data_at, 24)?;
    Ok(0)
}
