//! What a power cut leaves: from a log, the disk as it may be when the power went after one of its
//! entries.
//!
//! All that was durable is there. Of each other write a part is: nothing, all of it, or some of its
//! sectors, in the order of the log, by dice that a seed and the cut's number give. So a sector
//! holds what was durable there or something that was written to it later, never anything else.
//!
//! What is larger than a sector and yet never torn the caller names: file systems rely on it.

use crate::machine::block::SECTOR_BYTES;
use crate::machine::block::image::Image;
use crate::machine::block::log::{Content, Entry, Log};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;

/// What the disk makes of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// What it covers is durable.
    Honest,
    /// Nothing, and nothing is written through either: a disk that lies. To see that a test finds
    /// it.
    Ignoring,
}

/// How the disk behaves.
#[derive(Clone, Copy)]
pub struct Disk {
    pub cache: Cache,
    /// Of a write, where it begins and what it is: stretches of the disk, of whole sectors, that
    /// are new or old as a whole.
    pub whole: fn(u64, &Content) -> Vec<Range<u64>>,
}

/// Which cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Of the dice; cuts of one run have the same.
    pub seed: u64,
    /// Which of them.
    pub number: u64,
    /// The power goes when so many entries of the log have happened.
    pub position: usize,
}

/// How the dice of one cut are loaded.
#[derive(Clone, Copy)]
enum Fate {
    AllLost,
    AllKept,
    Each,
}

/// `count` cuts of a log, spread evenly over it, each somewhere in its part.
pub fn cuts(log: &Log, count: u64, seed: u64) -> Vec<Cut> {
    // The first position is before the first entry, the last one behind the last.
    let positions = log.entries().len() as u64 + 1;
    let cut = |number| {
        let (from, to) = (number * positions / count, (number + 1) * positions / count);
        let position = if to > from { dice(seed, number, Use::Place).random_range(from..to) } else { from };
        Cut { seed, number, position: position as usize }
    };
    (0..count).map(cut).collect()
}

impl Cut {
    /// The disk that it leaves.
    pub fn image(&self, log: &Log, disk: Disk) -> Image {
        let happened = &log.entries()[..self.position];
        let mut dice = dice(self.seed, self.number, Use::Losses);
        let fate = match dice.random_range(0..8) {
            0 => Fate::AllLost,
            1 => Fate::AllKept,
            _ => Fate::Each,
        };
        let durable = durable(happened, disk.cache);
        let mut image = log.initial().clone();
        for (index, entry) in happened.iter().enumerate() {
            let Entry::Write { offset, content, is_through } = entry else { continue };
            if index < durable || (*is_through && disk.cache == Cache::Honest) {
                content.apply(&mut image, *offset, 0, content.bytes());
            } else {
                keep_some(&mut image, (*offset, content), disk, fate, &mut dice);
            }
        }
        image
    }
}

/// So many of the entries are durable, if they are writes.
fn durable(happened: &[Entry], cache: Cache) -> usize {
    let covered = happened.iter().filter_map(|entry| match entry {
        Entry::Flush { covers } if cache == Cache::Honest => Some(*covers),
        _ => None,
    });
    covered.max().unwrap_or(0)
}

fn keep_some(image: &mut Image, (offset, content): (u64, &Content), disk: Disk, fate: Fate, dice: &mut impl Rng) {
    let is_torn = match fate {
        Fate::AllLost => return,
        Fate::AllKept => false,
        Fate::Each => match dice.random_range(0..8) {
            0..3 => return,
            3..6 => false,
            _ => true,
        },
    };
    let whole = if is_torn { (disk.whole)(offset, content) } else { Vec::new() };
    let (mut at, end) = (offset, offset + content.bytes());
    while at < end {
        let next = if is_torn { end.min(atom_end(at, &whole)) } else { end };
        if !is_torn || dice.random() {
            content.apply(image, offset, at - offset, next - offset);
        }
        at = next;
    }
}

/// Where the sector, or what else is not torn, ends that `at` is in.
fn atom_end(at: u64, whole: &[Range<u64>]) -> u64 {
    let stretch = whole.iter().find(|stretch| stretch.contains(&at));
    stretch.map_or_else(|| (at + 1).next_multiple_of(SECTOR_BYTES), |stretch| stretch.end)
}

/// What dice are for: they differ by it.
#[derive(Clone, Copy)]
enum Use {
    Place = 1,
    Losses = 2,
}

fn dice(seed: u64, number: u64, of: Use) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&number.to_le_bytes());
    key[16] = of as u8;
    ChaCha8Rng::from_seed(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECTORS: u64 = 40;
    const HONEST: Disk = Disk { cache: Cache::Honest, whole: |_, _| Vec::new() };

    /// What happens to a disk: of each write every sector holds a number that no other write has.
    #[derive(Clone, Debug)]
    enum Step {
        Write {
            sector: u64,
            count: u64,
            is_through: bool,
        },
        Zeros {
            sector: u64,
            count: u64,
        },
        /// Covers all but the last few entries.
        Flush {
            behind: usize,
        },
        Mark,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let place = (0..SECTORS).prop_flat_map(|sector| (Just(sector), 1..=(SECTORS - sector).min(12)));
        let step = prop_oneof![
            6 => (place.clone(), prop::bool::weighted(0.1))
                .prop_map(|((sector, count), is_through)| Step::Write { sector, count, is_through }),
            1 => place.prop_map(|(sector, count)| Step::Zeros { sector, count }),
            2 => (0usize..4).prop_map(|behind| Step::Flush { behind }),
            1 => Just(Step::Mark),
        ];
        prop::collection::vec(step, 0..40)
    }

    fn log_of(steps: &[Step]) -> Log {
        let mut initial = Image::zeros(SECTORS * SECTOR_BYTES);
        (0..SECTORS).for_each(|sector| initial.write(sector * SECTOR_BYTES, &stamp(1)));
        let mut log = Log::new(initial);
        for (number, step) in (2..).zip(steps) {
            let entry = match step {
                Step::Write { sector, count, is_through } => Entry::Write {
                    offset: sector * SECTOR_BYTES,
                    content: Content::Data(stamp(number).repeat(*count as usize)),
                    is_through: *is_through,
                },
                Step::Zeros { sector, count } => Entry::Write {
                    offset: sector * SECTOR_BYTES,
                    content: Content::Zeros(count * SECTOR_BYTES),
                    is_through: false,
                },
                Step::Flush { behind } => Entry::Flush { covers: log.entries().len().saturating_sub(*behind) },
                Step::Mark => Entry::Mark(number),
            };
            log.add(entry).unwrap();
        }
        log
    }

    fn stamp(number: u64) -> Vec<u8> {
        number.to_le_bytes().repeat(SECTOR_BYTES as usize / 8)
    }

    /// Which write each sector holds; every sector is of one.
    fn seen(image: &Image) -> Vec<u64> {
        let mut all = vec![0; (SECTORS * SECTOR_BYTES) as usize];
        image.read(0, &mut all);
        let stamp_of = |sector: &[u8]| {
            let number = u64::from_le_bytes(sector[..8].try_into().unwrap());
            assert_eq!(sector, stamp(number), "a sector is torn");
            number
        };
        all.chunks(SECTOR_BYTES as usize).map(stamp_of).collect()
    }

    /// Naively, and by sector: what it may hold after so many entries.
    fn allowed(log: &Log, position: usize, sector: u64) -> Vec<u64> {
        let mut versions: Vec<(usize, u64, bool)> = vec![(0, 1, true)];
        for (index, entry) in log.entries()[..position].iter().enumerate() {
            match entry {
                Entry::Write { offset, content, is_through } => {
                    let number = if matches!(content, Content::Zeros(_)) { 0 } else { index as u64 + 2 };
                    if (*offset..offset + content.bytes()).contains(&(sector * SECTOR_BYTES)) {
                        versions.push((index, number, *is_through));
                    }
                }
                Entry::Flush { covers } => {
                    versions.iter_mut().for_each(|(index, _, is_durable)| *is_durable |= *index < *covers);
                }
                Entry::Mark(_) => {}
            }
        }
        let floor = versions.iter().rposition(|(_, _, is_durable)| *is_durable).unwrap();
        versions[floor..].iter().map(|(_, number, _)| *number).collect()
    }

    proptest! {
        #[test]
        fn a_sector_is_what_was_durable_or_written_later(
            steps in steps(), seed in any::<u64>(), number in any::<u64>(), at in any::<prop::sample::Index>(),
        ) {
            let log = log_of(&steps);
            let position = at.index(log.entries().len() + 1);
            let cut = Cut { seed, number, position };
            let image = seen(&cut.image(&log, HONEST));
            for (sector, number) in (0..).zip(&image) {
                let allowed = allowed(&log, position, sector);
                prop_assert!(allowed.contains(number), "sector {sector} holds {number}, not one of {allowed:?}");
            }
            prop_assert_eq!(&image, &seen(&cut.image(&log, HONEST)));
        }
    }

    /// Of many cuts at one place each state of two sectors comes up: nothing is always kept.
    #[test]
    fn every_part_of_what_was_not_flushed_comes_up() {
        let log = log_of(&[
            Step::Write { sector: 0, count: 2, is_through: false },
            Step::Flush { behind: 0 },
            Step::Write { sector: 0, count: 2, is_through: false },
            Step::Write { sector: 1, count: 1, is_through: false },
        ]);
        let states = |cache| {
            let cut = |number| Cut { seed: 5, number, position: 4 };
            let states = (0..400).map(|number| seen(&cut(number).image(&log, Disk { cache, ..HONEST }))[..2].to_vec());
            states.collect::<std::collections::BTreeSet<_>>()
        };
        let of = |first: [u64; 2], second: &[u64]| -> Vec<Vec<u64>> {
            first.iter().flat_map(|&one| second.iter().map(move |&other| vec![one, other])).collect()
        };
        assert_eq!(states(Cache::Honest).into_iter().collect::<Vec<_>>(), of([2, 4], &[2, 4, 5]));
        let ignoring = states(Cache::Ignoring);
        assert!(ignoring.is_superset(&states(Cache::Honest)) && ignoring.contains(&vec![1, 1]), "{ignoring:?}");
    }

    #[test]
    fn a_flush_covers_only_what_was_complete_when_it_came() {
        let log = log_of(&[
            Step::Write { sector: 0, count: 1, is_through: false },
            Step::Write { sector: 1, count: 1, is_through: false },
            Step::Flush { behind: 1 },
        ]);
        let cut = |number| seen(&Cut { seed: 1, number, position: 3 }.image(&log, HONEST))[..2].to_vec();
        let states: std::collections::BTreeSet<_> = (0..100).map(cut).collect();
        assert_eq!(states.into_iter().collect::<Vec<_>>(), [vec![2, 1], vec![2, 3]]);
    }

    #[test]
    fn what_is_whole_is_not_torn() {
        let log = log_of(&[Step::Write { sector: 1, count: 5, is_through: false }]);
        let whole = |offset, _: &_| vec![Range { start: offset + SECTOR_BYTES, end: offset + 3 * SECTOR_BYTES }];
        let with_whole = Disk { whole, ..HONEST };
        let states = |disk: Disk| {
            let cut = |number| seen(&Cut { seed: 1, number, position: 1 }.image(&log, disk))[1..6].to_vec();
            (0..2000).map(cut).collect::<std::collections::BTreeSet<_>>()
        };
        // Five sectors, each old or new; of the two that go together all others remain.
        assert_eq!((states(HONEST).len(), states(with_whole).len()), (32, 16));
        assert!(states(with_whole).iter().all(|sectors| sectors[1] == sectors[2]));
    }

    #[test]
    fn cuts_are_all_over_the_log_and_the_same_for_a_seed() {
        let log = log_of(&vec![Step::Mark; 999]);
        let cuts_of = |seed| cuts(&log, 100, seed);
        let all = cuts_of(1);
        assert!(all.iter().enumerate().all(|(part, cut)| (part * 10..part * 10 + 10).contains(&cut.position)));
        assert_eq!(all, cuts_of(1));
        assert_ne!(all.iter().map(|cut| cut.position).collect::<Vec<_>>(), vec![0; 100]);
        assert!(all.iter().zip(cuts_of(2)).any(|(one, other)| one.position != other.position));
        // More cuts than places.
        assert_eq!(cuts(&log_of(&[]), 3, 1).iter().map(|cut| cut.position).collect::<Vec<_>>(), [0, 0, 0]);
    }
}
