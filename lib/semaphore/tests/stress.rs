//! Downs and ups of two threads, as fast as they go: none is lost, and none comes twice. As many
//! downs as `PELAGO_STRESS_DOWNS` says; the nightly run makes 10^8 (`./pelago test
//! host-stress/semaphore`).
#![forbid(unsafe_code)]

use abi::Error;
use semaphore::{Count, KernelSemaphore, Semaphore};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Without the variable.
const DOWNS: u64 = 200_000;
/// Downs after which all is counted, and begun anew.
const ROUND: u64 = 10_000_000;
/// Units that go round.
const UNITS: i64 = 64;
/// Looks after which one who gives up soon does. Deadlines are numbers of looks here: reading a
/// clock would take longer than all the rest.
const SOON: u64 = 16;
const NEVER: u64 = u64::MAX;
/// Another thread may have no turn for a while; a wake-up that takes longer is lost.
const LIMIT: Duration = Duration::from_secs(60);
/// Looks between two turns for other threads of this processor.
const LOOKS_PER_TURN: u64 = 512;
/// Looks between two at the clock.
const LOOKS_PER_CLOCK: u64 = 1 << 20;

/// A kernel semaphore whose sleepers look again and again: what is asked of one, at the least
/// distance between sleeping and waking that there can be.
#[derive(Default)]
struct Spinning {
    count: AtomicU64,
    sleeps: AtomicU64,
    /// Sleeps for which the release had come first.
    released: AtomicU64,
}

/// A count whose users are held up at random right after they changed it: that is where a down is
/// about to sleep and an up about to release. Otherwise two threads would seldom meet there, and on
/// one processor never.
struct Held(AtomicI64);

/// Of so many changes one lets another thread go first; the others wait for less than so many steps
/// of a loop.
const TURN_OF: u64 = 128;
const WAIT_MAX: u64 = 64;

std::thread_local! {
    static RANDOM: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
}

fn hold_up() {
    let random = RANDOM.with(|random| {
        let mut next = random.get();
        next ^= next << 13;
        next ^= next >> 7;
        next ^= next << 17;
        random.set(next);
        next
    });
    if random.is_multiple_of(TURN_OF) {
        return std::thread::yield_now();
    }
    (0..random % WAIT_MAX).for_each(|turn| _ = std::hint::black_box(turn));
}

impl Count for Held {
    fn add(&self, change: i64, order: Ordering) -> i64 {
        let before = self.0.add(change, order);
        hold_up();
        before
    }
    fn get(&self) -> i64 {
        self.0.get()
    }
    fn replace(&self, old: i64, new: i64, order: Ordering) -> bool {
        self.0.replace(old, new, order)
    }
}

type User = Semaphore<Held, Spinning>;

impl Spinning {
    fn take(&self) -> bool {
        self.count.try_update(Ordering::Acquire, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok()
    }
}

impl KernelSemaphore for Spinning {
    fn up(&self, count: u64) -> Result<(), Error> {
        self.count.fetch_add(count, Ordering::Release);
        Ok(())
    }

    fn down(&self, looks_at_most: u64) -> Result<(), Error> {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        let mut begin = None;
        for look in 0..looks_at_most {
            if self.take() {
                self.released.fetch_add(u64::from(look == 0), Ordering::Relaxed);
                return Ok(());
            }
            if look % LOOKS_PER_CLOCK == LOOKS_PER_CLOCK - 1 {
                assert!(begin.get_or_insert_with(Instant::now).elapsed() < LIMIT, "a wake-up is lost");
            }
            if look % LOOKS_PER_TURN == LOOKS_PER_TURN - 1 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        Err(Error::Timeout)
    }
}

/// One side: comes down, and up at the other semaphore for each unit it got, until `is_enough` of
/// units and downs. Every second down gives up soon.
fn pass(from: &User, to: &User, is_enough: impl Fn(u64, u64) -> bool) -> (u64, u64) {
    let (mut units, mut downs) = (0, 0);
    while !is_enough(units, downs) {
        downs += 1;
        match from.down(if downs % 2 == 0 { NEVER } else { SOON }) {
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
    let mut done = 0;
    while done < wanted {
        done += round((wanted - done).min(ROUND));
    }
}

/// So many downs, and a few more, of two threads over two new semaphores; gives how many it were.
fn round(wanted: u64) -> u64 {
    // So few units go round that each side often comes down beside the other's up.
    let [free, full] = [UNITS, 0].map(|count| User::new(Held(AtomicI64::new(count)), Spinning::default()));
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
    let both = |what: fn(&Spinning) -> &AtomicU64| -> u64 {
        [&free, &full].iter().map(|semaphore| what(semaphore.kernel()).load(Ordering::Relaxed)).sum()
    };
    let (sleeps, released) = (both(|kernel| &kernel.sleeps), both(|kernel| &kernel.released));
    println!("{downs} downs, {produced} units, {sleeps} sleeps, {released} released before they slept");
    // How often two threads meet in a short run is the host's matter: it is told, and judged in the
    // long ones.
    if wanted == ROUND {
        let rare = downs / 10_000;
        assert!(sleeps > downs / 200, "hardly anybody slept");
        assert!(released > rare && sleeps - released > rare, "ups and sleepers met in one order only");
    }
    assert_eq!(taken, produced + 1, "units were lost or made");
    assert_eq!((0..=UNITS + 1).filter(|_| free.try_down()).count() as i64, UNITS + 1, "and these at the other side");
    for semaphore in [free, full] {
        assert!(!semaphore.try_down(), "more came than was sent");
        assert_eq!(semaphore.kernel().count.load(Ordering::Relaxed), 0, "a release is left");
    }
    downs
}
