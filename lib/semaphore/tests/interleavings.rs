//! Every interleaving of small cases, by the model checker: one that leaves a sleeper asleep for
//! ever is a deadlock there, which it reports.
#![forbid(unsafe_code)]

use abi::Error;
use loom::sync::atomic::{AtomicI64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use semaphore::{Count, KernelSemaphore, Semaphore};

struct ModelCount(AtomicI64);

impl Count for ModelCount {
    fn add(&self, change: i64, order: Ordering) -> i64 {
        self.0.fetch_add(change, order)
    }
    fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
    fn replace(&self, old: i64, new: i64, order: Ordering) -> bool {
        self.0.compare_exchange(old, new, order, Ordering::Relaxed).is_ok()
    }
}

/// A deadline that has passed when the kernel first looks: the schedule decides what came before.
const SOON_NS: u64 = 1;
const NEVER_NS: u64 = u64::MAX;

/// The kernel's semaphore: a sleeper sleeps for good unless somebody wakes it.
#[derive(Default)]
struct ModelKernel {
    count: Mutex<u64>,
    raised: Condvar,
}

impl KernelSemaphore for ModelKernel {
    fn up(&self, count: u64) -> Result<(), Error> {
        *self.count.lock().unwrap() += count;
        self.raised.notify_all();
        Ok(())
    }

    fn down(&self, deadline_ns: u64) -> Result<(), Error> {
        let mut count = self.count.lock().unwrap();
        while *count == 0 {
            if deadline_ns == NEVER_NS {
                count = self.raised.wait(count).unwrap();
                continue;
            }
            drop(count);
            if deadline_ns != SOON_NS {
                // After the deadline others have all the time they need.
                thread::yield_now();
            }
            return Err(Error::Timeout);
        }
        *count -= 1;
        Ok(())
    }
}

type Model = Semaphore<ModelCount, ModelKernel>;

fn model(count: i64) -> Arc<Model> {
    Arc::new(Semaphore::new(ModelCount(AtomicI64::new(count)), ModelKernel::default()))
}

/// Nobody is inside: what is left can be taken without the kernel, and the kernel holds nothing.
fn left(semaphore: &Model) -> u32 {
    assert_eq!(*semaphore.kernel().count.lock().unwrap(), 0, "a release that nobody takes");
    (0..).take_while(|_| semaphore.try_down()).count() as u32
}

#[test]
fn a_down_about_to_sleep_and_an_up_meet_in_either_order() {
    loom::model(|| {
        let semaphore = model(0);
        let other = semaphore.clone();
        let sleeper = thread::spawn(move || other.down(NEVER_NS));
        semaphore.up(1).unwrap();
        assert_eq!(sleeper.join().unwrap(), Ok(()));
        assert_eq!(left(&semaphore), 0);
    });
}

#[test]
fn one_up_lets_one_through_and_two_let_both() {
    loom::model(|| {
        let semaphore = model(0);
        let sleepers = [semaphore.clone(), semaphore.clone()].map(|other| thread::spawn(move || other.down(NEVER_NS)));
        semaphore.up(2).unwrap();
        sleepers.into_iter().for_each(|sleeper| assert_eq!(sleeper.join().unwrap(), Ok(())));
        assert_eq!(left(&semaphore), 0);
    });
}

#[test]
fn a_deadline_and_an_up_leave_nothing_behind() {
    loom::model(|| {
        let semaphore = model(0);
        let other = semaphore.clone();
        let sleeper = thread::spawn(move || other.down(SOON_NS));
        semaphore.up(1).unwrap();
        let taken = match sleeper.join().unwrap() {
            Ok(()) => 1,
            Err(error) => {
                assert_eq!(error, Error::Timeout);
                0
            }
        };
        assert_eq!(left(&semaphore) + taken, 1, "the one that came up is there once");
    });
}

#[test]
fn a_deadline_does_not_take_a_patient_sleepers_turn() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let semaphore = model(0);
        let (patient, hasty) = (semaphore.clone(), semaphore.clone());
        let patient = thread::spawn(move || patient.down(NEVER_NS));
        let hasty = thread::spawn(move || hasty.down(SOON_NS));
        semaphore.up(1).unwrap();
        let hasty = hasty.join().unwrap();
        if hasty.is_ok() {
            semaphore.up(1).unwrap();
        }
        assert_eq!(patient.join().unwrap(), Ok(()));
        assert_eq!(left(&semaphore), 0);
    });
}

#[test]
fn what_it_protects_has_one_user_at_a_time() {
    loom::model(|| {
        let semaphore = model(1);
        let shared = Arc::new(loom::cell::Cell::new(0));
        let (other, others) = (semaphore.clone(), shared.clone());
        // The model's cells complain of two users that are not ordered.
        let use_it = |semaphore: &Model, shared: &loom::cell::Cell<u32>| {
            semaphore.down(NEVER_NS).unwrap();
            shared.set(shared.get() + 1);
            semaphore.up(1).unwrap();
        };
        let thread = thread::spawn(move || use_it(&other, &others));
        use_it(&semaphore, &shared);
        thread.join().unwrap();
        assert_eq!(shared.get(), 2);
        assert_eq!(left(&semaphore), 1);
    });
}
