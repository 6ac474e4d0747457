//! What the objects of a core use of those that cores share: all of it, so that what it is stands
//! in one place.

pub(super) use crate::shared::{Alias, NO_RANGE, PoolOwner, SharedObject, SharedShare, destroy_share, drain_owner};
