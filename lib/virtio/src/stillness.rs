//! How long a device has stood still with something to do.

/// What was seen of it last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stillness {
    /// How far it had come, and since when it has not come further.
    stands: Option<(u16, u64)>,
}

impl Stillness {
    /// Takes note of how far the device has come, `None` while it has nothing to do. Gives for
    /// how many nanoseconds it has done nothing with something to do.
    pub fn lasts(&mut self, progress: Option<u16>, now_ns: u64) -> u64 {
        let Some(progress) = progress else {
            self.stands = None;
            return 0;
        };
        match self.stands {
            Some((before, since_ns)) if before == progress => now_ns.saturating_sub(since_ns),
            _ => {
                self.stands = Some((progress, now_ns));
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_from_the_first_look_at_which_nothing_had_moved() {
        let mut stillness = Stillness::default();
        assert_eq!(stillness.lasts(Some(7), 100), 0);
        assert_eq!(stillness.lasts(Some(7), 200), 100);
        assert_eq!(stillness.lasts(Some(7), 1_100), 1_000);
        assert_eq!(stillness.lasts(Some(8), 1_200), 0, "it did one");
        assert_eq!(stillness.lasts(Some(8), 1_300), 100);
        assert_eq!(stillness.lasts(None, 1_400), 0, "it has nothing to do");
        assert_eq!(stillness.lasts(Some(8), 5_000), 0, "it was idle meanwhile");
    }
}
