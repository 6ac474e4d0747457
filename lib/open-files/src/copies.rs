//! Which clients keep bytes of which files, and are to hear when those change; and whose offsets
//! they move themselves.
//!
//! A client that keeps bytes has words in its bulk area (`contracts::descriptions::copy_words`); it
//! looks there each time before it gives them to its program. So who reads asks nobody, and who
//! changes a file waits for nobody: it stores a word for each who keeps some of it. Gray and
//! Cheriton's leases, without their terms: a word that is stored is seen by the next who looks.
//!
//! Words are known by where they lie: a client has one bulk area, and components have no id of
//! their own. Invariant: words are of one file, and a file's list has them once.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use channel::{Bulk, OutOfBounds};
use contracts::descriptions::{DescriptionId, copy_words};

use crate::FileId;

/// So often a client may keep something at a time: what a server has of a client is bounded.
pub const COPIES_MAX: usize = 16;

/// Words of a client.
#[derive(Clone)]
pub struct Words {
    bulk: Bulk,
    at: usize,
}

/// Where words lie: the bulk area, by its address, and where in that.
type Place = (u64, usize);

impl Words {
    fn place(&self) -> Place {
        (self.bulk.address(), self.at)
    }

    /// `None` if they do not lie in the client's bulk area as words do.
    pub fn new(bulk: &Bulk, at: u32) -> Option<Words> {
        let at = at as usize;
        let are_there =
            [copy_words::OVER, copy_words::READ].iter().all(|word| bulk.load_u32(at.saturating_add(*word)).is_ok());
        are_there.then(|| Words { bulk: bulk.clone(), at })
    }

    /// They are for something new.
    fn begin(&self) {
        for word in [copy_words::READ, copy_words::OVER] {
            // Where they lie was looked at.
            let (Ok(()) | Err(OutOfBounds)) = self.bulk.store_u32(self.at + word, 0);
        }
    }

    /// What is kept may not be given any more.
    fn end(&self) {
        let (Ok(()) | Err(OutOfBounds)) = self.bulk.store_u32(self.at + copy_words::OVER, 1);
    }

    /// How many bytes the client read, of `most`.
    fn read(&self, most: u32) -> u32 {
        self.bulk.load_u32(self.at + copy_words::READ).unwrap_or(0).min(most)
    }
}

/// A description's offset, which its client moves.
pub struct Lent {
    words: Words,
    /// By so many bytes at most.
    most: u32,
}

impl Lent {
    /// By how much it was moved; it is the client's no more.
    pub fn take_back(self) -> u64 {
        self.words.end();
        self.words.read(self.most).into()
    }
}

/// See the module's head.
#[derive(Default)]
pub struct Copies {
    /// Who keeps bytes of a file.
    by_file: BTreeMap<FileId, Vec<Words>>,
    /// What words are for.
    uses: BTreeMap<Place, Use>,
}

/// What words are for.
struct Use {
    /// The file of which bytes are kept, until that changes.
    file: Option<FileId>,
    /// The description whose offset the client moves.
    lent: Option<DescriptionId>,
}

impl Copies {
    /// A client keeps bytes of a file from now on. Gives the words for the description whose offset
    /// it moves by up to so many bytes, if it does. `None`: it keeps as much as it may. What the
    /// words were for before has to be [over](Copies::end).
    pub fn add(&mut self, file: FileId, words: Words, lent: Option<(DescriptionId, u32)>) -> Option<Option<Lent>> {
        let (area, _) = words.place();
        if self.uses.range((area, 0)..=(area, usize::MAX)).count() >= COPIES_MAX {
            return None;
        }
        words.begin();
        let of_offset = lent.map(|(_, most)| Lent { words: words.clone(), most });
        self.uses.insert(words.place(), Use { file: Some(file), lent: lent.map(|(id, _)| id) });
        self.by_file.entry(file).or_default().push(words);
        Some(of_offset)
    }

    /// Are words for bytes of a file, which has not changed since?
    pub fn are_of(&self, file: FileId, words: &Words) -> bool {
        self.uses.get(&words.place()).is_some_and(|used| used.file == Some(file) && used.lent.is_none())
    }

    /// Bytes or the size of a file are others now, for all who ask the server from now on: who
    /// keeps some hears it.
    pub fn changed(&mut self, file: FileId) {
        for words in self.by_file.remove(&file).into_iter().flatten() {
            words.end();
            if let Some(used) = self.uses.get_mut(&words.place()) {
                used.file = None;
            }
        }
    }

    /// What words were for is over. Gives the description whose offset their client moved.
    pub fn end(&mut self, words: &Words) -> Option<DescriptionId> {
        self.remove(words.place())?.lent
    }

    fn remove(&mut self, place: Place) -> Option<Use> {
        let used = self.uses.remove(&place)?;
        if let Some(file) = used.file
            && let Some(all) = self.by_file.get_mut(&file)
        {
            all.retain(|words| words.place() != place);
            if all.is_empty() {
                self.by_file.remove(&file);
            }
        }
        Some(used)
    }

    /// A client that has ended keeps nothing: its bulk area is another's from now on, or nobody's.
    pub fn remove_all_in(&mut self, bulk: &Bulk) {
        let area = bulk.address();
        let gone: Vec<_> = self.uses.range((area, 0)..=(area, usize::MAX)).map(|(place, _)| *place).collect();
        gone.into_iter().for_each(|place| _ = self.remove(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel::{Layout, loopback};

    /// A client's bulk area.
    fn area() -> Bulk {
        let area = loopback(Layout { bulk_bytes: 256, ..Layout::default() }).0.bulk();
        (0..64).for_each(|word| area.store_u32(4 * word, 9).unwrap());
        area
    }

    fn words(bulk: &Bulk, number: u32) -> Words {
        Words::new(bulk, number * copy_words::BYTES as u32).unwrap()
    }

    /// Which of the first words are over.
    fn over(bulk: &Bulk) -> Vec<usize> {
        (0..4).filter(|number| bulk.load_u32(number * copy_words::BYTES + copy_words::OVER).unwrap() == 1).collect()
    }

    #[test]
    fn who_keeps_bytes_of_a_file_hears_that_it_changes() {
        let (mut copies, one, other) = (Copies::default(), area(), area());
        // At the same place of two areas, too.
        for (file, own, number) in [(7, &one, 0), (7, &other, 0), (8, &one, 2)] {
            assert!(copies.add(file, words(own, number), None).is_some_and(|lent| lent.is_none()));
            assert_eq!(own.load_u32(number as usize * copy_words::BYTES + copy_words::OVER), Ok(0));
        }
        copies.changed(9);
        assert!(over(&one).is_empty() && over(&other).is_empty());
        copies.changed(7);
        assert_eq!((over(&one), over(&other)), (vec![0], vec![0]));
        // Once: the client has not asked again.
        one.store_u32(copy_words::OVER, 0).unwrap();
        copies.changed(7);
        assert!(over(&one).is_empty());
        copies.changed(8);
        assert_eq!(over(&one), [2]);
        assert!(copies.by_file.is_empty());
    }

    #[test]
    fn words_are_for_one_thing_at_a_time() {
        let (mut copies, own) = (Copies::default(), area());
        assert!(copies.add(7, words(&own, 0), Some((5, 10))).flatten().is_some());
        assert_eq!(copies.end(&words(&own, 0)), Some(5));
        assert_eq!(copies.end(&words(&own, 0)), None);
        assert!(copies.add(8, words(&own, 0), None).is_some());
        copies.changed(7);
        assert!(over(&own).is_empty());
        copies.changed(8);
        assert_eq!(over(&own), [0]);
        // An offset is lent beyond a change of the file.
        assert!(copies.add(9, words(&own, 1), Some((6, 10))).is_some());
        copies.changed(9);
        assert_eq!(copies.end(&words(&own, 1)), Some(6));
    }

    #[test]
    fn a_client_keeps_little_and_has_words_of_its_own() {
        let (mut copies, own, other) = (Copies::default(), area(), area());
        let mut add = |area, number| copies.add(7, words(area, number), None).is_some();
        assert!((0..COPIES_MAX as u32).all(|number| add(&own, number)));
        assert!(!add(&own, COPIES_MAX as u32), "one more");
        assert!(add(&other, 0), "another client");
        for wrong in [2, 252, 256, u32::MAX - 3, u32::MAX] {
            assert!(Words::new(&own, wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn nothing_is_kept_of_a_client_that_has_ended() {
        let (mut copies, gone, own) = (Copies::default(), area(), area());
        for (file, area, number) in [(7, &gone, 0), (8, &gone, 1), (7, &own, 0)] {
            assert!(copies.add(file, words(area, number), Some((1, 1))).is_some());
        }
        copies.remove_all_in(&gone);
        assert_eq!((copies.uses.len(), copies.by_file.len()), (1, 1));
        copies.changed(7);
        assert_eq!((over(&gone), over(&own)), (vec![], vec![0]));
    }

    #[test]
    fn an_offset_that_comes_back_was_moved_by_what_was_read_and_no_more() {
        let own = area();
        for (read, moved) in [(0, 0), (3, 3), (10, 10), (u32::MAX, 10)] {
            let mut copies = Copies::default();
            let lent = copies.add(7, words(&own, 0), Some((5, 10))).flatten().unwrap();
            assert_eq!(own.load_u32(copy_words::READ), Ok(0));
            own.store_u32(copy_words::READ, read).unwrap();
            assert_eq!(lent.take_back(), moved, "{read}");
            assert_eq!(over(&own), [0]);
        }
    }
}
