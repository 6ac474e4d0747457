//! The features of a volume: which are needed, which are known, and the names of those that are
//! refused.

use crate::error::{Error, Refusal};

/// The journal is inside the volume.
pub(crate) const HAS_JOURNAL: u32 = 0x4;

/// Directory entries say what they name.
pub(crate) const FILETYPE: u32 = 0x2;
/// The journal has transactions that are not in their places yet.
pub(crate) const RECOVER: u32 = 0x4;
/// Files are mapped by extents.
pub(crate) const EXTENTS: u32 = 0x40;
/// Block numbers have 48 bits, group descriptors 64 bytes.
pub(crate) const SIXTY_FOUR_BIT: u32 = 0x80;
/// Bitmaps and inode tables of several groups lie together.
pub(crate) const FLEX_BG: u32 = 0x200;
/// The start of all checksums stands in the super block instead of coming from the UUID.
pub(crate) const CSUM_SEED: u32 = 0x2000;

/// All metadata has checksums.
pub(crate) const METADATA_CSUM: u32 = 0x400;
/// The orphan file has entries.
pub(crate) const ORPHAN_PRESENT: u32 = 0x1_0000;

/// What new volumes have, in each word: has_journal, ext_attr, dir_index;
pub(crate) const COMPAT_NEW: u32 = HAS_JOURNAL | 0x8 | 0x20;
/// filetype, extent, 64bit, flex_bg;
pub(crate) const INCOMPAT_NEW: u32 = FILETYPE | EXTENTS | SIXTY_FOUR_BIT | FLEX_BG;
/// sparse_super, large_file, huge_file, dir_nlink, extra_isize, metadata_csum.
pub(crate) const RO_COMPAT_NEW: u32 = RO_COMPAT_KNOWN;

/// Incompatible features that a volume must have.
const INCOMPAT_NEEDED: [(u32, &str); 3] = [(FILETYPE, "filetype"), (EXTENTS, "extent"), (SIXTY_FOUR_BIT, "64bit")];
/// Incompatible features that it may have.
const INCOMPAT_KNOWN: u32 = FILETYPE | RECOVER | EXTENTS | SIXTY_FOUR_BIT | FLEX_BG | CSUM_SEED;
/// Incompatible features that are refused.
const INCOMPAT_NAMES: [(u32, &str); 11] = [
    (0x1, "compression"),
    (0x8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x100, "mmp"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x1_0000, "encrypt"),
    (0x2_0000, "casefold"),
    (0x4_0000, "casefold_64"),
];

/// Features that only a writer must know, and that are known: sparse_super, large_file, huge_file,
/// dir_nlink, extra_isize, metadata_csum.
const RO_COMPAT_KNOWN: u32 = 0x1 | 0x2 | 0x8 | 0x20 | 0x40 | METADATA_CSUM;
/// Those of them that are refused.
const RO_COMPAT_NAMES: [(u32, &str); 11] = [
    (0x4, "btree_dir"),
    (0x10, "uninit_bg"),
    (0x80, "snapshot"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
    (ORPHAN_PRESENT, "orphan_present"),
];

/// Accepts or refuses the features in the three words of a super block.
pub(crate) fn check(compat: u32, incompat: u32, ro_compat: u32) -> Result<(), Error> {
    refuse_unknown("incompat", incompat & !INCOMPAT_KNOWN, &INCOMPAT_NAMES)?;
    for (bit, name) in INCOMPAT_NEEDED {
        require(incompat & bit != 0, name)?;
    }
    refuse_unknown("ro_compat", ro_compat & !RO_COMPAT_KNOWN, &RO_COMPAT_NAMES)?;
    require(ro_compat & METADATA_CSUM != 0, "metadata_csum")?;
    require(compat & HAS_JOURNAL != 0, "has_journal")
}

fn require(has: bool, name: &'static str) -> Result<(), Error> {
    if has { Ok(()) } else { Err(Error::Refused(Refusal::Lacks(name))) }
}

/// Refuses the lowest bit of `unknown`, by its name if it has one.
fn refuse_unknown(word: &'static str, unknown: u32, names: &[(u32, &'static str)]) -> Result<(), Error> {
    if unknown == 0 {
        return Ok(());
    }
    let bit = unknown & unknown.wrapping_neg();
    let name = names.iter().find(|(known, _)| *known == bit).map(|(_, name)| *name);
    Err(Error::Refused(name.map_or(Refusal::Unknown(word, bit), Refusal::Has)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPAT: u32 = HAS_JOURNAL;
    const INCOMPAT: u32 = FILETYPE | EXTENTS | SIXTY_FOUR_BIT;

    #[test]
    fn what_is_needed_is_enough_and_each_lack_is_named() {
        assert_eq!(check(COMPAT, INCOMPAT, METADATA_CSUM), Ok(()));
        for (bit, name) in INCOMPAT_NEEDED {
            assert_eq!(check(COMPAT, INCOMPAT & !bit, METADATA_CSUM), Err(Error::Refused(Refusal::Lacks(name))));
        }
        assert_eq!(check(COMPAT, INCOMPAT, 0), Err(Error::Refused(Refusal::Lacks("metadata_csum"))));
        assert_eq!(check(0, INCOMPAT, METADATA_CSUM), Err(Error::Refused(Refusal::Lacks("has_journal"))));
    }

    #[test]
    fn every_other_bit_is_refused_by_name_or_number() {
        for bit in (0..32).map(|shift| 1u32 << shift) {
            let incompat = check(COMPAT, INCOMPAT | bit, METADATA_CSUM);
            assert_eq!(incompat.is_ok(), INCOMPAT_KNOWN & bit != 0, "incompat {bit:#x}");
            let ro_compat = check(COMPAT, INCOMPAT, METADATA_CSUM | bit);
            assert_eq!(ro_compat.is_ok(), RO_COMPAT_KNOWN & bit != 0, "ro_compat {bit:#x}");
        }
        assert_eq!(check(COMPAT, INCOMPAT | 0x8000, METADATA_CSUM), Err(Error::Refused(Refusal::Has("inline_data"))));
        let unknown = Err(Error::Refused(Refusal::Unknown("incompat", 0x8000_0000)));
        assert_eq!(check(COMPAT, INCOMPAT | 0x8000_0000, METADATA_CSUM), unknown);
    }
}
