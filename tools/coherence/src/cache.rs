//! One set-associative cache with least-recently-used replacement. It holds line numbers and a
//! small note per line; what the note means is the owner's business.

/// See the module's head.
#[derive(Clone, Debug)]
pub struct Cache {
    ways: usize,
    set_mask: u64,
    /// `ways` entries a set, the most recently used first.
    entries: Vec<Option<(u64, u8)>>,
}

impl Cache {
    /// A cache of `bytes` with `ways` ways. Sets are a power of two, at least one.
    pub fn new(bytes: usize, ways: usize) -> Cache {
        let sets = (bytes >> crate::LINE_SHIFT) / ways;
        assert!(sets.is_power_of_two(), "{bytes} bytes in {ways} ways give {sets} sets, not a power of two");
        Cache { ways, set_mask: sets as u64 - 1, entries: vec![None; sets * ways] }
    }

    fn set(&mut self, line: u64) -> &mut [Option<(u64, u8)>] {
        let first = (line & self.set_mask) as usize * self.ways;
        &mut self.entries[first..first + self.ways]
    }

    /// The note of a line that is here; the line becomes the most recently used.
    #[inline]
    pub fn touch(&mut self, line: u64) -> Option<u8> {
        let set = self.set(line);
        let place = set.iter().position(|entry| entry.is_some_and(|(held, _)| held == line))?;
        set[..=place].rotate_right(1);
        set[0].map(|(_, note)| note)
    }

    /// The same without use.
    #[cfg(test)]
    pub fn peek(&self, line: u64) -> Option<u8> {
        let first = (line & self.set_mask) as usize * self.ways;
        self.entries[first..first + self.ways].iter().flatten().find(|(held, _)| *held == line).map(|(_, note)| *note)
    }

    /// Changes the note of a line, if it is here.
    pub fn note(&mut self, line: u64, note: u8) {
        if let Some(entry) = self.set(line).iter_mut().flatten().find(|(held, _)| *held == line) {
            entry.1 = note;
        }
    }

    /// Adds a line that is not here; returns the one that had to go.
    pub fn insert(&mut self, line: u64, note: u8) -> Option<u64> {
        let set = self.set(line);
        debug_assert!(set.iter().flatten().all(|(held, _)| *held != line));
        set.rotate_right(1);
        set[0].replace((line, note)).map(|(old, _)| old)
    }

    /// Takes a line out; false if it was not here.
    pub fn remove(&mut self, line: u64) -> bool {
        let set = self.set(line);
        let Some(place) = set.iter().position(|entry| entry.is_some_and(|(held, _)| held == line)) else {
            return false;
        };
        set[place] = None;
        set[place..].rotate_left(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Against a list per set.
        #[test]
        fn behaves_as_a_list_per_set(steps in prop::collection::vec((0u64..40, 0u8..4, 0u8..4), 1..400)) {
            let mut cache = Cache::new(64 * 4 * 4, 4);
            let mut sets: Vec<VecDeque<(u64, u8)>> = vec![VecDeque::new(); 4];
            for (line, step, note) in steps {
                let set = &mut sets[line as usize % 4];
                let place = set.iter().position(|(held, _)| *held == line);
                match (step, place) {
                    (0, place) => {
                        prop_assert_eq!(cache.remove(line), place.is_some());
                        if let Some(place) = place { set.remove(place); }
                    }
                    (1, _) => {
                        cache.note(line, note);
                        if let Some(place) = place { set[place].1 = note; }
                    }
                    (_, Some(place)) => {
                        let entry = set.remove(place).unwrap();
                        prop_assert_eq!(cache.touch(line), Some(entry.1));
                        set.push_front(entry);
                    }
                    (_, None) => {
                        prop_assert_eq!(cache.touch(line), None);
                        let gone = if set.len() == 4 { set.pop_back().map(|(line, _)| line) } else { None };
                        prop_assert_eq!(cache.insert(line, note), gone);
                        set.push_front((line, note));
                    }
                }
            }
        }
    }
}
