//! What is ours of a worker, on a host, where each kernel call is refused: its code, the shared
//! page, and what a scripted domain is asked for.

use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

/// A scripted domain that no kernel made: its scratch area is memory of the test's.
struct Fake {
    scripted: ScriptedDomain,
    memory: Vec<Cell<u64>>,
}

/// Word of the memory that is the first of the shared page.
const FIRST: usize = (TEXT_PAGES * WORDS) as usize;
/// Longer than any call takes.
const NEVER: u64 = u64::MAX;

impl Fake {
    fn new() -> Fake {
        let memory = vec![Cell::new(0); (SCRATCH_PAGES * WORDS) as usize];
        let none = Handle::NONE;
        let scratch = memory.as_ptr().expose_provenance() as u64;
        let worker = Worker { domain: none, context: none, ram: none, scratch, pages: [none; 2] };
        Fake { scripted: ScriptedDomain { worker, portal: none }, memory }
    }

    /// The first words of the shared page, and that nothing else was written.
    fn words<const COUNT: usize>(&self) -> [u64; COUNT] {
        let end = FIRST + COUNT;
        let others = self.memory[..FIRST].iter().chain(&self.memory[end..]);
        assert!(others.into_iter().all(|word| word.get() == 0), "written where nothing of it is");
        core::array::from_fn(|at| self.memory[FIRST + at].get())
    }

    fn set(&self, at: usize, value: u64) {
        self.memory[FIRST + at].set(value);
    }
}

/// Whether a call's number is in it.
fn has(code: &[u8], call: Call) -> bool {
    code.windows(8).any(|word| word == call.number().to_le_bytes())
}

#[test]
fn each_job_has_code_of_its_own_that_makes_its_calls() {
    use Job::{Answer, Forward, Hold, Notify, Obey, Pass, Produce, Touch};
    let all = [Answer, Forward, Hold, Job::Call, Notify, Pass, Produce, Obey, Touch];
    for pair in all.windows(2) {
        assert_eq!(pair[0].code().end, pair[1].code().start, "they lie one after the other");
    }
    let answers = |job: &Job| has(bytes(job.code()), Call::PortalReplyWait);
    assert_eq!(all.map(|job| answers(&job)), [true, true, true, false, false, false, false, true, true]);
    let calls = |job: &Job| has(bytes(job.code()), Call::PortalCall);
    assert_eq!(all.map(|job| calls(&job)), [false, true, false, true, false, false, false, false, false]);
    assert!(has(bytes(Notify.code()), Call::Wait) && has(bytes(Notify.code()), Call::Notify));
    for job in [Pass, Produce] {
        assert!(has(bytes(job.code()), Call::SemaphoreDown) && has(bytes(job.code()), Call::SemaphoreUp));
    }
}

#[test]
fn each_wild_piece_begins_where_its_number_has_it() {
    let code = bytes(wild::code());
    assert_eq!(code.len(), WILD.len() * wild::BYTES as usize);
    for (name, first) in [("ud2", &[0x0f, 0x0b][..]), ("hlt", &[0xf4]), ("sti", &[0xfb]), ("vmcall", &[0x0f, 1, 0xc1])]
    {
        let number = WILD.iter().position(|wild| wild.name == name).unwrap();
        assert!(code[number * wild::BYTES as usize..].starts_with(first), "{name}");
    }
}

#[test]
fn text_is_copied_whole_and_nothing_behind_it() {
    let (code, memory) = (Job::Obey.code(), [const { Cell::new(0xee_u8) }; 1024]);
    copy_text(code.clone(), memory.as_ptr().expose_provenance() as u64);
    let (code, copied) = (bytes(code), memory.map(Cell::into_inner));
    assert_eq!(&copied[..code.len()], code);
    assert!(copied[code.len()..].iter().all(|byte| *byte == 0xee));
}

#[test]
fn a_word_of_the_shared_page_is_found_by_its_number() {
    let fake = Fake::new();
    let worker = &fake.scripted.worker;
    (0..WORDS).for_each(|word| worker.set_word(word, word + 1));
    assert_eq!(fake.words(), core::array::from_fn::<u64, { WORDS as usize }, _>(|at| at as u64 + 1));
    assert!((0..WORDS).all(|word| worker.word(word) == word + 1));
    worker.set_shared(77);
    worker.set_word(WORDS + 3, 88);
    assert_eq!(BLOCKS * BLOCK_WORDS * 8, abi::PAGE_BYTES, "its blocks are all of it");
    assert_eq!([0, 3, WORDS, WORDS + 3].map(|word| worker.word(word)), [77, 88, 77, 88], "it ends there");
}

#[test]
fn a_call_stands_in_the_shared_page_before_it_is_asked_for() {
    let fake = Fake::new();
    fake.set(BEGUN as usize, 1);
    assert_eq!(fake.scripted.call(9, [1, 2, 3, 4, 5, 6], NEVER), Err(Error::BadCall));
    assert_eq!(fake.words(), [9, 1, 2, 3, 4, 5, 6, 0], "it has not begun");
    assert_eq!(fake.scripted.begin(8, [6, 5, 4, 3, 2, 1], || NEVER), Err(Error::BadCall));
    assert_eq!(fake.words(), [8, 6, 5, 4, 3, 2, 1, 0]);
}

#[test]
fn what_else_is_asked_for_stands_there_too() {
    let (fake, refused) = (Fake::new(), Err(Error::BadCall));
    let scripted = &fake.scripted;
    assert_eq!(scripted.load(11, NEVER), Err(Error::BadCall));
    assert_eq!(fake.words(), [11]);
    assert_eq!(scripted.store(21, 22, NEVER), refused);
    assert_eq!(fake.words(), [21, 22]);
    for (words, most) in [(32, 32), (0, 1)] {
        assert_eq!(scripted.scan(31, words, 33, NEVER), Err(Error::BadCall));
        assert_eq!(fake.words(), [31, most, 33]);
    }
    assert_eq!(scripted.crash(41, 42, NEVER), refused);
    assert_eq!(fake.words(), [41, 42, 33]);
    assert_eq!(scripted.jump(51, NEVER), refused);
    assert_eq!(fake.words(), [51, 42, 33]);
    for number in [0, 3] {
        assert_eq!(scripted.go_wild(number, NEVER), refused);
        assert_eq!(fake.words(), [0x1000_0000 + 1024 + 64 * number as u64, 42, 33]);
    }
    assert_eq!((scripted.again(NEVER), ScriptedDomain::entry()), (refused, 0x1000_0000));
}

#[test]
fn what_a_call_gave_is_read_from_the_shared_page() {
    let fake = Fake::new();
    let scripted = &fake.scripted;
    (1..10).for_each(|word| fake.set(word, word as u64 * 10));
    assert_eq!((scripted.result(), scripted.is_back()), (Ok([10, 20, 30]), true));
    assert_eq!(scripted.other_registers(), [40, 50, 60, 80, 90]);
    let ends = [(Error::NoMemory as u64, Error::NoMemory), (1 << 20, Error::BadCall)];
    for (code, error) in ends {
        fake.set(0, code.wrapping_neg());
        assert_eq!((scripted.result(), scripted.is_back()), (Err(error), true));
    }
    fake.set(0, Call::Null.number());
    assert!(!scripted.is_back(), "the number of the call stands there yet");
    assert!(scripted.has_begun());
    fake.set(BEGUN as usize, 0);
    assert!(!scripted.has_begun());
}

#[test]
fn what_the_kernel_refuses_is_told() {
    const REFUSED: Error = Error::BadCall;
    let Fake { scripted: ScriptedDomain { worker, .. }, .. } = &Fake::new();
    assert_eq!(Worker::new(0, Job::Answer).err(), Some(REFUSED));
    assert_eq!(ScriptedDomain::paid_by(Handle::SELF_RAM, 0).err(), Some(REFUSED));
    assert_eq!((worker.portal(1), worker.range()), (Err(REFUSED), Err(REFUSED)));
    assert_eq!((worker.give(Handle::SELF_RAM), worker.on_death(Handle::SELF_CONTEXT)), (Err(REFUSED), Err(REFUSED)));
    assert_eq!(worker.start([1, 2]), Err(REFUSED));
}
