//! Programs that a core runs alone, without a monitor: a page of instructions, a page that it
//! shares with us, and nothing else.

use abi::layout::{CONTROL_PAGE, counter};
use abi::range::RangeEntry;
use abi::{Call, Error, Handle, ObjectType, Rights};
use alloc::format;
use alloc::string::String;
use core::arch::global_asm;
use core::sync::atomic::Ordering;

use contracts::monitor::CoreRuns;

use crate::claim::{Claim, LIMIT_NS, again, change, launch, used};
use crate::page::{CODE, DATA, Pages};
use crate::{Bench, Outcome, ensure, must_be, refused};

const CODE_AT: u64 = 0x1000_0000;
const SHARED_AT: u64 = 0x4000_0000;
/// In the shared page: what the program writes, by word.
const REPORTED: u64 = 0;
const CORE: u64 = 1;
const STACK: u64 = 2;
const TURNS: u64 = 3;
const SLOTS: u64 = 8;
const SLOTS_SHOWN: u64 = 16;
const MAPPINGS: u64 = 32;
const STACK_TOP: u64 = SHARED_AT + 4096;
/// What the program sees where there is no capability.
const NONE: u64 = u64::MAX;
const CYCLES: u32 = 100;
/// How long a program has its core to itself, unless more is asked for.
pub const ALONE_SECONDS: u64 = 1;
const SECOND_NS: u64 = 1_000_000_000;
/// Between two things that the rest of the system does meanwhile.
const BUSY_NS: u64 = 10_000_000;
/// Seconds between two lines of progress.
const PROGRESS: u64 = 60;
/// What its kernel counted: switches, interrupts, wake-ups.
const COUNTED: [u64; 3] = [8, 9, 10];

global_asm!(
    // The linker finds them whichever unit asks.
    ".globl program_report, program_alone, program_turn, program_fault, program_end",
    // Reports what it has into the page at RDI, and exits.
    "program_report:",
    "mov rbx, rdi", "mov [rbx + 16], rsp",
    "mov rax, {current}", "syscall", "mov [rbx + 8], rdi",
    "xor r12d, r12d",
    "2: mov rax, {cap_stat}", "mov rdi, r12", "syscall",
    "test rax, rax", "jz 3f", "mov rdi, -1",
    "3: mov [rbx + r12 * 8 + 64], rdi", "inc r12", "cmp r12, 16", "jb 2b",
    "xor r13d, r13d", "lea r14, [rbx + 256]",
    "4: mov rax, {range_get}", "mov rdi, {range}", "mov rsi, r13", "syscall",
    "test rax, rax", "jnz 5f",
    "mov [r14], rdi", "mov [r14 + 8], rsi", "add r14, 16",
    // Flags are in the low bits of the start, the first page shown in the high half of the length
    // (abi/src/range.rs).
    "and rdi, -4096", "mov esi, esi", "shl rsi, 12", "lea r13, [rdi + rsi]", "jmp 4b",
    "5: mov qword ptr [rbx], 1",
    "mov rax, {exit}", "mov rdi, 7", "syscall",
    // Reports what its core's kernel counts into the page at RDI, again and again, and counts its
    // turns.
    "program_alone:",
    "mov rbx, rdi",
    "2: mov rax, {counter_read}", "mov edi, {switches}", "syscall", "mov [rbx + 64], rdi",
    "mov rax, {counter_read}", "mov edi, {interrupts}", "syscall", "mov [rbx + 72], rdi",
    "mov rax, {counter_read}", "mov edi, {wakes}", "syscall", "mov [rbx + 80], rdi",
    "inc qword ptr [rbx + 24]", "jmp 2b",
    // Counts its turns for ever.
    "program_turn:",
    "inc qword ptr [rdi + 24]", "jmp program_turn",
    // Does what it may not.
    "program_fault:",
    "hlt",
    "program_end:",
    current = const Call::PcoreCurrent.number(),
    cap_stat = const Call::CapStat.number(),
    range_get = const Call::RangeGet.number(),
    range = const Handle::SELF_RANGE.0,
    exit = const Call::DomainExit.number(),
    counter_read = const Call::CounterRead.number(),
    switches = const counter::SWITCHES,
    interrupts = const counter::INTERRUPTS,
    wakes = const counter::WAKES_TAKEN,
);

unsafe extern "C" {
    safe static program_report: u8;
    safe static program_alone: u8;
    safe static program_turn: u8;
    safe static program_fault: u8;
    safe static program_end: u8;
}

/// A program ready to run, and its page.
struct Program {
    code: Pages,
    shared: Pages,
}

impl Program {
    fn new(start: &u8, end: &u8) -> Result<Program, String> {
        let code = Pages::of_code(start, end).map_err(refused("SegmentAlloc"))?;
        Ok(Program { code, shared: Pages::new(1).map_err(refused("SegmentAlloc"))? })
    }

    fn run(&self, claim: &Claim) -> Result<(), Error> {
        let segments = [(self.code.segment, CODE_AT, CODE), (self.shared.segment, SHARED_AT, DATA)];
        sys::pcore_run(claim.pcore, &launch(CODE_AT, STACK_TOP, SHARED_AT, &segments))
    }

    fn word(&self, index: u64) -> u64 {
        self.shared.word(index).load(Ordering::Acquire)
    }

    /// Waits until it has turned so often.
    async fn turned(&self, turns: u64) -> Outcome {
        let end_ns = runtime::now_ns() + LIMIT_NS;
        let goal = self.word(TURNS) + turns;
        while self.word(TURNS) < goal {
            again(end_ns, "the program does not get on").await?;
        }
        Ok(())
    }
}

/// A program finds exactly what was passed: its share, its mappings, its stack pointer; and its
/// core halts when it exits.
pub async fn report(bench: &Bench) -> Outcome {
    let claim = Claim::of_last(bench).await?;
    let program = Program::new(&program_report, &program_alone)?;
    for _ in 0..2 {
        program.shared.word(REPORTED).store(0, Ordering::Release);
        program.run(&claim).map_err(refused("PcoreRun"))?;
        claim.until(false).await?;
        ensure(program.word(REPORTED) != 0, || String::from("it halted without a report"))?;
        let core = program.word(CORE);
        ensure(core == claim.core, || format!("it ran on core {core}"))?;
        ensure(program.word(STACK) == STACK_TOP, || format!("its stack was at {:#x}", program.word(STACK)))?;
        let expected = |slot| match slot {
            1 => ObjectType::Domain as u64,
            2 => ObjectType::AddressRange as u64,
            3 => ObjectType::Ram as u64,
            4 => ObjectType::ExecutionContext as u64,
            8 | 9 => ObjectType::Segment as u64,
            _ => NONE,
        };
        for slot in 0..SLOTS_SHOWN {
            let found = program.word(SLOTS + slot);
            ensure(found == expected(slot), || format!("slot {slot} held type {found:#x}"))?;
        }
        let shown = [(CODE_AT, 1, CODE), (SHARED_AT, 1, DATA), (CONTROL_PAGE, 1, DATA), (0, 0, 0)];
        for (index, expected) in (0..).zip(shown) {
            let words = [program.word(MAPPINGS + 2 * index), program.word(MAPPINGS + 2 * index + 1), 0];
            let found = RangeEntry::from_words(words);
            let found = (found.start, found.pages, found.protection);
            ensure(found == expected, || format!("mapping {index} was {found:x?}"))?;
        }
    }
    claim.release(bench).await
}

/// An endless program runs until its core is halted; the core cannot be run meanwhile, and can
/// afterwards.
pub async fn halt(bench: &Bench) -> Outcome {
    let claim = Claim::of_last(bench).await?;
    let program = Program::new(&program_turn, &program_fault)?;
    for _ in 0..2 {
        program.run(&claim).map_err(refused("PcoreRun"))?;
        program.turned(1000).await?;
        must_be(program.run(&claim), Error::Busy, "PcoreRun of a core that runs")?;
        claim.halt().await?;
        let turns = program.word(TURNS);
        let null = sys::null();
        ensure(null.is_ok() && program.word(TURNS) == turns, || String::from("it goes on after its core has halted"))?;
        sys::pcore_halt(claim.pcore).map_err(refused("PcoreHalt of a core that stands still"))?;
    }
    claim.release(bench).await
}

/// A program has its core to itself: while it runs its kernel switches to nobody and takes no
/// interrupt, whatever the rest of the system does.
pub async fn alone(bench: &Bench, seconds: u64) -> Outcome {
    let claim = Claim::of_last(bench).await?;
    let program = Program::new(&program_alone, &program_turn)?;
    program.run(&claim).map_err(refused("PcoreRun"))?;
    // What brings it to its first turn is over.
    program.turned(1000).await?;
    let begin = used(bench, claim.core).await?;
    ensure(begin.runs == CoreRuns::Program && begin.claimed_by == "cores", || format!("it is told as {begin:?}"))?;
    let begin_ns = runtime::now_ns();
    let counted = || COUNTED.map(|word| program.word(word));
    let (before, turns) = (counted(), program.word(TURNS));
    for second in 1..=seconds {
        while runtime::now_ns() < begin_ns + second * SECOND_NS {
            runtime::sleep(BUSY_NS).await;
        }
        program.turned(1000).await?;
        let (after, turns) = (counted(), program.word(TURNS) - turns);
        if second == seconds || second.is_multiple_of(PROGRESS) {
            runtime::log!(
                "alone for {second} s: {turns} turns; switches, interrupts, wake-ups {before:?} and {after:?}"
            );
        }
        ensure(after == before, || {
            format!("in {second} s switches, interrupts, wake-ups: {before:?}, then {after:?}")
        })?;
    }
    let own_ns = used(bench, claim.core).await?.programs_ns - begin.programs_ns;
    let took_ns = runtime::now_ns() - begin_ns;
    ensure(own_ns >= took_ns / 10 * 9, || format!("of {took_ns} ns it had {own_ns} ns"))?;
    claim.halt().await?;
    claim.release(bench).await
}

/// Run and halted again and again, neither core loses a page.
pub async fn cycles(bench: &Bench) -> Outcome {
    let claim = Claim::of_last(bench).await?;
    let program = Program::new(&program_turn, &program_fault)?;
    let free = || sys::ram_stat(Handle::SELF_RAM).map(|(_, used, _)| used);
    let before = free().map_err(refused("RamStat"))?;
    for _ in 0..CYCLES {
        program.run(&claim).map_err(refused("PcoreRun"))?;
        program.turned(10).await?;
        claim.halt().await?;
    }
    let after = free().map_err(refused("RamStat"))?;
    ensure(before == after, || format!("{before} pages used before, {after} after"))?;
    claim.release(bench).await
}

/// A program that faults ends alone: its core halts, its owner is told.
pub async fn fault(bench: &Bench) -> Outcome {
    let claim = Claim::of_last(bench).await?;
    let program = Program::new(&program_fault, &program_end)?;
    for _ in 0..2 {
        program.run(&claim).map_err(refused("PcoreRun"))?;
        claim.until(false).await?;
    }
    claim.release(bench).await
}

/// A core whose last capability goes halts and is free, with what it used given back.
pub async fn owner_gone(bench: &Bench) -> Outcome {
    let claim = Claim::of_last(bench).await?;
    let core = claim.core;
    let program = Program::new(&program_turn, &program_fault)?;
    program.run(&claim).map_err(refused("PcoreRun"))?;
    program.turned(10).await?;
    let copy = sys::cap_copy(claim.pcore, Rights::READ).map_err(refused("CapCopy"))?;
    drop(claim);
    program.turned(10).await?;
    must_be(sys::pcore_halt(copy), Error::NoRights, "PcoreHalt without the right")?;
    sys::cap_drop(copy).map_err(refused("CapDrop"))?;
    let end_ns = runtime::now_ns() + LIMIT_NS;
    // Its watch goes with it: a program that wants the core asks for it.
    loop {
        match sys::pcore_alloc(bench.cores, Handle::SELF_RAM, core) {
            Ok(pcore) => break sys::cap_drop(pcore).map_err(refused("CapDrop"))?,
            Err(Error::Busy) => again(end_ns, "the core does not become free").await?,
            Err(error) => return Err(refused("PcoreAlloc")(error)),
        }
    }
    change(bench, core as u32, true).await
}
