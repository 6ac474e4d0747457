//! Downs and ups of two threads, as fast as they go: none is lost, and none comes twice.
//! As many downs as `PELAGO_STRESS_DOWNS` says; the nightly run makes 10^8 (`./pelago test stress/semaphore`).
#![forbid(unsafe_code)]

use abi::Error;
use semaphore::{KernelSemaphore, Semaphore};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

/// Without the variable.
const DOWNS: u64 = 200_000;
/// Units that go round.
const UNITS: i64 = 64;
/// How long one who gives up soon sleeps.
const SOON_NS: u64 = 300;
const NEVER_NS: u64 = u64::MAX;
/// Another thread may have no turn for a while; a wake-up that takes longer is lost.
const LIMIT_NS: u64 = 60_000_000_000;
/// Looks between two at the clock.
const LOOKS: u32 = 16;

/// A kernel semaphore whose sleepers look again and again: what is asked of one, at the least distance between sleeping and waking that there can be.
struct Spinning {
    boot: Instant,
    count: AtomicU64,
    sleeps: AtomicU64,
}

type User = Semaphore<AtomicI64, Spinning>;

impl Spinning {
    fn new() -> Spinning {
        Spinning { boot: Instant::now(), count: AtomicU64::new(0), sleeps: AtomicU64::new(0) }
    }

    fn now_ns(&self) -> u64 {
        self.boot.elapsed().as_nanos() as u64
    }

    fn take(&self) -> bool {
        self.count.try_update(Ordering::Acquire, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok()
    }
}

impl KernelSemaphore for Spinning {
    fn up(&self, count: u64) -> Result<(), Error> {
        self.count.fetch_add(count, Ordering::Release);
        Ok(())
    }

    fn down(&self, deadline_ns: u64) -> Result<(), Error> {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        let lost_ns = self.now_ns() + LIMIT_NS;
        for look in 1_u32.. {
            if self.take() {
                return Ok(());
            }
            if look % LOOKS == 0 {
                let now_ns = self.now_ns();
                assert!(now_ns < lost_ns, "a wake-up is lost");
                if now_ns >= deadline_ns {
                    break;
                }
                if look % (64 * LOOKS) == 0 {
                    std::thread::yield_now();
                }
            }
            std::hint::spin_loop();
        }
        Err(Error::Timeout)
    }
}

/// One side: comes down, and up at the other semaphore for each unit it got, until `is_enough` of units and downs. Every second down gives up soon.
fn pass(from: &User, to: &User, is_enough: impl Fn(u64, u64) -> bool) -> (u64, u64) {
    let (mut units, mut downs) = (0, 0);
    while !is_enough(units, downs) {
        downs += 1;
        let soon_ns = from.kernel().now_ns() + SOON_NS;
        match from.down(if downs % 2 == 0 { NEVER_NS } else { soon_ns }) {
            Ok(()) => {
                units += 1;
                to.up(1).unwrap();
            }
            Err(error) => assert_eq!(error, Error::Timeout),
        }
    }
    (units, downs)
}

#[test]
fn no_wake_up_is_lost() {
    let wanted = std::env::var("PELAGO_STRESS_DOWNS").map_or(DOWNS, |downs| downs.parse().expect("a number of downs"));
    // So few units go round that each side often comes down beside the other's up.
    let [free, full] = [UNITS, 0].map(|count| User::new(AtomicI64::new(count), Spinning::new()));
    let produced = AtomicU64::new(u64::MAX);
    let (produced, (taken, downs)) = std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            let (units, downs) = pass(&free, &full, |_, downs| downs >= wanted / 2);
            produced.store(units, Ordering::Release);
            // For a consumer that sleeps until something comes.
            full.up(1).unwrap();
            (units, downs)
        });
        let (taken, downs) = pass(&full, &free, |units, _| units > produced.load(Ordering::Acquire));
        let (units, more) = producer.join().unwrap();
        (units, (taken, downs + more))
    });
    let sleeps: u64 = [&free, &full].iter().map(|semaphore| semaphore.kernel().sleeps.load(Ordering::Relaxed)).sum();
    println!("{downs} downs, {produced} units, {sleeps} sleeps");
    assert!(sleeps > downs / 100, "hardly anybody slept");
    assert_eq!(taken, produced + 1, "units were lost or made");
    assert_eq!((0..=UNITS + 1).filter(|_| free.try_down()).count() as i64, UNITS + 1, "and these at the other side");
    for semaphore in [free, full] {
        assert!(!semaphore.try_down(), "more came than was sent");
        assert_eq!(semaphore.kernel().count.load(Ordering::Relaxed), 0, "a release is left");
    }
}
