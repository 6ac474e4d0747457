//! What the plugin does when the emulator calls, without the emulator's types: cores are numbers,
//! memory is line numbers.
//!
//! One thread runs all cores (`-accel tcg,thread=single`), so between two calls exactly one core
//! ran. Instructions are counted by the emulator itself in one word; the difference since the last
//! call belongs to the core and function that ran.

use crate::options::Options;
use coherence::{
    Access, Begin, BucketId, Counters, KERNEL, LINE_SHIFT, Ledger, Machine, Mode, Next, Privilege, Setting, Steps,
    Turns,
};

/// Until the first mark nothing is modelled, and short turns would cost more than they give.
const BOOT_TURN: u64 = 20_000;
/// Cycles of PAUSE: between those of older and newer processors (10 and 140).
const PAUSE_CYCLES: u64 = 40;
/// User code of a system whose programs say no name.
const PROGRAM: &str = "program";
/// Where code of the Linux proxy lies, in programs of ours that have one.
const PROXY: std::ops::Range<u64> = abi::layout::PROXY_BASE..abi::layout::PROXY_END;

/// A block of instructions as it was translated.
pub struct Code {
    pub privilege: Privilege,
    /// Of the first instruction; the function there is the block's.
    address: u64,
    /// Lines of memory that its instructions lie in.
    lines: Vec<u64>,
    /// Where its events were last added up, and for which component.
    bucket: Option<(u16, BucketId)>,
}

impl Code {
    /// A block that has not run yet.
    pub fn new(privilege: Privilege, address: u64, lines: Vec<u64>) -> Code {
        Code { privilege, address, lines, bucket: None }
    }
}

struct Core {
    privilege: Privilege,
    bucket: Option<BucketId>,
    /// Component of the present address space.
    component: u16,
    /// That address space is of a system whose programs say their names.
    is_named: bool,
    /// The address space may be another than the one `component` was asked for.
    space_changed: bool,
    /// Line that a string instruction last read and wrote.
    string_line: [Option<u64>; 2],
}

/// See the module's head.
pub struct State {
    pub options: Options,
    /// Switched on by the first mark.
    pub armed: bool,
    pub blocks: Vec<Code>,
    ledger: Ledger,
    steps: Steps,
    turns: Turns,
    machine: Option<Machine>,
    kernel: u16,
    cores: Vec<Core>,
    /// The core that runs, and the instructions counted when that was last looked at.
    running: usize,
    seen: u64,
}

impl State {
    pub fn new(options: Options, cores: usize) -> State {
        let mut ledger = Ledger::new(options.mode, cores);
        let (kernel, program) = (ledger.component(KERNEL), ledger.component(PROGRAM));
        let core = |_| Core {
            privilege: Privilege::Kernel,
            bucket: None,
            component: program,
            is_named: false,
            space_changed: true,
            string_line: [None; 2],
        };
        let mut turns = Turns::new(cores, BOOT_TURN);
        options
            .speeds
            .iter()
            .filter(|(core, _)| *core < cores)
            .for_each(|(core, speed)| turns.set_speed(*core, *speed));
        State {
            armed: false,
            blocks: Vec::new(),
            ledger,
            steps: Steps::new(cores),
            turns,
            machine: (options.mode == Mode::Coherence).then(|| Machine::new(cores, Setting::default())),
            kernel,
            cores: (0..cores).map(core).collect(),
            running: 0,
            seen: 0,
            options,
        }
    }

    /// Cores that let each other run need turns; one alone does not.
    pub fn takes_turns(&self) -> bool {
        self.cores.len() > 1
    }

    pub fn arm(&mut self) {
        self.armed = true;
        self.turns.set_turn(self.options.turn);
    }

    /// Before the first mark: a block of so many instructions begins.
    pub fn pass(&mut self, core: usize, instructions: u64) -> Next {
        self.turns.advance(core, instructions);
        self.turns.next(core)
    }

    /// A core that was parked and may run again, after [`Next::Epoch`] and [`State::halt`].
    pub fn released(&mut self) -> Option<usize> {
        self.turns.released()
    }

    /// True if a core is parked.
    pub fn is_parked(&self, core: usize) -> bool {
        self.turns.is_parked(core)
    }

    /// True if it has to be asked what component `core` runs, before it runs that block.
    pub fn wants_component(&self, core: usize, index: usize) -> bool {
        self.blocks[index].privilege == Privilege::User && self.cores[core].space_changed
    }

    /// Says what `core` runs; `None` where programs say no name.
    pub fn set_component(&mut self, core: usize, name: Option<&str>) {
        let own = &mut self.cores[core];
        own.component = self.ledger.component(name.unwrap_or(PROGRAM));
        (own.is_named, own.space_changed) = (name.is_some(), false);
    }

    /// Adds the instructions since the last look to the component that ran.
    fn settle(&mut self, counted: u64) {
        let instructions = counted.wrapping_sub(std::mem::replace(&mut self.seen, counted));
        let core = self.running;
        self.turns.advance(core, instructions);
        if let (Privilege::Kernel, Some(bucket)) = (self.cores[core].privilege, self.cores[core].bucket) {
            self.steps.add(core, bucket, instructions);
        }
        if let Some(bucket) = self.cores[core].bucket
            && let Some(counters) = self.ledger.at(core, bucket)
        {
            counters.instructions += instructions;
            counters.cycles += if self.machine.is_some() { instructions } else { 0 };
        }
    }

    /// A block begins.
    pub fn block(&mut self, core: usize, index: usize, counted: u64) -> Next {
        self.settle(counted);
        self.running = core;
        if self.blocks[index].privilege == Privilege::User {
            self.end_step(core);
        }
        let code = &mut self.blocks[index];
        let own = &mut self.cores[core];
        let component = match code.privilege {
            Privilege::Kernel => self.kernel,
            Privilege::User if own.is_named && PROXY.contains(&code.address) => self.ledger.proxy_of(own.component),
            Privilege::User => own.component,
        };
        own.privilege = code.privilege;
        own.bucket = match code.bucket {
            Some((known, bucket)) if known == component => Some(bucket),
            _ => {
                let function = self.options.names.at(self.ledger.component_name(component), code.address);
                let bucket = self.ledger.bucket(component, function);
                code.bucket = Some((component, bucket));
                Some(bucket)
            }
        };
        if self.machine.is_some() {
            let lines = std::mem::take(&mut self.blocks[index].lines);
            for &line in &lines {
                self.line(core, line, Access::Fetch);
            }
            self.blocks[index].lines = lines;
        }
        if self.takes_turns() { self.turns.next(core) } else { Next::On }
    }

    /// An access of `bytes` bytes at a guest address.
    pub fn memory(&mut self, core: usize, address: u64, bytes: u64, access: Access, string: bool) {
        let (line, last) = (address >> LINE_SHIFT, (address + bytes - 1) >> LINE_SHIFT);
        let string_line = &mut self.cores[core].string_line[usize::from(access != Access::Read)];
        let again = string && *string_line == Some(line);
        *string_line = string.then_some(last);
        if !again {
            self.line(core, line, access);
        }
        if last != line {
            self.line(core, last, access);
        }
    }

    fn line(&mut self, core: usize, line: u64, access: Access) {
        let Some(machine) = &mut self.machine else { return };
        let own = &self.cores[core];
        // Caches go on outside of measured stretches too.
        let mut elsewhere = Counters::default();
        let counters = own.bucket.and_then(|bucket| self.ledger.at(core, bucket)).unwrap_or(&mut elsewhere);
        let cycles = machine.access(core, line, access, own.privilege, counters);
        counters.cycles += cycles;
        self.turns.advance(core, cycles);
    }

    fn end_step(&mut self, core: usize) {
        if self.cores[core].privilege == Privilege::Kernel {
            let (ledger, names) = (&self.ledger, &self.options.names);
            self.steps.end(core, |bucket| names.name(ledger.function(bucket)));
        }
    }

    /// The core runs a HLT; ask [`State::released`].
    pub fn halt(&mut self, core: usize) {
        self.end_step(core);
        if self.takes_turns() {
            self.turns.halt(core);
        }
    }

    pub fn pause(&mut self, core: usize) {
        self.turns.advance(core, PAUSE_CYCLES);
        if self.machine.is_some()
            && let Some(bucket) = self.cores[core].bucket
            && let Some(counters) = self.ledger.at(core, bucket)
        {
            counters.cycles += PAUSE_CYCLES;
        }
    }

    /// The address space of `core` changes.
    pub fn space(&mut self, core: usize) {
        self.cores[core].space_changed = true;
    }

    pub fn begin(&mut self, core: usize, counted: u64, name: &str, operations: u64, every_core: bool) {
        self.settle(counted);
        let own = &self.cores[core];
        let component = if own.privilege == Privilege::Kernel { self.kernel } else { own.component };
        let (at, awake) = (self.turns.clock(core), self.turns.awake());
        self.ledger.begin(core, Begin { name, operations, every_core, component, at, awake });
    }

    pub fn end(&mut self, core: usize, counted: u64) {
        // The mark's own instruction is counted already, and is nobody's.
        self.settle(counted.wrapping_sub(1));
        self.seen = counted;
        self.ledger.end(core, self.turns.clock(core), self.turns.awake());
    }

    /// The report as text.
    pub fn report(&self) -> Result<String, String> {
        let mut report = self.ledger.report(&self.options.names, self.options.turn);
        report.steps = self.steps.rows();
        serde_json::to_string_pretty(&report).map_err(|error| error.to_string())
    }
}
