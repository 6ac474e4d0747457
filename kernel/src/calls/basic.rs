//! Log, console, power, counters, trace.

use super::{Answer, NOTHING, Outcome, Request, one};
use crate::arch::power;
use crate::hardware;
use crate::objects::writer::{self, Printable};
use crate::objects::{Device, user_memory};
use crate::state::Kernel;
use crate::trace::RECORD_BYTES;
use abi::{Error, Handle, Rights};

const LOG_BYTES_MAX: usize = 512;
const CONSOLE_BYTES_MAX: u64 = 4096;

pub(super) fn log(kernel: &mut Kernel, request: &Request) -> Answer {
    let [address, bytes, machine, ..] = request.words();
    let is_the_machines = machine != Handle::NONE.0;
    if is_the_machines {
        request.check_core(kernel, 2, Rights::POWER)?;
    }
    let domain = request.caller.domain();
    let mut text = [0; LOG_BYTES_MAX];
    let text = usize::try_from(bytes).ok().and_then(|bytes| text.get_mut(..bytes)).ok_or(Error::BadArgument)?;
    user_memory::read(kernel, domain.range(), address, text)?;
    if is_the_machines {
        writer::lines(text).for_each(|line| hardware::write_line(format_args!("pelago: {}", Printable(line))));
    } else {
        domain.writer.write(&mut kernel.log, text);
    }
    NOTHING
}

pub(super) fn console_write(kernel: &mut Kernel, request: &Request) -> Answer {
    let device = request.object::<Device>(0, Rights::CONTROL)?;
    let [_, address, bytes, ..] = request.words();
    if device.port(0, 1).is_err() || kernel.core() != 0 || bytes > CONSOLE_BYTES_MAX {
        return Err(Error::BadArgument);
    }
    let mut done = 0;
    let mut piece = [0; LOG_BYTES_MAX];
    while done < bytes {
        let length = (bytes - done).min(piece.len() as u64) as usize;
        let from = address.checked_add(done).ok_or(Error::BadPointer)?;
        user_memory::read(kernel, request.caller.domain().range(), from, &mut piece[..length])?;
        hardware::write_user(&piece[..length]);
        done += length as u64;
    }
    NOTHING
}

pub(super) fn power_off(kernel: &Kernel, request: &Request) -> Answer {
    request.check_core(kernel, 0, Rights::POWER)?;
    let status = u8::try_from(request.words()[1]).map_err(|_| Error::BadArgument)?;
    power::power_off(status)
}

pub(super) fn counter_read(kernel: &Kernel, request: &Request) -> Answer {
    kernel.counter(request.words()[0]).ok_or(Error::BadArgument).and_then(one)
}

pub(super) fn trace_read(kernel: &mut Kernel, request: &Request) -> Answer {
    request.check_core(kernel, 0, Rights::CONTROL)?;
    let [_, address, bytes, ..] = request.words();
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
