//! When a semaphore asks the kernel, and with what: case by case, in one thread.
#![forbid(unsafe_code)]

use abi::Error;
use semaphore::{Count, KernelSemaphore, RELEASE_LIMIT_NS, Semaphore};
use std::cell::RefCell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Up(u64),
    Down(u64),
}

/// Notes what it is asked, and answers every `down` alike.
struct Noting {
    answer: Result<(), Error>,
    asked: RefCell<Vec<Asked>>,
}

impl KernelSemaphore for Noting {
    fn up(&self, count: u64) -> Result<(), Error> {
        self.asked.borrow_mut().push(Asked::Up(count));
        Ok(())
    }

    fn down(&self, deadline_ns: u64) -> Result<(), Error> {
        let mut asked = self.asked.borrow_mut();
        assert!(asked.len() < 100, "it asks for ever");
        asked.push(Asked::Down(deadline_ns));
        self.answer
    }
}

fn over(count: &AtomicI64, answer: Result<(), Error>) -> Semaphore<&AtomicI64, Noting> {
    Semaphore::new(count, Noting { answer, asked: RefCell::default() })
}

impl Noting {
    fn take(&self) -> Vec<Asked> {
        self.asked.take()
    }
}

#[test]
fn the_kernel_is_asked_only_where_somebody_sleeps() {
    let count = AtomicI64::new(0);
    let semaphore = over(&count, Ok(()));
    semaphore.up(2).unwrap();
    assert_eq!(semaphore.down(7), Ok(()));
    assert!(semaphore.try_down() && !semaphore.try_down());
    assert_eq!(semaphore.down(0), Err(Error::Timeout), "0: without sleeping");
    assert_eq!((semaphore.kernel().take(), count.load(Ordering::Relaxed)), (vec![], 0));
    assert_eq!(semaphore.down(7), Ok(()));
    assert_eq!(semaphore.kernel().take(), [Asked::Down(7)]);
    // Three sleep; of five that come up two are left.
    count.store(-3, Ordering::Relaxed);
    semaphore.up(5).unwrap();
    assert_eq!((semaphore.kernel().take(), count.load(Ordering::Relaxed)), (vec![Asked::Up(3)], 2));
    count.store(-3, Ordering::Relaxed);
    semaphore.up(1).unwrap();
    assert_eq!((semaphore.kernel().take(), count.load(Ordering::Relaxed)), (vec![Asked::Up(1)], -2));
}

#[test]
fn who_gives_up_takes_itself_off_the_count() {
    let count = AtomicI64::new(-4);
    let semaphore = over(&count, Err(Error::Timeout));
    assert_eq!(semaphore.down(7), Err(Error::Timeout));
    assert_eq!((semaphore.kernel().take(), count.load(Ordering::Relaxed)), (vec![Asked::Down(7)], -4));
}

/// An `up` has let it through, and its thread died before it released anybody.
#[test]
fn a_release_that_does_not_come_is_waited_for_in_steps_that_double() {
    /// As an `up` that is counted while the kernel is asked.
    struct Raised(AtomicI64);
    impl Count for Raised {
        fn add(&self, change: i64, order: Ordering) -> i64 {
            self.0.add(change, order)
        }
        fn get(&self) -> i64 {
            0
        }
        fn replace(&self, _: i64, _: i64, _: Ordering) -> bool {
            panic!("who was counted as woken does not change the count")
        }
    }
    let semaphore =
        |answer| Semaphore::new(Raised(AtomicI64::new(0)), Noting { answer: Err(answer), asked: RefCell::default() });
    let dead = semaphore(Error::Timeout);
    assert_eq!(dead.down(7), Err(Error::PeerDead));
    let steps = (0..).map(|step| 100_000 << step).take_while(|grace_ns| *grace_ns <= RELEASE_LIMIT_NS);
    let asked: Vec<_> = [Asked::Down(7)].into_iter().chain(steps.map(|grace_ns| Asked::Down(7 + grace_ns))).collect();
    assert_eq!((dead.kernel().take(), asked.len()), (asked, 15));
    // What else the kernel says is passed on at once.
    let refused = semaphore(Error::NoSlot);
    assert_eq!(refused.down(7), Err(Error::NoSlot));
    assert_eq!(refused.kernel().take(), [Asked::Down(7), Asked::Down(7 + 100_000)]);
}

#[test]
fn a_number_is_a_count_itself_and_behind_a_reference() {
    fn check(count: impl Count) {
        assert_eq!((count.add(5, Ordering::Relaxed), count.get()), (3, 8));
        assert!(!count.replace(3, 1, Ordering::Relaxed) && count.get() == 8);
        assert!(count.replace(8, -6, Ordering::Relaxed) && count.get() == -6);
    }
    check(AtomicI64::new(3));
    check(AtomicU64::new(3));
    let number = AtomicI64::new(3);
    check(&number);
}
