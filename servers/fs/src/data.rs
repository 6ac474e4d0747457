//! Contents of one file: pages that were written, over bytes that lie in the boot archive, over
//! zeros.
//!
//! Invariants: no written page lies past the end; bytes of a written page past the end are zero, so
//! a file that grows shows zeros.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use contracts::descriptions::DescriptionError;

/// Bytes in a page.
pub const PAGE: usize = 4096;
/// Largest file: sparse ones cost nothing, so only sanity bounds it.
pub const FILE_BYTES_MAX: u64 = 1 << 40;

/// Pages that may still be used, over all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Written pages.
    pub used: u64,
    /// Their limit.
    pub limit: u64,
}

/// One file's bytes.
#[derive(Debug, Default)]
pub struct Data {
    size: u64,
    base: &'static [u8],
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

impl Data {
    /// A file whose bytes stay where they are until written.
    pub fn over(base: &'static [u8]) -> Data {
        Data { size: base.len() as u64, base, pages: BTreeMap::new() }
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Pages written.
    fn written(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Pages that are no holes: written, or of the archive.
    pub fn pages(&self) -> u64 {
        let of_base = self.base_pages();
        let both = self.pages.range(..of_base).count() as u64;
        self.written() + of_base - both
    }

    fn base_pages(&self) -> u64 {
        self.base.len().div_ceil(PAGE) as u64
    }

    /// The next byte from `at` on that is no hole's. `None` if there is none.
    pub fn next_data(&self, at: u64) -> Option<u64> {
        let page = at / PAGE as u64;
        let next = match page < self.base_pages() {
            true => page,
            false => *self.pages.range(page..).next()?.0,
        };
        let found = at.max(next * PAGE as u64);
        (found < self.size).then_some(found)
    }

    /// The next one that is a hole's, or the end. `None` behind the end.
    pub fn next_hole(&self, at: u64) -> Option<u64> {
        let mut next = (at / PAGE as u64).max(self.base_pages());
        for (page, _) in self.pages.range(next..) {
            if *page != next {
                break;
            }
            next += 1;
        }
        let is_hole = at / PAGE as u64 == next;
        let found = if is_hole { at } else { next * PAGE as u64 };
        (at < self.size).then_some(found.min(self.size))
    }

    fn base_part(&self, from: u64, limit: usize) -> &'static [u8] {
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(self.base.len());
        &self.base[from..self.base.len().min(from.saturating_add(limit))]
    }

    /// Calls `each` with the pieces from `at` on, at most `length` bytes; gives how many there
    /// were. `None` is a hole of that size.
    pub fn read(&self, at: u64, length: usize, mut each: impl FnMut(usize, &[u8])) -> usize {
        const ZEROS: [u8; PAGE] = [0; PAGE];
        let length = usize::try_from(self.size.saturating_sub(at)).unwrap_or(usize::MAX).min(length);
        let mut done = 0;
        while done < length {
            let position = at + done as u64;
            let (number, inside) = (position / PAGE as u64, (position % PAGE as u64) as usize);
            let count = (PAGE - inside).min(length - done);
            if let Some(page) = self.pages.get(&number) {
                each(done, &page[inside..inside + count]);
            } else {
                let part = self.base_part(position, count);
                each(done, part);
                each(done + part.len(), &ZEROS[..count - part.len()]);
            }
            done += count;
        }
        length
    }

    fn page(&mut self, number: u64, budget: &mut Budget) -> Result<&mut [u8; PAGE], DescriptionError> {
        if !self.pages.contains_key(&number) {
            if budget.used >= budget.limit {
                return Err(DescriptionError::NoSpace);
            }
            budget.used += 1;
            let mut page = Box::new([0; PAGE]);
            let part = self.base_part(number * PAGE as u64, PAGE);
            page[..part.len()].copy_from_slice(part);
            self.pages.insert(number, page);
        }
        self.pages.get_mut(&number).map(|page| &mut **page).ok_or(DescriptionError::Failed)
    }

    /// Writes at `at`; gives how many bytes went in: all, or fewer when space ran out after the
    /// first page. `NoSpace`, `TooLarge`.
    pub fn write(&mut self, at: u64, bytes: &[u8], budget: &mut Budget) -> Result<usize, DescriptionError> {
        if at.checked_add(bytes.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(DescriptionError::TooLarge);
        }
        let mut done = 0;
        while done < bytes.len() {
            let position = at + done as u64;
            let (number, inside) = (position / PAGE as u64, (position % PAGE as u64) as usize);
            let count = (PAGE - inside).min(bytes.len() - done);
            match self.page(number, budget) {
                Ok(page) => page[inside..inside + count].copy_from_slice(&bytes[done..done + count]),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += count;
            self.size = self.size.max(position + count as u64);
        }
        Ok(done)
    }

    /// Sets the size. `TooLarge`.
    pub fn resize(&mut self, size: u64, budget: &mut Budget) -> Result<(), DescriptionError> {
        if size > FILE_BYTES_MAX {
            return Err(DescriptionError::TooLarge);
        }
        if size < self.size {
            let dropped = self.pages.split_off(&size.div_ceil(PAGE as u64));
            budget.used -= dropped.len() as u64;
            if let Some(page) = self.pages.get_mut(&(size / PAGE as u64)) {
                page[(size % PAGE as u64) as usize..].fill(0);
            }
            self.base = self.base_part(0, usize::try_from(size).unwrap_or(usize::MAX));
        }
        self.size = size;
        Ok(())
    }

    /// Gives all pages back.
    pub fn clear(&mut self, budget: &mut Budget) {
        budget.used -= self.written();
        *self = Data::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(data: &Data, at: u64, length: usize) -> Vec<u8> {
        let mut all = Vec::new();
        let count = data.read(at, length, |offset, part| {
            assert_eq!(offset, all.len());
            all.extend_from_slice(part);
        });
        assert_eq!(count, all.len());
        all
    }

    #[test]
    fn follows_a_plain_vector() {
        let base: &'static [u8] = Vec::leak((0..20_000u32).map(|index| (index % 251) as u8 + 1).collect());
        let mut data = Data::over(base);
        let mut model = base.to_vec();
        let mut budget = Budget { used: 0, limit: 1000 };
        let mut seed = 7u64;
        let mut random = move |limit: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % limit
        };
        for step in 0..3000u32 {
            let at = random(40_000) as usize;
            let length = random(9000) as usize;
            match random(4) {
                0 | 1 => {
                    let bytes = vec![step as u8; length];
                    assert_eq!(data.write(at as u64, &bytes, &mut budget), Ok(length));
                    if length > 0 {
                        model.resize(model.len().max(at + length), 0);
                        model[at..at + length].copy_from_slice(&bytes);
                    }
                }
                2 => {
                    data.resize(at as u64, &mut budget).unwrap();
                    model.resize(at, 0);
                }
                _ => {}
            }
            assert_eq!(data.size(), model.len() as u64);
            assert_eq!(budget.used, data.written());
            let from = at.min(model.len());
            assert_eq!(whole(&data, at as u64, length), model[from..model.len().min(from + length)], "step {step}");
        }
        data.clear(&mut budget);
        assert_eq!((budget.used, data.size()), (0, 0));
    }

    #[test]
    fn holes_are_what_nobody_wrote() {
        const BYTES: u64 = PAGE as u64;
        let mut data = Data::over(&[7; PAGE + 10]);
        let mut budget = Budget { used: 0, limit: 100 };
        data.resize(20 * BYTES, &mut budget).unwrap();
        for page in [1, 5, 6, 9] {
            data.write(page * BYTES + 3, b"x", &mut budget).unwrap();
        }
        let is_data = |page: u64| [0, 1, 5, 6, 9].contains(&page);
        assert_eq!(data.pages(), 5);
        for at in (0..20 * BYTES).step_by(1000) {
            let next = |wanted| (at / BYTES..20).find(|page| is_data(*page) == wanted).map(|page| at.max(page * BYTES));
            assert_eq!(data.next_data(at), next(true), "{at}");
            assert_eq!(data.next_hole(at), next(false).or(Some(20 * BYTES)), "{at}");
        }
        assert_eq!((data.next_data(20 * BYTES), data.next_hole(20 * BYTES)), (None, None));
        data.resize(6 * BYTES + 1, &mut budget).unwrap();
        assert_eq!((data.next_hole(5 * BYTES), data.pages()), (Some(6 * BYTES + 1), 4));
    }

    #[test]
    fn space_runs_out_cleanly() {
        let mut data = Data::default();
        let mut budget = Budget { used: 0, limit: 2 };
        assert_eq!(data.write(0, &[1; 3 * PAGE], &mut budget), Ok(2 * PAGE));
        assert_eq!(data.write(1 << 30, &[1], &mut budget), Err(DescriptionError::NoSpace));
        assert_eq!(data.write(u64::MAX, &[1], &mut budget), Err(DescriptionError::TooLarge));
        assert_eq!(data.size(), 2 * PAGE as u64);
        data.resize(1 << 39, &mut budget).unwrap();
        assert_eq!(whole(&data, 1 << 38, 10), [0; 10]);
    }

    #[test]
    fn bytes_of_the_archive_are_no_holes_up_to_their_end() {
        const BYTES: u64 = PAGE as u64;
        let data = Data::over(&[7; 2 * PAGE + 10]);
        let end = 2 * BYTES + 10;
        assert_eq!((data.pages(), data.next_data(BYTES + 1), data.next_hole(1)), (3, Some(BYTES + 1), Some(end)));
        assert_eq!((data.next_data(end - 1), data.next_data(end), data.next_hole(end)), (Some(end - 1), None, None));
        let empty = Data::default();
        assert_eq!((empty.pages(), empty.next_data(0), empty.next_hole(0)), (0, None, None));
    }

    #[test]
    fn a_file_is_as_large_as_it_may_be_and_not_larger() {
        let mut data = Data::default();
        let mut budget = Budget { used: 0, limit: 2 };
        assert_eq!(data.write(FILE_BYTES_MAX - 1, b"x", &mut budget), Ok(1));
        assert_eq!(data.write(FILE_BYTES_MAX - 1, b"xy", &mut budget), Err(DescriptionError::TooLarge));
        assert_eq!((data.size(), whole(&data, FILE_BYTES_MAX - 2, 9)), (1 << 40, vec![0, b'x']));
        data.resize(5, &mut budget).unwrap();
        assert_eq!(data.resize(FILE_BYTES_MAX + 1, &mut budget), Err(DescriptionError::TooLarge));
        assert_eq!(data.size(), 5);
        assert_eq!((data.resize(FILE_BYTES_MAX, &mut budget), data.size()), (Ok(()), FILE_BYTES_MAX));
    }
}
