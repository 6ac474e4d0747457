//! What a driver and the handler of one of its queues say to each other, where each has a context
//! of its own: atomic words, and nothing else.
//!
//! ```text
//! driver:   ask ──► asked ──► take   :handler
//!           hear ◄── told ◄── tell
//! ```
//!
//! Invariants: each ring has one writer and one reader; a buffer is on the way once, so that each
//! ring has room for all. Who writes notifies the other only if that may have seen all before: a
//! reader that finds nothing has looked after it had seen all.
//!
//! Deliberately unknown here: how the other is notified, and what a buffer holds.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use packet::BUFFERS;

use crate::pool_queue::Descriptor;

const ENTRIES: usize = BUFFERS as usize;

/// See the module's head.
pub struct Desk {
    asked: Ring<2>,
    told: Ring<1>,
    is_broken: AtomicBool,
}

/// Entries of some words each, in their order.
struct Ring<const WORDS: usize> {
    entries: [[AtomicU64; WORDS]; ENTRIES],
    produced: AtomicU64,
    consumed: AtomicU64,
}

impl<const WORDS: usize> Ring<WORDS> {
    const fn new() -> Ring<WORDS> {
        let entries = [const { [const { AtomicU64::new(0) }; WORDS] }; ENTRIES];
        Ring { entries, produced: AtomicU64::new(0), consumed: AtomicU64::new(0) }
    }

    /// Writer. Tells whether the reader had seen all before: then it may not look again.
    fn push(&self, words: [u64; WORDS]) -> bool {
        let at = self.produced.load(Ordering::Relaxed);
        let places = &self.entries[at as usize % ENTRIES];
        places.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        self.produced.store(at.wrapping_add(1), Ordering::SeqCst);
        self.consumed.load(Ordering::SeqCst) == at
    }

    /// Reader.
    fn pop(&self) -> Option<[u64; WORDS]> {
        let at = self.consumed.load(Ordering::Relaxed);
        if self.produced.load(Ordering::SeqCst) == at {
            return None;
        }
        let words = self.entries[at as usize % ENTRIES].each_ref().map(|place| place.load(Ordering::Relaxed));
        self.consumed.store(at.wrapping_add(1), Ordering::SeqCst);
        Some(words)
    }
}

impl Default for Desk {
    fn default() -> Desk {
        Desk { asked: Ring::new(), told: Ring::new(), is_broken: AtomicBool::new(false) }
    }
}

impl Desk {
    /// Driver: a buffer is to be given to the device; it must not be on the way. Tells whether the
    /// handler is to be notified.
    pub fn ask(&self, buffer: u16, Descriptor { physical, bytes }: Descriptor) -> bool {
        self.asked.push([physical, u64::from(bytes) << 32 | u64::from(buffer)])
    }

    /// Handler: the next buffer to give.
    pub fn take(&self) -> Option<(u16, Descriptor)> {
        let [physical, rest] = self.asked.pop()?;
        Some((rest as u16, Descriptor { physical, bytes: (rest >> 32) as u32 }))
    }

    /// Handler: the device is done with a buffer. Tells whether the driver is to be notified.
    pub fn tell(&self, buffer: u16) -> bool {
        self.told.push([buffer.into()])
    }

    /// Driver: the next buffer that the device is done with.
    pub fn hear(&self) -> Option<u16> {
        self.told.pop().map(|[buffer]| buffer as u16)
    }

    /// Handler: the device said something impossible. It does nothing more.
    pub fn give_up(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    /// Driver: whether the handler has given up.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Driver: how many buffers the handler has taken, ever.
    pub fn taken(&self) -> u64 {
        self.asked.consumed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::sync::mpsc;

    #[test]
    fn the_other_is_notified_where_it_may_have_seen_all() {
        let desk = Desk::default();
        let at = |physical| Descriptor { physical, bytes: u32::MAX };
        assert!(desk.ask(7, at(u64::MAX)) && !desk.ask(255, at(2)));
        assert_eq!(desk.take(), Some((7, at(u64::MAX))));
        assert!(!desk.ask(9, at(3)), "it has not seen all");
        assert_eq!([desk.take(), desk.take(), desk.take()], [Some((255, at(2))), Some((9, at(3))), None]);
        assert!(desk.ask(9, at(3)) && desk.taken() == 3);
        assert!(desk.tell(255) && !desk.tell(0));
        assert_eq!([desk.hear(), desk.hear(), desk.hear()], [Some(255), Some(0), None]);
        assert!(!desk.is_broken());
        desk.give_up();
        assert!(desk.is_broken());
    }

    /// Both sleep until they are notified, on cores of their own: nothing is lost, turned round or
    /// forgotten, and nobody sleeps for ever.
    #[test]
    fn two_that_sleep_until_they_are_notified_miss_nothing() {
        const ROUNDS: u64 = 100_000;
        let desk = &Desk::default();
        let ([wake_handler, wake_driver], [handler_is_woken, driver_is_woken]) = {
            let (a, b) = mpsc::channel::<()>();
            let (c, d) = mpsc::channel::<()>();
            ([a, c], [b, d])
        };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut seen = 0;
                while seen < ROUNDS {
                    handler_is_woken.recv().expect("the driver is there");
                    let mut is_news = false;
                    while let Some((buffer, Descriptor { physical, .. })) = desk.take() {
                        assert_eq!((physical, u64::from(buffer)), (seen, seen % BUFFERS as u64));
                        seen += 1;
                        is_news |= desk.tell(buffer);
                    }
                    if is_news {
                        wake_driver.send(()).expect("the driver is there");
                    }
                }
            });
            let (mut asked, mut heard) = (0, 0);
            while heard < ROUNDS {
                let mut is_news = false;
                while asked < ROUNDS && asked - heard < BUFFERS as u64 {
                    is_news |= desk.ask((asked % BUFFERS as u64) as u16, Descriptor { physical: asked, bytes: 1 });
                    asked += 1;
                }
                if is_news {
                    wake_handler.send(()).expect("the handler is there");
                }
                driver_is_woken.recv().expect("the handler is there");
                while let Some(buffer) = desk.hear() {
                    assert_eq!(u64::from(buffer), heard % BUFFERS as u64);
                    heard += 1;
                }
            }
        });
    }
}
