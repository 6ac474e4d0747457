//! vfork, and clone with CLONE_VFORK: the thread that calls waits until its child runs another
//! program or has ended. `personality::stack_changes` says what it sees of the child's work.

use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use contracts::process::StackChange;
use personality::memory::protection;
use personality::stack_changes;

use super::errors::{Failure, Outcome};
use super::global::Global;
use super::proxy::proxy;
use super::user::{self, with_signals, with_state};

/// The stack of this process' parent: where it is, and what it held when this process began.
struct ParentStack {
    at: u64,
    before: Vec<u8>,
}

static PARENT_STACK: Global<RefCell<Option<ParentStack>>> = Global(RefCell::new(None));

/// The place of shared stack for a caller that shares none, and waits all the same: no program has
/// memory there.
pub const NOTHING: u64 = 1;

fn bytes(at: u64) -> Option<Vec<u8>> {
    let access = protection::READ | protection::WRITE;
    let count = with_state(|state| state.memory.extent(at, stack_changes::BYTES, access));
    user::copy_in(at, count).ok()
}

/// Begins a child, which has its parent's stack at its state's `vfork_stack_at`, if that is not 0.
pub fn begin() {
    let at = with_state(|state| core::mem::take(&mut state.vfork_stack_at));
    if at != 0 {
        PARENT_STACK.0.replace(Some(ParentStack { at, before: bytes(at).unwrap_or_default() }));
    }
}

/// Whether the parent waits until this process has given its memory back.
pub fn is_vforked() -> bool {
    PARENT_STACK.0.borrow().is_some()
}

/// What this process changed of its parent's stack so far.
pub fn changes() -> Vec<Vec<StackChange>> {
    let stack = PARENT_STACK.0.borrow();
    let Some((stack, after)) = stack.as_ref().and_then(|stack| Some((stack, bytes(stack.at)?))) else {
        return Vec::new();
    };
    stack_changes::changes(&stack.before, &after)
}

/// Gives the parent's memory back with these changes: the parent's thread goes on.
pub async fn release_parent(changes: Vec<Vec<StackChange>>) {
    if PARENT_STACK.0.take().is_none() {
        return;
    }
    for message in changes {
        // More than fits is not told; what matters lies lowest, and is first.
        if proxy().process.vfork_release(message, false).await.is_err() {
            break;
        }
    }
    let _ = proxy().process.vfork_release(Vec::new(), true).await;
}

/// Waits until the child gives the memory back. Only a signal that ends this process ends the wait,
/// as on Linux.
pub async fn wait(child: u32, at: u64) -> Outcome {
    loop {
        let mut call = pin!(proxy().process.vfork_wait(child));
        let mut is_cancelled = false;
        let answer = poll_fn(|context| {
            if let Poll::Ready(answer) = call.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            if !is_cancelled && with_signals(|signals, thread| signals.ends(thread)) {
                call.cancel();
                is_cancelled = true;
            }
            Poll::Pending
        })
        .await;
        match answer {
            Ok(changes) if changes.is_empty() => return Ok(child.into()),
            Ok(changes) => changes.iter().for_each(|change| apply(at, change)),
            Err(channel::CallError::Cancelled) => return Err(Failure::Interrupted),
            // The child was started all the same.
            Err(_) => return Ok(child.into()),
        }
    }
}

fn apply(at: u64, change: &StackChange) {
    let end = u64::from(change.offset) + change.bytes.len() as u64;
    if end <= stack_changes::BYTES {
        // A program that has unmapped that does not miss it.
        let _ = user::copy_out(at.wrapping_add(change.offset.into()), &change.bytes);
    }
}
