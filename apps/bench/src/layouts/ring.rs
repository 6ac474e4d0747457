//! How the dispatchers of the program work together: the first one says what is next, each tells
//! the one after it, and the sums come back the same way.
//!
//! Nobody spins or polls: a dispatcher that has nothing to do sleeps, so that on a host with fewer
//! cores than the machine those that are measured have them.

use abi::Error;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use contract::contract;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use runtime::{Peer, Start};
use serde::{Deserialize, Serialize};

use super::Layout;
use super::program::Member;

/// What is next. What is done to memory is done by those cores only that take part.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Shows the range of that id in the pool of that id.
    Join { pool: u64, range: u64 },
    /// Shows it no more, and lets go of everything.
    Leave,
    /// All make memory of their own, or in the pool, and let go of what they had.
    Make(Layout),
    /// All touch theirs at once.
    Touch(Layout),
    /// All map the segment of that id in the pool.
    Map { layout: Layout, segment: u64 },
    /// The core at that turn touches it.
    Pass { layout: Layout, turn: u64 },
    /// Nobody shows it any more.
    Unmap(Layout),
}

/// A message round the dispatchers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Step {
    pub work: Work,
    /// How many have still to hear of it.
    pub left: u32,
}

/// What it came to, of all who heard of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Soft faults while pages were touched.
    pub faults: u64,
    /// Time in which pages were touched, in ns; of several cores the sum.
    pub ns: u64,
}

/// Why a dispatcher did not do it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The kernel of that core refused; the name of its error.
    Kernel(u32, String),
    /// That core has too little memory. Give the machine more (`-m`), or ask for fewer cores or
    /// pages.
    NoMemory(u32),
    /// The dispatcher after that core's does not answer.
    NoAnswer(u32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Kernel(core, error) => write!(formatter, "core {core} refuses it with {error}"),
            Refusal::NoMemory(core) => write!(
                formatter,
                "core {core} has too little memory; give the machine more (-m), or fewer cores (layouts.cores=) or pages (layouts.pages=)"
            ),
            Refusal::NoAnswer(core) => write!(formatter, "the dispatcher after core {core}'s does not answer"),
        }
    }
}

impl Refusal {
    pub(super) fn of(core: u32, error: Error) -> Refusal {
        if error == Error::NoMemory {
            return Refusal::NoMemory(core);
        }
        Refusal::Kernel(core, error.name().to_string())
    }
}

/// Working together. Order: as sent; one step at a time. Rights: the dispatchers of one program.
#[contract(name = "layouts", version = 1)]
pub trait Layouts {
    /// Does its part of the step and has the next one do so, both at once.
    #[op]
    async fn step(&self, step: Step) -> Result<Outcome, Refusal>;
}

impl LayoutsServer for Member {
    async fn step(&self, _: &Peer, step: Step) -> Result<Outcome, Refusal> {
        self.carry_out(step).await
    }
}

impl Member {
    /// See [`Layouts::step`].
    pub(super) async fn carry_out(&self, step: Step) -> Result<Outcome, Refusal> {
        // The others first: they need not wait for this one.
        let (others, own) = both(self.tell_next(step), self.work(step.work)).await;
        let (others, own) = (others?, own.map_err(|error| Refusal::of(self.start.core(), error))?);
        Ok(Outcome { faults: own.faults + others.faults, ns: own.ns + others.ns })
    }

    async fn tell_next(&self, step: Step) -> Result<Outcome, Refusal> {
        let Some(left) = step.left.checked_sub(1) else { return Ok(Outcome::default()) };
        let next = self.start.client::<LayoutsClient>(&self.program.dispatcher(self.program.number + 1));
        let next = next.map_err(|_| Refusal::NoAnswer(self.start.core()))?;
        next.step(Step { left, ..step }).await.map_err(|error| match error {
            channel::CallError::Server(refusal) => refusal,
            other => {
                runtime::log!("{}", format!("{other:?}"));
                Refusal::NoAnswer(self.start.core())
            }
        })
    }
}

/// Serves the one before for ever.
pub(super) fn serve(start: &Start, member: Rc<Member>) {
    let mut incoming = start.incoming(NAME);
    runtime::spawn(async move {
        loop {
            let channel = incoming.next().await;
            runtime::spawn(serve_layouts(member.clone(), channel));
        }
    });
}

/// Both outputs, when both are there; the first one is begun first.
async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(output) = one.as_mut().poll(context)
        {
            first = Some(output);
        }
        if second.is_none()
            && let Poll::Ready(output) = other.as_mut().poll(context)
        {
            second = Some(output);
        }
        if first.is_none() || second.is_none() {
            return Poll::Pending;
        }
        first.take().zip(second.take()).map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
