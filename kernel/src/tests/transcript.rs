//! What each call of the random games answers is written down, so that a change which is to
//! change nothing shows that it does not.
//!
//! `transcript.txt` has a line for each game: its seed, how many calls it made, and a hash of each
//! call's number and words, and of what was in the caller's registers when it came back. A commit
//! that changes an answer on purpose brings the new file, and names the calls that differ:
//! `PELAGO_TRANSCRIPT=FOLDER cargo test --target-dir target/host -p kernel transcript` writes
//! each game, a call a line, and the new file into that folder, which is there and given from the
//! root on (tests run in `kernel/`); `diff` of two such folders tells the calls.

use super::fuzz::play;
use ::fuzz::Tally;
use abi::Call;
use core::fmt::Write as _;
use std::path::Path;

/// Games that are written down.
const SEEDS: core::ops::RangeInclusive<u64> = 1..=500;
const STEPS: u32 = 3000;
const PAGES: u64 = 1200;
const KEPT: &str = include_str!("transcript.txt");

/// The calls of one game, and what they answered.
#[derive(Default)]
pub(super) struct Transcript {
    hash: u64,
    calls: u64,
    /// A call a line, if somebody wants to read it.
    text: Option<String>,
}

impl Transcript {
    /// Notes a call: its number and six words; its result and the words that came with it, or
    /// `None` if the caller did not go on at once.
    pub(super) fn note(&mut self, made: [u64; 7], answer: Option<[u64; 7]>) {
        self.calls += 1;
        let answered = u64::from(answer.is_some());
        // FNV-1a, by words.
        for word in made.into_iter().chain([answered]).chain(answer.unwrap_or_default()) {
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
        if let Some(text) = &mut self.text {
            let name = Call::decode(made[0]).and_then(|call| Call::ALL.iter().find(|(known, _)| *known == call));
            let name = name.map_or("?", |(_, name)| name);
            writeln!(text, "{name} {made:x?} -> {answer:x?}").expect("a String takes all");
        }
    }
}

/// Plays `seed` in a thread of its own, so that nothing of another game is left over.
fn written(seed: u64, reads: bool) -> Transcript {
    let play = move || {
        let mut transcript = Transcript { text: reads.then(String::new), ..Transcript::default() };
        play(seed, STEPS, PAGES, &mut Tally::new(), &mut transcript);
        transcript
    };
    std::thread::spawn(play).join().expect("the game broke nothing")
}

#[test]
fn the_transcript_is_the_kept_one() {
    let folder = std::env::var_os("PELAGO_TRANSCRIPT");
    let play = |seed: u64| {
        let game = written(seed, folder.is_some());
        if let (Some(folder), Some(text)) = (&folder, &game.text) {
            std::fs::write(Path::new(folder).join(format!("{seed}.txt")), text).expect("the folder is there");
        }
        format!("{seed} {} {:016x}\n", game.calls, game.hash)
    };
    // Half of them beside the others: this is the longest test of the crate.
    let middle = SEEDS.count() as u64 / 2;
    let told = std::thread::scope(|scope| {
        let second = scope.spawn(|| SEEDS.filter(|seed| *seed > middle).map(play).collect::<String>());
        let first: String = SEEDS.filter(|seed| *seed <= middle).map(play).collect();
        first + &second.join().expect("the games broke nothing")
    });
    if let Some(folder) = folder {
        std::fs::write(Path::new(&folder).join("transcript.txt"), &told).expect("the folder is there");
        return;
    }
    let differ: Vec<_> = told.lines().filter(|line| !KEPT.lines().any(|kept| kept == *line)).collect();
    assert!(differ.is_empty() && told.len() == KEPT.len(), "games that are not as kept (see the head): {differ:?}");
}

#[test]
fn a_word_more_or_less_is_another_transcript() {
    let mut first = Transcript::default();
    let mut second = Transcript::default();
    first.note([1, 2, 0, 0, 0, 0, 0], Some([0; 7]));
    second.note([1, 2, 0, 0, 0, 0, 0], None);
    assert_ne!(first.hash, second.hash, "who did not come back is not who got zeros");
    let mut third = Transcript::default();
    third.note([1, 0, 2, 0, 0, 0, 0], None);
    assert_ne!(second.hash, third.hash, "words are told apart by their places");
}
