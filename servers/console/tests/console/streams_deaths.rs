//! Consoles that die after any single store, in the middle of a copy too, and their successors
//! after any of theirs: no byte of the streams is lost, doubled or out of order, each word of the
//! host arrives, and the device is not reset for it.
//!
//! The device works on meanwhile, also while no console lives, and keeps half a buffer. Clients ask
//! again for what they were not answered, under the number they gave it.

use crate::common::{CONTROL, ERROR, INPUT, Machine, OUTPUT, PHYSICAL, TERMINAL, byte, bytes, random};
use console_core::streams::{Found, REGION_BYTES, Request, Streams, Why, Word};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::vec::IntoIter;
use virtio::ports::Out;

/// Bytes that a client writes in all, and that come to standard input.
const ALL_BYTES: usize = 24_000;
/// A key's digits, longer than a buffer of the device; and parts of them that are nowhere else.
const KEY: &str = "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383279502884197169399375105820974944592";
const KEY_PART: usize = 8;
/// Stores of a life without a death, at least.
const STORES_MIN: u64 = 1_000;

/// A program that writes, and repeats what it did not hear of.
struct Writer {
    out: Out,
    port: usize,
    client: u64,
    written: usize,
    asked: Option<(u64, usize)>,
}

/// A program that reads.
struct Reader {
    read: usize,
    asked: Option<(u64, usize)>,
    ended: bool,
}

struct Programs {
    /// The memory between the reader and the console, which a dead one does not write either.
    bulk: Rc<RefCell<Vec<u8>>>,
    writers: [Writer; 3],
    reader: Reader,
    numbers: u64,
}

impl Programs {
    fn new() -> Programs {
        let writer = |client, out, port| Writer { out, port, client, written: 0, asked: None };
        Programs {
            bulk: Rc::default(),
            writers: [
                writer(1, Out::Output, OUTPUT),
                writer(2, Out::Error, ERROR),
                writer(1027, Out::Screen, TERMINAL),
            ],
            reader: Reader { read: 0, asked: None, ended: false },
            numbers: 0,
        }
    }

    fn write(&mut self, machine: &Machine, streams: &Streams, which: usize, chance: &mut u64) {
        let Writer { out, port, client, written, ref mut asked } = self.writers[which];
        let (number, count) = *asked.get_or_insert_with(|| {
            self.numbers += 1;
            (self.numbers, 1 + random(chance) as usize % 9_000)
        });
        let request = Some(Request { client, number });
        let data = bytes(port, written..(written + count).min(ALL_BYTES));
        let done = match streams.result(request) {
            Some(done) => done as usize,
            None => streams.write(out, &data, request, |done| done),
        };
        if !machine.life.is_over() && done > 0 {
            let writer = &mut self.writers[which];
            (writer.written, writer.asked) = (written + done, None);
        }
    }

    fn read(&mut self, machine: &Machine, streams: &Streams, chance: &mut u64) {
        let Reader { read, ref mut asked, .. } = self.reader;
        let (number, wanted) = *asked.get_or_insert_with(|| {
            self.numbers += 1;
            (self.numbers, 1 + random(chance) as usize % 6_000)
        });
        let bulk = self.bulk.clone();
        let request = Some(Request { client: 4, number });
        let hand_over = |bytes: &[u8]| {
            if machine.life.store() {
                bulk.replace(bytes.to_vec());
            }
            true
        };
        let done = match streams.result(request) {
            Some(done) => Some(done as usize),
            None => streams.take_input(wanted, request, hand_over),
        };
        let Some(done) = done.filter(|_| !machine.life.is_over()) else { return };
        if done > 0 {
            let got = self.bulk.take();
            assert_eq!(got[..done], bytes(INPUT, read..read + done), "standard input from byte {read}");
        }
        self.reader = Reader { read: read + done, asked: None, ended: done == 0 };
    }

    fn is_done(&self) -> bool {
        self.writers.iter().all(|writer| writer.written == ALL_BYTES)
    }
}

/// The host, and what it said.
struct Host {
    sent: usize,
    words: IntoIter<String>,
    /// Windows and signals that a console carried out, and lived.
    heard: BTreeSet<String>,
    all: Vec<String>,
}

impl Host {
    fn new() -> Host {
        let mut words: Vec<String> = (1..8).map(|row| format!("window {row} 80")).collect();
        words.extend(
            (1..5).flat_map(|number| [format!("signal-foreground {number}"), format!("signal-first {number}")]),
        );
        words.push("closed-error".into());
        words.push(format!("end {ALL_BYTES}"));
        words.insert(5, format!("key {KEY}"));
        Host { sent: 0, words: words.clone().into_iter(), heard: BTreeSet::new(), all: words }
    }

    fn act(&mut self, machine: &Machine, chance: &mut u64) {
        let waits = &mut machine.device.borrow_mut().waits;
        if !random(chance).is_multiple_of(3) {
            let count = (random(chance) as usize % 4_000).min(ALL_BYTES - self.sent);
            waits[INPUT].extend(bytes(INPUT, self.sent..self.sent + count));
            self.sent += count;
        } else if let Some(word) = self.words.next() {
            waits[CONTROL].extend(format!("{word}\n").bytes());
        }
    }

    /// What the console does at an interrupt.
    fn heed(&mut self, machine: &Machine, streams: &Streams) {
        let heard = &mut self.heard;
        let told = |word: Word<'_>| match word {
            Word::Window { rows, columns } => format!("window {rows} {columns}"),
            Word::Key(key) => format!("key {}", key.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        };
        while streams.take_word(|word| {
            if machine.life.store() {
                heard.insert(told(word));
            }
        }) {}
        while let Some((number, is_first)) = streams.next_signal() {
            if machine.life.store() {
                heard.insert(format!("signal-{} {number}", if is_first { "first" } else { "foreground" }));
            }
            streams.signal_sent((number, is_first));
        }
    }
}

struct Outcome {
    deaths: usize,
    takeovers: usize,
    found: Vec<Found>,
}

/// No console lives: the device does a little, or all that it can.
fn pass(machine: &Machine, chance: &mut u64) {
    match random(chance) % 9 {
        8 => drop(machine.settle()),
        steps => (0..steps).for_each(|_| machine.step(chance)),
    }
}

/// A machine, and what uses it, while consoles come and die.
struct Trial {
    machine: Machine,
    programs: Programs,
    host: Host,
    chance: u64,
    /// After how many stores the next consoles die.
    lives: IntoIter<u64>,
    /// How often the device was reset until it worked.
    resets: Option<u32>,
    outcome: Outcome,
}

impl Trial {
    fn new(lives: Vec<u64>, seed: u64) -> Trial {
        let mut host = Host::new();
        let machine = Machine::new(REGION_BYTES);
        // There before anybody is.
        machine.device.borrow_mut().waits[INPUT].extend(bytes(INPUT, 0..3_000));
        host.sent = 3_000;
        Trial {
            machine,
            programs: Programs::new(),
            host,
            chance: seed,
            lives: lives.into_iter(),
            resets: None,
            outcome: Outcome { deaths: 0, takeovers: 0, found: Vec::new() },
        }
    }

    /// Starts consoles until one lives long enough to serve.
    fn begin(&mut self) -> Streams {
        loop {
            let machine = &self.machine;
            let recovers = self.outcome.deaths > 0;
            let stores = self.lives.next();
            machine.life.lasts(stores, stores.unwrap_or(0) as usize * 37 % 256);
            let (transport, mut owner, memory) = machine.parts();
            let started = Streams::start(transport, memory, PHYSICAL, recovers, &mut owner);
            if !machine.life.is_over() {
                let (streams, found) = started.unwrap_or_else(|error| panic!("{error:?}"));
                self.outcome.takeovers += usize::from(found == Found::Running);
                self.outcome.found.push(found);
                // Once it works, it is never reset again.
                let now = machine.device.borrow().resets;
                assert_eq!(*self.resets.get_or_insert(now), now, "{found:?}");
                self.host.heed(machine, &streams);
                if !machine.life.is_over() {
                    return streams;
                }
            }
            self.count_death();
        }
    }

    fn count_death(&mut self) {
        self.outcome.deaths += 1;
        pass(&self.machine, &mut self.chance);
    }

    /// Lets one of all do something.
    fn step(&mut self, streams: &Streams) {
        let Trial { machine, programs, host, chance, .. } = self;
        match random(chance) % 12 {
            0 => host.act(machine, chance),
            1..6 => machine.step(chance),
            6 if !programs.reader.ended => programs.read(machine, streams, chance),
            which @ 7..10 if programs.writers[which as usize - 7].written < ALL_BYTES => {
                programs.write(machine, streams, which as usize - 7, chance);
            }
            _ if machine.device.borrow_mut().interrupts => self.interrupt(streams),
            _ => {}
        }
    }

    fn interrupt(&mut self, streams: &Streams) {
        self.machine.device.borrow_mut().interrupts = false;
        streams.acknowledge();
        self.host.heed(&self.machine, streams);
    }

    fn is_done(&self) -> bool {
        self.programs.is_done() && self.programs.reader.ended && self.host.words.as_slice().is_empty()
    }

    /// All bytes and words arrived, once and in order.
    fn check(&self, streams: &Streams) {
        let Trial { machine, programs, host, .. } = self;
        let device = machine.device.borrow();
        assert_eq!(device.faults, []);
        for port in [OUTPUT, ERROR, TERMINAL] {
            let wrong = device.arrived[port].iter().enumerate().find(|(at, found)| **found != byte(port, *at));
            assert_eq!((wrong, device.arrived[port].len()), (None, ALL_BYTES), "port {port}");
        }
        assert_eq!(programs.reader.read, ALL_BYTES);
        let is_carried_out = |word: &&String| ["window", "signal", "key"].iter().any(|start| word.starts_with(start));
        let missing: Vec<_> =
            host.all.iter().filter(is_carried_out).filter(|word| !host.heard.contains(*word)).collect();
        assert!(missing.is_empty(), "words that did not arrive: {missing:?}");
        assert!(streams.is_closed(Out::Error) && !streams.is_closed(Out::Output));
        // One trial in four: the region is large.
        if !(self.chance >> 20).is_multiple_of(4) {
            return;
        }
        let memory = machine.region.borrow();
        let runs = memory.split(|byte| !byte.is_ascii_digit()).filter(|run| run.len() >= KEY_PART);
        let is_of_key = |digits: &&[u8]| KEY.as_bytes().chunks(KEY_PART).any(|part| part == *digits);
        let left: Vec<_> = runs.flat_map(|run| run.windows(KEY_PART)).filter(is_of_key).collect();
        assert!(left.is_empty(), "digits of the key are left in the device's buffers: {left:?}");
    }
}

/// A machine whose consoles die after so many stores, one after the other, the last copy cut; the
/// last console lives. All that happens comes from `seed`.
fn live(lives: &[u64], seed: u64) -> Outcome {
    let mut trial = Trial::new(lives.to_vec(), seed);
    let mut streams = trial.begin();
    for step in 0.. {
        trial.step(&streams);
        if trial.machine.life.is_over() {
            trial.count_death();
            streams = trial.begin();
        }
        assert!(!streams.is_broken(), "step {step}: the device is taken for broken");
        if trial.is_done() {
            break;
        }
        assert!(step < 20_000, "something does not go on");
    }
    trial.machine.life.lasts(None, 0);
    while trial.machine.settle() || trial.machine.device.borrow().interrupts {
        trial.interrupt(&streams);
    }
    trial.check(&streams);
    trial.outcome
}

#[test]
fn a_console_may_die_after_any_store() {
    for seed in [0x5eed_0000_0000_0001, 0x5eed_0000_0000_0102, 0x5eed_0000_0000_0203] {
        let mut has_run = false;
        for stores in 0.. {
            let Outcome { deaths, found, .. } = live(&[stores], seed);
            if deaths == 0 {
                assert!(stores > STORES_MIN, "{stores} stores in all");
                break;
            }
            let is_right = match found.last() {
                Some(Found::Running) => true,
                // Before the device ever worked.
                Some(Found::Reset(Why::Record | Why::Starting)) => !has_run,
                _ => false,
            };
            assert!(is_right, "died after {stores} stores: {found:?}");
            has_run |= found.last() == Some(&Found::Running);
        }
    }
}

#[test]
fn a_successor_may_die_after_any_store_of_its_own() {
    let (mut seed, mut takeovers) = (0x5eed_0000_0000_0003, 0);
    for round in 0..1_500 {
        let first = 620 + random(&mut seed) % 800;
        let second = round % 70;
        let third = random(&mut seed) % 200;
        takeovers += live(&[first, second, third], random(&mut seed)).takeovers;
    }
    assert!(takeovers > 1_500, "{takeovers}");
}
