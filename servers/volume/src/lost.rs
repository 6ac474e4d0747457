//! Changes of files that could not be written: who has heard of it, as Linux counts them
//! (errseq_t).
//!
//! Each description that is open at a loss hears of it once, by fsync. One that is opened later
//! hears of it, too, if nobody did before.

use alloc::collections::{BTreeMap, BTreeSet};

/// Files with losses that nobody has open, and of which nobody heard yet.
const UNHEARD_MAX: usize = 1024;

/// Losses of one thing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    count: u32,
    is_heard: bool,
}

/// Up to which loss of a thing a description's holder has heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard(u32);

impl Losses {
    /// Something was lost.
    pub fn add(&mut self) {
        (self.count, self.is_heard) = (self.count.wrapping_add(1), false);
    }

    /// Of what a new description hears nothing any more.
    pub fn begin(&self) -> Heard {
        let is_news = self.count > 0 && !self.is_heard;
        Heard(self.count.wrapping_sub(u32::from(is_news)))
    }

    /// Was something lost of which this description has not heard? Now it has.
    pub fn tell(&mut self, heard: &mut Heard) -> bool {
        let is_news = heard.0 != self.count;
        heard.0 = self.count;
        self.is_heard |= is_news;
        is_news
    }
}

/// The losses of all files, by their inodes.
#[derive(Debug, Default)]
pub struct LostFiles {
    all: BTreeMap<u32, Losses>,
    /// Those of them that nobody has open.
    closed: BTreeSet<u32>,
}

impl LostFiles {
    /// Changes of a file were lost.
    pub fn add(&mut self, inode: u32, is_open: bool) {
        self.all.entry(inode).or_default().add();
        if !is_open {
            self.close(inode);
        }
    }

    /// One more description of a file: of what it hears nothing any more.
    pub fn begin(&mut self, inode: u32) -> Heard {
        self.closed.remove(&inode);
        self.all.get(&inode).map(Losses::begin).unwrap_or_default()
    }

    /// As [`Losses::tell`].
    pub fn tell(&mut self, inode: u32, heard: &mut Heard) -> bool {
        self.all.get_mut(&inode).is_some_and(|losses| losses.tell(heard))
    }

    /// Nobody has a file open. What nobody heard of is kept for who opens it.
    pub fn close(&mut self, inode: u32) {
        match self.all.get(&inode) {
            None => return,
            Some(losses) if losses.is_heard => drop(self.all.remove(&inode)),
            Some(_) => drop(self.closed.insert(inode)),
        }
        while self.closed.len() > UNHEARD_MAX {
            if let Some(first) = self.closed.pop_first() {
                self.all.remove(&first);
            }
        }
    }

    /// A file is no more: another one may get its number.
    pub fn remove(&mut self, inode: u32) {
        self.all.remove(&inode);
        self.closed.remove(&inode);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_description_hears_of_each_loss_once() {
        let mut lost = LostFiles::default();
        let mut heard = [lost.begin(7), lost.begin(7), lost.begin(8)];
        let mut tell = |lost: &mut LostFiles, at: usize| lost.tell(if at == 2 { 8 } else { 7 }, &mut heard[at]);
        assert!(!tell(&mut lost, 0));
        lost.add(7, true);
        lost.add(7, true);
        assert_eq!([0, 0, 2, 1, 1].map(|at| tell(&mut lost, at)), [true, false, false, true, false]);
        lost.add(7, true);
        assert_eq!([1, 1, 0, 2].map(|at| tell(&mut lost, at)), [true, false, true, false]);
    }

    #[test]
    fn who_opens_a_file_hears_of_what_nobody_heard() {
        let mut lost = LostFiles::default();
        lost.add(7, false);
        let mut first = lost.begin(7);
        let mut second = lost.begin(7);
        assert!(lost.tell(7, &mut first) && lost.tell(7, &mut second));
        let mut late = lost.begin(7);
        assert!(!lost.tell(7, &mut late), "others have heard");
        lost.close(7);
        assert!(lost.all.is_empty(), "nothing of it is left to be told");
        lost.add(7, false);
        lost.remove(7);
        let mut next = lost.begin(7);
        assert!(!lost.tell(7, &mut next), "it is another file");
        let (none, mut losses) = (Losses::default().begin(), Losses::default());
        assert!(!losses.tell(&mut none.clone()), "there were none");
    }

    #[test]
    fn what_nobody_will_hear_is_bounded() {
        let mut lost = LostFiles::default();
        (0..2 * UNHEARD_MAX as u32).for_each(|inode| lost.add(inode, inode % 2 == 0));
        assert_eq!((lost.closed.len(), lost.all.len()), (UNHEARD_MAX, 2 * UNHEARD_MAX));
        assert!(lost.closed.iter().all(|inode| inode % 2 == 1), "what is open is kept for its holders");
        (0..2 * UNHEARD_MAX as u32).for_each(|inode| lost.close(inode));
        assert_eq!((lost.closed.len(), lost.all.len()), (UNHEARD_MAX, UNHEARD_MAX));
    }
}
