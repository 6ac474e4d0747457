//! fork, vfork, clone without threads: the parent's side and the child's.

use abi::Handle;
use alloc::vec::Vec;
use contracts::process::Forked;

use personality::Errno;
use personality::flags::*;

use super::entry::{self, machine};
use super::errors::{Failure, Outcome};
use super::proxy::{Proxy, listen, proxy};
use super::syscall::log_once;
use super::user::{self, with_state};

/// What clone asks for besides a copy.
#[derive(Clone, Copy, Default)]
struct Wishes {
    stack: u64,
    thread_pointer: Option<u64>,
    parent_id_at: u64,
    child_id_at: u64,
    clear_id_at: u64,
}

/// clone: processes only. With `CLONE_VM` but no thread (vfork, posix_spawn) the memory is copied
/// all the same.
pub async fn clone([flags, stack, parent_id_at, child_id_at, thread_pointer, _]: [u64; 6]) -> Outcome {
    if flags & CLONE_THREAD != 0 {
        log_once(56, "clone for a thread is missing (there are no threads yet): ENOSYS");
        return Err(Errno::ENOSYS.into());
    }
    let when = |flag: u64, value: u64| if flags & flag != 0 { value } else { 0 };
    copy(Wishes {
        stack,
        thread_pointer: (flags & CLONE_SETTLS != 0).then_some(thread_pointer),
        parent_id_at: when(CLONE_PARENT_SETTID, parent_id_at),
        child_id_at: when(CLONE_CHILD_SETTID, child_id_at),
        clear_id_at: when(CLONE_CHILD_CLEARTID, child_id_at),
    })
    .await
}

/// fork and vfork.
pub async fn fork() -> Outcome {
    copy(Wishes::default()).await
}

async fn copy(wishes: Wishes) -> Outcome {
    let process = &proxy().process;
    let forked = process.fork_prepare().await?;
    let [domain, context] = forked.handles.map(Handle);
    let mut done = fill(&wishes, &forked, domain).await;
    if done.is_ok() {
        done = start(context);
    }
    for handle in [domain, context] {
        let _ = sys::cap_drop(handle);
    }
    match done {
        Ok(()) => {
            user::write_if(wishes.parent_id_at, &forked.process)?;
            Ok(forked.process.into())
        }
        Err(failure) => {
            let _ = process.fork_cancel(forked.process).await;
            Err(failure)
        }
    }
}

/// Runs the child, in the same proxy's entry.
fn start(child: Handle) -> Result<(), Failure> {
    unsafe extern "C" {
        fn _start();
    }
    // SAFETY: a context of another domain, which has this program and an empty stack below that
    // address.
    let done = unsafe { sys::context_start(child, _start as *const () as u64, abi::layout::STACK_TOP - 8, [0, 0]) };
    done.map_err(|_| Errno::EAGAIN.into())
}

/// Descriptions first, then memory with the state the child starts from.
async fn fill(wishes: &Wishes, forked: &Forked, child: Handle) -> Result<(), Failure> {
    // Asked together, then awaited.
    let asked: Vec<_> = proxy().heritable().map(|server| server.inherit(forked.client)).collect();
    for answer in asked {
        answer.await?;
    }
    let own_clear_id_at = with_state(|state| {
        state.child = forked.process.into();
        let own = state.clear_id_at;
        let mut registers = entry::registers();
        registers.rsp = if wishes.stack != 0 { wishes.stack } else { registers.rsp };
        [state.fs_base, state.gs_base] = machine::bases([state.fs_base, state.gs_base]);
        state.registers = registers;
        (state.child_id_at, state.clear_id_at) = (wishes.child_id_at, wishes.clear_id_at);
        // SAFETY: the field is 512 bytes at a multiple of 16.
        unsafe { machine::save_vectors(state.vectors.as_ptr() as u64) };
        own
    });
    let own_base = with_state(|state| {
        let own = state.fs_base;
        state.fs_base = wishes.thread_pointer.unwrap_or(own);
        own
    });
    let done = sys::domain_fork(child);
    with_state(|state| (state.fs_base, state.clear_id_at, state.child_id_at) = (own_base, own_clear_id_at, 0));
    done.map_err(|error| {
        if error != abi::Error::NoMemory {
            runtime::log!("fork was refused by the kernel: {error:?}");
        }
        Errno::ENOMEM.into()
    })
}

/// The child: takes over the state that lies in its memory and goes on in the program.
pub fn adopt(proxy: &'static Proxy) -> ! {
    let valid = with_state(|state| {
        let (own, parent) = (state.child as u32, state.process);
        state.become_child(own, parent);
        state.is_valid()
    });
    if !valid {
        runtime::log!("the inherited process state is not ours");
        sys::domain_exit(101);
    }
    listen();
    // It fails only if the server is gone, and everything with it.
    let _ = proxy.process.here();
    entry::install(proxy.signal_bits);
    let (registers, vectors, [fs, gs], id_at) = with_state(|state| {
        (
            state.registers,
            machine::Image(state.vectors),
            [state.fs_base, state.gs_base],
            core::mem::take(&mut state.child_id_at),
        )
    });
    machine::load_vectors(vectors);
    machine::set_base(0, fs);
    machine::set_base(1, gs);
    // A bad pointer is the program's own; Linux ignores it too.
    let _ = user::write_if(id_at, &with_state(|state| state.process));
    entry::set_registers(&registers);
    runtime::rest();
    entry::resume()
}
