//! The whole console, over channels, dies after any single store while programs write to the screen
//! and to standard output and read standard input, and the host says words and types Ctrl-C: what a
//! program repeats under its number is carried out once, and windows and signals arrive.

use crate::common::{CONTROL, INPUT, Life, Machine, OUTPUT, PHYSICAL, TERMINAL, bytes, random};
use channel::{CallError, ClientChannel, Dispatch, Layout, Peer, ServerChannel, Task, Wiring};
use console_core::record::{Kept, Request};
use console_core::service::{Console, Outside};
use console_core::settings::{Settings, local};
use console_core::streams::{Found, REGION_BYTES, Streams};
use contracts::BulkSpan;
use contracts::descriptions::{DescriptionError, DescriptionsClient, STANDARD, TERMINAL as SCREEN, serve_descriptions};
use contracts::process::{self, ProcessClient, ProcessError, Target};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

const ALL_BYTES: usize = 6_000;

/// A process server that notes signals, as long as the console that sends them lives.
struct Process {
    life: Life,
    heard: Rc<RefCell<BTreeSet<(bool, u8)>>>,
}

impl Dispatch for Process {
    fn request(&self, peer: &Peer, _: u16, correlation: u32, body: &[u8]) -> Result<Task, channel::Broken> {
        let (target, number): (Target, u8) = channel::decode(body)?;
        if self.life.store() {
            self.heard.borrow_mut().insert((target == Target::Process(1), number));
        }
        let peer = peer.clone();
        Ok(Box::pin(async move { peer.answer(correlation, &Ok::<(), ProcessError>(())) }))
    }
    fn one_way(&self, _: &Peer, _: u16, _: &[u8]) -> Result<(), channel::Broken> {
        Ok(())
    }
    fn closed(&self, _: &Peer) {}
    fn restarted(&self, _: &Peer) {}
}

/// One console, and its clients: a process each, which has one request at a time.
struct Living {
    life: Life,
    console: Rc<Console>,
    clients: [DescriptionsClient; 3],
}

/// What consoles leave to each other, and what the test sees.
#[derive(Clone)]
struct World {
    machine: Machine,
    state: Rc<Cell<Kept>>,
    signals: Rc<RefCell<BTreeSet<(bool, u8)>>>,
}

impl World {
    fn new() -> World {
        let mut settings = Settings::default();
        settings.local &= !local::ECHO;
        let state = Kept { settings, rows: 24, columns: 80, foreground: 7, request: Request::NONE };
        World { machine: Machine::new(REGION_BYTES), state: Rc::new(Cell::new(state)), signals: Rc::default() }
    }

    /// `None` if it died over it.
    fn begin(&self, life: Life, recovers: bool) -> Option<(Living, Found)> {
        let machine = self.machine.with_life(life.clone());
        let (transport, mut owner, memory) = machine.parts();
        let started = Streams::start(transport, memory, PHYSICAL, recovers, &mut owner);
        if life.is_over() {
            return None;
        }
        let (streams, found) = started.unwrap_or_else(|error| panic!("{error:?}"));
        let (state, own) = (self.state.clone(), life.clone());
        let (process, server) = channel::loopback(Layout::default());
        let dispatch = Process { life: life.clone(), heard: self.signals.clone() };
        runtime::spawn(server.serve(process::HASH, Rc::new(dispatch)));
        let process = ProcessClient::new(process);
        let outside = Outside {
            write: Box::new(|_| ()),
            keep: Box::new(move |kept| {
                if own.store() {
                    state.set(*kept);
                }
            }),
            process: Box::new(move || Some(process.clone())),
            bring_key: Box::new(|_| ()),
        };
        let console = Rc::new(Console::new(self.state.get(), outside).with_streams(streams, [false; 3]));
        runtime::spawn(console.clone().send_signals());
        let clients = [1, 2, 3].map(|peer_set| {
            let [client, server] = channel::loopback_memory(Layout { bulk_bytes: 16384, ..Layout::default() });
            let server = Wiring { peer_set, ..channel::loopback_wiring(server, false) };
            runtime::spawn(serve_descriptions(console.clone(), ServerChannel::new(server)));
            DescriptionsClient::new(ClientChannel::new(channel::loopback_wiring(client, true)))
        });
        console.look();
        (!life.is_over()).then_some((Living { life, console, clients }, found))
    }
}

/// A call as a program has it: asked again under its number until it is answered.
#[derive(Default)]
struct Caller {
    done: usize,
    number: u64,
}

impl Caller {
    fn answered(&mut self, living: &Living, answer: Result<u32, CallError<DescriptionError>>) -> usize {
        match answer {
            _ if living.life.is_over() => 0,
            Ok(count) => {
                self.done += count as usize;
                self.number += 1;
                count as usize
            }
            Err(CallError::Server(DescriptionError::WouldBlock)) => 0,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// What the screen shows of what programs write: lines of letters.
fn letters(range: std::ops::Range<usize>) -> Vec<u8> {
    bytes(TERMINAL, range).iter().map(|byte| if byte % 16 == 0 { b'\n' } else { b'a' + byte % 26 }).collect()
}

/// What the host says, in turn.
const WORDS: [&str; 3] = ["signal-first 15", "window 31 91", "signal-foreground 10"];

/// A machine and its consoles, one after the other, and what has been done so far.
struct Trial {
    world: World,
    living: Living,
    chance: u64,
    screen: Caller,
    output: Caller,
    input: Caller,
    /// Words that were sent.
    sent: usize,
    deaths: usize,
}

impl Trial {
    fn new(stores: u64, seed: u64) -> Trial {
        let world = World::new();
        let (living, _) = world.begin(Life::default(), false).expect("it lives");
        living.life.lasts(Some(stores), stores as usize * 37 % 256);
        world.machine.device.borrow_mut().waits[INPUT].extend(bytes(INPUT, 0..ALL_BYTES));
        let [screen, output, input] = [const { Caller { done: 0, number: 1 } }; 3];
        Trial { world, living, chance: seed, screen, output, input, sent: 0, deaths: 0 }
    }

    fn is_done(&self) -> bool {
        self.screen.done + self.output.done + self.input.done >= 3 * ALL_BYTES && self.sent == WORDS.len()
    }

    /// Lets one of all do something.
    async fn step(&mut self) {
        let Trial { world: World { machine, .. }, living, chance, screen, output, input, .. } = self;
        let Living { console, clients, .. } = &*living;
        let count = 1 + random(chance) as usize % 700;
        let span = BulkSpan { offset: 0, length: count.min(ALL_BYTES) as u32 };
        match random(chance) % 10 {
            0 if self.sent < WORDS.len() => self.say(),
            1 if screen.done < ALL_BYTES => {
                let data = letters(screen.done..(screen.done + count).min(ALL_BYTES));
                clients[0].bulk().write(0, &data).unwrap();
                let span = BulkSpan { offset: 0, length: data.len() as u32 };
                let answer = clients[0].write_once(SCREEN, span, screen.number, false).await;
                screen.answered(living, answer);
            }
            2 if output.done < ALL_BYTES => {
                let data = bytes(OUTPUT, output.done..(output.done + count).min(ALL_BYTES));
                clients[1].bulk().write(0, &data).unwrap();
                let span = BulkSpan { offset: 0, length: data.len() as u32 };
                let answer = clients[1].write_once(STANDARD[1], span, output.number, false).await;
                output.answered(living, answer);
            }
            3 if input.done < ALL_BYTES => {
                let answer = clients[2].read_once(STANDARD[0], span, input.number, false).await;
                let before = input.done;
                let count = input.answered(living, answer);
                let mut got = vec![0; count];
                clients[2].bulk().read(0, &mut got).unwrap();
                assert_eq!(got, bytes(INPUT, before..before + count));
            }
            4..8 => machine.step(chance),
            _ if machine.device.borrow().interrupts => {
                machine.device.borrow_mut().interrupts = false;
                console.acknowledge();
                console.look();
            }
            _ => runtime::sleep(1_000).await,
        }
    }

    /// The host says its next word, and types Ctrl-C after the last.
    fn say(&mut self) {
        let waits = &mut self.world.machine.device.borrow_mut().waits;
        waits[CONTROL].extend(format!("{}\n", WORDS[self.sent]).bytes());
        self.sent += 1;
        if self.sent == WORDS.len() {
            waits[TERMINAL].push_back(3);
        }
    }

    /// Starts consoles until one lives; the second of all dies, too, of every third trial.
    fn succeed(&mut self, stores: u64) {
        while self.living.life.is_over() {
            self.deaths += 1;
            let (machine, chance) = (&self.world.machine, &mut self.chance);
            (0..random(chance) % 8).for_each(|_| machine.step(chance));
            let life = Life::default();
            if self.deaths == 1 && stores.is_multiple_of(3) {
                life.lasts(Some(random(chance) % 90), random(chance) as usize % 256);
            }
            let Some((successor, found)) = self.world.begin(life, true) else { continue };
            assert_eq!(found, Found::Running);
            // The memory between them stays.
            let mut kept = [0; 700];
            self.living.clients[2].bulk().read(0, &mut kept).unwrap();
            successor.clients[2].bulk().write(0, &kept).unwrap();
            self.living = successor;
        }
    }

    /// All bytes and words arrived, once and in order, and the device was never reset.
    fn check(&self, resets: u32) {
        let device = self.world.machine.device.borrow();
        assert_eq!((device.faults.as_slice(), device.resets), (&[][..], resets));
        assert!(device.arrived[OUTPUT] == bytes(OUTPUT, 0..ALL_BYTES));
        let shown: Vec<u8> = letters(0..ALL_BYTES)
            .iter()
            .flat_map(|byte| if *byte == b'\n' { vec![b'\r', b'\n'] } else { vec![*byte] })
            .collect();
        let shown = String::from_utf8(shown).unwrap();
        // Ctrl-C shows too, if it is echoed at all.
        assert_eq!(String::from_utf8(device.arrived[TERMINAL].clone()).unwrap(), shown);
        let state = self.world.state.get();
        assert_eq!((state.rows, state.columns), (31, 91));
        let heard: Vec<_> = self.world.signals.borrow().iter().copied().collect();
        assert_eq!(heard, [(false, 2), (false, 10), (false, 28), (true, 15)], "signals");
    }
}

/// The first console dies after so many stores, the second after some of its own; true if any did.
async fn live(stores: u64, seed: u64) -> bool {
    let mut trial = Trial::new(stores, seed);
    let machine = trial.world.machine.clone();
    let resets = machine.device.borrow().resets;
    for step in 0.. {
        trial.step().await;
        trial.succeed(stores);
        if trial.is_done() {
            break;
        }
        assert!(step < 20_000, "something does not go on");
    }
    trial.living.life.lasts(None, 0);
    while machine.settle() || machine.device.borrow().interrupts {
        machine.device.borrow_mut().interrupts = false;
        trial.living.console.acknowledge();
        trial.living.console.look();
    }
    runtime::sleep(10_000_000).await;
    trial.check(resets);
    // What dead consoles wait for keeps the rest for ever.
    machine.region.take();
    trial.deaths > 0
}

#[test]
fn a_console_may_die_after_any_store() {
    let mut stores = 0;
    loop {
        // An executor each: dead consoles have nothing to wait for.
        let lived = std::thread::spawn(move || runtime::testing::run(live(stores, 0x5eed_0000_0000_0007)));
        match lived.join() {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) => panic!("died after {stores} stores"),
        }
        stores += 1;
    }
    assert!(stores > 300, "{stores} stores in all");
}
