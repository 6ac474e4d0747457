//! What a child of vfork changed of its parent's stack.
//!
//! The child works on a copy. Of what it wrote, the parent has to see what lies on its own stack
//! above where it called: there the C library's posix_spawn keeps the error of a program that could
//! not be started, and callers of vfork their variables. Only bytes that differ from the beginning
//! are told: all others may be changed by other threads of the parent meanwhile.

use alloc::vec::Vec;

use contracts::process::{StackChange, VFORK_STACK_BYTES_MAX};

/// Bytes of one message.
const MESSAGE_BYTES: usize = 700;

/// How many bytes from the stack pointer on are compared, at most.
pub const BYTES: u64 = VFORK_STACK_BYTES_MAX as u64;

/// What makes `after` of `before`, of the same length, in messages.
pub fn changes(before: &[u8], after: &[u8]) -> Vec<Vec<StackChange>> {
    let (mut messages, mut message, mut held) = (Vec::new(), Vec::new(), 0);
    let mut at = 0;
    let differs = |at: usize| before[at] != after[at];
    let end = before.len().min(after.len());
    while let Some(start) = (at..end).find(|at| differs(*at)) {
        let stop = (start..end).find(|at| !differs(*at)).unwrap_or(end);
        at = stop.min(start + MESSAGE_BYTES / 2);
        let change = StackChange { offset: start as u32, bytes: after[start..at].to_vec() };
        if held + change.message_bytes() > MESSAGE_BYTES {
            messages.push(core::mem::take(&mut message));
            held = 0;
        }
        held += change.message_bytes();
        message.push(change);
    }
    if !message.is_empty() {
        messages.push(message);
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(before: &[u8], messages: &[Vec<StackChange>]) -> Vec<u8> {
        let mut all = before.to_vec();
        for change in messages.iter().flatten() {
            let at = change.offset as usize;
            all[at..at + change.bytes.len()].copy_from_slice(&change.bytes);
        }
        all
    }

    #[test]
    fn only_what_differs_is_told() {
        let before = [7; 64];
        let mut after = before;
        after[8..12].copy_from_slice(&2u32.to_le_bytes());
        after[63] = 0;
        let told = changes(&before, &after);
        let expected = [(8, vec![2, 0, 0, 0]), (63, vec![0])];
        assert_eq!(told.len(), 1);
        assert_eq!(told[0], expected.map(|(offset, bytes)| StackChange { offset, bytes }));
        assert!(changes(&before, &before).is_empty() && changes(&[], &[]).is_empty());
    }

    #[test]
    fn every_stack_comes_in_messages_of_bounded_length() {
        let mut seed = 5u64;
        for round in 0..200 {
            let bytes = VFORK_STACK_BYTES_MAX as usize;
            let before = vec![0u8; bytes];
            let mut after = before.clone();
            for (at, byte) in after.iter_mut().enumerate() {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                // The first rounds: each second byte, all bytes.
                let changes = if round < 2 { at % 2 <= round } else { ((seed >> 40) as usize).is_multiple_of(round) };
                *byte = if changes { (seed >> 33) as u8 | 1 } else { 0 };
            }
            let messages = changes(&before, &after);
            assert_eq!(applied(&before, &messages), after);
            for message in &messages {
                assert!(message.iter().map(StackChange::message_bytes).sum::<usize>() <= MESSAGE_BYTES);
            }
        }
    }

    #[test]
    fn a_few_changes_come_in_one_message() {
        let before = [0; 400];
        let mut after = before;
        (0..40).for_each(|at| after[at * 10] = 1);
        let told = changes(&before, &after);
        assert_eq!((told.len(), told[0].len()), (1, 40));
    }
}
