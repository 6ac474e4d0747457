//! The block of extended attributes. Inodes with the same ones may share it: Linux has them do so,
//! and here each gets one of its own when its attributes change.

use alloc::vec::Vec;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::format::{self, Attribute, MAGIC};
use super::wrong;
use crate::checksum::Checksum;
use crate::error::{Error, Stop};
use crate::inode::Inode;
use crate::operation::Operation;
use crate::super_block::Geometry;
use crate::{BLOCK_BYTES, Block, Blocks, need};

/// Most inodes that share a block.
const SHARED_MAX: u32 = 1024;
/// Where the checksum stands.
const CHECKSUM_AT: usize = 16;
/// Where entries begin. Where values are is counted from the block's beginning.
const ENTRIES_AT: usize = size_of::<Head>();

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    magic: U32,
    users: U32,
    blocks: U32,
    hash: U32,
    checksum: U32,
    reserved: [U32; 3],
}

fn sum(geometry: &Geometry, number: u64, block: &Block) -> u32 {
    let start = Checksum(geometry.checksum_seed).with(&number.to_le_bytes());
    start.with(&block[..CHECKSUM_AT]).with(&[0; 4]).with(&block[CHECKSUM_AT + 4..]).0
}

fn put_sum(geometry: &Geometry, number: u64, block: &mut Block) {
    let sum = sum(geometry, number, block);
    block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
}

/// How many inodes have the block, which was checked.
fn users(geometry: &Geometry, inode: &Inode, block: &Block) -> Result<u32, Stop> {
    let corrupt = || Error::corrupt("a block of attributes", u64::from(inode.number));
    let (head, _) = Head::ref_from_prefix(block).map_err(|_| corrupt())?;
    let users = head.users.get();
    let is_right = head.magic.get() == MAGIC && head.blocks.get() == 1 && (1..=SHARED_MAX).contains(&users);
    let is_right = is_right && head.checksum.get() == sum(geometry, inode.attributes, block);
    if is_right { Ok(users) } else { Err(corrupt()) }
}

/// The attributes of an inode's block; none if it has no block.
pub(super) fn read<B: Blocks>(geometry: &Geometry, blocks: &B, inode: &Inode) -> Result<Vec<Attribute>, Stop> {
    if inode.attributes == 0 {
        return Ok(Vec::new());
    }
    let block = need(blocks, inode.attributes)?;
    users(geometry, inode, block)?;
    format::decode(block, ENTRIES_AT, 0).map_err(|what| wrong(inode, what))
}

/// Whether attributes fit into a block.
pub(super) fn fit(attributes: &[Attribute]) -> bool {
    format::fit(attributes, BLOCK_BYTES, ENTRIES_AT)
}

/// Gives an inode a block with these attributes, some and in order, which fit. It is to be written
/// behind it.
pub(super) fn write<B: Blocks>(
    operation: &mut Operation<'_, B>,
    inode: &mut Inode,
    goal: u64,
    attributes: &[Attribute],
) -> Result<(), Stop> {
    let geometry = operation.volume().geometry();
    let number = own(operation, inode, goal)?;
    let block = operation.blocks.fresh(number);
    let hash = format::encode(attributes, block, ENTRIES_AT, 0, true);
    if let Ok((head, _)) = Head::mut_from_prefix(block) {
        (head.magic, head.users, head.blocks, head.hash) = (U32::new(MAGIC), U32::new(1), U32::new(1), U32::new(hash));
    }
    put_sum(geometry, number, block);
    Ok(())
}

/// A block that no other inode has.
fn own<B: Blocks>(operation: &mut Operation<'_, B>, inode: &mut Inode, goal: u64) -> Result<u64, Stop> {
    if inode.attributes != 0 {
        let geometry = operation.volume().geometry();
        let is_alone = users(geometry, inode, need(operation, inode.attributes)?)? == 1;
        if is_alone && !operation.mount.system().has(inode.attributes..inode.attributes + 1) {
            return Ok(inode.attributes);
        }
        free_block(operation, inode)?;
    }
    inode.attributes = operation.allocate(goal, 1)?.first;
    inode.sectors += crate::inode::SECTORS;
    Ok(inode.attributes)
}

/// An inode gives up its block of attributes: if it was the last one, that is freed. The inode is
/// to be written or freed behind it.
///
/// # Errors
/// [`Stop::Need`]; [`Error::Corrupt`].
pub(crate) fn free_block<B: Blocks>(operation: &mut Operation<'_, B>, inode: &mut Inode) -> Result<(), Stop> {
    let number = inode.attributes;
    if number == 0 {
        return Ok(());
    }
    let geometry = operation.volume().geometry();
    let users = users(geometry, inode, need(operation, number)?)?;
    let sectors = inode.sectors.checked_sub(crate::inode::SECTORS);
    if operation.mount.system().has(number..number + 1) || sectors.is_none() {
        return Err(Error::corrupt("a block of attributes", u64::from(inode.number)));
    }
    (inode.attributes, inode.sectors) = (0, sectors.unwrap_or(0));
    if users == 1 {
        return operation.free(number, 1, true);
    }
    let block = operation.blocks.edit(number)?;
    if let Ok((head, _)) = Head::mut_from_prefix(block) {
        head.users = U32::new(users - 1);
    }
    put_sum(geometry, number, block);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::testing::{Memory, change, new};
    use crate::{JOURNAL_INODE, Mount, ROOT, SetXattr};

    const LARGE: [u8; 1000] = [7; 1000];

    fn set(mount: &mut Mount, memory: &Memory, number: u32, value: &[u8]) -> Result<(), Stop> {
        change(mount, memory, |operation| operation.set_xattr(number, b"user.large", value, SetXattr::Any))
    }

    fn remove(mount: &mut Mount, memory: &Memory, number: u32) -> Result<(), Stop> {
        change(mount, memory, |operation| operation.remove_xattr(number, b"user.large"))
    }

    /// A volume with a file that has an attribute in a block.
    fn with_block() -> (Memory, Inode) {
        let mut memory = Memory::formatted(2048);
        let mut mount = memory.mount();
        let number =
            change(&mut mount, &memory, |operation| operation.create(ROOT, b"file", &new(Kind::File))).unwrap();
        set(&mut mount, &memory, number, &LARGE).unwrap();
        mount.close();
        memory.write_now(&mut mount);
        let inode = memory.inode(number);
        assert_ne!(inode.attributes, 0);
        (memory, inode)
    }

    /// Changes the block's head, and puts its checksum right.
    fn change_head(memory: &mut Memory, number: u64, change: impl FnOnce(&mut Head)) {
        let volume = memory.volume();
        let block = memory.edit(number);
        change(Head::mut_from_prefix(block).unwrap().0);
        put_sum(volume.geometry(), number, block);
    }

    fn is_corrupt<T>(result: Result<T, Stop>, inode: &Inode) -> bool {
        result.err() == Some(Error::corrupt("a block of attributes", u64::from(inode.number)))
    }

    #[test]
    fn a_block_of_attributes_that_says_what_cannot_be_is_corrupt() {
        let (memory, inode) = with_block();
        let value = |memory: &Memory| memory.volume().xattr(memory, &inode, b"user.large");
        type Change = fn(&mut Head);
        let right: [Change; 3] = [|_| {}, |head| head.users = U32::new(1024), |head| head.hash = U32::new(5)];
        for change in right {
            let mut memory = memory.clone();
            change_head(&mut memory, inode.attributes, change);
            assert_eq!(value(&memory).as_deref(), Ok(&LARGE[..]));
        }
        let wrong: [Change; 5] = [
            |head| head.magic = U32::new(MAGIC + 1),
            |head| head.blocks = U32::new(2),
            |head| head.blocks = U32::new(0),
            |head| head.users = U32::new(0),
            |head| head.users = U32::new(1025),
        ];
        for change in wrong {
            let mut memory = memory.clone();
            change_head(&mut memory, inode.attributes, change);
            assert!(is_corrupt(value(&memory), &inode));
        }
        let mut torn = memory.clone();
        torn.edit(inode.attributes)[4095] ^= 1;
        assert!(is_corrupt(value(&torn), &inode));
    }

    #[test]
    fn a_block_is_written_anew_for_one_inode_and_given_up_by_one_of_several() {
        let (mut memory, inode) = with_block();
        let (number, block) = (inode.number, inode.attributes);
        let mut mount = memory.mount();
        set(&mut mount, &memory, number, &LARGE[1..]).unwrap();
        let again = mount.volume().inode(&mount.view(&memory), number).unwrap();
        assert_eq!((again.attributes, again.sectors), (block, inode.sectors), "it stays where it is");
        change_head(&mut memory, block, |head| head.users = U32::new(2));
        let mut mount = memory.mount();
        let (free, _) = mount.free();
        set(&mut mount, &memory, number, &LARGE[1..]).unwrap();
        assert_eq!(mount.free().0, free - 1);
        let view = mount.view(&memory);
        let own = mount.volume().inode(&view, number).unwrap();
        assert_ne!(own.attributes, block);
        assert_eq!(users(mount.volume().geometry(), &inode, view.block(block).unwrap()), Ok(1));
        // The last one frees it.
        remove(&mut mount, &memory, number).unwrap();
        assert_eq!(mount.free().0, free);
        let none = mount.volume().inode(&mount.view(&memory), number).unwrap();
        assert_eq!((none.attributes, none.sectors), (0, 0));
    }

    #[test]
    fn attributes_in_a_block_that_is_no_files_are_corrupt() {
        let (mut memory, mut inode) = with_block();
        let mount = memory.mount();
        // The first block of the journal, behind some that are files'.
        let journal = memory.inode(JOURNAL_INODE);
        let geometry = mount.volume().geometry();
        let stretch = mount.volume().find(&memory, &journal, 0).unwrap();
        let crate::Place::Written(first) = stretch.place else { panic!("{stretch:?}") };
        assert!(mount.system().has(first..first + 1) && !mount.system().has(first - 1..first));
        let mut block = *memory.block(inode.attributes).unwrap();
        put_sum(geometry, first, &mut block);
        *memory.edit(first) = block;
        inode.attributes = first;
        memory.put_inode(&inode);
        assert!(is_corrupt(set(&mut mount.clone(), &memory, inode.number, &LARGE[1..]), &inode));
        assert!(is_corrupt(remove(&mut mount.clone(), &memory, inode.number), &inode));
    }

    #[test]
    fn an_inode_that_does_not_count_its_block_is_corrupt() {
        let (mut memory, mut inode) = with_block();
        inode.sectors = 0;
        memory.put_inode(&inode);
        assert!(is_corrupt(remove(&mut memory.mount(), &memory, inode.number), &inode));
    }
}
