//! Log, console, power, counters, trace.

use super::records::*;
use super::{Answer, NOTHING, Outcome, Request, one};
use crate::arch::power;
use crate::hardware;
use crate::objects::user_memory;
use crate::objects::writer::{self, Printable};
use crate::state::Kernel;
use crate::trace::RECORD_BYTES;
use abi::Error;
use abi::layout::counter;

const LOG_BYTES_MAX: usize = 512;

pub(super) fn null(_: &Kernel, _: Request, _: Null) -> Answer {
    NOTHING
}

pub(super) fn log(kernel: &mut Kernel, request: Request, call: Log) -> Answer {
    let domain = request.caller.domain();
    let (address, bytes) = call.text;
    let mut text = [0; LOG_BYTES_MAX];
    let text = &mut text[..bytes];
    user_memory::read(kernel, domain.range(), address, text)?;
    if call.machine {
        writer::lines(text).for_each(|line| hardware::write_line(format_args!("pelago: {}", Printable(line))));
    } else {
        domain.writer.write(&mut kernel.log, text);
    }
    NOTHING
}

pub(super) fn console_write(kernel: &mut Kernel, request: Request, call: ConsoleWrite) -> Answer {
    let (address, bytes) = call.bytes;
    if call.console.port(0, 1).is_err() || kernel.core() != 0 {
        return Err(Error::BadArgument);
    }
    let mut done = 0;
    let mut piece = [0; LOG_BYTES_MAX];
    while done < bytes {
        let length = (bytes - done).min(piece.len());
        let from = address.checked_add(done as u64).ok_or(Error::BadPointer)?;
        user_memory::read(kernel, request.caller.domain().range(), from, &mut piece[..length])?;
        hardware::write_user(&piece[..length]);
        done += length;
    }
    NOTHING
}

pub(super) fn power_off(_: &Kernel, _: Request, call: PowerOff) -> Answer {
    power::power_off(call.status as u8)
}

pub(super) fn counter_read(kernel: &Kernel, _: Request, call: CounterRead) -> Answer {
    let value = match call.index {
        counter::KERNEL_PAGES => Some(kernel.frames.total() - kernel.frames.free()),
        index => kernel.counters.get(index),
    };
    value.ok_or(Error::BadArgument).and_then(one)
}

pub(super) fn trace_read(kernel: &mut Kernel, request: Request, call: TraceRead) -> Answer {
    let (address, bytes) = call.buffer;
    let lost = kernel.trace.lost();
    let mut done = 0;
    while done + RECORD_BYTES as u64 <= bytes {
        let Some(record) = kernel.trace.peek() else { break };
        let at = address.checked_add(done).ok_or(Error::BadPointer)?;
        user_memory::write(kernel, request.caller.domain().range(), at, &record)?;
        kernel.trace.advance();
        done += RECORD_BYTES as u64;
    }
    Ok(Outcome::Done([done, lost, 0]))
}
